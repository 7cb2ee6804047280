"""Streams by their tokens: those that start, those that come back, those that nobody wants any more."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..client.protocol import (
    FORMATS,
    WireError,
    message,
    opened,
    positions,
    read_message,
    signed,
    unpacked,
    whole_number,
)
from .limits import Limits
from .metrics import Metrics
from .records import Store
from .streams import LOG, Connection, Live, Model

#: Told a token of the client's own and its address, says whether it may stream.
Authorize = Callable[[Any, str], bool]


class Service:
    """What connections talk to.

    Parameters
    ----------
    models : dict of str to Model
        The first is what a client gets that names none.
    store : Store
    limits : Limits
    authorize : callable, optional
        See `Authorize`.
    """

    def __init__(
        self, models: Mapping[str, Model], store: Store, limits: Limits, authorize: Authorize | None = None
    ) -> None:
        self.models, self.store, self.limits, self.authorize = dict(models), store, limits, authorize
        self.streams: dict[str, Live] = {}
        self.metrics = Metrics(self)
        self.draining: float | None = None
        self._closing = False
        self._opens: dict[str, tuple[float, float]] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = ThreadPoolExecutor(1, "dreamstream-step") if (os.cpu_count() or 1) > 1 else None
        self._took: dict[str, float] = dict.fromkeys(models, 0.0)  # seconds of a step, lately

    # ---------------------------------------------------------------- connections
    def admit(self, address: str) -> None:
        """Raise WireError where an address opens connections too fast, or the server ends."""
        if self.draining is not None:
            raise WireError("full", "the server is ending", retry_after=self.limits.drain)
        now = time.monotonic()
        left, then = self._opens.get(address, (self.limits.opens, now))
        left = min(self.limits.opens, left + (now - then) * self.limits.opens)
        if left < 1:
            raise WireError("full", f"{address} opens connections too fast", retry_after=1)
        self._opens[address] = (left - 1, now)

    def first(self, connection: Connection, data: Any, address: str) -> Live:
        """Return the stream of a connection's first message."""
        found = read_message(data, ("start", "resume"))
        stream = self._start(found, address) if found["type"] == "start" else self._resume(found, connection)
        if found["type"] == "start":
            stream.attach(connection)
        return stream

    def _start(self, found: Mapping[str, Any], address: str) -> Live:
        if self.authorize is not None and not self.authorize(found.get("token"), address):
            raise WireError("refused", "the token is not accepted")
        name = found.get("model") or next(iter(self.models))
        model = self.models.get(name) if isinstance(name, str) else None
        if model is None:
            raise WireError(
                "unknown", f"there is no model {str(name)[:40]!r}; models are {', '.join(self.models)}"
            )
        form = found.get("format", "f32")
        if (
            not isinstance(form, str)
            or form not in FORMATS
            or (form == "i16" and model.features not in ((), (1,)))
        ):
            raise WireError("malformed", f"format is i16, of samples, or f32; got {str(form)[:20]!r}")
        if "rate" in found and str(found["rate"]) != model.told["rate"]:
            raise WireError(
                "malformed", f"{name} has a rate of {model.told['rate']}, not {str(found['rate'])[:20]}"
            )
        if len(self.streams) >= 0.9 * self.limits.streams:
            self._park(1)
        if len(self.streams) >= 0.9 * self.limits.streams:
            raise WireError("full", "too many streams", retry_after=5)
        stream_id = secrets.token_urlsafe(12)
        content = {"id": stream_id, "model": name, "format": form, "fingerprint": model.fingerprint}
        stream = self.streams[stream_id] = Live(stream_id, signed(self.store.key, content), model, form)
        self.metrics.started.inc()
        return stream

    def _resume(self, found: Mapping[str, Any], connection: Connection) -> Live:
        content = opened(self.store.key, found.get("stream"))
        saved, stream_id = whole_number(dict(found), "saved"), content["id"]
        model = self.models.get(content["model"])
        if model is None or model.fingerprint != content["fingerprint"]:
            raise WireError("retired", f"{content['model']} is not served any more in this version")
        have = positions(dict(found), "output", len(model.told["names"]))
        stream = self.streams.get(stream_id)
        if stream is None:
            if len(self.streams) >= self.limits.streams:
                self._park(1)
            if len(self.streams) >= self.limits.streams:
                raise WireError("full", "too many streams", retry_after=5)
            stream = Live(stream_id, found["stream"], model, content["format"])
            try:
                record = self.store.get(stream_id)
            except OSError as error:
                LOG.error("%s is not read: %s", stream_id, error)
                raise WireError("full", "the store is not there", retry_after=1) from error
            if record is not None:
                stream.restore(record)
        if stream.wanted < saved or any(a > n for a, n in zip(stream.acknowledged, have)):
            if stream_id not in self.streams:
                model.forget(stream)
            raise WireError("unknown", "this stream is not known any more as far as the client has dropped it")
        self.streams[stream_id] = stream
        if any(n > made for n, made in zip(have, stream.made)):  # a record from before the outputs that it has
            have = [min(n, made) for n, made in zip(have, stream.made)]
        stream.acknowledge(have)
        stream.attach(connection, have)
        self.metrics.resumed.inc()
        self._ready(stream)
        return stream

    def received(self, stream: Live, data: Any) -> None:
        """Take a message of a stream: bytes, or text."""
        if isinstance(data, bytes):
            position, port, frames = unpacked(data)
            if port:
                raise WireError("malformed", f"{stream.model.name} has one input, port 0, not {port}")
            stream.give(position, frames)
            self.metrics.received.inc()
        else:
            found = read_message(data, ("ack", "end"))
            if found["type"] == "end":
                stream.finish(whole_number(found, "input"))
            else:
                stream.acknowledge(positions(found, "output", len(stream.made)))
                if stream.ended and stream.acknowledged == stream.made:
                    self._done(stream)
                    return
        self._ready(stream)

    def _ready(self, stream: Live) -> None:
        if stream.is_ready:
            stream.model.ready[stream.id] = stream
            self._wake.set()

    def _done(self, stream: Live) -> None:
        """Let a stream go whose client has everything; its totals stay in the store for a while."""
        self._keep([stream])
        self._release(stream)
        self.metrics.ended.inc()
        if stream.connection is not None:
            stream.connection.close("done", "")

    def drop(self, stream: Live, error: WireError) -> None:
        """End a stream for good."""
        self._release(stream)
        try:
            self.store.delete(stream.id)
        except OSError as fault:
            LOG.error("%s is not forgotten: %s", stream.id, fault)
        self.metrics.failed.labels(error.kind).inc()
        if stream.connection is not None:
            stream.connection.close(error.kind, error.reason, **error.more)

    def _release(self, stream: Live) -> None:
        """Have nothing of a stream any more, but in the store."""
        if self.streams.pop(stream.id, None) is not None:
            stream.model.forget(stream)

    # ---------------------------------------------------------------- the store
    def _keep(self, streams: Sequence[Live]) -> bool:
        """Keep streams in the store, and let those go that another server has; return whether the store took them.

        Where it fails, a stream stays as it is, and is kept later.
        """
        try:
            lost = self.store.keep({stream.id: stream.record() for stream in streams}) if streams else set()
        except OSError as error:
            LOG.error("%d streams are not stored: %s", len(streams), error)
            self.metrics.unstored.inc(len(streams))
            return False
        for stream in streams:
            if stream.id in lost:
                self._release(stream)
                if stream.connection is not None:
                    stream.connection.close("taken over", "another server has the stream")
            else:
                stream.saved = stream.stepped
        return True

    def _save(self, streams: Sequence[Live]) -> None:
        """Keep streams, and tell their clients; those that have ended hear their totals."""
        kept = self._keep(streams)
        for stream in streams:
            if kept and stream.connection is not None:
                stream.connection.send_text(message("saved", input=stream.saved))
            if stream.ended:
                stream.tell_end()

    def _shelve(self, streams: Sequence[Live]) -> None:
        """Let streams be in the store alone."""
        if self._keep(streams):
            for stream in streams:
                self._release(stream)

    # ---------------------------------------------------------------- the step's clock
    def open(self) -> None:
        """Begin to step."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._stepping()), loop.create_task(self._sweeping())]

    async def _stepping(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(self.limits.tick)
            for model in self.models.values():
                while model.ready and not self._closing:
                    try:
                        await self._step(model)
                    except Exception:  # one step's, which must not end all others
                        LOG.exception("a step of %s", model.name)
                    await asyncio.sleep(0)

    async def _step(self, model: Model) -> None:
        """Step the streams of a model that are ready: in a thread, if that takes longer than a tick."""
        rows, begin = model.take(), time.perf_counter()
        if not rows:
            return
        if self._thread is not None and self._took[model.name] > self.limits.tick:
            done, outputs, failed = await asyncio.get_running_loop().run_in_executor(self._thread, model.run, rows)
        else:
            done, outputs, failed = model.run(rows)
        seconds = time.perf_counter() - begin
        self._took[model.name] += 0.2 * (seconds - self._took[model.name])
        self.metrics.step(len(rows), seconds)
        if done:
            self._save(model.leave(done, outputs))
        for stream, error in failed:
            stream.is_stepping = False
            self.drop(stream, WireError("engine", str(error), ids=[stream.id]))

    async def _sweeping(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.limits.grace / 2))
            try:
                self.sweep()
            except OSError as error:
                LOG.error("the store is not swept: %s", error)

    def sweep(self) -> None:
        """Shelve streams that have waited for a connection, end those whose clients don't answer."""
        now, waited = time.monotonic(), []
        for stream in list(self.streams.values()):
            if stream.is_stepping:
                continue
            if stream.connection is None and now - stream.seen > self.limits.grace:
                waited.append(stream)
            elif stream.outputs and now - stream.outputs[0][3] > 2 * self.limits.unacknowledged:
                if stream.connection is not None:
                    told = f"outputs are not acknowledged for {2 * self.limits.unacknowledged:g} s"
                    stream.connection.close("not acknowledged", told)
            elif stream.connection is not None and now - stream.seen > self.limits.idle:
                stream.connection.close("idle", f"nothing came for {self.limits.idle:g} s")
        self._shelve(waited)
        self.store.sweep(self.limits.keep, set(self.streams))
        self._opens = {a: x for a, x in self._opens.items() if now - x[1] < 2}

    def _park(self, n: int) -> None:
        """Shelve streams without a connection, those first that have waited longest."""
        waiting = [s for s in self.streams.values() if s.connection is None and not s.is_stepping]
        self._shelve(sorted(waiting, key=lambda s: s.seen)[:n])

    # ---------------------------------------------------------------- the end
    async def drain(self) -> None:
        """Let streams come to their end, then shelve what is left."""
        if self.draining is None:
            self.draining = time.monotonic()
            for stream in list(self.streams.values()):
                if stream.connection is not None:
                    stream.connection.send_text(message("drain", seconds=self.limits.drain))
        while any(s.connection for s in self.streams.values()):
            if time.monotonic() - self.draining > self.limits.drain:
                break
            await asyncio.sleep(0.02)
        await self.close()

    async def close(self) -> None:
        """Stop, with all streams in the store."""
        self._closing = True
        self._wake.set()
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._thread is not None:
            self._thread.shutdown()
        streams = list(self.streams.values())
        self._shelve(streams)
        for stream in streams:
            if stream.connection is not None:
                stream.connection.close("drained", "the server has ended")
        self.store.close()
