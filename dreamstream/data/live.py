"""Streams that arrive while they are heard: chunks of many callers in one queue."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty
from typing import Any, NamedTuple

import numpy as np

from ..errors import StreamIdError
from .reading import as_given, frames_first, joined


class Row(NamedTuple):
    """A stream's part of a batch."""

    id: str
    frames: Any
    sos: bool
    eos: bool


class _Caller:
    """What has come of a stream and was not given out."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []  # arrays, L first
        self.kind: Any = None  # an array without frames
        self.ended = False
        self.begun = False

    def take(self, chunk: int | None, axis: int) -> Any:
        """Return the frames that wait, `chunk` of them at most."""
        frames = joined(self.waiting or [self.kind])
        self.waiting = [frames[chunk:]] if chunk is not None and len(frames) > chunk else []
        return as_given(frames[:chunk], axis)


def live_rows(queue: Any, chunk: int | None, lanes: int, axis: int) -> Iterator[list[Row]]:
    """Yield batches of what is there when they are asked for; wait only where nothing is.

    Parameters
    ----------
    queue
        ``get()`` and ``get_nowait()`` return ``(id, chunk)``, ``(id, None)`` when a stream has ended, and None
        when no more will come, which ends the streams that are left.
    """
    callers: dict[str, _Caller] = {}
    closed = False
    while callers or not closed:
        wait = not any(c.waiting or c.ended for c in callers.values())
        while not closed:
            try:
                event = queue.get() if wait else queue.get_nowait()
            except Empty:
                break
            wait = False
            if event is None:
                closed = True
                for caller in callers.values():
                    caller.ended = True
            else:
                _take(callers, event, axis)
        rows = []
        for i in [i for i, c in callers.items() if c.waiting or c.ended][:lanes]:
            caller = callers.pop(i)  # those that got their turn queue up behind the others
            frames = caller.take(chunk, axis)
            eos = caller.ended and not caller.waiting
            rows.append(Row(i, frames, not caller.begun, eos))
            caller.begun = True
            if not eos:
                callers[i] = caller
        if rows:
            yield rows


def _take(callers: dict[str, _Caller], event: Any, axis: int) -> None:
    if not isinstance(event, tuple) or len(event) != 2 or not isinstance(event[0], str):
        raise StreamIdError(f"a live queue takes (id, chunk), (id, None) or None, got {event!r:.100}")
    i, chunk = event
    caller = callers.get(i)
    if caller is None:
        if chunk is None:
            raise StreamIdError("a stream ended that has not begun", [i])
        caller = callers[i] = _Caller()
    if caller.ended:
        raise StreamIdError("a chunk came after the stream's end, before that was given out", [i])
    if chunk is None:
        caller.ended = True
        return
    frames = frames_first(np.asarray(chunk), axis)
    caller.kind = frames[:0]
    if len(frames):
        caller.waiting.append(frames)
