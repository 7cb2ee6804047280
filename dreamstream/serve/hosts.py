"""Who steps streams: a runner in this process, or one elsewhere, and the streams that each has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from .runner import Row, Runner, State, Stepped

Live = Any  # of `streams`, which has a stream's host


class HostLost(Exception):
    """A host that will never answer again; its streams begin elsewhere."""


class Host:
    """A runner as a server has it."""

    keeps_input = False  #: Whether streams keep the input since their last state, to begin again on another host.
    is_lost = False  #: Whether it has ended.

    def __init__(self) -> None:
        self.streams: dict[str, Live] = {}  #: The streams that it has, by id.
        self.ready: dict[str, Live] = {}  #: Those of them that wait for a step.
        self.wake = asyncio.Event()  #: Set when there is something to do.
        self.seconds = 0.0  #: What a step took lately.
        self.busy = 0.0  #: Seconds of all steps together.

    @property
    def is_silent(self) -> bool:
        """Whether it is to be called though there is nothing to step, to hear whether it is there."""
        return False

    def take(self, stream: Live) -> None:
        """Take a stream."""
        self.streams[stream.id] = stream
        stream.host = self
        self.note(stream)

    def note(self, stream: Live) -> None:
        """Step a stream soon, if it is ready."""
        if stream.id not in self.ready and stream.is_ready:
            self.ready[stream.id] = stream
            self.wake.set()

    def leave(self, stream: Live) -> None:
        """Give a stream up."""
        self.ready.pop(stream.id, None)
        if self.streams.pop(stream.id, None) is not None:
            stream.host = None
            self.forget(stream.id)

    def timed(self, begin: float) -> float:
        """Note a step that began then; return its seconds."""
        seconds = time.perf_counter() - begin
        self.seconds += 0.2 * (seconds - self.seconds)
        self.busy += seconds
        return seconds

    async def step(self, rows: Sequence[Row], thread: Executor | None) -> Stepped:
        """Advance streams; raise HostLost where the host is gone."""
        raise NotImplementedError

    def state(self, stream: Live) -> State | None:
        """Return what the runner knows of a stream; None where that can't be asked at once."""
        return None

    def forget(self, stream_id: str) -> None:
        """Let the runner know nothing of a stream any more."""
        raise NotImplementedError


class Here(Host):
    """A runner in this process: in a thread, if a step takes longer than a tick of a processor's time.

    Of a step that waited for a processor a thread would make a longer one: it waits for the interpreter, too.
    """

    def __init__(self, runner: Runner, tick: float) -> None:
        super().__init__()
        self._runner, self._tick, self._own = runner, tick, 0.0

    async def step(self, rows: Sequence[Row], thread: Executor | None) -> Stepped:
        if thread is not None and self._own > self._tick:
            return await asyncio.get_running_loop().run_in_executor(thread, self._step, rows)
        return self._step(rows)

    def _step(self, rows: Sequence[Row]) -> Stepped:
        begin = time.thread_time()
        stepped = self._runner.step(rows)
        self._own += 0.2 * (time.thread_time() - begin - self._own)
        return stepped

    def state(self, stream: Live) -> State | None:
        return self._runner.state(stream.id, stream.since)

    def forget(self, stream_id: str) -> None:
        self._runner.forget(stream_id)
