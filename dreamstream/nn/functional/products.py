"""Matrix products of every frame by itself."""

from __future__ import annotations

from ...array import Tensor
from ...array.deferred import is_computed
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import checked, same_types
from .texts import described

__all__ = ["bilinear", "linear"]


@described(
    "``(*, out_features)``.",
    input="``(*, in_features)``.",
    weight="``(out_features, in_features)``.",
    bias="``(out_features,)``.",
)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias."""
    if is_computed(input):  # computed of positions
        return input.library.defer(linear, (input, weight, bias), {})
    x = checked("linear", input)
    same_types("linear", x, weight, bias)
    return apply("linear", {}, (x,), (weight, bias), (..., 0))[0]


@described(
    "``(*, out_features)``.",
    input1="``(*, in1_features)``.",
    input2="``(*, in2_features)``.",
    weight="``(out_features, in1_features, in2_features)``.",
    bias="``(out_features,)``.",
)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the sums over i and j of input1[i] * weight[:, i, j] * input2[j], plus bias."""
    a, b = checked("bilinear", input1), checked("bilinear", input2)
    same_types("bilinear", a, weight, bias)
    if weight.ndim != 3 or (a.shape[-1], b.shape[-1]) != weight.shape[1:]:
        raise ShapeError(
            f"bilinear: expected a weight (out, in1, in2) for inputs (*, in1) and (*, in2), got "
            f"{weight.shape} for {a.shape} and {b.shape}"
        )
    products = (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)
    return linear(products, weight.reshape(weight.shape[0], -1), bias)
