"""Activations that bend or cut the line y = x, and their smooth relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...array import Tensor, where
from ...array.derivatives import derived
from ...array.draws import leaking
from ...array.dtypes import require_same
from ...array.elementwise import binary, unary
from ...errors import NotStreamableError, ShapeError
from .activation import softmax
from .arguments import checked, real
from .texts import described

__all__ = [
    "celu", "elu", "hardshrink", "hardsigmoid", "hardswish", "leaky_relu", "mish", "prelu", "relu6", "rrelu",
    "selu", "softmin", "softshrink", "softsign", "tanhshrink", "threshold",
]  # fmt: skip

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


# ---------------------------------------------------------------------- exponentials below zero
@described(alpha="What -inf gives, negated.")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x above zero, alpha * (e ** x - 1) below."""
    return unary("elu", real("elu", input), {"alpha": float(alpha)})


@described()
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return elu with the fixed alpha 1.673…, times 1.0507…."""
    attributes = {"alpha": SELU_ALPHA * SELU_SCALE, "scale": SELU_SCALE}
    return unary("elu", real("selu", input), attributes)


@described(alpha="What -inf gives, negated.")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x above zero, alpha * (e ** (x / alpha) - 1) below."""
    x = real("celu", input)
    if alpha == 0:
        raise ShapeError("celu: alpha must not be 0")
    return unary("elu", x, {"alpha": float(alpha), "input_scale": 1 / alpha})


# ---------------------------------------------------------------------- straight lines
@described(negative_slope="The slope below zero.")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return x above zero, negative_slope * x below."""
    return binary("prelu", real("leaky_relu", input), float(negative_slope))


@described(
    "",
    {
        "ShapeError": "Where dimension 1 has another size.",
        "NotStreamableError": "Where dimension 1 of a stream is not one of features.",
    },
    input="``(B, C, *)``; with a single weight of any shape.",
    weight="``(C,)``, one per channel, or ``(1,)``.",
)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Return x above zero, weight * x below."""
    x = real("prelu", input)
    require_same("prelu", input=x.dtype, weight=checked("prelu", weight).dtype)
    if weight.ndim > 1:
        raise ShapeError(f"prelu: expected a weight of one dimension, got shape {weight.shape}")
    n = weight.numel()
    if n != 1:
        size = x.shape[1] if x.ndim > 1 else 1
        if not isinstance(size, int) or (x.is_stream and isinstance(x.dims[1], str)):  # type: ignore[attr-defined]
            raise NotStreamableError("prelu: dimension 1 holds the channels, but is the stream's B or L")
        if size != n:
            raise ShapeError(f"prelu: {n} weights, but dimension 1 of the input has size {size}")
        return binary("prelu", x, weight.reshape(n, *(1,) * (x.ndim - 2)))
    return binary("prelu", x, weight.reshape(()))


@described(
    lower="A bound of the slope.",
    upper="The other one.",
    training="Whether slopes are drawn between the two, or their mean is taken.",
)
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Return x above zero, and x times a slope below, which every element draws for itself in training."""
    x = real("rrelu", input)
    if training:
        return leaking(x, lower, upper)
    return leaky_relu(x, (lower + upper) / 2)


@described()
@derived(lambda g, a: np.where((a <= 0) | (a >= 6), 0, g))
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x moved into [0, 6]."""
    return checked("relu6", input).clamp(0, 6)


@described()
@derived(lambda g, a: np.where((a > -3) & (a < 3), g / 6, 0))
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x + 3 moved into [0, 6], / 6."""
    return (real("hardsigmoid", input) + 3).clamp(0, 6) / 6


@described()
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x * hardsigmoid(x)."""
    return unary("hardswish", real("hardswish", input))


@described(threshold="The last number that is replaced.", value="What replaces it.")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Return x above `threshold`, `value` elsewhere."""
    x = checked("threshold", input)
    return where(x <= threshold, value, x)


@described(lambd="The largest size that becomes 0.")
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return x, but 0 where its size is at most `lambd`."""
    x = real("hardshrink", input)
    return where(x.abs() <= lambd, 0.0, x)


@described(lambd="By how much; at least 0.")
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return x, `lambd` nearer to 0; 0 where its size is at most that."""
    x = real("softshrink", input)
    if not lambd >= 0:
        raise ShapeError(f"softshrink: lambd must be at least 0, got {lambd}")
    return x - x.clamp(-lambd, lambd)


# ---------------------------------------------------------------------- smooth
@described()
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x * tanh(softplus(x))."""
    x = real("mish", input)
    return x * unary("softplus", x).tanh()


def softsign(input: Tensor) -> Tensor:
    """Return `x / (1 + |x|)`."""
    x = real("softsign", input)
    return x / (1 + x.abs())


def tanhshrink(input: Tensor) -> Tensor:
    """Return x - tanh(x)."""
    x = real("tanhshrink", input)
    return x - x.tanh()


@described(dim="The dimension, of features.")
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Return softmax(-x) along `dim`, which must be given."""
    return softmax(-real("softmin", input), dim, dtype=dtype)
