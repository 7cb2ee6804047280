"""Activations: functions of every element, or along one dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...array import Tensor
from ...array.derivatives import derived
from ...array.elementwise import along, unary
from ...array.scores import Scores
from ...errors import ShapeError
from .arguments import checked, real
from .texts import described

__all__ = [
    "gelu", "glu", "hardtanh", "log_softmax", "logsigmoid", "relu", "sigmoid", "silu", "softmax", "softplus",
    "tanh",
]  # fmt: skip


@described()
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return max(x, 0)."""
    return checked("relu", input).relu()


@described(approximate='{"none", "tanh"}: By the error function, or by tanh.')
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution function of x."""
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"gelu: approximate is 'none' or 'tanh', got {approximate!r}")
    return _real("gelu", input, {"approximate": approximate})


@described()
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x * sigmoid(x)."""
    return _real("silu", input)


def sigmoid(input: Tensor) -> Tensor:
    """Return 1 / (1 + e ** -x)."""
    return checked("sigmoid", input).sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return checked("tanh", input).tanh()


@described(beta="How sharp it is.", threshold="Where beta * x is above it, x itself.")
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + e ** (beta * x)) / beta; x where beta * x is above `threshold`."""
    return _real("softplus", input, {"beta": float(beta), "threshold": float(threshold)})


def logsigmoid(input: Tensor) -> Tensor:
    """Return log(sigmoid(x))."""
    return _real("logsigmoid", input)


@described(min_val="The lower bound.", max_val="The upper bound.")
@derived(lambda g, a, min_val=-1.0, max_val=1.0: np.where((a <= min_val) | (a >= max_val), 0, g))
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Return x moved into [min_val, max_val]."""
    return checked("hardtanh", input).clamp(min_val, max_val)


def _real(name: str, input: Tensor, attributes: dict[str, Any] | None = None) -> Tensor:
    return unary(name, real(name, input), attributes)


# ---------------------------------------------------------------------- along a dimension
@described(dim="The dimension, of features; torch's guess for None is not offered.")
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Return e ** x / sum(e ** x) along `dim`, which must be given."""
    if isinstance(input, Scores):
        return input.softmax(dim)
    x = checked("softmax", input)
    return along("softmax", x if dtype is None else x.to(dtype), dim)


@described(dim="The dimension, of features.")
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Return log(softmax(x)) along `dim`, which must be given."""
    if isinstance(input, Scores):
        return input.log_softmax(dim)
    x = checked("log_softmax", input)
    return along("log_softmax", x if dtype is None else x.to(dtype), dim)


@described(dim="The dimension, of even size.")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of dimension `dim` times the sigmoid of the second."""
    x = checked("glu", input)
    axis = x._axis("glu", dim)
    size, inner = x.shape[axis], x.shape[axis + 1 :]
    if isinstance(size, int) and size % 2:
        raise ShapeError(f"glu: the size of dimension {dim} must be even, got {size}")
    if not inner or (x.is_stream and any(isinstance(d, str) for d in x.dims[axis:])):  # type: ignore[attr-defined]
        return along("glu", x, dim)
    # With what lies within it, the dimension is one whose halves are its own.
    return along("glu", x.flatten(axis), -1).unflatten(-1, (size // 2, *inner))
