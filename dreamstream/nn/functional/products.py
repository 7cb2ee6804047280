"""Matrix products of every frame by itself."""

from __future__ import annotations

from ...array import Tensor
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import checked, same_types

__all__ = ["bilinear", "linear"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias.

    Parameters
    ----------
    input : Tensor
        ``(*, in_features)``.
    weight : Tensor
        ``(out_features, in_features)``.
    bias : Tensor, optional
        ``(out_features,)``.

    Returns
    -------
    Tensor
        ``(*, out_features)``.
    """
    x = checked("linear", input)
    same_types("linear", x, weight, bias)
    return apply("linear", {}, (x,), (weight, bias), (..., 0))[0]


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the sums over i and j of input1[i] * weight[:, i, j] * input2[j], plus bias.

    Parameters
    ----------
    input1, input2 : Tensor
        ``(*, in1_features)`` and ``(*, in2_features)``.
    weight : Tensor
        ``(out_features, in1_features, in2_features)``.
    bias : Tensor, optional
        ``(out_features,)``.

    Returns
    -------
    Tensor
        ``(*, out_features)``.
    """
    a, b = checked("bilinear", input1), checked("bilinear", input2)
    same_types("bilinear", a, weight, bias)
    if weight.ndim != 3 or (a.shape[-1], b.shape[-1]) != weight.shape[1:]:
        raise ShapeError(
            f"bilinear: expected a weight (out, in1, in2) for inputs (*, in1) and (*, in2), got "
            f"{weight.shape} for {a.shape} and {b.shape}"
        )
    pairs = (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)
    return linear(pairs, weight.reshape(weight.shape[0], -1), bias)
