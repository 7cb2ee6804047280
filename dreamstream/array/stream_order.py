"""The frames of a stream in order, inside a forward: they are there at its end.

`sort` is an operator that waits. What takes frames of what it gives sums up all of them but those at other places.
"""

from __future__ import annotations

from typing import Any

from ..operations.refusals import IN_ORDER
from . import hook, ordering, stream_writes  # noqa: F401  (methods that are taken up)
from .elementwise import where, with_frames
from .ends import frame_at_count
from .over_time import require_waiting
from .reductions import Extreme
from .stream_tensor import StreamTensor
from .stream_views import _along_frames, gather as inside_frame, outside
from .tensor import Tensor, take


def sort(self: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Extreme:
    axis = self._axis("sort", dim)
    if not _along_frames(self, axis):
        if self.edge is None and isinstance(self.dims[axis], str):
            return Tensor.sort(self._across("sort", axis), axis, descending)
        return Tensor.sort(self, axis, descending)
    require_waiting("sort along L", self.edge, why=IN_ORDER)
    straight = self._straight()
    found = hook.apply("sort", {"descending": int(descending)}, [self.with_dims(straight)], (), straight)
    return Extreme(*(y.with_dims(self.dims, self.names) for y in found))


def _first(self: Any, k: int, axis: int, largest: bool, begin: int = 0) -> Extreme:
    if not _along_frames(self, axis):
        return Tensor._first(self, k, axis, largest, begin)
    found = self.sort(axis, largest)
    if 0 < begin == k - 1:
        return Extreme(*(frames_at(y, axis, begin) for y in found))
    firsts = (frames_at(y.unfold(axis, k, k), axis, 0).squeeze(axis)[..., begin:] for y in found)
    return Extreme(*(y.movedim(-1, axis) for y in firsts))


def _of_enough(self: Any, name: str, k: int, axis: int) -> Any:
    """Return the stream, of which those of fewer frames are refused."""
    if _along_frames(self, axis):
        self.require_frames(k)
    return Tensor._of_enough(self, name, k, axis)


def _at(self: Any, axis: int, place: Any) -> Any:
    return frames_at(self, axis, place) if _along_frames(self, axis) else Tensor._at(self, axis, place)


def frames_at(x: Any, axis: int, place: Any) -> Any:
    """Return the frames at a position, one of L's place, which is dimension `axis`.

    The position is int64, or that of each element, known at the stream's end.
    """
    if x.lanes and x.dims[0] == f"B_{x.lanes}":
        x, place = (y if isinstance(y, int) else y.unflatten(0, (-1, y.lanes)) for y in (x, place))
        return frames_at(x, axis + 1, place).flatten(0, 1)
    attributes: dict[str, Any] = {"length": [], "steps": [], "to": "int64"}
    places: Any = x._operate_on(
        "positions", attributes, [x.edge], [], tuple(d for d in x.dims if isinstance(d, str))
    )
    for at, d in enumerate(x.dims):
        places = places if isinstance(d, str) else places.unsqueeze(at)
    return where(places.eq(place), with_frames(x), 0).sum(axis, keepdim=True)


def gather(self: Any, dim: int, index: Any) -> Any:
    axis = self._axis("gather", dim)
    last = frame_at_count(self, axis, index) if _along_frames(self, axis) else None
    wanted = ["1" if i == axis else role for i, role in enumerate(self.roles)]
    if last is not None and [*map(str, index.roles)] == wanted:
        return last.unsqueeze(axis)
    once = getattr(index, "rate", None) == 0 and axis < index.ndim and index.dims[axis] != "L"
    if once and _along_frames(self, axis) and index.features[index.dims[axis]] == 1:
        sizes = zip(self.dims, index.shape)
        return frames_at(self[tuple(slice(None if isinstance(d, str) else n) for d, n in sizes)], axis, index)
    return inside_frame(self, dim, index)


take(
    StreamTensor,
    globals(),
    _at=_at,
    _first=_first,
    _of_enough=_of_enough,
    **{name: outside(name, getattr(Tensor, name)) for name in ("median", "nanmedian", "quantile", "nanquantile")},
)
