"""A stream as the server has it, and the model that many of them share: an engine, and maybe a decoder."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..client.protocol import FORMATS, WireError, as_told, message, packed, unpacked
from ..decode import CTCDecoder, Hypotheses, log_probabilities
from ..decode.hypotheses import as_dict
from ..engine import Engine
from ..errors import DreamStreamError, FormatError, StreamIdError
from .limits import Limits
from .records import Record


class Connection(Protocol):
    """Where a stream's messages go."""

    def send_text(self, text: str) -> None:
        """Send a text message."""

    def send_binary(self, data: bytes) -> None:
        """Send a binary message."""

    def close(self, kind: str, reason: str, **more: Any) -> None:
        """Close the connection: a key of `CODES`, and why."""

    def pause(self, paused: bool) -> None:
        """Read no more for now, or again."""


LOG = logging.getLogger("dreamstream.serve")


class Row(NamedTuple):
    """What a step takes of a stream: frames, how many, and whether they are its last."""

    stream: Live
    parts: list[npt.NDArray[Any]]
    n: int
    ends: bool


class Live:
    """One stream.

    Attributes
    ----------
    connection : Connection or None
        None while it is detached.
    wanted : int
        The input position that the next message must have.
    stepped : int
        Frames that the engine has seen.
    end : int or None
        The stream's length, when its client has said it.
    ended : bool
        Whether all of its outputs are made.
    is_stepping : bool
        Whether a step is at work on it: nobody else may.
    said : float
        Where the words end that have left.
    pending : str
        What was heard behind them, and may change.
    """

    def __init__(self, stream_id: str, token: str, model: Model, form: str) -> None:
        self.id, self.token, self.model, self.form = stream_id, token, model, form
        self.connection: Connection | None = None
        self.queue: deque[npt.NDArray[Any]] = deque()
        self.wanted = self.stepped = self.saved = 0
        self.end: int | None = None
        self.ended = self.begun = self.is_paused = self.is_stepping = False
        self.save_at = model.save_every
        self.made = [0] * len(model.told["names"])
        self.said, self.pending = 0.0, ""
        self.acknowledged = [0] * len(self.made)
        self.outputs: deque[tuple[int, int, bytes, float]] = deque()  # port, end, message, when
        self.seen = time.monotonic()

    @property
    def n_queued(self) -> int:
        """Frames that wait for a step."""
        return self.wanted - self.stepped

    @property
    def is_ready(self) -> bool:
        """Whether a step has something to do for it."""
        waits = self.n_queued > 0 or (self.end is not None and not self.ended)
        return waits and not (self.ended or self.is_stepping or self.is_held)

    @property
    def is_held(self) -> bool:
        """Whether its steps wait for its client to acknowledge outputs."""
        return bool(self.outputs) and time.monotonic() - self.outputs[0][3] > self.model.limits.unacknowledged

    # ---------------------------------------------------------------- from the client
    def give(self, position: int, data: memoryview) -> None:
        """Take frames of the input."""
        model = self.model
        kind, frame = model.kinds[self.form]
        if self.end is not None:
            raise WireError("malformed", f"frames after the end at {self.end}")
        if position != self.wanted:
            raise WireError("malformed", f"expected frames from {self.wanted} on, got them from {position}")
        if len(data) % frame:
            raise WireError("malformed", f"a frame has {frame} bytes, got {len(data)}")
        n = len(data) // frame
        if n:
            frames = np.frombuffer(data, kind)
            self.queue.append(frames.reshape(-1, *model.features) if model.features else frames)
            self.wanted += n
        self.seen = time.monotonic()
        if self.n_queued > 2 * model.window + 4 * model.chunk:
            raise WireError("queued", f"{self.n_queued} frames wait for a step")
        if self.n_queued > model.window and not self.is_paused and self.connection is not None:
            self.is_paused = True
            self.connection.pause(True)

    def finish(self, position: int) -> None:
        """Take the stream's length."""
        if position < self.wanted or (self.end is not None and position != self.end):
            known = self.wanted if self.end is None else self.end
            raise WireError("malformed", f"the stream's end is at {known}, not at {position}")
        if position > self.wanted:
            raise WireError("malformed", f"the stream's end at {position} comes after {self.wanted} frames")
        self.end = position
        self.seen = time.monotonic()

    def acknowledge(self, given: Sequence[int]) -> None:
        """Drop outputs that the client has."""
        for port, (n, made) in enumerate(zip(given, self.made)):
            if n > made:
                raise WireError("malformed", f"output {port} has {made} frames, {n} are acknowledged")
        self.acknowledged = [max(a, n) for a, n in zip(self.acknowledged, given)]
        while self.outputs and self.outputs[0][1] <= self.acknowledged[self.outputs[0][0]]:
            self.outputs.popleft()
        self.seen = time.monotonic()

    # ---------------------------------------------------------------- to the client
    def send_out(self, port: int, frames: npt.NDArray[Any], now: float) -> None:
        """Send frames of an output, and keep them until the client has acknowledged them."""
        data = packed(self.made[port], port, frames)
        self.made[port] += len(frames)
        self.outputs.append((port, self.made[port], data, now))
        self._send(data)

    def send_words(self, heard: Hypotheses, now: float) -> None:
        """Send words that are new and final, to be kept as frames are, and what may change behind them."""
        words, pending = heard.since(self.said)
        if not words and pending == self.pending:
            return
        self.pending, at = pending, self.made[0]
        told = {"output": at, "words": [as_dict(word) for word in words]}
        if words:
            self.said = words[-1].end
            self.made[0] += len(words)
            self.outputs.append((0, self.made[0], message("result", **told).encode(), now))
        self._send(message("result", **told, pending=pending).encode())

    def _send(self, data: bytes) -> None:
        if self.connection is not None:
            if self.model.decoder is None:
                self.connection.send_binary(data)
            else:
                self.connection.send_text(data.decode())

    def attach(self, connection: Connection, output: Sequence[int] | None = None) -> None:
        """Let a connection have the stream, and tell it where it stands; one that had it is closed."""
        if self.connection is not None:
            self.connection.close("taken over", "another connection has resumed the stream")
        self.connection, self.is_paused = connection, False
        connection.send_text(message("started", **self.told()))
        have, now = self.acknowledged if output is None else output, time.monotonic()
        self.outputs = deque((port, end, data, now) for port, end, data, _ in self.outputs if end > have[port])
        for _, _, data, _ in self.outputs:
            self._send(data)
        if self.ended:
            self.tell_end()

    def told(self) -> dict[str, Any]:
        """Return what a client must know."""
        model = self.model
        return {
            "stream": self.token,
            "input": self.wanted,
            "saved": self.saved,
            "output": as_told(self.made),
            "chunk": model.chunk,
            "window": model.window,
            **model.told,
        }

    def tell_end(self) -> None:
        """Tell the client the totals."""
        if self.connection is not None:
            self.connection.send_text(message("ended", input=self.end, output=as_told(self.made)))

    def detach(self, connection: Connection) -> None:
        """Let the stream wait for another connection, if this one had it."""
        if self.connection is connection:
            self.connection, self.seen = None, time.monotonic()

    # ---------------------------------------------------------------- in the store
    def record(self) -> Record:
        """Return what the stream can be made of again."""
        model, snapshot, decoder = self.model, b"", b""
        if self.begun and not self.ended:
            snapshot = model.engine.snapshot(self.id)
            decoder = b"" if model.decoder is None else model.decoder.snapshot(self.id)
        return Record(
            model.fingerprint,
            self.stepped,
            list(self.made),
            list(self.acknowledged),
            snapshot,
            [(port, data) for port, _, data, _ in self.outputs],
            self.ended,
            decoder,
            self.said,
        )

    def restore(self, record: Record) -> None:
        """Become what a record says."""
        if record.snapshot:
            try:
                self.model.engine.restore(record.snapshot, self.id)
                if self.model.decoder is not None:
                    self.model.decoder.restore(record.decoder, self.id)
            except FormatError as error:
                self.model.forget(self)
                raise WireError("retired", str(error)) from error
            self.begun = True
        self.wanted = self.stepped = self.saved = record.input
        self.made, self.acknowledged, self.ended = record.made, record.acknowledged, record.ended
        self.said = record.said
        if self.ended:
            self.end = record.input
        now, ends = time.monotonic(), list(self.made)
        for port, data in reversed(record.outputs):
            self.outputs.appendleft((port, ends[port], data, now))
            ends[port] = unpacked(data)[0] if self.model.decoder is None else json.loads(data)["output"]


class Model:
    """An engine that serves: its streams, and one step for all that are ready.

    Parameters
    ----------
    name : str
    engine : Engine
        With one input of streams.
    limits : Limits
    decoder : CTCDecoder, optional
        Makes words of the first output; clients get these.

    Raises
    ------
    FormatError
        For an engine with other inputs.
    """

    def __init__(self, name: str, engine: Engine, limits: Limits, decoder: CTCDecoder | None = None) -> None:
        first = engine.inputs[0]
        if len(engine.inputs) > 1 or first.dtype != "float32" or not 0 < len(engine.outputs) < 256:
            raise FormatError(f"{name}: a server takes models with one input of float32, which streams")
        self.name, self.engine, self.limits, self.decoder = name, engine, limits, decoder
        self.fingerprint = engine.fingerprint
        self.features = first.features
        size = int(np.prod(self.features, dtype=int))
        self.kinds = {form: (kind := np.dtype(text), kind.itemsize * size) for form, text in FORMATS.items()}
        times = (limits.chunk, limits.queued, limits.save)
        self.chunk, self.window, self.save_every = (max(1, round(s * engine.rate)) for s in times)
        self.ready: dict[str, Live] = {}
        self._room = np.empty((1024, *self.features), np.float32)
        self.told: dict[str, Any] = {
            "model": name,
            "delay": [None if o.delay == float("inf") else o.delay for o in engine.outputs],
            "rate": str(first.rate),
            "rates": [str(o.rate) for o in engine.outputs],
            "shape": list(self.features),
            "shapes": [[d for d in o.dimensions if isinstance(d, int)] for o in engine.outputs],
            "types": [o.dtype for o in engine.outputs],
            "names": [o.name for o in engine.outputs],
            "fingerprint": self.fingerprint,
        }
        if decoder is not None:
            self.told |= {"rates": [None], "shapes": [[]], "types": ["words"], "names": ["words"]}
            self.told["delay"] = self.told["delay"][:1]

    # ---------------------------------------------------------------- one step
    def take(self) -> list[Row]:
        """Return the rows of the next step: streams that are ready, as many as a step takes."""
        streams = list(self.ready.values())[: self.limits.rows]
        for stream in streams:
            del self.ready[stream.id]
        rows = [self._next(s) for s in streams if s.is_ready]
        for row in rows:
            row.stream.is_stepping = True
        return rows

    def run(self, rows: Sequence[Row]) -> tuple[list[Row], Any, list[tuple[Live, DreamStreamError]]]:
        """Step; return the rows that went well, the outputs, and the streams that are refused, and why.

        It touches nothing but engine and decoder, so that it may run in a thread.
        """
        going, failed, outputs = list(rows), list[tuple[Live, DreamStreamError]](), None
        while going and outputs is None:
            try:
                outputs = self._run(going)
            except DreamStreamError as error:
                going = _without(error, going, failed)
        if self.decoder is None or outputs is None:
            return going, outputs, failed
        scores = _by_id(going, log_probabilities(outputs[0][0]), outputs[1][0][0])
        heard, rows, outputs = None, going, None
        while going and heard is None:
            try:
                heard = self._decode(going, scores)
            except DreamStreamError as error:
                going = _without(error, going, failed)
        for row in rows:
            if row not in going and not row.ends:
                self.engine.reset(row.stream.id)
                row.stream.begun = False  # which says that the engine has it
        return going, heard, failed

    def _decode(self, rows: Sequence[Row], scores: Mapping[str, Any]) -> dict[str, Hypotheses]:
        assert self.decoder is not None
        starts = [row.stream.id for row in rows if not row.stream.begun]
        ends = [row.stream.id for row in rows if row.ends]
        return self.decoder.step({row.stream.id: scores[row.stream.id] for row in rows}, starts, ends)

    def _next(self, stream: Live) -> Row:
        """Return what a step takes of a stream."""
        most, parts, n = 4 * self.chunk, [], 0
        while stream.queue and n < most:
            part = stream.queue.popleft()
            if len(part) > most - n:
                stream.queue.appendleft(part[most - n :])
                part = part[: most - n]
            parts.append(part)
            n += len(part)
        return Row(stream, parts, n, stream.end is not None and not stream.queue)

    def _run(self, rows: Sequence[Row]) -> Any:
        total = sum(row.n for row in rows)
        if len(self._room) < total:
            self._room = np.empty((2 * total, *self.features), np.float32)
        at = 0
        for stream, parts, _, _ in rows:
            begin = at
            for part in parts:
                self._room[at : at + len(part)] = part
                at += len(part)
            if stream.form == "i16":
                self._room[begin:at] *= 1 / 32768
        return self.engine._core.step(
            [row.stream.id for row in rows],
            [not row.stream.begun for row in rows],
            [row.ends for row in rows],
            [self._room[:at]],
            [[row.n for row in rows]],
            False,
        )

    def leave(self, rows: Sequence[Row], outputs: Any) -> list[Live]:
        """Hand on what a step gave; return the streams whose time has come to be stored."""
        now, due = time.monotonic(), []
        if self.decoder is not None:
            for row in rows:
                row.stream.send_words(outputs[row.stream.id], now)
        else:
            for port, (values, (lengths, _)) in enumerate(zip(*outputs)):
                for row, frames in zip(rows, _by_id(rows, values, lengths).values()):
                    if len(frames):
                        row.stream.send_out(port, frames, now)
        for stream, _, n, ends in rows:
            stream.is_stepping, stream.begun, stream.ended = False, True, ends
            stream.stepped += n
            if ends or stream.stepped >= stream.save_at:
                stream.save_at = stream.stepped + self.save_every
                due.append(stream)
            if stream.is_paused and stream.n_queued <= self.window // 2:
                stream.is_paused = False
                if stream.connection is not None:
                    stream.connection.pause(False)
            if stream.is_ready:
                self.ready[stream.id] = stream
        return due

    def forget(self, stream: Live) -> None:
        """Let engine and decoder have nothing of a stream."""
        self.ready.pop(stream.id, None)
        with contextlib.suppress(StreamIdError):
            self.engine.reset(stream.id)
        if self.decoder is not None:
            with contextlib.suppress(StreamIdError):
                self.decoder.reset(stream.id)


def _by_id(rows: Sequence[Row], values: Any, lengths: Any) -> dict[str, Any]:
    """Return each row's frames of an output, by the stream's id."""
    found, at = {}, 0
    for row, n in zip(rows, lengths.tolist()):
        found[row.stream.id] = values[at : at + n]
        at += n
    return found


def _without(error: DreamStreamError, rows: list[Row], failed: list[tuple[Live, DreamStreamError]]) -> list[Row]:
    """Return the rows that an error does not name; the others have failed."""
    bad = [row for row in rows if row.stream.id in error.ids] or rows
    failed += [(row.stream, error) for row in bad]
    return [row for row in rows if row not in bad]
