"""Elements in another order along a dimension: sorted, or as indices say."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ShapeError
from . import dtypes, hook
from .tensor import Tensor, take

__all__ = ["Sorted"]


class Sorted(NamedTuple):
    """Elements in order, and where they stood."""

    values: Tensor
    indices: Tensor


def sort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """Return the elements along `dim` in order, and where they stood; NaN is larger than all numbers.

    What is equal keeps its order, whatever `stable` says.
    """
    dtypes.require_float("sort", self.dtype)
    axis = self._axis("sort", dim)
    if self.is_stream and isinstance(self.dims[axis], str):  # type: ignore[attr-defined]
        plain: Tensor = self._across("sort", axis)  # type: ignore[attr-defined]
        return plain.sort(axis, descending)
    last = axis == self.ndim - 1
    x = self if last else self.transpose(axis, -1)
    parts = hook.apply("sort", {"descending": int(descending)}, (x,), (), (..., 0))
    return Sorted(*(p if last else p.transpose(axis, -1) for p in parts))


def argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return where the elements along `dim` stand in order; see `sort`."""
    indices: Tensor = self.sort(dim, descending).indices
    return indices


def topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """Return the k largest, or smallest, elements along `dim` in order, and where they stood."""
    n = self.size(dim)
    if isinstance(n, int) and not 0 <= k <= n:
        raise ShapeError(f"topk: {k} of {n} elements")
    return Sorted(*(part.narrow(dim, 0, k) for part in self.sort(dim, largest)))


take(Tensor, globals())
