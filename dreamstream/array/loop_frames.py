"""What a ``for`` over frames iterates over, and indices by the frame's number in its body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..operations.refusals import LOOPS, LOOPS_GROW
from ..stream.rules import Length, is_full_slice
from . import writing
from .dimension_arguments import parts_of
from .elementwise import ones_of
from .frame_numbers import Computed, FrameNumber, LoopNumber, number_in, refuse
from .loop_body import mixed
from .loops import Loop
from .stream_tensor import StreamTensor
from .tables import table as table_rows
from .tensor import Tensor


# ---------------------------------------------------------------------- what a loop goes over
class Frames:
    """What a loop over frames goes over: `at` gives what its target is for one frame."""

    length: Length
    first = 0

    def at(self, number: FrameNumber) -> Any:
        raise NotImplementedError

    def __iter__(self) -> NoReturn:
        refuse(LOOPS)


class Numbers(Frames):
    """``range(first, length)``."""

    def __init__(self, first: int, length: Length) -> None:
        if first < 0:
            refuse(f"a loop over frames that begins at {first}")
        self.first, self.length = first, length

    def at(self, number: FrameNumber) -> Any:
        return number


class EachFrame(Frames):
    """``x.unbind(L)``, ``x.split(1, L)``, a stream that is iterated along L; ``keeps``: L stays, of size 1."""

    def __init__(self, stream: StreamTensor, axis: int, keeps: bool = False, first: int = 0) -> None:
        self._stream, self._axis, self._keeps, self.first = stream, axis, keeps, first
        self.length = stream.shape[axis]

    def at(self, number: FrameNumber) -> Any:
        frame: Any = self._stream[(slice(None),) * self._axis + (number,)]
        return frame.unsqueeze(self._axis) if self._keeps else frame

    def sliced(self) -> EachFrame:
        """Return the same frames as those of a stream that begins at `first`, so that theirs is 0."""
        if not self.first:
            return self
        rest = self._stream[(slice(None),) * self._axis + (slice(self.first, None),)]
        return EachFrame(rest, self._axis, self._keeps)

    def __getitem__(self, number: Any) -> Any:
        if type(number) is slice:
            first, stop, step = number.start, number.stop, number.step
            if type(first) is int and first >= 0 and stop is None and step in (None, 1):
                return EachFrame(self._stream, self._axis, self._keeps, self.first + first)
            part = self.sliced()._stream[(slice(None),) * self._axis + (number,)]
            return EachFrame(part, self._axis, self._keeps)
        frame, edge = self.at(number), self._stream.edge
        return edge.entry.library.see(frame) if type(frame) is StreamTensor else frame  # type: ignore[union-attr]


class InParts(Frames):
    """Frames of a complex stream: those of its two parts, which `make` puts together."""

    def __init__(self, parts: Sequence[Any], make: Callable[[Sequence[Any]], Any]) -> None:
        self._parts, self._make, self.length, self.first = parts, make, parts[0].length, parts[0].first

    def at(self, number: FrameNumber) -> Any:
        return self._make([part.at(number) for part in self._parts])

    def __getitem__(self, number: Any) -> Any:
        if type(number) is not slice:
            return self.at(number)
        return InParts([part[number] for part in self._parts], self._make)


class Enumerated(Frames):
    """``enumerate(frames, start)``."""

    def __init__(self, start: int, frames: Frames) -> None:
        self._start, self._frames, self.length, self.first = start, frames, frames.length, frames.first

    def at(self, number: FrameNumber) -> Any:
        return number - self.first + self._start, self._frames.at(number)


class Together(Frames):
    """``zip``."""

    def __init__(self, parts: Sequence[Frames]) -> None:
        if len({p.first for p in parts}) > 1:
            parts = [p.sliced() if isinstance(p, EachFrame) else p for p in parts]
        self._parts, self.length, self.first = parts, parts[0].length, parts[0].first
        for part in parts[1:]:
            if part.first != self.first:
                refuse("zip of frames that begin at different positions")
            more: Any = self.length - part.length
            if isinstance(more, int) and more > 0:
                self.length = part.length

    def at(self, number: FrameNumber) -> Any:
        return tuple(p.at(number) for p in self._parts)


# ---------------------------------------------------------------------- indices
def _read(index: Any, ndim: int) -> tuple[list[Any], int, int, Any, Any]:
    """Return an index's parts, the place of the part that takes frames, its dimension, itself, its first frame."""
    parts = parts_of(index, ndim)
    found = [i for i, p in enumerate(parts) if number_in(p)]
    if len(found) > 1:
        refuse("two numbers of frames in one index")
    at, axis, part = found[0], sum(p is not None for p in parts[: found[0]]), parts[found[0]]
    if isinstance(part, LoopNumber) or type(part.start) is FrameNumber:
        return parts, at, axis, part, getattr(part, "start", part)
    loop = part.stop.loop
    if type(part.start) not in (int, type(None)) or not loop.of_one_frame:  # x[:, :t + 1]
        refuse(LOOPS_GROW)
    number = FrameNumber(loop, (part.start or 0) - loop.position)
    return parts, at, axis, slice(number, part.stop, part.step), number


def _loop_of(number: LoopNumber) -> Loop:
    """Return the loop of a frame's number; an index computed of that number, as ``x[:, t // 2]``, is refused."""
    if isinstance(number, Computed):
        number._misuse("used as an index of frames")
    return number.loop


def placed(x: StreamTensor, index: Any, least: int = 0) -> Any:
    """Return an index in which an int, at least `least`, is made a frame's number of the open loop.

    A counter (``t = 0; ... t += 1``) is an int in the loop's first round, and a frame's number in later ones.
    """
    loop = getattr(x.edge.entry, "loop", None) if x.edge is not None and "L" in x.dims else None
    if loop is None or x.edge.entry is not loop.entry:  # type: ignore[union-attr]
        return index
    parts = parts_of(index, x.ndim)
    places = [i for i, p in enumerate(parts) if p is not None]
    at = places[x.dims.index("L")]
    if type(parts[at]) is not int or parts[at] < least:
        return index
    loop.of_one_frame = True
    parts[at] = FrameNumber(loop, parts[at] - loop.position)
    return tuple(parts)


def _of_frame(frame: Any, parts: Sequence[Any], at: int) -> Any:
    """Return a frame indexed by the other parts of an index, all but the one at `at`."""
    rest = (*parts[:at], *parts[at + 1 :])
    return frame if all(map(is_full_slice, rest)) else frame[rest]


def place_of_number(index: Any) -> int:
    """Return where an index has the number of a frame, behind nothing but ``:``; -1 for any other index."""
    for i, part in enumerate(index if type(index) is tuple else ()):
        if type(part) is FrameNumber:
            return i
        if not is_full_slice(part):
            break
    return -1


def frame_of(x: StreamTensor, index: Any) -> Any:
    """Return ``x[:, t]`` and the like in the body of a loop over frames, of the whole stream."""
    at = place_of_number(index)
    if at >= 0 and len(index) == at + 1 and x.dims[at : at + 1] == ("L",):
        loop = index[at].loop
        if x.edge is not None and x.edge.entry is loop.entry:
            return loop.frame(x, index[at].off)
    parts, at, axis, part, number = _read(index, x.ndim)
    loop = _loop_of(number)
    if x.edge is None or x.edge.entry is not loop.entry:
        mixed([None if x.edge is None else x.edge.entry, loop.body])
    if axis >= x.ndim or x.dims[axis] != "L":
        refuse(f"the number of a frame indexes dimension {axis} of {x.roles}, which is not its frames")
    count = 1 if part is number else _count(part)

    if part is number:
        return _of_frame(loop.frame(x, number.off), parts, at)
    frames: list[Any] = [loop.frame(x, number.off + k).unsqueeze(axis) for k in range(count)]
    frame = frames[0] if count == 1 else frames[0]._cat(frames, axis)
    parts[at] = slice(None, None, part.step)
    return frame if all(map(is_full_slice, parts)) else frame[tuple(parts)]


def set_frame(y: StreamTensor, index: Any, value: Any) -> None:
    """Do ``y[:, t] = value`` in the body of a loop over frames."""
    writing.forget_views(y)
    parts, at, axis, part, number = _read(index, y.ndim)
    loop = _loop_of(number)
    if y.edge is None or y.edge.entry is not loop.entry or axis >= y.ndim or y.dims[axis] != "L":
        refuse(f"the number of a frame in an assignment to {y.roles}, which is not its frames")
    if part is not number and _count(part) != 1:
        refuse("several frames are written at a time; write one in each round")
    if part is not number and getattr(value, "ndim", 0) > axis and value.shape[axis] == 1:
        value = value.squeeze(axis)
    rest = (*parts[:at], *parts[at + 1 :])
    if all(map(is_full_slice, rest)) and _is_frame_of(y, value):
        loop.write(y, value.with_dims(value.dims), number.off)
        return
    before = loop.frame(y, number.off)
    frame: Any = before.with_dims(before.dims)
    frame[rest] = value
    loop.write(y, frame, number.off)


def _is_frame_of(y: StreamTensor, value: Any) -> bool:
    """Whether a value is a frame like those of a stream."""
    if not isinstance(value, StreamTensor) or value.dtype != y.dtype or value.features != y.features:
        return False
    return value.dims == tuple([d for d in y.dims if d != "L"])


def put(x: StreamTensor, value: Any, index: Any) -> StreamTensor:
    """Return `x` after ``x[index] = value``."""
    if not number_in(index := placed(x, index)):
        return writing.assign(x, index, value)
    set_frame(x, index, value)
    return x


def _count(part: slice) -> int:
    """Return how many frames a slice takes."""
    start, stop = part.start, part.stop
    n = stop.off - start.off if type(stop) is FrameNumber and stop.loop is start.loop else 0
    if not 1 <= n <= 256:
        refuse("a slice of other than a fixed number of frames")
    return n


def row_of(table: Tensor, index: Any) -> Any:
    """Return ``table[t]``: the row of a table at the position of the frame."""
    parts, at, axis, part, _ = _read(index, table.ndim)
    if isinstance(part, Computed):
        parts[at] = part.as_tensor(lambda x: x)
        return table[tuple(parts)]
    if type(part) is slice:
        if _count(part) != 1:
            refuse("several rows of a table at one frame")
        parts[at] = part.start
        return row_of(table, tuple(parts)).unsqueeze(axis)
    loop: Loop = part.loop
    if loop.of_one_frame:  # the row is read now: the table may have no others
        parts[at] = loop.position + part.off
        return table[tuple(parts)] if parts[at] >= 0 else refuse("a row before the first")
    start = loop.first + part.off
    if loop.position + part.off < 0:
        refuse(f"a row before the first; ask `if t >= {-part.off}`")

    def make() -> StreamTensor:
        length = loop.entry.library.length(loop.clock)
        lead = (slice(None),) * axis
        rows: Any = table_rows(table, (*lead, slice(max(start, 0), length + (part.off - loop.left_out))))
        out: StreamTensor = rows.in_order()._padded(max(-start, 0), 0)
        return out

    known = getattr(table, "_own", table)
    return _of_frame(loop.input((known, axis, part.off), make), parts, at)


# ---------------------------------------------------------------------- behind the loop
def along(frames: StreamTensor, dims: tuple[Any, ...]) -> StreamTensor:
    """Return frames of values with dimensions `dims` as a stream, with L right behind B."""
    at = 1 + dims.index("B") if "B" in dims else 0
    return frames.with_dims((*dims[:at], "L", *dims[at:]))


def last_of(frames: StreamTensor, dims: tuple[Any, ...]) -> Any:
    """Return what is carried after the last frame, known at the stream's end; zeros of a stream without frames."""
    stream: Any = along(frames, dims)
    before = stream._padded(1, 0)
    return before.with_dims(stream.dims).select(stream.dims.index("L"), -1)


def from_before(frames: StreamTensor, dims: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Return what is carried after each frame, what was carried into each, and True where there was one before."""
    stream: Any = along(frames, dims)
    before, there = (x._padded(1, 0) for x in (stream, ones_of(stream)))
    return stream, before, there.gt(0.5)
