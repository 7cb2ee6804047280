"""Mixtures of experts, with FastMoE's names and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import mixing
from .activation import GELU, SiLU
from .containers import ModuleList
from .gates import NaiveGate
from .module import Module
from .native_ops import OPS

__all__ = ["Experts", "FMoE", "FMoELinear", "FMoETransformerMLP", "GatedExperts"]


class FMoELinear(mixing.Stacked, Module):
    __doc__ = mixing.Stacked.__doc__
    ops = OPS


class Experts(mixing.MLPs, Module):
    __doc__ = mixing.MLPs.__doc__

    def _by_own_names(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Take the weights of single experts, too."""
        return mixing.stacked(
            state, prefix, self.num_expert, lambda parts: np.concatenate(list(map(np.asarray, parts)))
        )


class GatedExperts(mixing.Gated, Module):
    __doc__ = mixing.Gated.__doc__


class FMoE(mixing.Mixture, Module):
    __doc__ = mixing.Mixture.__doc__


class FMoETransformerMLP(mixing.MixtureOfMLPs, Module):
    __doc__ = mixing.MixtureOfMLPs.__doc__


_OPS = SimpleNamespace(
    **vars(OPS),
    stacked=FMoELinear,
    experts=Experts,
    gelu=GELU,
    silu=SiLU,
    naive=lambda: NaiveGate,
    module_list=ModuleList,
    is_module=lambda m: isinstance(m, Module),
    is_list=lambda m: isinstance(m, ModuleList),
)
for _kind in (Experts, GatedExperts, FMoE, FMoETransformerMLP):
    _kind.ops = _OPS
