"""Functions of two or three operands, element by element; each is a stream or a constant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from ...operations import BINARY
from .registry import Step, framewise

Tensor = torch.Tensor


def _prelu(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a > 0, a, b * a)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in ("where", "logical_and", "logical_or")},
    **{row.name: getattr(torch, row.name) for row in BINARY},
    "prelu": _prelu,
    "floor_divide": partial(torch.div, rounding_mode="floor"),
}


@framewise(*FUNCTIONS)
def function(step: Step, *given: Tensor) -> Tensor:
    """Return torch's function of the operands in their order."""
    rank = len(step.features[0])
    streams = [_of_rank(x, own, rank) for x, own in zip(given, step.ranks)]
    constants = list(given[len(streams) :])
    order = step.attributes["order"] or [0] * len(streams)
    return FUNCTIONS[step.name](*[(constants if kind else streams).pop(0) for kind in order])


def _of_rank(x: Tensor, own: int, rank: int) -> Tensor:
    """Give frames more feature axes, of size 1, in front of their own."""
    lead = x.dim() - own
    return x.reshape(*x.shape[:lead], *(1,) * (rank - own), *x.shape[lead:]) if own < rank else x
