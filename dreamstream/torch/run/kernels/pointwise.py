"""Functions element by element, of one operand, or of several; each is a stream or a constant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

import torch
import torch.nn.functional as F

from ....operations import BINARY, UNARY
from .registry import Step, framewise

Tensor = torch.Tensor


#: Those without attributes, by the name of their operator.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "logical_not": torch.logical_not,
    **{row.name: attrgetter(row.torch or row.name)(torch) for row in UNARY},
}

TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool}


@framewise(*FUNCTIONS)
def function(step: Step, x: Tensor) -> Tensor:
    """Return torch's function of the operator's name."""
    return FUNCTIONS[step.name](x)


@framewise("gelu")
def gelu(step: Step, x: Tensor) -> Tensor:
    """Return x times the normal distribution function of x, or what is near it."""
    return F.gelu(x, approximate=step.attributes["approximate"])


@framewise("clamp")
def clamp(step: Step, x: Tensor) -> Tensor:
    """Return x held between min and max."""
    return torch.clamp(x, step.attributes["min"], step.attributes["max"])


@framewise("softplus")
def softplus(step: Step, x: Tensor) -> Tensor:
    """Return ``log(1 + exp(beta x)) / beta``, x itself above the threshold."""
    return F.softplus(x, step.attributes["beta"], step.attributes["threshold"])


@framewise("elu")
def elu(step: Step, x: Tensor) -> Tensor:
    """Return ``scale x`` above zero, else ``alpha expm1(input_scale x)``."""
    a = step.attributes
    if a["scale"] == 1 and a["input_scale"] == 1:
        return F.elu(x, a["alpha"])
    below = a["alpha"] * torch.expm1(a["input_scale"] * x.clamp(max=0))
    return torch.where(x > 0, a["scale"] * x, below)


@framewise("cast")
def cast(step: Step, x: Tensor) -> Tensor:
    """Return the elements as another type."""
    return x.to(TYPES[step.attributes["to"]])


@framewise("limit")
def limit(step: Step, x: Tensor) -> Tensor:
    """Return x; how long it may become is checked with the counts."""
    return x


@framewise("softmax")
def softmax(step: Step, x: Tensor) -> Tensor:
    """Return softmax over the last feature axis."""
    return torch.softmax(x, -1)


@framewise("log_softmax")
def log_softmax(step: Step, x: Tensor) -> Tensor:
    """Return the logarithm of softmax over the last feature axis."""
    return torch.log_softmax(x, -1)


@framewise("glu")
def glu(step: Step, x: Tensor) -> Tensor:
    """Return half of the last feature axis, gated by the other half."""
    return F.glu(x, -1)


def _prelu(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a > 0, a, b * a)


OF_SEVERAL: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in ("where", "logical_and", "logical_or")},
    **{row.name: getattr(torch, row.name) for row in BINARY},
    "prelu": _prelu,
    "floor_divide": partial(torch.div, rounding_mode="floor"),
}


@framewise(*OF_SEVERAL)
def function_of_several(step: Step, *given: Tensor) -> Tensor:
    """Return torch's function of the operands in their order."""
    rank = len(step.features[0])
    streams = [_of_rank(x, own, rank) for x, own in zip(given, step.ranks)]
    constants = list(given[len(streams) :])
    order = step.attributes["order"] or [0] * len(streams)
    return OF_SEVERAL[step.name](*[(constants if kind else streams).pop(0) for kind in order])


def _of_rank(x: Tensor, own: int, rank: int) -> Tensor:
    """Give frames more feature axes, of size 1, in front of their own."""
    lead = x.dim() - own
    return x.reshape(*x.shape[:lead], *(1,) * (rank - own), *x.shape[lead:]) if own < rank else x
