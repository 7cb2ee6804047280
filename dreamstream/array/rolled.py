"""Frames that are rolled along L: the first ones are a stream's last, which nobody knows before its end.

Most forwards write over them (``y = x.roll(1, 1); y[:, 0] = 0``), leave them out (``y[:, 1:]``) or hide them under
a mask of positions; then y is the stream with others in front. Rolled the other way it is the last ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from ..errors import NotStreamableError
from ..source_line import user_line
from ..stream.rules import BatchSize, Length
from ..stream.tree import map_leaves
from .deferred import Deferred, count_of, flat
from .elementwise import ones_of, where
from .first_frame import FirstFrame, with_first
from .loop_frames import is_all, parts_of
from .stream_tensor import StreamTensor


class Rolled:
    """In a view's place: frames that wait for what becomes of those that aren't known.

    Parameters
    ----------
    of : StreamTensor
        The frames, with others in the place of those that aren't known.
    front, back : int
        How many of the first frames, and of the last, aren't known.
    is_rolled : bool
        Whether `of` is rolled; if not, it is what is to be rolled.
    """

    waits = True

    def __init__(self, of: StreamTensor, front: int, back: int, is_rolled: bool = True) -> None:
        self.of, self.front, self.back, self._is_rolled, self._line = of, front, back, is_rolled, user_line()

    @cached_property
    def made(self) -> StreamTensor:
        """The frames, with numbers in the place of those that aren't known: no zeros, which have no inverse."""
        if self._is_rolled:
            return self.of
        return _shifted(self.of, self.front - self.back, _ANY if self.of.dtype.kind == "f" else 1)

    # ------------------------------------------------------------------ what becomes of them
    def write(self, out: StreamTensor, index: Any, value: Any) -> None:
        """Let `out` be the frames with a value in the place of those that aren't known."""
        parts = parts_of(index, self.of.ndim)
        axis = self.of.dims.index("L")
        part = parts[axis] if axis < len(parts) and None not in parts else None
        part = slice(part, part + 1 or None) if type(part) is int else part
        taken = (part.start or 0, part.stop, part.step or 1) if type(part) is slice else None
        item = getattr(value, "item", None)
        number = value if isinstance(value, (int, float)) else item() if item and value.shape == () else None
        first = taken == (0, self.front, 1)
        is_all_else = all(is_all(p) for i, p in enumerate(parts) if i != axis)
        if not is_all_else or not (first or (self.back and taken == (-self.back, None, 1))):
            self.refuse()
        if isinstance(value, FirstFrame) and first and (self.front, self.back) == (1, 0):
            made = with_first(self._known(), value, 0)
        elif number is not None:
            made = self.filled(float(number), first)
            if self.front and self.back:
                made = waiting(made, *((0, self.back) if first else (self.front, 0)))
        else:
            self.refuse()
        self.become(out, made)

    def become(self, out: StreamTensor, made: StreamTensor) -> None:
        """Let `out` be what was made of it in place."""
        view = made._view if _waits(made) else None
        if (made if view is None else view.of).roles != self.of.roles:
            self.refuse()
        for other, _ in out._relatives():
            other.forget()
        out._view = view
        if view is None:
            out.value, out.edge, out.dims, out._names = made.value, made.edge, made.dims, self.of._names

    def _known(self) -> StreamTensor:
        """Return the frames without those that aren't known."""
        start, crop = (self.front, self.back) if self._is_rolled else (self.back, self.front)
        return self.of._through("slice", {"start": start, "crop": crop, "step": 1})

    def filled(self, number: float, first: bool = True) -> StreamTensor:
        """Return the frames with a number in the place of the first, or of the last, that aren't known."""
        if not self._is_rolled:
            return _shifted(self.of, self.front - self.back, number)
        of: Any = self.of
        n = self.front if first else self.back
        behind = {"start": n, "crop": 0, "step": 1}
        ones = ones_of(of)
        there: Any = (
            _shifted(ones, n, 0.0)
            if first
            else ones._through("slice", behind)._through("pad", {"left": 0, "right": n})
        )
        return where(there.gt(0.5), of, number).with_dims(of.dims, of.names)  # type: ignore[return-value]

    def through(self, call: Callable[..., Any], args: Any) -> Any:
        """Return what a function of each frame by itself gives of these frames, which waits as they do."""
        made = call(*(x._view.made if _waits(x) else x for x in args))
        if type(made) is not StreamTensor:
            self.refuse()
        views = [x._view for x in args if _waits(x)]
        return waiting(made, max(v.front for v in views), max(v.back for v in views))

    def taken(self, index: Any) -> Any:
        """Return what an index takes that leaves out the frames that aren't known."""
        parts = parts_of(index, self.of.ndim)
        places = [i for i, p in enumerate(parts) if p is not None]
        axis = self.of.dims.index("L")
        part = parts[places[axis]] if axis < len(places) else None
        if type(part) is not slice or part.step not in (None, 1):
            self.refuse()
        start, stop = part.start or 0, part.stop
        before = stop - self.of.shape[axis] if isinstance(stop, Length) else stop
        from_end = type(before) is int and before < 0
        if type(start) is not int or start < self.front or (self.back and not (from_end and before <= -self.back)):
            self.refuse()
        if from_end:
            stop = before + self.back or None
        elif stop is not None:
            stop = None if type(before) is int and before == 0 and stop is not before else stop - self.front
        parts[places[axis]] = slice(start - self.front, stop)
        out = self._known()[tuple(parts)]
        return out.with_dims(out.dims, out.names)  # what is written into it is written into the rolled frames

    # ------------------------------------------------------------------ what can't be
    def again(self, out: StreamTensor) -> NoReturn:
        """Refuse any other use."""
        self.refuse()

    def refuse(self) -> NoReturn:
        """Say what rolled frames are for."""
        raise NotStreamableError(
            f"roll along L, at {self._line}: the first frames are the stream's last, which are known at its end; "
            "write a number over all of them (y[:, :n] = 0), leave them out (y[:, n:]), or pad in front and drop at "
            "the end (F.pad)"
        )


def rolled(x: StreamTensor, count: int) -> StreamTensor:
    """Return frames that are rolled along L by so many."""
    return waiting(x, max(count, 0), max(-count, 0), False) if count else x.with_dims(x.dims, x.names)


def waiting(of: StreamTensor, front: int, back: int, is_rolled: bool = True) -> StreamTensor:
    """Return what waits, of which only dimensions and type are known; the arguments are those of `Rolled`."""
    out = of.with_dims(of.dims, of.names)
    del out.value, out.edge
    out._view = Rolled(of, front, back, is_rolled)
    return out


def _shifted(x: StreamTensor, count: int, number: float) -> StreamTensor:
    """Return as many frames that begin with a number `count` times, or end with it, where `count` is below 0."""
    n = count
    padded = x._through("pad", {"left": max(n, 0), "right": max(-n, 0), "value": number})
    return padded._through("slice", {"start": max(-n, 0), "crop": max(n, 0), "step": 1})


def settled(
    library: Any, func: Callable[..., Any], args: Any, kwargs: Any, bare: Callable[[Any], Any] = lambda x: x
) -> Any:
    """Return the arguments of a function of positions with any frames for those that it hides of rolled streams.

    Whether it hides them is asked of the function: with other numbers in their place it gives the same. `bare`
    returns arguments as the library's functions take them.
    """
    found = [x for x in flat((args, kwargs)) if _waits(x)]
    if not found or not all(_hides(library, func, bare(args), bare(kwargs), n) for n in _LENGTHS):
        return args, kwargs
    return map_leaves((args, kwargs), lambda x: x._view.made if _waits(x) else x)


_LENGTHS = (16, 64, 65)
_ANY = 0.618


def _waits(x: Any) -> bool:
    return type(x) is StreamTensor and "edge" not in vars(x) and isinstance(x._view, Rolled)


def _hides(library: Any, func: Callable[..., Any], args: Any, kwargs: Any, n: int) -> bool:
    """Whether a function of n frames hides those of rolled streams that aren't known."""
    at = Deferred(library, func, (), {})

    def count(length: Length) -> int:
        return count_of(length, n)

    def given(x: Any, seed: int) -> Any:
        if type(x) is not StreamTensor:
            return at._at(x, count)
        of = x._view.of if _waits(x) else x
        sizes = [count(s) if isinstance(s, Length) else 1 if isinstance(s, BatchSize) else s for s in of.shape]
        numbers = np.random.default_rng(0).uniform(0.5, 1.5, sizes).astype(np.float32)
        if _waits(x):
            hidden = np.moveaxis(numbers, of.dims.index("L"), 0)
            hidden[: x._view.front] += seed
            hidden[n - x._view.back :] += seed
        return library.array(numbers)

    with library.evaluating():
        first, second = (
            library.compute(func, *map_leaves((tuple(args), dict(kwargs)), lambda x, seed=seed: given(x, seed)))
            for seed in (0, 1)
        )
    return np.array_equal(first.numpy(), second.numpy())
