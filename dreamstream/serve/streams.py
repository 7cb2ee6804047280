"""A stream as the server has it, the model that many of them share, and who steps them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..client.protocol import FORMATS, HEADER, MOST_BYTES, WireError, message, per_output, unpacked
from ..decode import CTCDecoder, Word
from ..decode.hypotheses import as_dict
from ..engine import Engine
from ..engine.differences import size_of_whole
from ..errors import FormatError
from .hosts import Here, Host
from .limits import Limits
from .records import Record
from .runner import Row, Runner, State, Stepped, grows


class Connection(Protocol):
    """The way to a stream's client, a WebSocket."""

    def send(self, given: str | bytes) -> None:
        """Send a message, text or binary."""

    def close(self, kind: str, reason: str, **more: Any) -> None:
        """Close the connection: a key of `CODES`, and why."""

    def pause(self, paused: bool) -> None:
        """Stop reading from the client, or go on: so a socket fills, and the client waits."""


#: Bytes of a stream's snapshots that may be out of date beyond twice a whole one's, before one is made anew.
_STALE = 1 << 20
LOG = logging.getLogger("dreamstream.serve")


@dataclass(slots=True)
class Unacknowledged:
    """A message that isn't acknowledged: the frame at which it ends, its bytes, and when it was sent."""

    end: int
    message: bytearray
    sent: float


class Base(NamedTuple):
    """The last state that is known: the decoder's snapshot, the input that it has seen, the outputs made then.

    The engine's snapshot is in `Live.parts`.
    """

    decoder: bytes
    input: int
    produced: list[int]


class Live:
    """A live stream: its connection, its waiting input, where it stands, what its client has not acknowledged."""

    __slots__ = (
        "acknowledged", "ahead", "base", "begins", "connection", "end", "ended", "epoch", "form", "host", "id",
        "is_leaving", "is_paused", "is_stale", "is_stepping", "made", "model", "n_bytes", "n_lost",
        "n_parts", "n_stored", "number", "outputs", "parts", "past", "paused_at", "pending", "produced",
        "queue", "reached", "said", "save_at", "saved", "seen", "stepped", "stored", "token", "wanted",
        "whole_from",
    )  # fmt: skip

    def __init__(self, stream_id: str, token: str, model: Model, form: str) -> None:
        self.id, self.token, self.model, self.form = stream_id, token, model, form
        self.connection: Connection | None = None  #: None while no client is connected.
        self.host: Host | None = None  #: The host that steps it; None while there is none.
        self.queue: list[npt.NDArray[Any]] = []  # short; a deque begins with half a kB
        self.past: list[npt.NDArray[Any]] = []
        self.wanted = 0  #: The input position that the next message must have.
        self.stepped = 0  #: Frames that the engine has seen.
        self.saved = self.epoch = self.n_lost = 0
        self.end: int | None = None  #: The stream's length, when its client has said it.
        self.ended = False  #: Whether all of its outputs are made.
        self.is_paused = False  #: Whether its connection is not read, since too many frames wait.
        self.is_stepping = False  #: Whether a step has its frames; no other may take any meanwhile.
        self.is_leaving = False  #: Whether it goes to another host after this step.
        self.save_at = model.save_every
        self.made = [0] * len(model.description["names"])  #: Frames of each output that were sent.
        self.said = 0.0  #: The end of the last word that was sent, in seconds.
        self.pending = ""  #: The text behind the last final word, which may still change.
        self.acknowledged = [0] * len(self.made)
        #: Frames of each output that the engine has made: fewer than were sent, where it repeats some.
        self.produced = [0] * len(self.made)
        #: The state from which its host must begin; None if the host has it already.
        self.begins: State | None = State()
        #: Frames of each output that the client had when it came back; more than `made` if the record was older.
        self.ahead = self.acknowledged
        self.base = Base(b"", 0, self.produced.copy())  #: The last state that is known.
        self.reached = 0
        #: The last of the `n_parts` of its engine's snapshot: a whole one, and what was new at each later state.
        #: All of them where the host may be lost (with `past`, the input since then), else those that are not
        #: stored yet.
        self.parts: list[bytes] = []
        self.n_parts = self.n_stored = 0  #: How many parts there are, and how many of them are in the store.
        #: Size of all parts. Once much of it is out of date, the next part is a whole snapshot.
        self.n_bytes = 0
        #: The numbers of the last record, and of the first one of these parts.
        self.number = self.whole_from = 0
        self.stored: int | None = None  #: The number of the record that has the last part in the store.
        self.is_stale = False
        #: Messages of each output that are not acknowledged; frames that follow soon are added to the last one.
        self.outputs: list[list[Unacknowledged]] = [[] for _ in self.made]
        self.seen = self.paused_at = time.monotonic()

    @property
    def n_queued(self) -> int:
        """How many frames have come that no step has taken, those that are repeated after a loss left out."""
        return self.wanted - max(self.stepped, self.reached)

    @property
    def is_ready(self) -> bool:
        """Whether a step has something to do for it."""
        waits = self.queue or self.end is not None or (self.begins is not None and self.begins.engine)
        return bool(waits) and not (self.ended or self.is_stepping)

    @property
    def is_held(self) -> bool:
        """Whether its steps wait for its client to acknowledge outputs."""
        return self.waits(time.monotonic()) > self.model.limits.unacknowledged

    def waits(self, now: float) -> float:
        """Return for how many seconds the oldest unacknowledged output has waited; 0 without one."""
        oldest = now
        for kept in self.outputs:
            if kept and kept[0].sent < oldest:
                oldest = kept[0].sent
        return now - oldest

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
        if self.wanted - self.stepped > model.window and self.n_queued > model.window and not self.is_paused:
            if self.connection is None:
                return
            self.is_paused, self.paused_at = True, self.seen
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
        """Drop outputs of which the client has `given` frames each; WireError if that is more than were made."""
        for port, (n, made) in enumerate(zip(given, self.made)):
            if n > max(made, self.ahead[port]):
                raise WireError("malformed", f"output {port} has {made} frames, {n} are acknowledged")
        self.acknowledged = [max(a, min(n, made)) for a, n, made in zip(self.acknowledged, given, self.made)]
        self._drop(self.acknowledged)
        self.seen = time.monotonic()

    def _drop(self, have: Sequence[int]) -> None:
        for kept, n in zip(self.outputs, have):
            while kept and kept[0].end <= n:
                del kept[0]

    # ---------------------------------------------------------------- to the client
    def send_out(self, port: int, frames: bytes, n: int, now: float) -> None:
        """Send n frames of an output, and keep them until the client has acknowledged them."""
        made, kept = self.made[port], self.outputs[port]
        if again := min(made - self.produced[port], n):  # the client was sent these before
            frames = frames[len(frames) // n * again :]
        self.produced[port] += n
        if again == n:
            return
        self.made[port] = end = made + n - again
        data = HEADER.pack(made | port << 56) + frames
        last = kept[-1] if kept else None
        if last and now - last.sent < self.model.together and len(last.message) + len(frames) <= MOST_BYTES:
            last.end = end
            last.message += frames
        else:
            kept.append(Unacknowledged(end, bytearray(data), now))
        self.send(data)

    def send_words(self, words: Sequence[Word], pending: str, now: float) -> None:
        """Send new final words, kept until acknowledged, and `pending`, the text that may still change."""
        if not words and (pending == self.pending or self.stepped < self.reached):
            return
        self.pending, at = pending, self.made[0]
        fields = {"output": at, "words": [as_dict(word) for word in words]}
        if words:
            self.said = words[-1].end
            self.made[0] += len(words)
            data = bytearray(message("result", **fields).encode())
            self.outputs[0].append(Unacknowledged(self.made[0], data, now))
        self.send(message("result", **fields, pending=pending))

    def send(self, given: str | bytes) -> None:
        """Send a message, if a client is connected."""
        if self.connection is not None:
            self.connection.send(given)

    def close(self, kind: str, reason: str, **more: Any) -> None:
        """Close the connection, if there is one."""
        if self.connection is not None:
            self.connection.close(kind, reason, **more)

    def attach(self, connection: Connection, output: Sequence[int] | None = None) -> None:
        """Let a connection have the stream, and tell it where it stands; one that had it is closed."""
        self.close("taken over", "another connection has resumed the stream")
        self.connection, self.is_paused = connection, False
        connection.send(message("started", **self.started()))
        self._drop(self.acknowledged if output is None else output)
        now = time.monotonic()
        for kept in self.outputs:
            for each in kept:
                each.sent = now
                self.send(bytes(each.message) if self.model.decoder is None else each.message.decode())
        if self.ended:
            self.tell_end()

    def started(self) -> dict[str, Any]:
        """Return what the message "started" tells the client: the stream's positions and the model's form."""
        model = self.model
        return {
            "stream": self.token,
            "input": self.wanted,
            "saved": self.saved,
            "output": per_output(self.made),
            "chunk": model.chunk,
            "window": model.window,
            **model.description,
        }

    def tell_end(self) -> None:
        """Tell the client the totals."""
        self.send(message("ended", input=self.end, output=per_output(self.made)))

    def detach(self, connection: Connection) -> None:
        """Let the stream wait for another connection, if this one had it."""
        if self.connection is connection:
            self.connection, self.seen = None, time.monotonic()

    # ---------------------------------------------------------------- from where it can go on
    @property
    def may_go(self) -> bool:
        """Whether it may be released without a new record: its client sends the input since the last one again."""
        return not self.ended and (self.host is None or self.host.keeps_input)

    def rewind(self) -> None:
        """Begin again from the last state that is known: its host has ended."""
        self.queue[:0], self.past = self.past, []
        decoder, self.stepped, produced = self.base
        self.begins, self.produced = State(b"".join(self.parts), decoder), list(produced)
        self.host, self.is_stepping, self.is_leaving, self.epoch = None, False, False, self.epoch + 1

    @property
    def since(self) -> int | None:
        """Where its next snapshot begins, which is a difference to the last one; None for a whole one."""
        return self.base.input if self.model.grows and self.n_parts and not self.is_stale else None

    def know(self, state: State) -> None:
        """Keep a snapshot as the last known state."""
        if self.since is None:
            self.parts, self.n_parts, self.n_stored, self.stored = [], 0, 0, None
            self.n_bytes, self.is_stale, self.whole_from = 0, False, self.number + 1
        self.parts.append(state.engine)
        self.n_parts += 1
        self.n_bytes += len(state.engine)
        if self.n_parts > 1:
            self.is_stale = self.n_bytes > 2 * size_of_whole(state.engine) + _STALE
        self.base = Base(state.decoder, self.stepped, list(self.produced))

    def record(self) -> Record | None:
        """Return a record by which any server can go on with the stream; None if its host can't give its state."""
        parts, decoder, after = self.parts, b"", None
        if self.ended:
            parts = []
        elif self.stepped < self.reached:  # it repeats outputs
            return None
        elif self.begins is not None:  # no step since it was restored
            parts, decoder = [self.begins.engine], self.begins.decoder
        else:
            if self.base.input != self.stepped or not self.n_parts:
                state = None if self.host is None else self.host.state(self)
                if state is None:
                    return None
                self.know(state)
            after, decoder = self.stored, self.base.decoder
            parts = self.parts[len(self.parts) - self.n_parts + self.n_stored :]
        self.number += 1
        return Record(
            self.model.fingerprint,
            self.stepped,
            list(self.made),
            list(self.acknowledged),
            b"".join(parts),
            decoder,
            [(port, bytes(each.message)) for port, kept in enumerate(self.outputs) for each in kept],
            self.ended,
            self.said,
            self.number,
            after,
        )

    def stores(self, record: Record, n_parts: int) -> None:
        """Note that the store has a record, which was made when the stream had `n_parts` parts."""
        self.saved = max(self.saved, record.input)
        if record.number >= self.whole_from and n_parts:
            self.n_stored, self.stored = max(self.n_stored, n_parts), record.number
            if not self.model.keeps_parts:
                del self.parts[: len(self.parts) - self.n_parts + self.n_stored]

    def restore(self, record: Record) -> None:
        """Take position, outputs and state of a record; WireError if it is another model's."""
        if record.model != self.model.fingerprint:
            raise WireError("retired", "the stream is of another version of the model")
        self.wanted = self.stepped = self.saved = self.reached = record.input
        self.made, self.acknowledged, self.ended = record.made, record.acknowledged, record.ended
        self.said, self.produced = record.said, list(record.made)
        self.begins = State(record.snapshot, record.decoder)
        self.base = Base(record.decoder, self.stepped, list(record.made))
        self.number = self.whole_from = self.stored = record.number
        self.n_parts = self.n_stored = 1 if record.snapshot else 0
        self.n_bytes = len(record.snapshot)
        self.parts = [record.snapshot] if record.snapshot and self.model.keeps_parts else []
        if self.ended:
            self.end = record.input
        now, ends = time.monotonic(), list(self.made)
        for port, data in reversed(record.outputs):
            self.outputs[port].insert(0, Unacknowledged(ends[port], bytearray(data), now))
            ends[port] = unpacked(data)[0] if self.model.decoder is None else json.loads(data)["output"]


class Model:
    """A model that is served: its description for clients, its hosts, and which streams their steps take.

    Parameters
    ----------
    name : str
    engine : Engine
        With one input of streams.
    limits : Limits
    decoder : CTCDecoder, optional
        Makes words of the first output; clients get these.
    pool : Pool, optional
        Finds hosts on other machines; by default there is one, in this process.

    Attributes
    ----------
    hosts : list of Host
        Those that are there; of them the first `n_active` get streams.
    saves : bool
        Whether live streams are saved regularly; not if the store ends with this process.
    together : float
        Seconds within which an output's unacknowledged frames are joined to one message.

    Raises
    ------
    FormatError
        For an engine with other inputs.
    """

    def __init__(
        self, name: str, engine: Engine, limits: Limits, decoder: CTCDecoder | None = None, pool: Any = None
    ) -> None:
        engine = engine.as_computed()
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
        self.pool, self.keeps_parts, self.grows = pool, pool is not None, grows(engine)
        self.hosts: list[Host] = [Here(Runner(engine, decoder), limits.tick)] if pool is None else []
        self.n_active = 1
        self.saves, self.together = True, limits.unacknowledged / 40
        self.description: dict[str, Any] = {
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
            self.description |= {"rates": [None], "shapes": [[]], "types": ["words"], "names": ["words"]}
            self.description["delay"] = self.description["delay"][:1]

    def place(self, stream: Live) -> None:
        """Give a stream to the host that has the fewest, if there is one."""
        if self.hosts:
            min(self.hosts[: self.n_active], key=lambda host: len(host.streams)).take(stream)

    def close(self) -> None:
        """Close the pool, which ends its hosts."""
        if self.pool is not None:
            self.pool.close()

    # ---------------------------------------------------------------- one step
    def take(self, host: Host) -> list[tuple[Live, Row]]:
        """Return the rows of a host's next step: ready streams, `limits.rows` at most, without those that wait."""
        now, late = time.monotonic(), self.limits.unacknowledged
        streams = list(host.ready.values())[: self.limits.rows]
        if suspects := [stream for stream in streams if stream.n_lost > 1]:
            streams = suspects[:1]  # alone, since hosts were lost while they stepped it
        for stream in streams:
            del host.ready[stream.id]
        return [(s, self._next(s)) for s in streams if s.is_ready and s.waits(now) <= late]

    def _next(self, stream: Live) -> Row:
        """Take a stream's frames for a step, four chunks at most, and return them as its row."""
        parts, stream.queue, most = stream.queue, [], 4 * self.chunk
        n = sum(map(len, parts))
        while n > most:
            over = n - most
            n -= len(parts[-1])
            if n < most:  # a part of it is taken
                stream.queue.append(parts[-1][-over:])
                parts[-1], n = parts[-1][:-over], most
            else:
                stream.queue.append(parts.pop())
        stream.queue.reverse()
        if stream.host is not None and stream.host.keeps_input:
            stream.past.extend(parts)
        stream.is_stepping = True
        ends = stream.end is not None and not stream.queue
        saves = self.saves and stream.stepped + n >= stream.save_at
        state, is_int16 = stream.begins, stream.form == "i16"
        since = stream.since if saves else None
        return Row(
            stream.id, stream.stepped, parts, n, ends, saves, since, stream.said, is_int16, state, stream.epoch
        )

    def leave(self, host: Host, taken: Sequence[tuple[Live, Row]], stepped: Stepped) -> list[Live]:
        """Send what a step gave to its streams' clients; return the streams that are due to be saved."""
        now, due = time.monotonic(), []
        taken = [(s, row) for s, row in taken if s.host is host and s.epoch == row.epoch]  # not moved since
        going = {stream.id: stream for stream, row in taken if stream.id not in stepped.failed}
        for stream_id, words in stepped.words.items():
            if stream_id in going:
                going[stream_id].send_words(*words, now)
        for port, (values, lengths) in enumerate(stepped.outputs):
            data, at, size = values.tobytes(), 0, values.nbytes // max(1, len(values))
            for stream_id, n in zip(stepped.ids, lengths):
                if n and stream_id in going:
                    going[stream_id].send_out(port, data[at : at + n * size], n, now)
                at += n * size
        for stream, row in taken:
            if stream.id not in going:
                continue
            stream.is_stepping, stream.begins, stream.ended = False, None, row.ends
            stream.stepped += row.n
            stream.reached = max(stream.reached, stream.stepped)
            if stream.id in stepped.states:
                stream.know(stepped.states[stream.id])
                stream.past.clear()
                stream.n_lost = 0
            if row.ends or stream.stepped >= stream.save_at:
                stream.save_at = stream.stepped + self.save_every
                due.append(stream)
            if stream.is_paused and stream.n_queued <= self.window // 2:
                stream.is_paused = False
                if stream.connection is not None:
                    stream.connection.pause(False)
            if row.ends:
                host.leave(stream)
            elif stream.queue or stream.end is not None:
                host.note(stream)
        return due
