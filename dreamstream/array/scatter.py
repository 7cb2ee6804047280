"""Writing or adding at indices along a dimension: torch's `index_copy`, `scatter` and their like."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from ..errors import ShapeError
from ..stream.foreign import inner_of
from . import dtypes, forward, hook
from .deferred import is_computed
from .dimension_arguments import axis_of
from .elementwise import filling, plain_array, refuse_streams
from .hook import made
from .stream_tensor import StreamTensor
from .symbolic import Symbolic
from .tensor import Tensor, take


# ---------------------------------------------------------------------- by a list of places
def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Return it with `source` at the places along `dim` that a 1-D int64 tensor names."""
    axis, places = _named(self, "index_copy", dim, index)
    out: Tensor = self.clone()
    out[(slice(None),) * axis + (places,)] = source
    return out


def index_fill(self: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Return it with a number at the places along `dim` that a 1-D int64 tensor names."""
    axis, places = _named(self, "index_fill", dim, index)
    out: Tensor = self.clone()
    out[(slice(None),) * axis + (places,)] = filling(self, value)
    return out


def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Return it with alpha * `source` added at the places along `dim` that a 1-D int64 tensor names."""
    axis, places = _named(self, "index_add", dim, index)
    out: Tensor = self.clone()
    lead: tuple[Any, ...] = (slice(None),) * axis
    for part in _apart(places):
        at = (*lead, [places[j] for j in part])
        own = (*lead, part)
        more = source[own]
        out[at] = out[at] + (more if alpha == 1 else more * alpha)
    return out


def _named(x: Tensor, name: str, dim: int, index: Any) -> tuple[int, list[int]]:
    """Return the dimension, and the places along it."""
    refuse_streams(name, [index])
    places = plain_array(name, index)
    if places.ndim > 1 or (places != places.astype(np.int64)).any():
        raise ShapeError.here(f"{name}: expected a 1-D index of integers, got {index!r}")
    return x._axis(name, dim), [int(i) for i in places.reshape(-1)]


def _apart(places: list[int]) -> Iterator[list[int]]:
    """Give the numbers of places in groups in which no place is twice, in order for each place."""
    left = list(range(len(places)))
    while left:
        first = {places[j]: j for j in reversed(left)}
        yield sorted(first.values())
        left = [j for j in left if first[places[j]] != j]


# ---------------------------------------------------------------------- by places of each element
def scatter(
    self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """Return it with `src`, or a number, at the places along `dim` that an int64 tensor has for each."""
    if reduce not in (None, "add"):
        raise ShapeError.here(f"scatter: reduce is 'add', got {reduce!r}")
    return _scattered(self, dim, index, value if src is None else src, reduce == "add")


def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Return it with `src` added at the places along `dim` that an int64 tensor has for each."""
    return _scattered(self, dim, index, src, True)


def _scattered(x: Tensor, dim: int, index: Any, src: Any, adds: bool) -> Tensor:
    name = "scatter_add" if adds else "scatter"
    axis = x._axis(name, dim)
    if x.is_stream or getattr(index, "is_stream", False) or getattr(src, "is_stream", False):
        return forward.scatter(x, axis, index, src, adds)
    where = plain_array(name, index, dtypes.int64)
    given = x._plain(np.asarray(src, x.dtype)) if isinstance(src, (int, float)) else src
    plain_array(name, given)
    if where.ndim != x.ndim or any(w > n for i, (w, n) in enumerate(zip(where.shape, x.shape)) if i != axis):
        raise ShapeError(f"{name}: an index of shape {where.shape} for a tensor of shape {tuple(x.shape)}")
    given = given[tuple(map(slice, where.shape))] if given.ndim else given
    return made(name, x, given, index=where, axis=axis)


def take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Return elements chosen along `dim` by an int64 tensor of as many dimensions."""
    if dim is None:
        return self.reshape(-1).gather(0, indices.reshape(-1))
    if (taken := hook.lowered("places", self, "take_along_dim", indices, dim)) is not None:
        return cast(Tensor, taken)
    if self.is_stream != getattr(indices, "is_stream", False) or self.ndim != indices.ndim:
        return self.gather(dim, indices)
    axis = self._axis("take_along_dim", dim)

    def widened(own: Any, other: Any) -> Any:
        along = [i == axis or (own.is_stream and isinstance(own.dims[i], str)) for i in range(own.ndim)]
        return own.expand(*(-1 if a else max(n, m) for a, n, m in zip(along, own.shape, other.shape)))

    return widened(self, indices).gather(dim, widened(indices, self))


take(Tensor, globals())


# ---------------------------------------------------------------------- frames laid over each other
def added_up(x: Any, roles: Sequence[Any], step: int) -> Any:
    """Return windows ``(…, L, size)`` laid over each other, `step` apart, and added."""
    features = iter(range(1, x.ndim))
    dims = (*(r if isinstance(r, str) else next(features) for r in roles[:-1]), 0)
    y: Any = hook.apply("overlap_add", {"step": step}, (x,), (), dims)[0]
    made: list[Any] = [r for r in dims if isinstance(r, str)]
    made += range(1, x.ndim - len(made))  # a stream that no input is of has no B
    return y.permute(*(made.index(r) for r in dims[:-1]))


def _windows(index: Any) -> tuple[int, int] | None:
    """Return how far apart windows begin, and how long they are, where an index counts their places in turn."""
    found: set[tuple[int, int]] = set()
    for n in (64, 65):
        with index.library.evaluating():
            places = np.asarray(index.probe(n).numpy()).reshape(-1)
        breaks = np.flatnonzero(np.diff(places) != 1)
        size = int(breaks[0]) + 1 if len(breaks) else 1
        if len(places) % size or len(places) <= size:
            return None
        step = int(places[size])
        wanted = np.arange(len(places) // size)[:, None] * step + np.arange(size)
        if not 0 < step <= size or not np.array_equal(places, wanted.reshape(-1)):
            return None
        found.add((step, size))
    return found.pop() if len(found) == 1 else None


def laid_over(self: Symbolic, dim: int, index: Any, source: Any, alpha: float = 1) -> StreamTensor:
    """Return zeros to which windows of frames are added, each at its place: as `overlap_add`."""
    index, source = map(inner_of, (index, source))
    axis = axis_of("index_add", dim, self.ndim)
    found = _windows(index) if is_computed(index) else None
    if found is None or type(source) is not StreamTensor or not self.is_filled or self.value != 0:
        zeros: Any = self.as_stream()
        return zeros.index_add(dim, index, source, alpha=alpha)
    (step, size), before, behind = found, source.shape[:axis], source.shape[axis + 1 :]
    features = math.prod(behind)
    frames: Any = source.reshape(*before, -1, size * features)
    self._require_as_long((frames.shape[axis] - 1) * step + size, "L")
    one_more = frames._padded(0, 1)  # of no frames there are zeros
    laid = added_up(one_more, one_more.dims, step * features)
    laid = laid[(slice(None),) * axis + (slice(self.length * features),)]
    out = laid.reshape(*before, -1, *behind) if behind else laid
    return out if alpha == 1 else out * alpha


def _laid_over(self: Symbolic, *args: Any, **kwargs: Any) -> Any:
    if self._source is not None:
        self.become()
        return getattr(self, "index_add_")(*args, **kwargs)  # noqa: B009  (it is a stream now)
    self._become(laid_over(self, *args, **kwargs))
    return self


take(Symbolic, index_add=laid_over, index_add_=_laid_over)
