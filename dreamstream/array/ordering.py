"""The elements along a dimension in order, and those at a place of it.

What takes one of them is written once, for plain tensors, features and streams: `_at` says where it is taken.
"""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from . import derivatives as d, dtypes, hook
from .creation import stack, zeros_like
from .derivatives import derived
from .dimension_arguments import numbered
from .elementwise import where, with_frames
from .hook import CHOICE
from .reductions import Extreme
from .tensor import Tensor, take


def topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extreme:
    """Return the `k` greatest along a dimension, and where they were.

    The first of equals comes first; NaN is the greatest.
    """
    axis = self._axis("topk", dim)
    return self._of_enough("topk", k, axis)._first(k, axis, largest)


def _of_enough(self: Tensor, name: str, k: int, axis: int) -> Tensor:
    """Return a tensor with at least k elements along a dimension."""
    size = self.shape[axis]
    if k < 1 or (isinstance(size, int) and k > size):
        raise ShapeError(f"{name}: expected k from 1 to {size}, got {k}")
    return self


def _first(self: Tensor, k: int, axis: int, largest: bool, begin: int = 0) -> Extreme:
    last = axis == self.ndim - 1
    given = self if last else self.transpose(axis, -1)
    attributes = {"k": k, "smallest": int(not largest), **({"first": begin} if begin else {})}
    values, indices = hook.apply("topk", attributes, (given,), (), (..., 0))
    order = _chosen(given, largest)
    if order is not None:
        indices = Tensor._plain(order[..., begin:k])
    if order is not None or (given.requires_grad and not given.is_stream):
        values = given.gather(-1, indices)
    return Extreme(*(y if last else y.transpose(axis, -1) for y in (values, indices)))


def sort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Extreme:
    """Return all elements along a dimension in order, and where they were; see `topk`."""
    if not self.is_stream and (not self.ndim or 0 in self.shape):
        return Extreme(self.clone(), zeros_like(self, dtype=dtypes.int64))
    axis = self._axis("sort", dim)
    if self.is_stream:
        return self._first(int(self.shape[axis]), axis, descending)
    roles = numbered(["L" if i == axis else "B" if i == 0 else i for i in range(self.ndim)])
    values, indices = hook.apply("sort", {"descending": int(descending)}, (self,), (), roles)
    order = _chosen(self.transpose(axis, -1), descending)
    if order is not None:
        indices = Tensor._plain(order).transpose(axis, -1)
    if order is not None or self.requires_grad:
        values = self.gather(axis, indices)
    return Extreme(values, indices)


def argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Return where the elements along a dimension are, in order; see `sort`."""
    return self.sort(dim, descending).indices


def _chosen(x: Tensor, largest: bool) -> Any:
    choice = None if x.is_stream or not dtypes.is_float(x.dtype) else CHOICE.get()
    return None if choice is None else choice.order(x.numpy(), largest)


# ------------------------------------------------------------------ one of them
def _at(self: Tensor, axis: int, place: Any) -> Tensor:
    """Return the elements at a place of a dimension, which stays, with size 1."""
    return self.narrow(axis, place, 1) if isinstance(place, int) else self.gather(axis, place)


def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Extreme:
    """Return the `k`-th smallest along a dimension, and where it was; NaN is the greatest."""
    axis = self._axis("kthvalue", dim)
    return _kth(self._of_enough("kthvalue", k, axis), axis, k - 1, keepdim)


def median(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the median, the lower one of two, and with `dim` where it was; NaN where there is one."""
    if dim is None:
        return _median_of_all(self)
    axis = self._axis("median", dim)
    n = self.shape[axis] if self.is_stream else None
    found = _kth(self, axis, (n - 1) // 2, True) if isinstance(n, int) else self.nanmedian(axis, True)
    if dtypes.is_float(self.dtype):
        unknown = self.isnan()
        first, spoilt = unknown.to(dtypes.float32).argmax(axis, True), unknown.any(axis, True)
        indices = where(spoilt, first, found.indices)
        values = self.gather(axis, indices) if not self.is_stream else where(spoilt, float("nan"), found.values)
        found = Extreme(values, indices)
    return found if keepdim else Extreme(*(y.squeeze(axis) for y in found))


@derived(d.median)
def _median_of_all(x: Tensor) -> Tensor:
    return x.flatten().median(0).values


@derived(d.median)
def _nanmedian_of_all(x: Tensor) -> Tensor:
    return x.flatten().nanmedian(0).values


def nanmedian(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return `median` of the elements that are no NaN."""
    if dim is None:
        return _nanmedian_of_all(self)
    axis = self._axis("nanmedian", dim)
    return _element_at(self.sort(axis), axis, (_last(self, axis)) // 2, keepdim)


def quantile(
    self: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Return the value below which a part `q` of the elements lies; NaN where one is NaN.

    Parameters
    ----------
    q : float or Tensor
        From 0 to 1, or several of them, for each of which there is a result.
    dim : int, optional
        Without it: of all elements.
    keepdim : bool
    interpolation : {"linear", "lower", "higher", "nearest", "midpoint"}
        What stands for a place between two elements.
    """
    return _quantile("quantile", self, q, dim, keepdim, interpolation)


def nanquantile(
    self: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Return `quantile` of the elements that are no NaN."""
    return _quantile("nanquantile", self, q, dim, keepdim, interpolation)


def _quantile(name: str, self: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Tensor:
    dtypes.require_float(name, self.dtype)
    if interpolation not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise ValueError(
            f"{name}: interpolation is 'linear', 'lower', 'higher', 'nearest' or 'midpoint', got {interpolation!r}"
        )
    whole = self.flatten() if dim is None else self
    axis, x = whole._axis(name, dim or 0), with_frames(whole)
    parts = q.tolist() if isinstance(q, Tensor) else q
    given = parts if isinstance(parts, list) else [parts]
    if not all(0 <= p <= 1 for p in given):
        raise ValueError(f"{name}: q is from 0 to 1, got {parts}")
    if getattr(q, "requires_grad", False):
        given = list(q.unbind(0)) if q.ndim else [q]
    values, last = x.sort(axis).values, _last(x, axis).to(x.dtype)
    found = [_between(values, axis, last * p, interpolation) for p in given]
    if name == "quantile":
        unknown = whole.isnan().any(axis, True)
        found = [where(unknown, float("nan"), y) for y in found]
    if not keepdim or dim is None:
        found = [y.reshape([1] * self.ndim) if keepdim else y.squeeze(axis) for y in found]
    return stack(found, 0) if isinstance(parts, list) else found[0]


def _between(values: Tensor, axis: int, rank: Tensor, interpolation: str) -> Tensor:
    """Return the elements in order at places between two."""
    rounded = {"lower": rank.floor, "higher": rank.ceil, "nearest": rank.round}.get(interpolation)
    if rounded is not None:
        return values._at(axis, rounded().to(dtypes.int64))
    below, above = (values._at(axis, r.to(dtypes.int64)) for r in (rank.floor(), rank.ceil()))
    return below.lerp(above, 0.5 if interpolation == "midpoint" else rank - rank.floor())


def _last(x: Tensor, axis: int) -> Tensor:
    """Return the place in order of the last element that is no NaN; 0 where all are."""
    return (x.eq(x).sum(axis, True) - 1).clamp(min=0)


def _kth(x: Tensor, axis: int, place: int, keepdim: bool) -> Extreme:
    """Return the elements at a place in order, which of a stream are the only ones that are put in order."""
    if not x.is_stream:
        return _element_at(x.sort(axis), axis, place, keepdim)
    found = x._first(place + 1, axis, False, place)
    return found if keepdim else Extreme(*(y.squeeze(axis) for y in found))


def _element_at(found: Extreme, axis: int, place: Any, keepdim: bool) -> Extreme:
    both = [y._at(axis, place) for y in found]
    return Extreme(*(both if keepdim else [y.squeeze(axis) for y in both]))


take(Tensor, globals(), _at=_at, _first=_first, _of_enough=_of_enough)
