"""Frames that are rolled along L: the first ones are a stream's last, which nobody knows before its end.

Most forwards write over them (``y = x.roll(1, 1); y[:, 0] = 0``), leave them out (``y[:, 1:]``) or hide them under
a mask of positions (``y * (arange(L) > 0)``); then y is the stream with others in front. Rolled the other way it
is the last ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import NotStreamableError
from ..source_line import user_line
from ..stream.rules import Length, is_full_slice
from ..stream.tree import map_leaves
from .deferred import Deferred, flat, is_deferred
from .dimension_arguments import parts_of
from .elementwise import ones_of, where
from .ends import last_frames_of
from .first_frame import FirstFrame, with_first
from .lengths_as_numbers import count_of
from .protocol import Unread
from .stream_tensor import StreamTensor

#: What stands for frames that aren't known: no 0, which has no inverse and no logarithm.
_ANY = 0.618
#: Functions that may leave out what they are given at some positions: a factor of 0, the other of two operands.
_HIDING = frozenset(("mul", "rmul", "imul", "multiply", "masked_fill", "where"))


class Rolled:
    """In a view's place: frames that wait for what becomes of those that aren't known.

    `of` has others in the place of these, `front` of the first frames and `back` of the last.
    """

    waits = True  # its tensor is `_waiting`

    def __init__(self, of: StreamTensor, front: int, back: int) -> None:
        self.of, self.front, self.back, self._line = of, front, back, user_line()

    def _part(self, index: Any) -> tuple[list[Any], int, Any]:
        """Return the parts of an index, which of them takes frames, and which it takes."""
        parts = parts_of(index, self.of.ndim)
        at = [i for i, p in enumerate(parts) if p is not None][self.of.dims.index("L")]
        part = parts[at]
        return parts, at, slice(part, part + 1 or None) if type(part) is int else part

    def write(self, out: StreamTensor, index: Any, value: Any) -> None:
        """Let `out` be the frames with a value in the place of those that aren't known, and maybe of more."""
        parts, at, part = self._part(index)
        if type(part) is not slice or not all(map(is_full_slice, parts[:at] + parts[at + 1 :])):
            self.refuse()
        start, stop = part.start or 0, part.stop
        first = type(start) is type(stop) is int and start == 0 and stop >= self.front > 0
        last = type(start) is int and start <= -self.back < 0 and stop is None
        if part.step not in (None, 1) or not (first or last):
            self.refuse()
        n, front, back = (stop, 0, self.back) if first else (start, self.front, 0)
        item = getattr(value, "item", None)
        number = value if isinstance(value, (int, float)) else item() if item and value.shape == () else None
        if isinstance(value, FirstFrame) and first and (n, self.front, self.back) == (1, 1, 0):
            made = with_first(self.taken((slice(None),) * at + (slice(1, None),)), value, 0)
        elif number is not None:
            made = self.of._padded(-n, n, value=0.0)._padded(n, -n, value=float(number))
        elif abs(n) == 1 and not getattr(value, "is_stream", False) and hasattr(value, "unsqueeze"):
            of: Any = self.of
            lacks = type(parts_of(index, of.ndim)[at]) is int and value.ndim >= of.ndim - at
            there: Any = ones_of(of)._padded(-n, n, value=0.0)._padded(n, -n, value=0.0)
            made = where(there.gt(0.5), of, value.unsqueeze(at - of.ndim) if lacks else value)
        else:
            self.refuse()
        self.become(out, waiting(made, front, back) if front or back else made)

    def become(self, out: StreamTensor, made: Any) -> None:
        """Let `out` be what was made of it in place."""
        view = getattr(made, "_waiting", None)
        of = made if view is None else view.of
        if not isinstance(of, StreamTensor) or of.roles != self.of.roles:
            self.refuse()
        for other, _ in out._relatives():
            other.forget()
        out._view = view
        if view is None:
            out.value, out.edge, out.dims, out._names = made.value, made.edge, made.dims, self.of._names

    def apply_function(self, call: Callable[..., Any], args: Any, of_positions: Any = None) -> Any:
        """Return what a function of each frame by itself gives of these frames, which waits as they do.

        Of positions, too, it doesn't where it hides those that aren't known; it is asked as `of_positions`.
        """
        if of_positions is not None and any(map(is_deferred, args)):
            library = self.of.edge.entry.library  # type: ignore[union-attr]
            args, _ = settled(library, of_positions, args, {})
        found = [getattr(x, "_waiting", None) for x in args]
        made = call(*(x if view is None else view.of for x, view in zip(args, found)))
        views = [view for view in found if view is not None]
        if type(made) is not StreamTensor:
            self.refuse()
        return waiting(made, max(v.front for v in views), max(v.back for v in views)) if views else made

    def taken(self, index: Any, out: StreamTensor | None = None) -> Any:
        """Return what an index takes of frames, `out`: those that aren't known are there to be written."""
        parts, at, part = self._part(index)
        if type(part) is not slice or type(part.start or 0) is not int:
            self.refuse()
        stop = part.stop - self.of.shape[self.of.dims.index("L")] if isinstance(part.stop, Length) else part.stop
        if (part.start or 0) < self.front or (self.back and not (type(stop) is int and stop <= -self.back)):
            return self.refuse() if out is None else UnknownFrames(out, index, self)
        parts[at] = part
        known: StreamTensor = self.of[tuple(parts)]
        # What is written into it is written into the rolled frames.
        return known.with_dims(known.dims, known.names)

    def retake(self, out: StreamTensor) -> NoReturn:
        """Refuse any other use."""
        self.refuse()

    def refuse(self) -> NoReturn:
        """Say what rolled frames are for."""
        raise NotStreamableError(
            f"roll along L, at {self._line}: the first frames are the stream's last, which are known at its end; "
            "write a number over all of them (y[:, :n] = 0), leave them out (y[:, n:]), or pad in front and drop "
            "at the end (F.pad)"
        )


class UnknownFrames(Unread):
    """What an index takes of rolled frames where not all are known: it is written, and serves nothing else."""

    def __init__(self, of: StreamTensor, index: Any, rolled: Rolled) -> None:
        self.of, self._index, self._rolled = of, index, rolled

    def fill_(self, value: Any) -> UnknownFrames:
        """Write a value over them."""
        self._rolled.of.edge.entry.library.see(self.of)[self._index] = value  # type: ignore[union-attr]
        return self

    def copy_(self, src: Any, non_blocking: bool = False) -> UnknownFrames:
        """Write a value over them."""
        return self.fill_(src)

    def zero_(self) -> UnknownFrames:
        """Write zeros over them."""
        return self.fill_(0.0)

    def mul_(self, other: Any) -> UnknownFrames:
        """Write zeros over them, if they are multiplied by 0."""
        return self.zero_() if isinstance(other, (int, float)) and other == 0 else self.refuse()

    __imul__ = mul_

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Say what it is not for."""
        self._rolled.refuse()


def settled(library: Any, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the arguments of a function of positions, with any frames in the place of rolled ones that it hides.

    Whether it hides them is asked of the function: with other numbers in their place it gives the same.
    """
    found = [x for x in flat((args, kwargs)) if type(x) is StreamTensor and x._view is not None and x._waiting]
    name = func.__name__.strip("_").removesuffix("_function")
    if not found or name not in _HIDING or not all(_hides(library, func, args, kwargs, n) for n in _LENGTHS):
        return args, kwargs
    return map_leaves((args, kwargs), lambda x: x._waiting.of if any(x is y for y in found) else x)


#: Frames of streams at which functions are asked, beside those that aren't known.
_LENGTHS = (16, 64, 65)


def _hides(library: Any, func: Callable[..., Any], args: Any, kwargs: Any, n: int) -> bool:
    """Whether a function of so many frames gives the same with other numbers in the place of those not known."""
    at = Deferred(library, func, (), {})

    def given(x: Any, other: float) -> Any:
        if type(x) is not StreamTensor:
            return at._at(x, lambda length: count_of(length, n))
        of, waits = x._alike, x._waiting if x._view is not None else None
        sizes = [at._at(s, lambda length: count_of(length, n)) for s in of.shape]
        numbers = np.random.default_rng(0).uniform(0.5, 1.5, sizes)
        if waits is not None:
            frames = np.moveaxis(numbers, of.dims.index("L"), 0)
            frames[: waits.front] += other
            frames[len(frames) - waits.back :] += other
        return library.array(numbers.astype(of.dtype))

    def made(other: float) -> Any:
        return library.compute(func, *map_leaves((tuple(args), dict(kwargs)), lambda x: given(x, other)))

    with library.evaluating():
        return all(bool((made(0.0) == made(other)).all()) for other in (1.0, -7.0))


def rolled(x: StreamTensor, count: int) -> StreamTensor:
    """Return frames that are rolled along L by so many."""
    if not count:
        return x.with_dims(x.dims, x.names)
    known = x._padded(count, -count, value=_ANY if x.dtype.kind == "f" else 1)
    return waiting(known, max(count, 0), max(-count, 0))


def turned(tensors: Sequence[Any], axis: int) -> StreamTensor | None:
    """Return a stream rolled along L, where it is joined of its last frames and those before them; else None."""
    if len(tensors) != 2 or (last := last_frames_of(tensors[0])) is None or not last.is_once:
        return None
    view = getattr(tensors[1], "_view", None)
    of, args = getattr(view, "of", None), getattr(view, "args", ())
    if type(of) is not StreamTensor or of._waiting is not None or of.edge is not last.of.edge or not args:
        return None
    front = (slice(None),) * axis
    before = (*front, slice(None, -last.count))
    same = of.dims[axis : axis + 1] == ("L",) and parts_of(args[0], of.ndim)[: axis + 1] == list(before)
    rest = parts_of(args[0], of.ndim)[axis + 1 :]
    return rolled(of, last.count) if same and all(map(is_full_slice, rest)) else None


def waiting(of: StreamTensor, front: int, back: int) -> StreamTensor:
    """Return what waits, of which only dimensions and type are known; the arguments are those of `Rolled`."""
    out = of.with_dims(of.dims, of.names)
    del out.value, out.edge
    out._view = Rolled(of, front, back)
    return out
