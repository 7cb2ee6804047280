"""Normalisation of every frame by itself."""

from __future__ import annotations

from ...array import Tensor
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import Ints, checked, same_types

__all__ = ["layer_norm"]


def layer_norm(
    input: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions.

    Parameters
    ----------
    input : Tensor
        ``(*, *normalized_shape)``.
    normalized_shape : int or sequence of int
        Sizes of the last dimensions.
    weight, bias : Tensor, optional
        Of that shape.
    eps : float
        Added to the variance.

    Returns
    -------
    Tensor
        As `input`.
    """
    x = checked("layer_norm", input)
    same_types("layer_norm", x, weight, bias)
    shape = (
        tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    )
    n = len(shape)
    sizes = x.shape[-n:] if 0 < n <= x.ndim else None
    if sizes is None or any(isinstance(own, int) and own != given for own, given in zip(sizes, shape)):
        raise ShapeError(
            f"layer_norm: expected an input (*, {', '.join(map(str, shape))}), got {x.shape}"
        )
    return apply("layer_norm", {"axes": n, "eps": float(eps)}, (x,), (weight, bias), (..., *range(n)))[0]
