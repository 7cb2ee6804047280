"""Mixtures of experts, with FastMoE's names and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import mixing
from .activation import GELU, SiLU
from .containers import ModuleList
from .gates import NaiveGate
from .module import Module
from .native_ops import OPS, Ops

__all__ = ["Experts", "FMoE", "FMoELinear", "FMoETransformerMLP", "GatedExperts"]

_OPS = Ops(
    **vars(OPS),
    gelu=GELU,
    silu=SiLU,
    naive=lambda: NaiveGate,
    module_list=ModuleList,
    is_module=lambda m: isinstance(m, Module),
    is_list=lambda m: isinstance(m, ModuleList),
)


class FMoELinear(mixing.Stacked, Module, ops=_OPS): ...


class Experts(mixing.MLPs, Module, ops=_OPS):
    def _by_own_names(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Take the weights of single experts, too."""
        return mixing.stacked(
            state, prefix, self.num_expert, lambda parts: np.concatenate(list(map(np.asarray, parts)))
        )


class GatedExperts(mixing.Gated, Module, ops=_OPS): ...


class FMoE(mixing.Mixture, Module, ops=_OPS): ...


class FMoETransformerMLP(mixing.MixtureOfMLPs, Module, ops=_OPS): ...


_OPS.stacked, _OPS.experts = FMoELinear, Experts
