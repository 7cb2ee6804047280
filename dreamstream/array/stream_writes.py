"""torch's methods that write into a stream tensor inside a forward."""

from __future__ import annotations

from typing import Any

from ..errors import ModeError, NotStreamableError
from . import writing
from .creation import full_like
from .elementwise import filling
from .ends import with_last
from .first_frame import FirstFrame, write_first
from .frame_numbers import number_in
from .loop_frames import placed, set_frame
from .rolled import UnknownFrames
from .stream_tensor import StreamTensor
from .tensor import Tensor, take


def __setitem__(self: StreamTensor, index: Any, value: Any) -> None:
    if writing.is_own_part(self, index, value) or (isinstance(value, UnknownFrames) and value.of is self):
        return  # as behind y[:, :1] *= 0, which has written it
    if self._waiting is not None:
        self._waiting.write(self, index, value)
        return
    if number_in(index := placed(self, index)):
        set_frame(self, index, value)
        return
    if isinstance(value, FirstFrame) and self.edge is not None and write_first(self, index, value):
        return
    if self.edge is None:
        raise NotStreamableError.here("a stream's frames can't be assigned to outside a forward")
    if (whole := with_last(self, index, value)) is not None:
        writing.write(self, whole, "assignment")
        return
    writing.write(self, writing.assign(self, index, value), "assignment")


def _write(self: Any, name: str, value: Any) -> Any:
    if self._ends is None and self.edge is None:
        raise ModeError(f"{name}: a stream can't be written into outside a forward; compute a new tensor instead")
    return writing.write(self, value, name)


def fill_(self: Any, value: Any) -> Any:
    number = filling(self, value)
    return self._write(
        "fill_", full_like(self, 0) + number if isinstance(number, Tensor) else full_like(self, number)
    )


def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    self[...] = src
    return self


take(StreamTensor, globals(), _write=_write)
