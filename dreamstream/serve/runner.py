"""An engine, and maybe a decoder, that steps streams of which it knows nothing but ids, positions and frames.

It may stand in the process that has the streams' connections, in a thread of it, or on another machine.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..decode import CTCDecoder, Hypotheses, Word, log_probabilities
from ..engine import Engine
from ..errors import DreamStreamError, StreamIdError


class State(NamedTuple):
    """Snapshots of a stream: of the engine, and of the decoder; both empty before its first frame.

    The engine's may be what is new since an earlier one.
    """

    engine: bytes = b""
    decoder: bytes = b""


class Row(NamedTuple):
    """What a step takes of a stream."""

    id: str
    position: int  #: The position of the first of its frames.
    parts: list[npt.NDArray[Any]]  #: Its frames.
    n: int  #: How many these are.
    ends: bool  #: Whether they are its last.
    saves: bool  #: Whether its state behind them is wanted.
    since: int | None  #: Of the state what is new since this position is enough; None: all of it is wanted.
    said: float  #: The end of the last word that was sent, in seconds.
    is_int16: bool  #: Whether the frames are samples of 16 bits.
    begins: State | None  #: The state before them; None where the runner has it.
    epoch: int  #: How often the stream has begun anew.


class Stepped(NamedTuple):
    """What a step gives."""

    ids: list[str]  #: The streams that went well.
    #: Per output the frames of these streams end to end, and how many each has. Empty with a decoder.
    outputs: list[tuple[npt.NDArray[Any], list[int]]]
    #: With a decoder: words that are new and final, and what may change behind them.
    words: dict[str, tuple[list[Word], str]]
    states: dict[str, State]  #: The states of those that were to be saved, and go on.
    #: Streams that are refused, the kind of `WireError`, and why; nothing is known of them any more.
    failed: dict[str, tuple[str, str]]


class Runner:
    """Steps streams; a decoder makes words of the engine's first output."""

    def __init__(self, engine: Engine, decoder: CTCDecoder | None = None) -> None:
        self.engine, self.decoder = engine, decoder
        self._room = np.empty((1024, *engine.inputs[0].features), np.float32)

    def step(self, rows: Sequence[Row]) -> Stepped:
        """Advance streams by their next frames."""
        failed: dict[str, tuple[str, str]] = {}
        going = [row for row in rows if self._has(row, failed)]
        outputs, going = self._tried(self._step, going, failed)
        heard: dict[str, Hypotheses] | None = None
        if self.decoder is not None and going:
            parts = np.split(log_probabilities(outputs[0][0]), np.cumsum(outputs[0][1])[:-1])
            scores = dict(zip((row.id for row in going), parts))
            heard, going = self._tried(partial(self._decode, scores), going, failed)
        ids = [row.id for row in going]
        states = {row.id: self.state(row.id, row.since) for row in going if row.saves and not row.ends}
        if heard is None:
            return Stepped(ids, outputs or [], {}, states, failed)
        return Stepped(ids, [], {row.id: heard[row.id].since(row.said) for row in going}, states, failed)

    def _has(self, row: Row, failed: dict[str, tuple[str, str]]) -> bool:
        """Restore a stream that goes on from a state; return whether it can be stepped."""
        if row.begins is None or not row.begins.engine:
            return True
        try:
            self.engine.restore(row.begins.engine, row.id)
            if self.decoder is not None:
                self.decoder.restore(row.begins.decoder, row.id)
        except DreamStreamError as error:
            self.forget(row.id)
            failed[row.id] = "retired", str(error)
            return False
        return True

    def _step(self, rows: Sequence[Row]) -> list[tuple[npt.NDArray[Any], list[int]]]:
        total = sum(row.n for row in rows)
        if len(self._room) < total:
            self._room = np.empty((2 * total, *self.engine.inputs[0].features), np.float32)
        room, at = self._room[:total], 0
        if total:
            np.concatenate([part for row in rows for part in row.parts], out=room)
        if all(row.is_int16 for row in rows):
            room *= 1 / 32768
        else:
            for row in rows:
                if row.is_int16:
                    room[at : at + row.n] *= 1 / 32768
                at += row.n
        ids, ends = [row.id for row in rows], [row.ends for row in rows]
        starts = [row.begins is not None and not row.begins.engine for row in rows]
        values, lengths = self.engine._core.step(ids, starts, ends, [room], [[row.n for row in rows]], False)
        return [(frames, n.tolist()) for frames, (n, _) in zip(values, lengths)]

    def _decode(self, scores: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Hypotheses]:
        assert self.decoder is not None
        starts = [row.id for row in rows if row.begins is not None and not row.begins.engine]
        return self.decoder.step({row.id: scores[row.id] for row in rows}, starts, [r.id for r in rows if r.ends])

    def _tried(
        self, do: Callable[[list[Row]], Any], rows: list[Row], failed: dict[str, tuple[str, str]]
    ) -> tuple[Any, list[Row]]:
        """Return what is done for those rows that no error names, and these; the others have failed."""
        while rows:
            try:
                return do(rows), rows
            except DreamStreamError as error:
                bad = [row.id for row in rows if row.id in error.ids] or [row.id for row in rows]
                for stream_id in bad:
                    self.forget(stream_id)
                failed |= dict.fromkeys(bad, ("engine", str(error)))
                rows = [row for row in rows if row.id not in bad]
        return None, rows

    def state(self, stream_id: str, since: int | None = None) -> State:
        """Return what is known of a stream, or what of that is new since a position."""
        decoder = b"" if self.decoder is None else self.decoder.snapshot(stream_id)
        return State(self.engine.snapshot(stream_id, since), decoder)

    def forget(self, stream_id: str) -> None:
        """Know nothing of a stream any more."""
        for each in (self.engine, self.decoder):
            if each is not None:
                with contextlib.suppress(StreamIdError):
                    each.reset(stream_id)


class Cost(NamedTuple):
    """What it takes to keep a stream: bytes of its state after a second, and of each further one.

    `seconds` is what it takes to restore a stream of a second, or of two where the state grows.
    """

    size: int
    growth: int
    seconds: float


def grows(engine: Engine) -> bool:
    """Return whether a stream's state grows with its length."""
    return any(frames is None for _, frames in engine._core.graph()["edges"])


def cost_of(engine: Engine) -> Cost:
    """Try what it takes to keep a stream of an engine."""
    probe, first = copy.copy(engine), engine.inputs[0]
    n, sizes, data = max(1, round(engine.rate)), [], b""
    for sos in (True, False)[: 1 + grows(engine)]:
        probe._core.step(["probe"], [sos], [False], [np.zeros((n, *first.features), np.float32)], [[n]], False)
        data += probe.snapshot("probe", None if sos else n)
        sizes.append(len(probe.snapshot("probe")))
    begin = time.perf_counter()
    probe.restore(data, "again")
    return Cost(sizes[0], sizes[-1] - sizes[0], time.perf_counter() - begin)
