"""Activations: functions of every element, or along one dimension."""

from __future__ import annotations

from typing import Any

from ...array import Tensor
from ...array.dtypes import require_float
from ...array.elementwise import along, unary
from ...errors import ShapeError
from .arguments import checked

__all__ = [
    "gelu",
    "glu",
    "hardtanh",
    "log_softmax",
    "logsigmoid",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return max(x, 0); `inplace` changes nothing."""
    return checked("relu", input).relu()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution function of x; `approximate` is "none" or "tanh"."""
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"gelu: approximate is 'none' or 'tanh', got {approximate!r}")
    return _real("gelu", input, {"approximate": approximate})


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x * sigmoid(x); `inplace` changes nothing."""
    return _real("silu", input)


def sigmoid(input: Tensor) -> Tensor:
    """Return 1 / (1 + e ** -x)."""
    return checked("sigmoid", input).sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return checked("tanh", input).tanh()


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + e ** (beta * x)) / beta; x where beta * x is above `threshold`."""
    return _real("softplus", input, {"beta": float(beta), "threshold": float(threshold)})


def logsigmoid(input: Tensor) -> Tensor:
    """Return log(sigmoid(x))."""
    return _real("logsigmoid", input)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Return x moved into [min_val, max_val]; `inplace` changes nothing."""
    return checked("hardtanh", input).clamp(min_val, max_val)


def _real(name: str, input: Tensor, attributes: dict[str, Any] | None = None) -> Tensor:
    x = checked(name, input)
    require_float(name, x.dtype)
    return unary(name, x, attributes)


# ---------------------------------------------------------------------- along a dimension


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Return e ** x / sum(e ** x) along `dim`, which must be given."""
    x = checked("softmax", input)
    return along("softmax", x if dtype is None else x.to(dtype), dim)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Return log(softmax(x)) along `dim`, which must be given."""
    x = checked("log_softmax", input)
    return along("log_softmax", x if dtype is None else x.to(dtype), dim)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of dimension `dim` times the sigmoid of the second."""
    x = checked("glu", input)
    size = x.shape[x._axis("glu", dim)]
    if isinstance(size, int) and size % 2:
        raise ShapeError(f"glu: the size of dimension {dim} must be even, got {size}")
    return along("glu", x, dim)
