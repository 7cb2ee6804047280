"""Functions element by element, of one operand, or of several; each is a stream or a constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from operator import attrgetter, itemgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ....operations import ELEMENTWISE, Operator
from ...private import prelu_kernel
from .positions import traced
from .registry import Step, each_frame, framewise

TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool}


def _clamp(x: Tensor, min: float, max: float) -> Tensor:
    """Leave out infinite bounds: from torch 2.14 on an infinity has no gradient where a bound is equal to it.

    In graphs they stay, since ONNX Runtime takes the greatest finite number for a bound that is absent.
    """
    if traced():
        return torch.clamp(x, min, max)
    low, high = None if min == -inf else min, None if max == inf else max
    return x if low is high is None else torch.clamp(x, low, high)


def _elu(x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    if scale == 1 and input_scale == 1:
        return F.elu(x, alpha)
    return torch.where(x > 0, scale * x, alpha * torch.expm1(input_scale * torch.where(x > 0, 0.0, x)))


def _floor_divide(a: Tensor, b: Tensor) -> Tensor:
    if torch.onnx.is_in_onnx_export():  # whose form of div with a mode is of the rounded fraction
        return torch.floor_divide(a, b)
    return torch.div(a, b, rounding_mode="floor")


def _fits(slope: Any, shape: Sequence[int]) -> bool:
    """Whether slopes broadcast to a shape, of which the last axes are given."""
    return len(slope.shape) <= len(shape) and all(n in (1, m) for n, m in zip(slope.shape[::-1], shape[::-1]))


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    if (
        _fits(slope, x.shape)
        and x.is_floating_point()
        and x.dtype == slope.dtype
        and x.device == slope.device
        and not traced()
    ):
        return prelu_kernel(x, slope)
    return torch.where(x > 0, x, slope * x)


#: Functions of elements that torch lacks, or that are written otherwise there.
OWN: dict[str, Any] = {"clamp": _clamp, "elu": _elu, "prelu": _prelu, "floor_divide": _floor_divide}


def _function(row: Operator) -> Callable[..., Tensor]:
    """Return torch's function of an operator of elements."""
    return OWN.get(row.name) or attrgetter(row.torch or row.name)(torch)


#: torch's functions that are operators of one operand, by name, with the attributes that they take.
OF_ONE: dict[str, tuple[Callable[..., Tensor], tuple[str, ...]]] = {
    row.name: (_function(row), row.takes) for row in ELEMENTWISE.values() if row.operands == 1
}


def _of_one(step: Step, _: Sequence[object]) -> Callable[..., Tensor] | None:
    """Return the function itself where it takes nothing but frames."""
    run, takes = OF_ONE[step.name]
    return None if takes else lambda step, x: run(x)


@framewise(*OF_ONE, alone=_of_one)
def function(step: Step, x: Tensor) -> Tensor:
    """Return torch's function of the operator's name."""
    run, takes = OF_ONE[step.name]
    return run(x, **{name: step.attributes[name] for name in takes}) if takes else run(x)


each_frame(
    {
        "cast": lambda step, x: x.to(TYPES[step.attributes["to"]]),
        "limit": lambda step, x: x,  # how long it may become is checked with the counts
        "unless_empty": lambda step, x: x,
        "softmax": lambda step, x: torch.softmax(x, -1),
        "log_softmax": lambda step, x: torch.log_softmax(x, -1),
        "glu": lambda step, x: F.glu(x, -1),
    }
)
OF_SEVERAL: dict[str, Callable[..., Tensor]] = {
    "where": torch.where,
    **{row.name: _function(row) for row in ELEMENTWISE.values() if row.operands == 2},
}


def _in_order(step: Step, weights: Sequence[Any]) -> Callable[..., Tensor] | None:
    """Return the function itself where operands are given in their order, with axes that broadcast."""
    run, order = OF_SEVERAL[step.name], step.attributes["order"]
    if min(step.ranks) != max(step.ranks):
        return None
    if order and any(order[: len(step.ranks)]) and run is not torch.mul:  # 0.1 * z is z.mul(0.1), of all digits
        pick = itemgetter(*aligned(step, range(len(order))))
        return lambda step, *given: run(*pick(given))
    if run is _prelu and len(weights) == 1 and _fits(weights[0], step.frames[0]):
        return lambda step, x, slope: prelu_kernel(x, slope) if x.dtype == slope.dtype else _prelu(x, slope)
    return lambda step, *given: run(*given)


@framewise(*OF_SEVERAL, alone=_in_order)
def function_of_several(step: Step, *given: Tensor) -> Tensor:
    """Return torch's function of the operands in their order."""
    return OF_SEVERAL[step.name](*aligned(step, given))


def aligned(step: Step, given: Sequence[Any]) -> list[Any]:
    """Return operands in their order: frames with feature axes that broadcast, and constants."""
    rank, order = max(step.ranks), step.attributes["order"]
    if min(step.ranks) == rank and not (order and any(order[: len(step.ranks)])):
        return list(given)
    streams = [_of_rank(x, own, rank) if own < rank else x for x, own in zip(given, step.ranks)]
    constants = list(given[len(streams) :])
    return [(constants if kind else streams).pop(0) for kind in order or [0] * len(streams)]


def _of_rank(x: Tensor, own: int, rank: int) -> Tensor:
    """Give frames more feature axes, of size 1, in front of their own."""
    lead = x.dim() - own
    return x.reshape(*x.shape[:lead], *(1,) * (rank - own), *x.shape[lead:])
