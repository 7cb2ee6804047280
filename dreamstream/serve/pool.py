"""Workers on other machines: what they do, how a server calls them, and how many there are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol

import numpy as np

from .hosts import Host, HostLost
from .runner import Row, Runner, Stepped
from .streams import LOG, Model


class Handle(Protocol):
    """An object on another machine."""

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call one of its methods, after those that were called before."""

    def fill_from(self, other: Any) -> Future[Any]:
        """Let it, a vault, take what another has."""

    def kill(self) -> None:
        """End it at once, whatever it does."""


def first_line(error: BaseException) -> str:
    """Return what an error says, but for its details."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


class Cluster(Protocol):
    """Where workers and vaults are; `ray.RayCluster` is one."""

    def worker(self, runner: Any) -> Handle:
        """Begin a `Worker`: of a function that returns its runner, anywhere."""

    def vault(self, number: int) -> Handle:
        """Return a `Vault` that all servers of the cluster have in common, on another machine for each number."""


class Worker:
    """A runner, and how far each of its streams is.

    A step that does not go on where the stream is, is refused: a call that is late or comes twice changes nothing.
    """

    def __init__(self, make: Any) -> None:
        self._runner: Runner = make()
        self._at: dict[str, tuple[int, int]] = {}  # epoch and position of each stream

    def step(self, rows: Sequence[Row], data: bytes, leaving: Sequence[str]) -> Stepped:
        """Advance streams; the frames of rows are one after the other in `data`."""
        for stream_id in leaving:
            self._forget(stream_id)
        whole, failed, at = [], {}, 0
        for row in rows:
            kind = np.dtype("<i2" if row.is_int16 else "<f4")
            shape = self._runner.engine.inputs[0].features
            size = row.n * kind.itemsize * int(np.prod(shape, dtype=int))
            frames = np.frombuffer(data, kind, size // kind.itemsize, at).reshape(row.n, *shape)
            at += size
            epoch, position = self._at.get(row.id, (-1, 0))
            if row.begins is None and (epoch, position) != (row.epoch, row.position):
                failed[row.id] = "engine", f"expected frames of epoch {epoch} from {position} on"
            elif row.epoch < epoch:
                failed[row.id] = "engine", f"the stream is in epoch {epoch}"
            else:
                if row.begins is not None:
                    self._forget(row.id)
                whole.append(row._replace(parts=[frames]))
        stepped = self._runner.step(whole)
        for row in whole:
            if row.id in stepped.failed or row.ends:
                self._at.pop(row.id, None)
            else:
                self._at[row.id] = row.epoch, row.position + row.n
        return stepped._replace(failed={**stepped.failed, **failed})

    def _forget(self, stream_id: str) -> None:
        if self._at.pop(stream_id, None) is not None:
            self._runner.forget(stream_id)


class Remote(Host):
    """A worker as a server has it: one call at a time, and none that waits for longer than its deadline.

    `deadline` is in seconds; an answer may also take ten times as long as so many frames took lately.
    """

    keeps_input = True

    def __init__(self, handle: Handle, deadline: float) -> None:
        super().__init__()
        self._handle, self._deadline, self._per_frame = handle, deadline, 0.0
        self._leaving: list[str] = []
        self._called = time.monotonic()
        self.load, self._busy_before = 0.0, 0.0

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self._called > self._deadline / 4

    async def step(self, rows: Sequence[Row], thread: Executor | None = None) -> Stepped:
        n = sum(row.n for row in rows)
        data = b"".join(np.ascontiguousarray(part).data.cast("B") for row in rows for part in row.parts)
        leaving, self._leaving = self._leaving, []
        begin = self._called = time.monotonic()
        without = [row._replace(parts=[]) for row in rows]
        answer = asyncio.wrap_future(self._handle.call("step", without, data, leaving))
        if not (await asyncio.wait([answer], timeout=self._deadline + 10 * n * self._per_frame))[0]:
            answer.add_done_callback(lambda late: late.cancelled() or late.exception())  # which nobody waits for
            self._handle.kill()
            raise HostLost(f"no answer for {time.monotonic() - begin:.1f} s")
        try:
            stepped: Stepped = answer.result()
        except Exception as error:
            self._handle.kill()
            raise HostLost(first_line(error)) from error
        if n:
            self._per_frame += 0.2 * ((time.monotonic() - begin) / n - self._per_frame)
        return stepped

    def measure(self, seconds: float) -> None:
        """Note which part of the last seconds its steps took."""
        self.load += 0.3 * ((self.busy - self._busy_before) / seconds - self.load)
        self._busy_before = self.busy

    def forget(self, stream_id: str) -> None:
        self._leaving.append(stream_id)

    def close(self) -> None:
        """Let the worker end."""
        self._handle.kill()


class Pool:
    """The workers of a model: as many as its load needs, and one that is spare.

    Where workers go faster than others come, so that one is lost while none is spare, there is a further spare one
    from then on, until no such thing has happened for a while.

    `make` returns a worker's `Runner`, on its machine. From `least` to `most` workers step streams; `deadline` is
    that of `Remote`.
    """

    #: Between looks; for how long load must be low before a worker is given up, and a loss counts.
    look, patience, memory = 0.25, 30.0, 60.0

    def __init__(self, cluster: Cluster, make: Any, least: int = 1, most: int = 1, deadline: float = 2.0) -> None:
        self._cluster, self._make, self._deadline = cluster, make, deadline
        self._least, self._most = least, max(least, most)
        self._starting: set[asyncio.Task[None]] = set()
        self._losses: list[float] = []  # when a worker was lost and none was spare
        self._model: Model | None = None
        self._task: asyncio.Task[None] | None = None

    async def run(self, service: Any, model: Model) -> None:
        """See that there are workers, until it is cancelled."""
        self._model, model.n_active = model, self._least
        self._task = asyncio.current_task()
        low_since = looked = time.monotonic()
        try:
            while True:
                while len(model.hosts) + len(self._starting) < model.n_active + self._n_spare(model):
                    task = asyncio.get_running_loop().create_task(self._start(service, model))
                    self._starting.add(task)
                    task.add_done_callback(self._starting.discard)
                await asyncio.sleep(self.look)
                now = time.monotonic()
                active = [host for host in model.hosts[: model.n_active] if isinstance(host, Remote)]
                for host in model.hosts:
                    assert isinstance(host, Remote)
                    host.measure(now - looked)
                    if host.is_silent:
                        host.wake.set()
                looked = now
                load = sum(host.load for host in active) / max(1, len(active))
                if load > 0.7 and len(active) == model.n_active < self._most:
                    model.n_active += 1
                if load * model.n_active < 0.5 * (model.n_active - 1) and model.n_active > self._least:
                    if now - low_since > self.patience:
                        model.n_active -= 1
                        low_since = now
                else:
                    low_since = now
                self._balance(service, model)
        finally:
            for task in self._starting:
                task.cancel()

    def lose(self) -> None:
        """Note that a worker was lost, which is none of the model's any more."""
        if self._model is not None and len(self._model.hosts) < self._model.n_active:
            self._losses.append(time.monotonic())

    def _n_spare(self, model: Model) -> int:
        """Return how many workers there are to be that nobody needs: at most as many as are at work, and one."""
        before = time.monotonic() - self.memory
        self._losses = [then for then in self._losses if then > before]
        return 1 + min(len(self._losses), model.n_active)

    async def _start(self, service: Any, model: Model) -> None:
        handle = self._cluster.worker(self._make)
        try:
            await asyncio.wrap_future(handle.call("step", [], b"", []))
        except asyncio.CancelledError:
            handle.kill()
            raise
        except Exception as error:
            handle.kill()  # on another node, next time
            LOG.error("a worker of %s does not start: %s", model.name, first_line(error))
            await asyncio.sleep(1.0)
            return
        service.add(model, Remote(handle, self._deadline))

    def _balance(self, service: Any, model: Model) -> None:
        """Take streams from workers that are to have none, and from those that have many more than others."""
        active, others = model.hosts[: model.n_active], model.hosts[model.n_active :]
        fewest = min((len(host.streams) for host in active), default=0)
        for host in (*active, *others):
            keeps = fewest + max(1, fewest // 4) if host in active else 0
            for stream in list(host.streams.values())[keeps:] if keeps < len(host.streams) else ():
                if stream.is_stepping:
                    stream.is_leaving = True
                else:
                    service.move(stream)
        for host in others[self._n_spare(model) :]:
            if not host.streams:
                model.hosts.remove(host)
                self._end(host)

    def _end(self, host: Host) -> None:
        assert isinstance(host, Remote)
        host.is_lost = True
        host.wake.set()
        host.close()

    def close(self) -> None:
        """End all workers, and begin no others."""
        if self._task is not None:
            self._task.cancel()
        for host in self._model.hosts if self._model is not None else ():
            self._end(host)
