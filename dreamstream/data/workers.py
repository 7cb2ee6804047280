"""Who reads streams: this process, or worker processes, each stream in one of them from start to end.

A worker answers one question at a time, what the next chunks of its lanes are, and reads ahead while nobody asks.
So neither side waits for the other to empty a pipe, and batches don't depend on how fast a worker is. It ends when
it is told to, and when the process that asks is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .reading import Chunk, Cut, chunks_of

AHEAD = 2  # chunks of a lane that a worker holds before they are asked for
PATIENCE = 1.0  # seconds in which a worker ends by itself when it is told to
LOOK = 5.0  # seconds after which an idle worker looks whether the process that asks is there


class Opening(NamedTuple):
    """A stream that begins in a lane, and how many of its frames were read before.

    `x` is None where workers have the item by its id since they were started.
    """

    id: str
    x: Any
    skip: int


class Fault(NamedTuple):
    """Why the stream of a lane can't be read further; `error` is None where its worker is gone."""

    text: str
    error: BaseException | None = None


Answer = Chunk | Fault


class Readers(Protocol):
    """Lanes, each of which reads one stream after the other."""

    def next(self, opening: Mapping[int, Opening], lanes: Sequence[int]) -> dict[int, Answer]:
        """Begin streams in some lanes, and return the next chunk of each of `lanes`."""

    def close(self) -> None:
        """Leave all streams."""


class Here:
    """Reads in this process; workers use it, too."""

    def __init__(self, how: Cut, items: Mapping[str, Any], at: Callable[[int], None] = lambda lane: None) -> None:
        self.how, self.items, self._at = how, items, at
        self._open: dict[int, Iterator[Chunk]] = {}
        self.ready: dict[int, deque[Answer]] = {}

    def open(self, opening: Mapping[int, Opening]) -> None:
        for lane, (stream_id, x, skip) in opening.items():
            self._open[lane] = chunks_of(self.items[stream_id] if x is None else x, self.how, skip)
            self.ready[lane] = deque()

    def read(self, lane: int) -> None:
        """Read a chunk more."""
        self._at(lane)
        answer: Answer
        try:
            answer = next(self._open[lane])
        except Exception as error:
            answer = Fault(f"{type(error).__name__}: {error}", error)
        if isinstance(answer, Fault) or answer.last:
            del self._open[lane]
        self.ready[lane].append(answer)
        self._at(-1)

    def hungry(self) -> int | None:
        """Return a lane that has the fewest chunks ahead; None where all have enough."""
        lane = min(self._open, key=lambda n: len(self.ready[n]), default=None)
        return None if lane is None or len(self.ready[lane]) >= AHEAD else lane

    def next(self, opening: Mapping[int, Opening], lanes: Sequence[int]) -> dict[int, Answer]:
        self.open(opening)
        for lane in lanes:
            if not self.ready[lane]:
                self.read(lane)
        return {lane: self.ready[lane].popleft() for lane in lanes}

    def close(self) -> None:
        self._open.clear()


# ---------------------------------------------------------------------- in a worker
def _work(pipe: Any, other_end: Any, at: Any, how: Cut, items: Mapping[str, Any]) -> None:
    """Answer until the question is None, or nobody is left to ask one."""
    asker = os.getppid()
    other_end.close()  # a copy, for which this one would never seem closed
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that asks, and so this one

    def note(lane: int) -> None:
        at.value = lane

    here = Here(how, items, note)
    try:
        while True:
            while not pipe.poll() and (lane := here.hungry()) is not None:
                here.read(lane)
            while not pipe.poll(LOOK):  # another process may hold a copy of the pipe's other end
                if os.getppid() != asker:
                    return
            question = pipe.recv()
            if question is None:
                return
            got = here.next(*question)
            pipe.send_bytes(pickle.dumps({lane: _sendable(answer) for lane, answer in got.items()}, 5))
    except (EOFError, OSError):
        here.close()


def _sendable(answer: Answer) -> Answer:
    """Return an answer as it can be pickled: arrays for tensors, an error's text where the error can't be."""
    if isinstance(answer, Chunk):
        return answer._replace(frames=np.ascontiguousarray(answer.frames))
    try:
        pickle.loads(pickle.dumps(answer.error))
    except Exception:
        return answer._replace(error=RuntimeError("".join(traceback.format_exception(answer.error))))
    return answer


# ---------------------------------------------------------------------- worker processes
class Workers:
    """Worker processes; lane n is read by number n modulo their number."""

    def __init__(self, n: int, how: Cut, items: Mapping[str, Any], start_method: str | None) -> None:
        self._context: Any = multiprocessing.get_context(start_method)
        self._how, self._items = how, items
        self._streams: dict[int, Opening] = {}  # that lanes read, with the frames that have come
        self._all: list[Any] = []
        try:
            for _ in range(n):
                self._all.append(self._started())
        except BaseException:
            self.close()
            raise

    def _started(self) -> tuple[Any, Any, Any]:
        pipe, theirs = self._context.Pipe()
        at = self._context.RawValue("q", -1)
        process = self._context.Process(
            target=_work, args=(theirs, pipe, at, self._how, self._items), name="dreamstream reader", daemon=True
        )
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"a source can't be sent to worker processes: {error}; define its functions at the top of a "
                'module, or give start_method="fork"'
            ) from error
        finally:
            theirs.close()
        return process, pipe, at

    def next(self, opening: Mapping[int, Opening], lanes: Sequence[int]) -> dict[int, Answer]:
        self._streams |= opening
        n = len(self._all)
        got: dict[int, Answer] = {}
        asked = {k: [lane for lane in lanes if lane % n == k] for k in range(n)}
        begun = {k: {lane: x for lane, x in opening.items() if lane % n == k} for k in range(n)}
        waiting = [k for k in range(n) if asked[k]]
        while waiting:
            gone = [k for k in waiting if not self._send(k, (begun[k], asked[k]))]
            gone += [k for k in waiting if k not in gone and not self._receive(k, got)]
            for k in gone:
                faults = self._faults(k, asked[k])
                got |= faults
                asked[k] = [lane for lane in asked[k] if lane not in faults]
                begun[k] = {lane: self._streams[lane] for lane in asked[k]}
            waiting = [k for k in gone if asked[k]]
        for lane, answer in got.items():
            if isinstance(answer, Chunk):
                stream = self._streams[lane]
                self._streams[lane] = stream._replace(skip=stream.skip + answer.frames.shape[self._how.axis])
        return {lane: got[lane] for lane in lanes}

    def _send(self, k: int, question: Any) -> bool:
        try:
            self._all[k][1].send(question)
        except OSError:
            return False
        return True

    def _receive(self, k: int, got: dict[int, Answer]) -> bool:
        try:
            got |= pickle.loads(self._all[k][1].recv_bytes())
        except (EOFError, OSError):
            return False
        return True

    def _faults(self, k: int, lanes: Sequence[int]) -> dict[int, Answer]:
        """Return what is to be said of lanes whose worker is gone: of the one that it read, where that is known.

        Another worker begins in its place, for the other lanes.
        """
        process, pipe, at = self._all[k]
        pipe.close()
        process.join(PATIENCE)
        code, pid = process.exitcode, process.pid
        how = f"was killed by {signal.Signals(-code).name}" if (code or 0) < 0 else f"ended with status {code}"
        text = f"its worker process {pid} {how}"
        if at.value in lanes:
            lanes = [at.value]
            text += " while it read this stream"
        elif code == 1:
            text += (
                '; where processes are not forked, a script must begin its work under if __name__ == "__main__":, '
                "and what it defines must be importable"
            )
        process.close()
        self._all[k] = self._started()
        return {lane: Fault(text) for lane in lanes}

    def close(self) -> None:
        for k, (_, pipe, _) in enumerate(self._all):
            self._send(k, None)
            pipe.close()
        for process, _, _ in self._all:
            process.join(PATIENCE)
            if process.exitcode is None:  # it hangs in what it reads
                process.kill()
                process.join()
            process.close()
        self._all.clear()


def readers(n: int, how: Cut, items: Mapping[str, Any], start_method: str | None) -> Readers:
    """Return who reads: `n` worker processes, or for none this one."""
    return Workers(n, how, items, start_method) if n else Here(how, items)
