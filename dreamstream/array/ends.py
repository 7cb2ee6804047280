"""The last frames of streams, which are known at their ends."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..stream.rules import Length
from .elementwise import where, with_frames
from .lengths_of import SAME_ORDER
from .stream_tensor import StreamTensor
from .symbolic import Symbolic
from .tensor import Tensor


def last_frame(x: StreamTensor, behind: int = 1) -> StreamTensor:
    """Return the frame that so many frames from the end are behind, itself included, once a stream has ended.

    All others are zeros in a sum.
    """
    if behind > 1:
        x = x._through("slice", {"start": 0, "crop": behind - 1, "step": 1})
    x = with_frames(x)
    zeros: Any = where(x.eq(x), 0.0, 0.0)
    behind_all = zeros._through("pad", {"left": 0, "right": 1, "value": 1.0})
    later = behind_all._through("slice", {"start": 1, "crop": 0, "step": 1})
    ends: Any = where(later.gt(0.5), x, zeros.to(x.dtype))
    return ends.sum(x.dims.index("L"))


def _last_window(x: StreamTensor, count: int) -> StreamTensor:
    """Return the last frames in L's place; streams of fewer are refused."""
    edge: Any = x.edge
    length = edge.entry.library.length(edge)
    if not isinstance(enough := length.compare(count, "ge"), bool):
        enough.require()
    axis = x.dims.index("L")
    made = last_frame(x.unfold(axis, count, 1))
    order = list(range(made.ndim - 1))
    order.insert(axis, made.ndim - 1)
    return made.permute(*order)


def first_frames(x: StreamTensor, count: int) -> StreamTensor:
    """Return the first frames of what is given once, `count` of them in L's place: the last, from the last on."""
    return _last_window(x._through("flip", {}), count).flip(x.dims.index("L"))


class Later:
    """In a view's place: the last frames are computed where they are used, for a model's cache seldom is."""

    def __init__(self, of: StreamTensor, count: int) -> None:
        self.of, self.count = of, count

    def again(self, out: StreamTensor) -> None:
        """Give the tensor its value."""
        out._view = None
        made = _last_window(self.of, self.count)
        out.value, out.edge, out.dims, out._names = made.value, made.edge, made.dims, made._names


def last_frames(x: StreamTensor, count: int) -> StreamTensor:
    """Return the last frames, ``count`` of them in L's place, once a stream of as many has ended."""
    out = x.with_dims(x.dims, x.names)
    out.forget()
    out._view = Later(x, count)
    return out


def is_each(index: Any) -> bool:
    """Whether an index of B takes each stream by itself."""
    if index is SAME_ORDER:
        return True
    first = isinstance(index, Tensor) and not index.is_stream and index.ndim == 1
    return first and index.numpy().tolist() == [0]


def where_counted(x: Any, axis: int, place: Any) -> Any:
    """Return a stream's last frame, where a place along L, lengths less one, is that; None where it is another."""
    at = place.value if isinstance(place, Symbolic) else getattr(place, "counts", None)
    if not isinstance(at, Length) or getattr(place, "position", False):
        return None
    frames = x.size(axis)
    differs = at - frames + 1
    if differs == 0 if isinstance(differs, int) else differs.compares("eq", frames):
        return x[(slice(None),) * axis + (-1,)]
    for inside in (at >= 0, at < frames):
        if inside is False:
            raise ShapeError.here(f"a frame at {at!r} of {frames!r} frames")
        if inside is not True:
            inside.require()
    return None
