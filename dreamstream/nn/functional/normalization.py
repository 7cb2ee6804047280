"""Normalisation of every frame by itself."""

from __future__ import annotations

import numpy as np

from ...array import Tensor
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import Ints, checked, same_types
from .texts import described

__all__ = ["layer_norm", "rms_norm"]


#: What the parameters are, of functions and layers.
LAST = {
    "normalized_shape": "int or sequence of int: Sizes of the last dimensions.",
    "weight": "Of that shape.",
    "bias": "Of that shape.",
    "eps": "Added to the variance or mean square; None is the distance from 1 to the next number of the type.",
}
_last = described("As `input`.", **LAST, input="``(*, *normalized_shape)``.")


@_last
def layer_norm(
    input: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions."""
    x = checked("layer_norm", input)
    same_types("layer_norm", x, weight, bias)
    n = _last_dims("layer_norm", x, normalized_shape)
    return apply("layer_norm", {"axes": n, "eps": float(eps)}, (x,), (weight, bias), (..., *range(n)))[0]


@_last
def rms_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return x / sqrt(mean of x * x + eps) * weight over the last dimensions."""
    x = checked("rms_norm", input)
    same_types("rms_norm", x, weight, None)
    n = _last_dims("rms_norm", x, normalized_shape)
    added = float(np.finfo(x.dtype).eps) if eps is None else float(eps)
    return apply("rms_norm", {"axes": n, "eps": added}, (x,), (weight,), (..., *range(n)))[0]


def _last_dims(name: str, x: Tensor, normalized_shape: Ints) -> int:
    """Return how many last dimensions `normalized_shape` names; they must be of these sizes."""
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    n = len(shape)
    sizes = x.shape[-n:] if 0 < n <= x.ndim else None
    if sizes is None or any(isinstance(own, int) and own != given for own, given in zip(sizes, shape)):
        raise ShapeError(f"{name}: expected an input (*, {', '.join(map(str, shape))}), got {x.shape}")
    return n
