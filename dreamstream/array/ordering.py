"""The elements along a dimension in order."""

from __future__ import annotations

from ..errors import ShapeError
from . import dtypes, hook
from .reductions import CHOICE, Extreme
from .tensor import Tensor, take

__all__: list[str] = []


def topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extreme:
    """Return the `k` greatest along a dimension, and where they were.

    The first of equals comes first; NaN is the greatest.
    """
    dtypes.require_float("topk", self.dtype)
    axis = self._axis("topk", dim)
    size = self.shape[axis]
    if isinstance(size, int) and not 1 <= k <= size:
        raise ShapeError(f"topk: expected k from 1 to {size}, got {k}")
    last = axis == self.ndim - 1
    given = self if last else self.transpose(axis, -1)
    values, indices = hook.apply("topk", {"k": k, "smallest": int(not largest)}, (given,), (), (..., 0))
    choice = None if self.is_stream else CHOICE.get()
    order = choice and choice(given.numpy(), largest)
    if order is not None:
        indices = Tensor._plain(order[..., :k])
        values = given.gather(-1, indices)
    return Extreme(*(y if last else y.transpose(axis, -1) for y in (values, indices)))


def sort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Extreme:
    """Return all elements along a dimension in order, and where they were; see `topk`."""
    axis = self._axis("sort", dim)
    if self.is_stream and isinstance(self.dims[axis], str):  # type: ignore[attr-defined]
        plain: Tensor = self._across("sort", axis)  # type: ignore[attr-defined]
        return sort(plain, axis, descending)
    return topk(self, int(self.shape[axis]), axis, descending)


def argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return where the elements along a dimension are, in order; see `sort`."""
    return sort(self, dim, descending).indices


take(Tensor, globals())
