"""Initial values of parameters: torch's distributions, drawn from `dreamstream.manual_seed`'s generator.

Every function writes into the tensor and returns it. Source: torch.nn.init.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..array import Tensor
from ..array.creation import generator
from ..autograd import edited
from ..errors import ShapeError

__all__ = [
    "calculate_gain", "constant_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_",
    "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip


def _fill(tensor: Tensor, values: NDArray[Any] | float) -> Tensor:
    tensor.numpy()[...] = values
    edited(tensor.numpy())
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill with numbers distributed evenly over [a, b)."""
    return _fill(tensor, generator().uniform(a, b, tensor.shape))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with numbers of the normal distribution."""
    return _fill(tensor, generator().normal(mean, std, tensor.shape))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Fill with numbers of the normal distribution, drawn again until they lie in [a, b]."""
    values = generator().normal(mean, std, tensor.shape)
    for _ in range(1000):
        outside = (values < a) | (values > b)
        if not outside.any():
            break
        values[outside] = generator().normal(mean, std, int(outside.sum()))
    return _fill(tensor, np.clip(values, a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number."""
    return _fill(tensor, val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return _fill(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return _fill(tensor, 0.0)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which a nonlinearity's weights should be larger; `param` is its slope."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    gains = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
    if nonlinearity not in gains and not re.fullmatch(r"linear|sigmoid|conv(_transpose)?[12]d", nonlinearity):
        raise ValueError(f"no gain is known for {nonlinearity!r}")
    return gains.get(nonlinearity, 1.0)


def fans(tensor: Tensor) -> tuple[int, int]:
    """Return how many inputs and outputs each element of a weight ``(out, in, *kernel)`` serves."""
    if tensor.ndim < 2:
        raise ShapeError(f"a weight of shape {tensor.shape} has no inputs and outputs")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode is 'fan_in' or 'fan_out', got {mode!r}")
    return fans(tensor)[mode == "fan_out"]


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fill evenly over ± gain * sqrt(3 / fan)."""
    if tensor.numel() == 0:
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Fill normally with standard deviation gain / sqrt(fan)."""
    if tensor.numel() == 0:
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill evenly over ± gain * sqrt(6 / (fan_in + fan_out))."""
    bound = gain * math.sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill normally with standard deviation gain * sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with gain times a matrix ``(size 0, all others)`` of orthonormal rows or columns."""
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: expected at least 2 dimensions, got shape {tensor.shape}")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    q, r = np.linalg.qr(generator().standard_normal((max(rows, columns), min(rows, columns))))
    q *= np.sign(np.diag(r))
    return _fill(tensor, gain * (q if rows >= columns else q.T).reshape(tensor.shape))
