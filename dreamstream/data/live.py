"""Streams that arrive while they are heard: chunks of many callers in one queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any, NamedTuple

import numpy as np

from ..errors import DreamStreamError, DTypeError, ShapeError, SourceError, StreamIdError, StreamMismatchError
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
        self.ended = False
        self.begun = False


class Live:
    """The streams of a queue, as `StreamLoader` has it; what was not given out waits for the next iteration."""

    def __init__(self, queue: Any, axis: int) -> None:
        self._queue, self._axis = queue, axis
        self._callers: dict[str, _Caller] = {}
        self._closed = False
        self._empty: Any = None  # an array without frames, else like the chunks
        self._has_frames = False  # whether one of them had any; one that has none may be of another type

    def rows(
        self, chunk: int | None, lanes: int, skip: Callable[[SourceError], None] | None
    ) -> Iterator[list[Row]]:
        """Yield batches of what is there when they are asked for; wait only where nothing is.

        An event that is refused changes nothing. It is raised, or handed to `skip`.
        """
        callers = self._callers
        while callers or not self._closed:
            wait = not any(c.waiting or c.ended for c in callers.values())
            while not self._closed:
                try:
                    event = self._queue.get() if wait else self._queue.get_nowait()
                except Empty:
                    break
                try:
                    self._take(event)
                except DreamStreamError as error:
                    if skip is None:
                        raise
                    skip(SourceError(f"{type(error).__name__}: {error._message}", error.ids))
                else:
                    wait = False
            rows = []
            for i in [i for i, c in callers.items() if c.waiting or c.ended][:lanes]:
                caller = callers.pop(i)  # those that got their turn queue up behind the others
                frames = joined(caller.waiting or [self._empty])
                caller.waiting = [frames[chunk:]] if chunk is not None and len(frames) > chunk else []
                eos = caller.ended and not caller.waiting
                rows.append(Row(i, as_given(frames[:chunk], self._axis), not caller.begun, eos))
                caller.begun = True
                if not eos:
                    callers[i] = caller
            if rows:
                yield rows
        self._closed = False

    def _take(self, event: Any) -> None:
        if event is None:
            self._closed = True
            for caller in self._callers.values():
                caller.ended = True
            return
        if not isinstance(event, tuple) or len(event) != 2 or not isinstance(event[0], str):
            raise StreamIdError(f"a live queue takes (id, chunk), (id, None) or None, got {event!r:.100}")
        i, chunk = event
        if chunk is None and i not in self._callers:
            raise StreamIdError("a stream ended that has not begun", [i])
        caller = self._callers.get(i) or _Caller()
        if caller.ended:
            raise StreamIdError("a chunk came after the stream's end, before that was given out", [i])
        if chunk is None:
            caller.ended = True
            return
        try:
            frames = frames_first(np.asarray(chunk), self._axis)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ShapeError(f"a live queue takes chunks that are arrays: {error}", [i]) from error
        if frames.dtype.kind not in "biufc":
            raise DTypeError(f"a live queue takes chunks of numbers, got {frames.dtype.name}", [i])
        if not self._has_frames:
            self._empty, self._has_frames = frames[:0], len(frames) > 0
        (kind, features), (of, like) = ((a.dtype.name, a.shape[1:]) for a in (frames, self._empty))
        if len(frames) and (kind, features) != (of, like):
            raise StreamMismatchError(
                f"a chunk has frames of {features} {kind}, those before it of {like} {of}", [i]
            )
        self._callers[i] = caller
        if len(frames):
            caller.waiting.append(frames)
