"""What a slice of the stream axis means inside a forward.

There the axis is the *whole* stream, so a slice is relative to its beginning and its end, not to the
chunk: ``[a:]`` drops the first a frames, ``[:-b]`` the last b, ``[::k]`` takes every k-th and
``[:y.size(L)]`` cuts to another length. The rest would need to know how long the stream becomes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import NotStreamableError
from ._ints import as_int, is_integer
from .lengths import BatchLength, BatchSize, Length

__all__ = ["StreamSlice", "stream_slice", "taken"]


class StreamSlice(NamedTuple):
    """A slice of the whole stream."""

    start: int  #: First frame, 0 or more.
    crop: int  #: Frames dropped at the stream's end, 0 or more.
    step: int  #: Every step-th frame from `start` on, 1 or more.
    stop_length: Length | None  #: The absolute position to stop at; then `crop` is 0.


def _refuse(index: Any, reason: str, remedy: str) -> NotStreamableError:
    return NotStreamableError.here(f"x[..., {_text(index)}, ...] on the stream axis", f": {reason}; {remedy}")


def _text(index: Any) -> str:
    if not isinstance(index, slice):
        return repr(index)
    start, stop, step = ("" if p is None else repr(p) for p in (index.start, index.stop, index.step))
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def stream_slice(index: Any) -> StreamSlice:
    """Read an index on the stream axis inside a forward.

    It is a slice of a start of 0 or more, a stop that is none, negative or a `Length`, and a step of 1 or more.
    For any other, NotStreamableError says the user's line, the reason and what would work.

    >>> stream_slice(slice(2, -3))
    StreamSlice(start=2, crop=3, step=1, stop_length=None)
    """
    tokens = (Length, BatchSize, BatchLength)
    if not isinstance(index, slice):
        if is_integer(index) or isinstance(index, tokens):
            raise _refuse(
                index,
                "a frame at a constant position comes once, and is no stream",
                "use a slice (x[..., a:], x[..., :-b], x[..., ::k]), or pick the frame outside the forward",
            )
        raise _refuse(
            index,
            "a list, mask or array picks frames by their position in a chunk",
            "use a slice (x[..., a:], x[..., :-b], x[..., ::k])",
        )
    start, stop, step = index.start, index.stop, index.step
    if isinstance(start, tokens):
        raise _refuse(index, "it starts where the stream's end is known", "give a start of 0 or more")
    first = 0 if start is None else as_int(start, "the start of a slice")
    if first < 0:
        raise _refuse(
            index,
            "a start counted from the end needs the whole stream",
            "give a start of 0 or more, or take the last frames outside the forward",
        )
    if isinstance(step, tokens):
        raise _refuse(index, "the step is no number", "give an integer of 1 or more")
    every = 1 if step is None else as_int(step, "the step of a slice")
    if every < 1:
        raise _refuse(index, "a stream can't be read backwards or stand still", "give a step of 1 or more")
    if stop is None:
        return StreamSlice(first, 0, every, None)
    if isinstance(stop, Length):
        return StreamSlice(first, 0, every, stop)
    if isinstance(stop, tokens):
        raise _refuse(index, "the stop is no position in a stream", "use x[..., :y.size(L)]")
    last = as_int(stop, "the stop of a slice")
    if last >= 0:
        raise _refuse(
            index,
            f"it ends at the constant position {last}, after which the output would go on without frames",
            "use a stop counted from the end (x[..., :-b]) or another tensor's length (x[..., :y.size(L)])",
        )
    return StreamSlice(first, -last, every, None)


def taken(length: Length, part: slice) -> Length | None:
    """Return how many frames a slice takes of so many; None where that is not known."""
    start, stop, step = 0 if part.start is None else part.start, part.stop, part.step or 1
    if isinstance(stop, Length):
        return stop if isinstance(start, int) and start == 0 and step == 1 else None
    if not isinstance(step, int) or step < 1 or (stop or -1) >= 0:
        return None
    if not isinstance(start, (int, Length)) or start < 0:
        return None
    return ((length + ((stop or 0) + step - 1) - start) // step).counting()
