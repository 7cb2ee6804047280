"""Lists that a loop over frames appends to: what they hold within the loop, and behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import NotStreamableError, ShapeError
from ..operations.refusals import LOOPS, LOOPS_GROW
from ..source_line import user_line
from .frame_numbers import FIRST, FrameNumber, refuse
from .loop_frames import EachFrame, Frames, InParts
from .loops import FAR, Loop
from .stream_tensor import StreamTensor


class History:
    """What was appended to the list `name`, once in each round that has ended.

    `see` gives what stands for a frame that was appended, `(native, k)`: k frames before.
    """

    def __init__(self, name: str, see: Any) -> None:
        self._name, self._see = name, see
        self.dims: tuple[Any, ...] | None = None
        self._line: Any = None

    def slot(self, k: int, edge: Any) -> Any:
        """Return what the frame is carried as that was appended k frames before."""
        return (f"{self._name}[{-k}]", edge.dtype, tuple(edge.features))

    def append(self, loop: Loop, item: StreamTensor, carried: dict[Any, Any]) -> None:
        """Carry on what is appended in this round, and what was in those before."""
        edge: Any = item.edge
        self.dims, self._line = item.dims, edge.line
        for k in range(1, min(len(loop.rounds), FAR) + 2):
            key = self.slot(k, edge)
            carried[key], edge = edge, loop.placeholder(key, None, None, edge.line)

    def at(self, loop: Loop, k: int) -> Any:
        """Return what was appended k frames before."""
        if self.dims is None or k > FAR:
            refuse(f"a frame that the loop gathered {k} frames before: at most {FAR} are kept, of one real tensor")
        edge = loop.placeholder(self.slot(k, self._line), None, None, self._line)
        return self._see(StreamTensor.inside(None, self.dims, edge))


def _moving(name: str) -> Any:
    """Return a list's method that moves items, refused where earlier frames have appended some."""

    def method(self: Grown, *args: Any, **options: Any) -> Any:
        if self.history is not None:
            refuse(LOOPS_GROW)
        self.is_moved = True
        return getattr(list, name)(self, *args, **options)

    return method


def _of_all(name: str) -> Any:
    """Return a list's method that reads all items, refused where the loop appends some."""

    def method(self: Grown, *args: Any) -> Any:
        if self.history is not None or list.__len__(self) > self.before or not self.before:
            refuse(LOOPS_GROW)
        return getattr(list, name)(self, *args)

    return method


class Grown(list[Any]):
    """A list within a loop: what is appended leaves the loop frame by frame.

    `items` is what it held before the loop; `history` is of a list to which earlier frames have appended. It may
    have `places` for a number of frames, each of which is assigned in turn.
    """

    def __init__(
        self, items: Sequence[Any], loop: Loop, history: History | None = None, places: Any = None
    ) -> None:
        super().__init__(items)
        self.before, self._loop, self.history, self.places = len(self), loop, history, places
        #: Whether something was computed from how many items there are; whether items were moved.
        self.has_used_length = self.is_moved = False

    def length(self) -> Any:
        """Return how many items there are, a number that follows from the frame's in a list that has grown."""
        n = list.__len__(self)
        if self.history is None:
            self.has_used_length = True
            return n
        return FrameNumber(self._loop, n - self._loop.first)

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def _from_end(self, k: int) -> Any:
        """Return the item that stands k before the end."""
        if k > 0 and self.history is None:
            self.has_used_length = True
            return list.__getitem__(self, -k)
        own = list.__len__(self) - self.before
        if 0 < k <= own:
            return list.__getitem__(self, -k)
        if k <= 0 or self.history is None:
            raise IndexError("list index out of range")
        earlier, rounds = k - own, len(self._loop.rounds)
        if earlier <= rounds:
            return self.history.at(self._loop, earlier)
        self._loop.of_one_frame = True
        if earlier - rounds > self.before:
            raise IndexError("list index out of range")
        return list.__getitem__(self, self.before - (earlier - rounds))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, FrameNumber):
            if self.history is not None:
                return self._from_end(self.length() - index)
            self._loop.of_one_frame = True
            at = self._loop.position + index.off
            if at < -list.__len__(self) and -index.off >= FIRST:  # both sides of an if run: there is none yet
                refuse(f"a frame gathered {-index.off} frames before: behind `if t >= k` k is at most {FIRST - 1}")
            return list.__getitem__(self, at)
        if isinstance(index, slice):
            return self._some(index)
        if index < 0:
            return self._from_end(-index)
        if index >= self.before and (self.history is not None or index < list.__len__(self)):
            refuse("one frame of those that a loop gathers, by its number; from the end, ys[-1], it serves")
        return list.__getitem__(self, index)

    def _some(self, index: slice) -> Any:
        start, stop = index.start, index.stop
        from_end = type(start) is int and start < 0 and (stop is None or (type(stop) is int and stop < 0))
        if self.history is None:
            self.has_used_length = True
            return list.__getitem__(self, index)
        if not from_end or index.step not in (None, 1):
            refuse(LOOPS_GROW)
        last = 0 if stop is None else -stop
        return [self._from_end(k) for k in range(-start, last, -1) if self.length() >= k]

    def __setitem__(self, index: Any, value: Any) -> None:
        n = list.__len__(self)
        if self.places is not None and (type(index) is FrameNumber or (self.history is None and index == n)):
            self._loop.of_one_frame |= type(index) is int  # a counter, which is the frame's number later
            place = index.off if type(index) is FrameNumber else index - self._loop.position
            if place == n - 1 - self._loop.first and n > self.before:  # once more
                list.__setitem__(self, -1, value)
                return
            if place != n - self._loop.first:
                refuse("a list is filled at another place than that of the frame; assign each frame once, in turn")
            list.append(self, value)
            return
        own = type(index) is int and (-index <= n - self.before if index < 0 else index < self.before)
        if self.history is not None and not own:
            refuse("an item that a loop gathered in an earlier frame is assigned; append what is final")
        self.has_used_length = True
        list.__setitem__(self, index, value)

    def __add__(self, other: Any) -> Any:
        out = Grown((), self._loop, self.history)
        list.extend(out, [*list.__iter__(self), *other])
        out.before, out.has_used_length, out.is_moved = self.before, self.has_used_length, self.is_moved
        return out

    insert, pop, reverse, clear, remove, sort, __delitem__ = map(
        _moving, ("insert", "pop", "reverse", "clear", "remove", "sort", "__delitem__")
    )
    __iter__, copy, __contains__, __reversed__ = map(_of_all, ("__iter__", "copy", "__contains__", "__reversed__"))


def has_grown(items: Any) -> bool:
    """Whether a loop has appended to a list."""
    return isinstance(items, Grown) and (items.history is not None or list.__len__(items) != items.before)


class Gathered:
    """What a list is after the loop that appended to it: `frames`, one for each of the loop, with L behind B.

    `dims` are the dimensions of one frame, and `see` shows a stream as a front end's own tensor. The `before`
    items that the list held before the loop serve in it, and are left out behind it. Where the loop had no frames,
    `last` returns the last of these.
    """

    def __init__(
        self, frames: StreamTensor, dims: tuple[Any, ...], see: Any, before: int = 0, last: Any = None
    ) -> None:
        self.frames, self._dims, self._see, self._before, self._last = frames, dims, see, before, last
        self._line = user_line()

    @property
    def length(self) -> Any:
        """How many there are."""
        return self._stream(0).shape[0]

    def _stream(self, axis: int) -> StreamTensor:
        if self._before:
            refuse(
                "a list that held something before the loop gathers frames, and is used as a whole; leave out "
                f"what it held, ys[{self._before}:], or append in the loop alone"
            )
        dims = (*self._dims[:axis], "L", *self._dims[axis:])
        return self.frames.with_dims(dims)

    def stacked(self, dim: int = 0) -> Any:
        """Return what ``stack`` gives."""
        n = len(self._dims) + 1
        if not -n <= dim < n:
            raise ShapeError(f"stack: dimension {dim} of {n}")
        return self._see(self._stream(dim % n))

    def joined(self, dim: int = 0) -> Any:
        """Return what ``cat`` gives, of frames that have one element along the dimension."""
        n = len(self._dims)
        if not -n <= dim < n:
            raise ShapeError(f"cat: dimension {dim} of {n}")
        axis = dim % n
        own = self._dims[axis]
        if isinstance(own, str) or self.frames.features[own] != 1:
            refuse("cat of what has more than one element for each frame along that dimension")
        stream: Any = self.frames.with_dims((*self._dims[:axis], "L", *self._dims[axis:])).squeeze(axis + 1)
        return self._see(stream)

    def __getitem__(self, index: Any) -> Any:
        if type(index) is slice and (index.start or 0) >= self._before:
            start = (index.start or 0) - self._before
            part = slice(
                start or None, index.stop if (index.stop or -1) < 0 else index.stop - self._before, index.step
            )
            return Gathered(self.frames[:, part], self._dims, self._see)
        if index == -1:
            return self._see(self._stream(0)[-1]) if self._last is None else self._last()
        refuse("one frame of those that a loop gathered, by its number; stack them, and take frames of that")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(list, name):
            raise AttributeError(name)
        refuse(f"`{name}` of a list that a loop gathered; stack it, and do so with the tensor")

    def _whole(self, *_: Any) -> NoReturn:
        refuse(LOOPS)

    __iter__ = __contains__ = __add__ = __radd__ = __mul__ = __bool__ = __setitem__ = __delitem__ = _whole

    def as_output(self) -> NoReturn:
        """Refuse to leave the forward."""
        raise NotStreamableError(f"{self._line}: {LOOPS.text}")

    def each(self) -> Frames:
        """Return what a loop over it goes over."""
        return EachFrame(self._stream(0), 0)


class GatheredParts(Gathered):
    """The same of complex tensors; `make` puts two parts together."""

    def __init__(self, real: Gathered, imag: Gathered, make: Any) -> None:
        super().__init__(real.frames, real._dims, None)
        self._parts, self._make = (real, imag), make

    def stacked(self, dim: int = 0) -> Any:
        """Return what ``stack`` gives."""
        return self._make([part.stacked(dim) for part in self._parts])

    def joined(self, dim: int = 0) -> Any:
        """Return what ``cat`` gives."""
        return self._make([part.joined(dim) for part in self._parts])

    def __getitem__(self, index: Any) -> Any:
        if type(index) is slice:
            real, imag = (part[index] for part in self._parts)
            return GatheredParts(real, imag, self._make)
        return self._make([part[index] for part in self._parts])

    def each(self) -> Frames:
        return InParts([part.each() for part in self._parts], self._make)
