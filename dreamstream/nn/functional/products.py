"""Products of every frame by itself: with matrices, lengths of vectors and angles between them."""

from __future__ import annotations

from ...array import Tensor
from ...array.deferred import Deferred
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import checked, same_types
from .texts import described

__all__ = ["bilinear", "cosine_similarity", "linear", "normalize"]


@described(
    "``(*, out_features)``.",
    input="``(*, in_features)``.",
    weight="``(out_features, in_features)``.",
    bias="``(out_features,)``.",
)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias."""
    if isinstance(input, Deferred):  # computed of positions
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
    pairs = (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)
    return linear(pairs, weight.reshape(weight.shape[0], -1), bias)


_vectors = described(
    input="Of any shape; of a stream `dim` must be features.",
    x1="Of a shape that broadcasts with the other's; of a stream `dim` must be features.",
    x2="Likewise.",
    p="Of the norm: 2, 1, ``inf``, ...",
    dim="The dimension along which vectors lie.",
    eps="The least length to divide by.",
)


@_vectors
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Return x / max(p-norm of x, eps) along `dim`."""
    x = checked("normalize", input)
    return x / x.norm(p, dim, keepdim=True).clamp_min(eps)


@_vectors
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between vectors along `dim`, which goes."""
    a, b = checked("cosine_similarity", x1), checked("cosine_similarity", x2)
    dim = dim if dim < 0 else dim - max(a.ndim, b.ndim)  # shapes meet at the right
    return (_unit(a, dim, eps) * _unit(b, dim, eps)).sum(dim)


def _unit(x: Tensor, dim: int, eps: float) -> Tensor:
    return x / x.norm(2, dim, keepdim=True).clamp_min(eps)
