"""Frames that are rolled along L: the first ones are a stream's last, which nobody knows before its end.

Most forwards write over them (``y = x.roll(1, 1); y[:, 0] = 0``); then y is the stream with others in front.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import NotStreamableError
from ..source_line import user_line
from .first_frame import FirstFrame, with_first
from .loop_frames import is_all, parts_of
from .stream_tensor import StreamTensor


class Rolled:
    """In a view's place: frames that wait for what is written over the first ones."""

    def __init__(self, x: StreamTensor, count: int) -> None:
        self._x, self._count, self._line = x, count, user_line()

    def write(self, out: StreamTensor, index: Any, value: Any) -> None:
        """Let `out` be the frames with a value in the place of the first ones."""
        x, n = self._x, self._count
        parts = parts_of(index, x.ndim)
        axis = x.dims.index("L")
        part = parts[axis] if axis < len(parts) else None
        part = slice(0, 1) if type(part) is int and part == 0 else part
        taken = (part.start or 0, part.stop, part.step or 1) if type(part) is slice else None
        others = [p for i, p in enumerate(parts) if i != axis]
        item = getattr(value, "item", None)
        number = value if isinstance(value, (int, float)) else item() if item and value.shape == () else None
        if None in parts or taken != (0, n, 1) or not all(map(is_all, others)):
            self.refuse()
        crop = {"start": 0, "crop": n, "step": 1}
        if isinstance(value, FirstFrame) and n == 1:
            made = with_first(x._through("slice", crop), value, 0)
        elif number is not None:
            made = x._through("pad", {"left": n, "right": 0, "value": float(number)})._through("slice", crop)
        else:
            self.refuse()
        out._view = None
        out.value, out.edge, out.dims, out._names = made.value, made.edge, made.dims, x._names

    def again(self, out: StreamTensor) -> NoReturn:
        """Refuse any other use."""
        self.refuse()

    def refuse(self) -> NoReturn:
        """Say what rolled frames are for."""
        raise NotStreamableError(
            f"roll along L, at {self._line}: the first frames are the stream's last, which are known at its end; "
            "write a number over all of them (y[:, :n] = 0), or pad in front and drop at the end (F.pad)"
        )


def rolled(x: StreamTensor, count: int) -> StreamTensor:
    """Return frames that are rolled along L by so many."""
    out = x.with_dims(x.dims, x.names)
    waiting = Rolled(x, count)
    if count < 1:
        waiting.refuse()
    out.forget()
    out._view = waiting
    return out
