"""Matrix products of every frame by itself."""

from __future__ import annotations

from ...array import Tensor
from ...dispatch import apply
from .arguments import checked, same_types

__all__ = ["linear"]


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
