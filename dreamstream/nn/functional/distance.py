"""Lengths of vectors and angles between them."""

from __future__ import annotations

from ...array import Tensor
from .arguments import checked
from .texts import described

__all__ = ["cosine_similarity", "normalize"]


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
    return (_unit(a, b, dim, eps) * _unit(b, a, dim, eps)).sum(dim)


def _unit(x: Tensor, other: Tensor, dim: int, eps: float) -> Tensor:
    """Return x / max(its norm, eps), where it is as long along `dim` as the other."""
    while x.ndim < -dim:
        x = x.unsqueeze(0)
    own, wanted = (t.shape[dim] if t.ndim >= -dim else 1 for t in (x, other))
    if type(own) is type(wanted) is int and own == 1:  # a stream's length is no number
        x = x.expand(*(wanted if i == x.ndim + dim else -1 for i in range(x.ndim)))
    return x / x.norm(2, dim, keepdim=True).clamp_min(eps)
