"""Mixture of experts: logits that choose, the greatest of them, products of chosen experts, their sum."""

from __future__ import annotations

from ...array import Tensor, int64
from ...array.reductions import Extreme
from ...dispatch import apply
from ...errors import DTypeError, StreamIndexError
from .arguments import checked, same_types
from .texts import described, torch_lacks

__all__ = ["combine", "expert_linear", "router", "topk"]

DROPPED = -1


@torch_lacks
@described(
    "``(*, out_features)``.",
    input="``(*, in_features)``.",
    weight="``(out_features, in_features)``.",
    bias="``(out_features,)``.",
)
def router(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias, by sums whose order depends on nothing but the weight's shape.

    What experts are chosen by it is the same for all chunks, batches, threads and instruction sets, of whole
    sequences too, where other products may go to OpenBLAS.
    """
    x = checked("router", input)
    same_types("router", x, weight, bias)
    return apply("router", {}, (x,), (weight, bias), (..., 0))[0]


@described(
    "Tuple of values and indices (int64), `dim` of size k.",
    {"ShapeError": "For a `k` above the size of `dim`."},
    input="Of any shape, float32 or float64.",
    k="How many.",
    dim="The dimension, of features.",
    largest="Whether the greatest, not the least, are found.",
    sorted="For torch's sake; they are in order.",
)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extreme:
    """Return the `k` greatest along a dimension, the first of equals first; NaN is the greatest."""
    return checked("topk", input).topk(k, dim, largest)


@torch_lacks
@described(
    "``(*, k * out_features)``: what each chosen expert gives, one after the other.",
    {
        "ShapeError": "For shapes that don't fit.",
        "StreamIndexError": "For an index that is no expert's; what an engine computes gives NaN there.",
    },
    input="``(*, in_features)``, one vector for all choices, or ``(*, k * in_features)``, one for each.",
    index="``(*, k) int64``: the experts; -1 drops a choice, which gives zeros.",
    weight="``(experts, out_features, in_features)``.",
    bias="``(experts, out_features)``.",
)
def expert_linear(input: Tensor, index: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the products of every vector with the matrices of the experts that are chosen for it.

    All vectors that an expert gets, of all frames and streams of a call, are one product, so that its weight is
    read once.
    """
    x, at = checked("expert_linear", input), checked("expert_linear", index)
    same_types("expert_linear", x, weight, bias)
    if at.dtype != int64:
        raise DTypeError(f"expert_linear: expected an index of int64, got {at.dtype}")
    if not at.is_stream:
        check_experts("expert_linear", at, weight.shape[0])
    return apply("expert_linear", {}, (x, at), (weight, bias), (..., 0))[0]


def check_experts(name: str, index: Tensor, n: int) -> None:
    """Refuse a plain index that names no expert."""
    given = index.numpy()
    if given.size and (given.min() < DROPPED or given.max() >= n):
        wrong = given[(given < DROPPED) | (given >= n)][0]
        raise StreamIndexError(f"{name}: expert {wrong} is out of range, expected 0 to {n - 1}, or -1 for none")


@torch_lacks
@described(
    "``(*, features)``.", input="``(*, k * features)``, as `expert_linear` gives it.", weights="``(*, k)``."
)
def combine(input: Tensor, weights: Tensor) -> Tensor:
    """Return the sums of what `k` experts gave, weighted, added in the order of the choices."""
    x = checked("combine", input)
    same_types("combine", x, checked("combine", weights), None)
    return apply("combine", {}, (x, weights), (), (..., 0))[0]
