"""Streams by their tokens: those that start, those that come back, those that nobody wants any more."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
from .hosts import Host, HostLost
from .limits import Limits
from .metrics import Metrics
from .records import Store
from .storing import Storing
from .streams import LOG, Connection, Live, Model

#: Workers that may be lost in the middle of a stream's steps before it is the stream's fault.
_MOST_LOST = 4
#: Told a token of the client's own and its address, says whether it may stream.
Authorize = Callable[[Any, str], bool]


class Service:
    """What connections talk to.

    Parameters
    ----------
    models : dict of str to Model
        The first is what a client gets that names none. Streams that come back find theirs by its fingerprint.
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
        self._retired: dict[Model, float] = {}  # and when each last had a stream
        self._loops: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = ThreadPoolExecutor(1, "dreamstream-step") if (os.cpu_count() or 1) > 1 else None
        self._storing = Storing(store)
        self.files = asyncio.Semaphore()  # one recording at a time is run
        self.incoming = memoryview(bytearray(1 << 20))  # where all connections read to, one at a time

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

    def may_stream(self, token: Any, address: str) -> bool:
        """Ask `authorize`; a check that fails lets nobody in."""
        try:
            may: Any = self.authorize is None or self.authorize(token, address)
            if inspect.isawaitable(may):
                raise TypeError("it returns an awaitable; it is to be a plain function that returns a bool")
            return bool(may)
        except Exception:
            LOG.exception("the check of a token from %s has failed", address)
            return False

    async def first(self, connection: Connection, data: Any, address: str) -> Live:
        """Return the stream of a connection's first message."""
        found = read_message(data, ("start", "resume"))
        if found["type"] == "resume":
            return await self._resume(found, connection)
        stream = await self._start(found, address)
        stream.attach(connection)
        return stream

    async def _start(self, found: Mapping[str, Any], address: str) -> Live:
        if not self.may_stream(found.get("token"), address):
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
        rate = found.get("rate", model.description["rate"])
        if str(rate) != model.description["rate"] and rate != model.engine.rate:  # 16000.0 is the same as 16000
            raise WireError("malformed", f"{name} has a rate of {model.description['rate']}, not {str(rate)[:20]}")
        await self._make_room(0.9)
        stream_id = secrets.token_urlsafe(12)
        content = {"id": stream_id, "model": name, "format": form, "fingerprint": model.fingerprint}
        stream = self.streams[stream_id] = Live(stream_id, signed(self.store.key, content), model, form)
        model.place(stream)
        self.metrics.started.inc()
        return stream

    async def _make_room(self, part: float) -> None:
        """Shelve the stream that has waited longest, if there are too many, and raise if that leaves too many."""
        if len(self.streams) >= part * self.limits.streams:
            waiting = [s for s in self.streams.values() if s.connection is None and not s.is_stepping]
            await self._shelve(sorted(waiting, key=lambda s: s.seen)[:1])
        if len(self.streams) >= part * self.limits.streams:
            raise WireError("full", "too many streams", retry_after=5)

    async def _resume(self, found: Mapping[str, Any], connection: Connection) -> Live:
        content = opened(self.store.key, found.get("stream"))
        saved, stream_id = whole_number(dict(found), "saved"), content["id"]
        model = next((m for m in self._versions() if m.fingerprint == content["fingerprint"]), None)
        if model is None:
            raise WireError("retired", f"{content['model']} is not served any more in this version")
        have = positions(dict(found), "output", len(model.description["names"]))
        record = None
        if stream_id not in self.streams:
            await self._make_room(1.0)
        if stream_id not in self.streams or self.store.is_remote:
            try:
                record = await self._storing.get(stream_id)
            except OSError as error:
                LOG.error("%s is not read: %s", stream_id, error)
                if stream_id not in self.streams:
                    raise WireError("full", "the store is not there", retry_after=1) from error
        stream = self.streams.get(stream_id)
        if stream is not None and record is not None and record.input > stream.saved:
            self._give_up(stream)
            stream = None
        if stream is None:
            stream = Live(stream_id, found["stream"], model, content["format"])
            if record is not None:
                stream.restore(record)
        if stream.wanted < saved or any(a > n for a, n in zip(stream.acknowledged, have)):
            raise WireError("unknown", "this stream is not known any more as far as the client has dropped it")
        if stream_id not in self.streams:
            self.streams[stream_id] = stream
            model.place(stream)
        stream.ahead = have
        stream.acknowledge(have)
        stream.attach(connection, have)
        self.metrics.resumed.inc()
        if stream.host is not None:
            stream.host.note(stream)
        return stream

    def received(self, stream: Live, data: Any) -> None:
        """Take a message of a stream: bytes, or text."""
        if isinstance(data, bytes):
            position, port, frames = unpacked(data)
            if port:
                raise WireError("malformed", f"{stream.model.name} has one input, port 0, not {port}")
            stream.give(position, frames)
            self.metrics.n_received += 1
        else:
            found = read_message(data, ("ack", "end"))
            if found["type"] == "end":
                stream.finish(whole_number(found, "input"))
            else:
                stream.acknowledge(positions(found, "output", len(stream.made)))
                if stream.ended and stream.acknowledged == stream.made:
                    self._soon(self._done(stream))
                    return
        if stream.host is not None:
            stream.host.note(stream)

    async def _done(self, stream: Live) -> None:
        """Let a stream go whose client has everything; its totals stay in the store for a while."""
        await self._keep([stream])
        if self.streams.get(stream.id) is not stream:  # it has gone meanwhile
            return
        self._release(stream)
        self.metrics.ended.inc()
        stream.close("done", "")

    async def drop(self, stream: Live, error: WireError) -> None:
        """End a stream for good."""
        self._release(stream)
        try:
            if error.kind != "retired":  # another server may have this version
                await self._storing.delete(stream.id)
        except OSError as fault:
            LOG.error("%s is not forgotten: %s", stream.id, fault)
        self.metrics.failed.labels(error.kind).inc()
        stream.close(error.kind, error.reason, **error.more)

    def _release(self, stream: Live) -> None:
        """Have nothing of a stream any more, but in the store."""
        if self.streams.get(stream.id) is stream:
            del self.streams[stream.id]
            if stream.host is not None:
                stream.host.leave(stream)

    def _give_up(self, stream: Live) -> None:
        """Have nothing of a stream that is another server's by now."""
        self._release(stream)
        stream.close("taken over", "another server has the stream")

    # ---------------------------------------------------------------- the store
    def _soon(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something beside all else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, streams: Sequence[Live]) -> set[str]:
        """Keep streams in the store, and let those go that another server has; return which the store took.

        Where it fails, or a stream's state is not known, a stream stays as it is, and is kept later.
        """
        records = {s.id: record for s in streams if (record := s.record()) is not None}
        parts = {s.id: s.n_parts for s in streams}
        try:
            refused = await self._storing.keep(records) if records else {}
        except OSError as error:
            LOG.error("%d streams are not stored: %s", len(records), error)
            self.metrics.unstored.inc(len(records))
            return set()
        for stream in streams:
            if refused.get(stream.id) == "taken":
                self._give_up(stream)
            elif refused.get(stream.id) == "missing":
                stream.n_parts = 0  # its next record has all
            elif stream.id in records and stream.id not in refused:
                stream.stores(records[stream.id], parts[stream.id])
        return records.keys() - refused

    async def _save(self, streams: Sequence[Live]) -> None:
        """Keep streams, all of a model, and tell their clients; those that have ended hear their totals."""
        if streams[0].model.saves:
            kept = await self._keep(streams)
        else:  # as good as kept, for the store ends with the process
            kept = {stream.id for stream in streams}
            for stream in streams:
                stream.saved = max(stream.saved, stream.stepped)
        for stream in streams:
            if stream.id in kept:
                stream.send(message("saved", input=stream.saved))
            if stream.ended:
                stream.tell_end()

    async def _shelve(self, streams: Sequence[Live]) -> None:
        """Let streams be in the store alone."""
        kept = await self._keep(streams)
        for stream in streams:
            if (self._closing or stream.connection is None) and (stream.id in kept or stream.may_go):
                self._release(stream)

    # ---------------------------------------------------------------- the step's clock
    def open(self) -> None:
        """Begin to step."""
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self._sweeping())]
        for model in self.models.values():
            self._tend(model)

    def _tend(self, model: Model) -> None:
        model.saves = self.store.outlives or model.pool is not None
        for host in model.hosts:
            self.add(model, host)
        if model.pool is not None:
            self._loops.append(asyncio.get_running_loop().create_task(model.pool.run(self, model)))

    def add(self, model: Model, host: Host) -> None:
        """Step what a host has from now on; streams that had none are its first."""
        if host not in model.hosts:
            model.hosts.append(host)
        for stream in self.streams.values():
            if stream.model is model and stream.host is None and not stream.ended:
                model.place(stream)
        self._soon(self._stepping(model, host))

    def lose(self, model: Model, host: Host) -> None:
        """Let the streams of a host that has ended begin elsewhere."""
        host.is_lost = True
        if host in model.hosts:  # else it was let go meanwhile
            model.hosts.remove(host)
            if model.pool is not None:
                model.pool.lose()
        host.wake.set()
        for stream in list(host.streams.values()):
            stream.n_lost += stream.is_stepping
            self.move(stream)

    def move(self, stream: Live) -> None:
        """Let a stream begin on another host from the last state that is known of it."""
        if stream.host is not None:
            stream.host.leave(stream)
        stream.rewind()
        self.metrics.moved.inc()
        if stream.n_lost > _MOST_LOST:
            text = f"{stream.n_lost} workers were lost while they stepped it"
            self._soon(self.drop(stream, WireError("engine", text, ids=[stream.id])))
        else:
            stream.model.place(stream)

    def replace(self, name: str, model: Model) -> None:
        """Begin new streams of this name with another version of the model; those that live end on theirs."""
        old = self.models.get(name)
        self.models[name] = model
        self._tend(model)
        if old is not None:
            self._retired[old] = time.monotonic()

    def _versions(self) -> list[Model]:
        return [*self.models.values(), *self._retired]

    async def _stepping(self, model: Model, host: Host) -> None:
        begun = 0.0
        while not self._closing and not host.is_lost:
            await host.wake.wait()
            host.wake.clear()
            early = begun + self.limits.tick - time.monotonic()
            await asyncio.sleep(early if early > self.limits.tick / 4 else 0)  # a step takes what comes in a tick
            begun = time.monotonic()
            while (host.ready or host.is_silent) and not self._closing:
                try:
                    await self._step(model, host)
                except HostLost as lost:
                    LOG.warning("a worker of %s is lost with %d streams: %s", model.name, len(host.streams), lost)
                    self.lose(model, host)
                    return
                except Exception:  # one step's, which must not end all others
                    LOG.exception("a step of %s", model.name)
                if host.ready:  # more than a step takes
                    await asyncio.sleep(0)

    async def _step(self, model: Model, host: Host) -> None:
        """Step the streams of a host that are ready."""
        taken, begin = model.take(host), time.perf_counter()
        if not taken and not host.is_silent:
            return
        try:
            stepped = await host.step([row for _, row in taken], self._thread)
        except HostLost:
            raise
        except Exception:  # of these streams nobody knows any more how far they are
            for stream, _ in taken:
                stream.is_stepping = False
                await self.drop(stream, WireError("engine", "the server has failed", ids=[stream.id]))
            raise
        self.metrics.step(len(taken), host.timed(begin))
        due = model.leave(host, taken, stepped)
        if due:
            if self.store.is_remote:
                self._soon(self._save(due))
            else:
                await self._save(due)
        for stream, row in taken:
            if stream.is_leaving and stream.host is host and row.id not in stepped.failed:
                self.move(stream)
            if row.id in stepped.failed and stream.epoch == row.epoch:
                stream.is_stepping = False
                await self.drop(stream, WireError(*stepped.failed[row.id], ids=[row.id]))

    async def _sweeping(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.limits.grace / 2))
            try:
                await self.sweep()
            except OSError as error:
                LOG.error("the store is not swept: %s", error)

    async def sweep(self) -> None:
        """Shelve streams that have waited for a connection, end those whose clients don't answer."""
        now, late, waited = time.monotonic(), 2 * self.limits.unacknowledged, []
        for stream in list(self.streams.values()):
            if stream.model in self._retired:
                self._retired[stream.model] = now
            if stream.is_stepping:
                continue
            if stream.connection is None and now - stream.seen > self.limits.grace:
                waited.append(stream)
            elif stream.connection is None:
                continue
            elif stream.waits(now) > late:
                stream.connection.close("not acknowledged", f"outputs are not acknowledged for {late:g} s")
            elif stream.is_paused and now - stream.paused_at > late:
                stream.connection.close("queued", f"{stream.n_queued} frames wait for a step")
            elif now - stream.seen > self.limits.idle:
                stream.connection.close("idle", f"nothing came for {self.limits.idle:g} s")
        await self._shelve(waited)
        await self._storing.sweep(self.limits.keep, set(self.streams))
        for model in [m for m, then in self._retired.items() if now - then > self.limits.keep]:
            del self._retired[model]
            model.close()
        self._opens = {a: x for a, x in self._opens.items() if now - x[1] < 2}

    # ---------------------------------------------------------------- the end
    async def drain(self) -> None:
        """Let streams come to their end, then shelve what is left."""
        if self.draining is None:
            self.draining = time.monotonic()
            for stream in list(self.streams.values()):
                stream.send(message("drain", seconds=self.limits.drain))
        while any(s.connection for s in self.streams.values()):
            if time.monotonic() - self.draining > self.limits.drain:
                break
            await asyncio.sleep(0.02)
        await self.close()

    async def close(self) -> None:
        """Stop, with all streams in the store."""
        self._closing = True
        for task in self._loops:
            task.cancel()
        models = self._versions()
        for model in models:
            for host in model.hosts:
                host.wake.set()
        while waiting := {*self._tasks, *self._loops}:
            await asyncio.gather(*waiting, return_exceptions=True)
            self._loops.clear()
        if self._thread is not None:
            self._thread.shutdown()
        streams = list(self.streams.values())
        await self._shelve(streams)
        for stream in streams:
            stream.close("drained", "the server has ended")
        for model in models:
            model.close()
        self._storing.close()
