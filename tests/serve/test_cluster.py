"""Workers and vaults elsewhere that die, hang, wake later or come too many: each stream is what it is offline.

The cluster is one of threads, so that what happens happens when a test says so; `test_ray.py` has a real one.
"""

import asyncio
import contextlib
import copy
import time
from concurrent.futures import Future
from functools import partial

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")

from serving import Attentive, ByHand, Net, engine, equal, offline, running, samples, streamed, until
from thread_cluster import Threads
from websockets.exceptions import ConnectionClosed

from dreamstream.client import ServerError
from dreamstream.serve import Limits, MemoryStore, Model, Service, StoreError
from dreamstream.serve.pool import Pool, Worker
from dreamstream.serve.records import Record
from dreamstream.serve.runner import Row, Runner, State
from dreamstream.serve.vaults import VaultStore


def serviced(cluster, workers=(1, 1), cls=Net, store=None, runner=Runner, **limits):
    limits = Limits(**{"grace": 0.3, "save": 0.1, "drain": 1.0, **limits})
    made = engine(cls)
    pool = Pool(cluster, lambda: runner(copy.copy(made)), *workers, deadline=0.4)
    pool.look, pool.patience = 0.02, 0.2
    return Service({"net": Model("net", made, limits, pool=pool)}, store or MemoryStore(), limits)


def calls(cluster, do, own=None, n=5, length=3000, cls=Net):
    """Stream while a coroutine does something to the cluster."""

    async def main():
        server = own or serviced(cluster)
        async with running(server) as url:
            xs = [samples(length + k, k) for k in range(n)]
            tasks = [asyncio.create_task(streamed(url, x, 51, 0.02)) for x in xs]
            await until(lambda: len(server.streams) == n and all(s.saved for s in server.streams.values()))
            await do(server)
            for x, y in zip(xs, await asyncio.gather(*tasks)):
                equal(y, offline(x, cls))
            await until(lambda: not server.streams)

    asyncio.run(main())


# ---------------------------------------------------------------- workers
@pytest.mark.parametrize("cls", [Net, Attentive])
def test_workers_that_die(cls):
    cluster = Threads()

    async def do(server):
        for _ in range(3):
            await until(lambda: len(cluster.alive()) == 3 and len(server.models["net"].hosts) == 3)
            cluster.alive()[0].die()
            await asyncio.sleep(0.05)

    calls(cluster, do, serviced(cluster, (2, 2), cls), cls=cls)
    assert len(cluster.workers) == 6


def test_a_worker_and_its_spare_at_once():
    cluster = Threads()

    async def do(server):
        await until(lambda: len(server.models["net"].hosts) == 2)
        for worker in cluster.alive():
            worker.die()

    calls(cluster, do)


def test_workers_that_die_faster_than_others_begin():
    """There is a further spare one then, for a while."""
    cluster = Threads()
    server = serviced(cluster, (2, 2))
    server.models["net"].pool.memory = 1.0

    async def do(server):
        model = server.models["net"]
        await until(lambda: len(model.hosts) == 3)
        cluster.alive()[0].die()
        await until(lambda: len(model.hosts) == 3 and len(cluster.workers) == 4)  # one at a time: nothing more
        for worker in cluster.alive()[:2]:
            worker.die()
        await until(lambda: len(model.hosts) == 4)
        await until(lambda: len(model.hosts) == 3)

    calls(cluster, do, server)


def test_a_stopped_worker_that_wakes_later():
    """Its answer comes when its streams are elsewhere: it is not heard."""
    cluster = Threads()

    async def do(server):
        (asleep,) = [w for w in cluster.workers if w.done > 3]
        asleep.stop()
        await until(lambda: asleep.killed)
        await asyncio.sleep(0.1)
        before = asleep.done
        asleep.stop(False)
        await until(lambda: asleep.done > before)

    calls(cluster, do)


def test_a_node_leaves_while_another_drains():
    """A node has a worker and a vault; streams of the one that drains leave it step by step."""
    cluster = Threads()

    async def do(server):
        model = server.models["net"]
        await until(lambda: len(model.hosts) == 3 and min(len(host.streams) for host in model.hosts[:2]) > 1)
        stays, drains = model.hosts[:2]
        drains._handle.delay = 0.4  # so that nearly always a step is under way, which is waited for
        await until(lambda: any(stream.is_stepping for stream in drains.streams.values()))
        model.n_active = 1
        await until(lambda: any(stream.is_leaving for stream in drains.streams.values()))
        stays._handle.die(), cluster.vaults[0].die()
        drains._handle.delay = 0.1
        await until(lambda: stays.is_lost and not drains.streams)
        assert not drains.is_lost or drains._handle.killed

    calls(cluster, do, serviced(cluster, (2, 2), store=VaultStore(cluster, deadline=0.4)), n=6)


async def test_an_idle_worker_that_dies_is_noticed():
    cluster = Threads()
    server = serviced(cluster)
    async with running(server) as url:
        await until(lambda: len(server.models["net"].hosts) == 2)
        idle = server.models["net"].hosts[0]
        idle._handle.die()
        await until(lambda: idle.is_lost and len(server.models["net"].hosts) == 2)
        equal(await streamed(url, samples(500)), offline(samples(500)))


def test_more_workers_for_more_load():
    cluster = Threads()

    async def do(server):
        model = server.models["net"]
        (busy,) = [w for w in cluster.workers if w.done > 3]
        busy.delay = 0.03  # whatever it does
        await until(lambda: model.n_active == 2 and len(model.hosts) == 3)
        await until(lambda: min(len(host.streams) for host in model.hosts[:2]) > 0)
        busy.delay = 0.0
        await until(lambda: model.n_active == 1 and len(model.hosts) == 2)

    calls(cluster, do, serviced(cluster, (1, 3)), n=6, length=8000)


class Poisoned(Runner):
    def step(self, rows):
        if any(np.any(part == 77) for row in rows for part in row.parts):
            raise MemoryError("a worker that ends")
        return super().step(rows)


async def test_a_stream_that_ends_its_workers_is_ended_itself():
    cluster = Threads()
    server = serviced(cluster, runner=Poisoned)
    async with running(server) as url:
        xs, bad = [samples(2000, k) for k in range(4)], samples(2000, 9)
        bad[1000] = 77
        tasks = [asyncio.create_task(streamed(url, x, 51, 0.02)) for x in (*xs, bad)]
        for x, task in zip(xs, tasks):
            equal(await task, offline(x))
        with pytest.raises(ServerError, match="workers were lost") as caught:
            await tasks[-1]
        assert caught.value.code == 4500


def test_a_worker_refuses_what_does_not_go_on():
    worker, x = Worker(partial(Runner, engine())), samples(100)

    def step(position, begins=None, epoch=0, n=10):
        row = Row("a", position, [], n, False, False, None, 0.0, False, begins, epoch)
        return worker.step([row], x[position : position + n].tobytes(), [])

    assert step(0, State()).ids == ["a"] and step(10).ids == ["a"]
    for told in (step(10), step(30), step(20, epoch=1)):
        assert told.ids == [] and "expected frames of epoch 0 from 20 on" in told.failed["a"][1]
    assert step(0, State(), epoch=1).ids == ["a"]
    assert "epoch 1" in step(0, State(), epoch=0).failed["a"][1]
    worker.step([], b"", ["a"])
    assert "from 0 on" in step(10, epoch=1).failed["a"][1]


async def test_two_versions_at_once():
    """Streams of the old version end on it, also after a break; others begin on the new one."""

    class Other(Net):
        def forward(self, x):
            y, z = super().forward(x)
            return y, z * 1.5

    cluster = Threads()
    server = serviced(cluster, keep=0.2)
    old = server.models["net"]
    async with running(server) as url:
        x = samples(2000)
        async with ByHand(url) as client:
            told = await client.start()
            await client.give(0, x[:500])
            await client.told("saved")
        server.replace("net", serviced(cluster, cls=Other).models["net"])
        y = (await streamed(url, x))[1]
        assert np.array_equal(y, (offline(x)[1] * np.float32(1.5)))
        async with ByHand(url) as client:
            await client.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            at = (await client.told("started"))["input"]
            await client.give(at, x[at:])
            await client.say("end", input=2000)
            ended = await client.told("ended")
            y = b"".join(bytes(rest) for _, port, rest in client.frames if port == 1)
            assert y == offline(x)[1].tobytes()
            await client.say("ack", output=ended["output"])
        await until(lambda: old not in server._versions())
        assert all(w.killed for w in cluster.workers[:2])
        async with ByHand(url) as client:
            await client.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert await client.closed() == 4410


# ---------------------------------------------------------------- vaults
def record(n):
    return Record("f", n, [n], [0], b"x" * n)


def test_vaults_that_die():
    cluster = Threads()
    store = VaultStore(cluster, deadline=0.4)
    other = VaultStore(cluster, deadline=0.4)
    assert store.key == other.key
    assert store.keep({"a": record(3), "b": record(4)}) == {} and store.find(["c"]) == {}
    assert other.find(["a"]) == {"a": record(3)} and store.keep({"a": record(5), "b": record(6)}) == {"a": "taken"}
    cluster.vaults[0].die()
    assert store.find(["b"]) == {"b": record(6)}
    until_filled(store)
    assert other.keep({"a": record(7)}) == {}
    cluster.vaults[1].stop()  # silent, not dead
    assert other.find(["a"]) == {"a": record(7)}
    until_filled(other)
    assert other.find(["b"]) == {"b": record(6)}  # which only vaults that are gone were told
    other.delete("a"), other.sweep(60, {"b"})
    assert store.find(["a"]) == {}
    for vault in cluster.vaults.values():
        vault.die()
    assert store.keep({"b": record(9)}) == {} and store.find(["b"]) == {"b": record(9)}
    assert VaultStore(cluster, deadline=0.4).key == store.key


def test_both_vaults_are_silent(monkeypatch):
    """What they know is not thrown away at once: they have it when they are heard again, or are replaced."""
    cluster = Threads()
    store = VaultStore(cluster, deadline=0.2)
    store.keep({"a": record(1)})
    first = dict(cluster.vaults)
    for vault in first.values():
        vault.stop()
    for _ in range(2):
        with pytest.raises(StoreError, match="0 of 2 vaults"):
            store.keep({"a": record(2)})
    for vault in first.values():
        vault.stop(False)
    assert store.find(["a"]) == {"a": record(2)} and cluster.vaults == first
    for vault in first.values():
        vault.stop()
    monkeypatch.setattr("dreamstream.serve.vaults._SILENCE", 0)
    until_filled(store)
    assert store.keep({"a": record(3)}) == {} and store.find(["a"]) == {"a": record(3)}
    assert all(cluster.vaults[number] is not vault for number, vault in first.items())


@pytest.mark.parametrize("number", range(2))
def test_a_vault_that_dies_while_a_server_starts(number):
    """The other one has the key, which all servers have in common."""
    cluster = Threads()
    store, vault = VaultStore(cluster, deadline=0.4), cluster.vault
    store.keep({"a": record(1)})
    found = cluster.vaults[number]
    call, found.call = found.call, lambda *args: (found.die(), call(*args))[1]
    cluster.vault = lambda n: found if n == number and not found.dead else vault(n)
    other = VaultStore(cluster, deadline=0.4)
    assert found.dead and other.key == store.key
    until_filled(other), until_filled(store)
    assert other.find(["a"]) == {"a": record(1)}


def until_filled(store):
    end = time.monotonic() + 5
    while True:
        with contextlib.suppress(StoreError):
            store.sweep(0, set())
            if not store._coming:
                return
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_vault_that_is_not_filled_is_filled_again():
    cluster = Threads()
    store, vault, failures = VaultStore(cluster, deadline=0.4), cluster.vault, [2]
    store.keep({"a": record(1)})

    def fails(fill, other):
        failures[0] -= 1
        if failures[0] < 0:
            return fill(other)
        answer = Future()
        answer.set_exception(ConnectionError("cut"))
        return answer

    def renewed(number):
        made = vault(number)
        made.fill_from = partial(fails, made.fill_from)
        return made

    cluster.vault = renewed
    cluster.vaults[0].die()
    store.sweep(0, {"a"})  # it is noticed
    until_filled(store)
    assert failures[0] < 0
    cluster.vaults[1].die()
    assert store.find(["a"]) == {"a": record(1)}


def test_both_vaults_are_asked_where_records_are_to_be_durable():
    cluster = Threads()
    store = VaultStore(cluster, durable=True, deadline=0.4)
    store.keep({"a": record(1)})
    cluster.vaults[0].die()
    store.keep({"a": record(2)})  # by another in its place
    cluster.vaults[1].die()
    until_filled(store)
    assert store.find(["a"]) == {"a": record(2)}
    cluster.vault = lambda number: cluster.vaults[number]
    cluster.vaults[1].die()
    with pytest.raises(StoreError, match="1 of 2 vaults"):
        store.keep({"a": record(3)})


@pytest.mark.parametrize("cls", [Net, Attentive])
def test_a_vault_dies_with_a_worker(cls):
    cluster = Threads()
    store = VaultStore(cluster, deadline=0.4)

    async def do(server):
        cluster.vaults[0].die(), cluster.alive()[0].die()
        await asyncio.sleep(0.3)
        cluster.vaults[1].die()

    calls(cluster, do, serviced(cluster, cls=cls, store=store), cls=cls)


async def test_a_client_that_goes_to_and_fro():
    """A server that it comes back to, and that still has the stream, has it from where the other one left it."""
    cluster, x, told, saved = Threads(), samples(2000), None, 0
    options = {"grace": 60.0, "unacknowledged": 60.0}
    servers = [serviced(cluster, store=VaultStore(cluster, deadline=0.4), **options) for _ in range(2)]
    async with running(servers[0]) as first, running(servers[1]) as second:
        for turn, url in enumerate((first, second, first, second)):
            async with ByHand(url) as client:
                if told is None:
                    told, at = await client.start(), 0
                else:
                    await client.say("resume", stream=told["stream"], output=[0, 0], saved=saved)
                    at = (await client.told("started"))["input"]
                assert at >= saved
                if turn == 3:
                    await client.end(at, x)
                    break
                await client.give(at, x[at : 500 * (turn + 1)])
                while saved <= 500 * turn + 100:
                    saved = (await client.told("saved"))["input"]
                client.socket.transport.abort()


@pytest.mark.parametrize("cls", [Net, Attentive])
async def test_another_server_goes_on(cls):
    """A server that is silent, and its client at another: what the first still keeps is refused."""
    cluster = Threads()
    servers = [serviced(cluster, cls=cls, store=VaultStore(cluster, deadline=0.4)) for _ in range(2)]
    async with running(servers[0]) as first, running(servers[1]) as second:
        x = samples(2000)
        async with ByHand(first) as client:
            told = await client.start()
            await client.give(0, x[:800])
            saved = (await client.told("saved"))["input"]
            async with ByHand(second) as other:
                await other.say("resume", stream=told["stream"], output=[0, 0], saved=0)
                at = (await other.told("started"))["input"]
                assert saved <= at <= 800
                with contextlib.suppress(ConnectionClosed):
                    await client.give(800, x[800:1800])
                assert await client.closed() == 4409
                await other.end(at, x, cls)
