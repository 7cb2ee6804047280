"""How torch would lay the whole tensor out in memory, where that can be seen: in the order of random numbers.

Dropout draws its mask in the order of memory. Offline a transpose leaves that as it was, functions of single
elements keep it, recurrent layers go time by time, and all else gives the order in which dimensions are seen. The
values of streams lie otherwise, so they carry a note where the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["note", "order_of", "passed_on"]

MOVING = frozenset(("transpose", "permute", "movedim", "t", "T", "mT", "adjoint", "mH", "H"))
ELEMENTWISE = frozenset((
    "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "hardtanh", "hardswish",
    "hardsigmoid", "softplus", "softsign", "tanhshrink", "logsigmoid", "sigmoid", "tanh", "exp", "log", "log1p",
    "expm1", "abs", "neg", "square", "sqrt", "rsqrt", "sin", "cos", "clamp", "mul", "add", "sub", "div", "pow",
    "__mul__", "__rmul__", "__add__", "__radd__", "__sub__", "__rsub__", "__truediv__", "__neg__", "__pow__",
))  # fmt: skip


def note(inner: Any, order: Sequence[Any]) -> None:
    """Note in which order the dimensions of a stream lie in memory: B, L, and stored feature axes."""
    if isinstance(getattr(inner, "value", None), torch.Tensor):
        inner.value._order = tuple(order)


def order_of(inner: Any) -> list[int]:
    """Return the visible dimensions of a stream in the order of memory."""
    order = getattr(inner.value, "_order", None)
    if order is None or sorted(map(str, order)) != sorted(map(str, inner.dims)):
        return list(range(len(inner.dims)))
    return [inner.dims.index(d) for d in order]


def passed_on(name: str, operands: Sequence[Any], result: Any) -> None:
    """Note what a function of this name makes of its operands' order."""
    own = next((x for x in operands if isinstance(getattr(x, "value", None), torch.Tensor)), None)
    if own is None or not isinstance(getattr(result, "value", None), torch.Tensor):
        return
    order = getattr(own.value, "_order", None)
    if name in MOVING:
        if order is None and result.value is own.value:
            note(own, own.dims)
    elif order is not None and name in ELEMENTWISE and result.dims == own.dims:
        note(result, order)
    elif name == "contiguous" and order is not None:
        result.value = result.value.view_as(result.value)
