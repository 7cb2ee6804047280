"""Frames that are rolled along L: the first ones are a stream's last, which nobody knows before its end.

Most forwards write over them (``y = x.roll(1, 1); y[:, 0] = 0``) or leave them out (``y[:, 1:]``); then y is the
stream with others in front. Rolled the other way it is the last ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import NotStreamableError
from ..source_line import user_line
from ..stream.rules import Length
from .first_frame import FirstFrame, with_first
from .loop_frames import is_all, parts_of
from .stream_tensor import StreamTensor

#: What stands for frames that aren't known: no 0, which has no inverse and no logarithm.
_ANY = 0.618


class Rolled:
    """In a view's place: frames that wait for what becomes of those that aren't known.

    Parameters
    ----------
    of : StreamTensor
        The frames, with others in the place of those that aren't known.
    front, back : int
        How many of the first frames, and of the last, aren't known.
    """

    waits = True  # its tensor is `_waiting`

    def __init__(self, of: StreamTensor, front: int, back: int) -> None:
        self.of, self.front, self.back, self._line = of, front, back, user_line()

    def _part(self, index: Any) -> tuple[list[Any], int, Any]:
        """Return the parts of an index, which of them takes frames, and which it takes."""
        parts = parts_of(index, self.of.ndim)
        places, axis = [i for i, p in enumerate(parts) if p is not None], self.of.dims.index("L")
        at = places[axis] if axis < len(places) else self.refuse()
        part = parts[at]
        return parts, at, slice(part, part + 1 or None) if type(part) is int else part

    def write(self, out: StreamTensor, index: Any, value: Any) -> None:
        """Let `out` be the frames with a value in the place of those that aren't known."""
        parts, at, part = self._part(index)
        taken = (part.start or 0, part.stop, part.step or 1) if type(part) is slice else None
        item = getattr(value, "item", None)
        number = value if isinstance(value, (int, float)) else item() if item and value.shape == () else None
        first = taken == (0, self.front, 1)
        front, back = (0, self.back) if first else (self.front, 0)
        if not (first or taken == (-self.back, None, 1)) or not all(map(is_all, parts[:at] + parts[at + 1 :])):
            self.refuse()
        if isinstance(value, FirstFrame) and first and (self.front, self.back) == (1, 0):
            made = with_first(self.taken((slice(None),) * at + (slice(1, None),)), value, 0)
        elif number is not None:
            n = self.front if first else -self.back
            made = _shifted(_shifted(self.of, -n, 0.0), n, float(number))
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

    def through(self, call: Callable[..., Any], args: Any) -> Any:
        """Return what a function of each frame by itself gives of these frames, which waits as they do."""
        found = [getattr(x, "_waiting", None) for x in args]
        made = call(*(x if view is None else view.of for x, view in zip(args, found)))
        views = [view for view in found if view is not None]
        if type(made) is not StreamTensor:
            self.refuse()
        return waiting(made, max(v.front for v in views), max(v.back for v in views))

    def taken(self, index: Any) -> Any:
        """Return what an index takes that leaves out the frames that aren't known."""
        parts, at, part = self._part(index)
        if type(part) is not slice or type(part.start or 0) is not int or (part.start or 0) < self.front:
            self.refuse()
        stop = part.stop - self.of.shape[self.of.dims.index("L")] if isinstance(part.stop, Length) else part.stop
        if self.back and not (type(stop) is int and stop <= -self.back):
            self.refuse()
        parts[at] = part
        out: StreamTensor = self.of[tuple(parts)]
        return out.with_dims(out.dims, out.names)  # what is written into it is written into the rolled frames

    def again(self, out: StreamTensor) -> NoReturn:
        """Refuse any other use."""
        self.refuse()

    def refuse(self) -> NoReturn:
        """Say what rolled frames are for."""
        raise NotStreamableError(
            f"roll along L, at {self._line}: the first frames are the stream's last, which are known at its end; "
            "write a number over all of them (y[:, :n] = 0), leave them out (y[:, n:]), or pad in front and drop "
            "at the end (F.pad)"
        )


def rolled(x: StreamTensor, count: int) -> StreamTensor:
    """Return frames that are rolled along L by so many."""
    if not count:
        return x.with_dims(x.dims, x.names)
    return waiting(_shifted(x, count, _ANY if x.dtype.kind == "f" else 1), max(count, 0), max(-count, 0))


def waiting(of: StreamTensor, front: int, back: int) -> StreamTensor:
    """Return what waits, of which only dimensions and type are known; the arguments are those of `Rolled`."""
    out = of.with_dims(of.dims, of.names)
    del out.value, out.edge
    out._view = Rolled(of, front, back)
    return out


def _shifted(x: StreamTensor, n: int, number: float) -> StreamTensor:
    """Return as many frames, so many of the number before them; or behind them, where it is below 0."""
    padded = x._through("pad", {"left": max(n, 0), "right": max(-n, 0), "value": number})
    return padded._through("slice", {"start": max(-n, 0), "crop": max(n, 0), "step": 1})
