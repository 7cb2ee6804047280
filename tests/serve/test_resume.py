"""Streams that come back: to the server that they left, or to one that comes after, killed at any moment."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")

from serving import (
    Attentive,
    ByHand,
    Net,
    a_redis,
    by_hand,
    engine,
    equal,
    offline,
    running,
    samples,
    service,
    streamed,
    until,
)

from dreamstream import nn
from dreamstream.client import connect
from dreamstream.serve import FolderStore, Limits, MemoryStore, Model, Service, open_store


# ---------------------------------------------------------------- streams that come back
async def test_outputs_before_a_record_are_not_lost(tmp_path):
    """Frames that left and never arrived are sent again by the server that comes after."""
    x = samples(1000)
    async with running(service(FolderStore(tmp_path))) as url, ByHand(url) as client:
        told = await client.start()
        await client.give(0, x)
        while (saved := (await client.told("saved"))["input"]) < 800:
            pass
    async with (
        running(service(FolderStore(tmp_path))) as url,
        ByHand(url) as client,
    ):  # of another process, as it were
        await client.say("resume", stream=told["stream"], output=[0, 0], saved=saved)
        again = await client.told("started")
        assert again["input"] >= saved
        await client.end(again["input"], x)


async def test_outputs_that_wait_are_kept_together():
    """A client that has a part of a message drops it by position; what ends with the process is not filled."""
    own, x = service(limits=Limits(save=0.1)), samples(1000)
    async with running(own) as url:
        async with ByHand(url) as client:
            told = await client.start()
            (stream,) = own.streams.values()
            for k in range(50):
                await client.give(20 * k, x[20 * k : 20 * k + 20])
                await until(lambda k=k: stream.stepped == 20 * (k + 1))
            assert (await client.told("saved"))["input"] >= 160 and own.store._entries == {}
        sizes = [[len(each.message) for each in kept] for kept in stream.outputs]
        assert sum(sizes[1]) == 4000 + 8 * len(sizes[1]) and max(sizes[1]) > 2 * 88, sizes
        async with ByHand(url) as client:
            await client.say("resume", stream=told["stream"], output=[30, 107], saved=0)
            assert (await client.told("started"))["input"] == 1000
            await client.say("end", input=1000)
            await client.told("ended")
            for port, (want, have) in enumerate(zip(offline(x), (30, 107))):
                got, size = b"", want[0].nbytes
                for position, at, rest in client.frames:
                    if at == port:
                        begin = len(got) // size + have
                        assert position <= begin
                        got += bytes(rest)[(begin - position) * size :]
                assert got == want[have:].tobytes()


MOMENTS = ("before its first record", "before it hears of a record", "before it acknowledges the end")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_servers_that_are_killed_one_after_the_other(tmp_path, moment):
    """What a server leaves that is killed at a moment is what the next one has, twice."""
    x, told, have = samples(600), None, [b"", b""]
    for turn in range(3):
        own = service(FolderStore(tmp_path / str(turn)), limits=Limits(save=10 if moment == MOMENTS[0] else 0.1))
        async with running(own) as url, ByHand(url) as client:
            if told is None:
                told, at = await client.start(), 0
            else:
                sizes = (len(have[0]) // 12, len(have[1]) // 4)
                await client.say("resume", stream=told["stream"], output=sizes, saved=0)
                at = (await client.told("started"))["input"]
                assert at == 0 if moment == MOMENTS[0] else at > 0
            if turn == 2 or moment == MOMENTS[2]:
                if at < 600:
                    await client.give(at, x[at:])
                await client.say("end", input=600)
                await client.told("ended")
            else:
                await client.give(at, x[at : at + 200])
                await (asyncio.sleep(0.1) if moment == MOMENTS[0] else client.told("saved"))
            for position, port, rest in client.frames:  # of the last that was told
                size = 12 if port == 0 else 4
                have[port] += bytes(rest)[max(0, len(have[port]) - position * size) :]
            shutil.copytree(tmp_path / str(turn), tmp_path / str(turn + 1))
    for found, want in zip(have, offline(x)):
        assert found == want.tobytes()


def where(tmp_path, kind, stack):
    """A store's place: of servers that come one after the other."""
    return tmp_path / "state" if kind == "folder" else stack.enter_context(a_redis(tmp_path))


@pytest.mark.parametrize("kind", ["folder", "redis"])
def test_a_state_that_grows_is_kept_as_what_is_new(tmp_path, kind):
    """Bytes that are written grow with the stream, not with its square; each server goes on from all of them."""

    async def main(place):
        x, told, have, written = samples(16000), None, [0, 0], 0
        for turn in range(4):
            store = open_store(place)
            keep, after = store.keep, []

            def counted(records, keep=keep, after=after):
                nonlocal written  # redis has several that continue none until it has answered
                written += sum(len(record.snapshot) for record in records.values())
                after.extend(record.after for record in records.values())
                return keep(records)

            store.keep = counted
            own = service(store, limits=Limits(save=0.1, grace=0.2), cls=Attentive)
            async with running(own) as url, ByHand(url) as client:
                if told is None:
                    told, at = await client.start(), 0
                else:
                    await client.say("resume", stream=told["stream"], output=have, saved=0)
                    at = (await client.told("started"))["input"]
                    assert at == 4000 * turn
                (stream,) = own.streams.values()
                for begin in range(at, 4000 * (turn + 1), 400):
                    end = min(begin + 400, 4000 * (turn + 1))
                    await client.give(begin, x[begin:end])
                    await until(lambda s=stream, end=end: s.stepped == end and not s.is_stepping)
                    if turn == 1 and begin == at + 1200:  # its records go, as those of a Redis that was emptied
                        store.delete(stream.id)
                    await client.say("ack", output=stream.made)
                have = list(stream.made)
                if turn < 3:
                    client.socket.transport.abort()
                else:
                    await client.say("end", input=len(x))
                    assert (await client.told("ended"))["output"] == [4000, 16000]
            assert turn == 3 or kind == "redis" or sum(number is None for number in after) == (1, 1, 0)[turn]
        whole = engine(Attentive)
        whole.step({"a": x}, "a")
        assert written < 10 * len(whole.snapshot("a"))

    with contextlib.ExitStack() as stack:
        asyncio.run(main(where(tmp_path, kind, stack)))


async def test_records_that_are_out_of_date_are_left_out(monkeypatch, tmp_path):
    """What falls out of a window is in none of the records that there are for long."""

    class Both(Attentive):
        def __init__(self):
            super().__init__()
            self.wide = nn.Conv1d(1, 1, 101, padding=50)

        def forward(self, x):
            return super().forward(self.wide(x.unsqueeze(1)).squeeze(1))

    monkeypatch.setattr("dreamstream.serve.streams._STALE", 1000)
    own, whole = service(FolderStore(tmp_path), Limits(save=0.1), cls=Both), []
    keep = own.store.keep
    own.store.keep = lambda records: (whole.extend(r for r in records.values() if r.after is None), keep(records))[
        1
    ]
    async with running(own) as url:
        x = samples(8000)
        equal(await streamed(url, x, 160), offline(x, Both))
        assert 1 < len([record for record in whole if not record.ended]) < 25


async def test_patience_begins_when_a_connection_breaks():
    """However long it was there; a server that takes no streams is not there."""
    own, x = service(), samples(500)
    async with running(own) as url, connect(url, patience=0.2) as stream:
        await stream.send(x[:100])
        await asyncio.sleep(0.4)
        (live,) = own.streams.values()
        live.connection._transport.abort()
        await asyncio.sleep(0.01)
        await stream.send(x[100:])
        await stream.end()
        y = [each.frames async for each in stream if each.port == 1]
        assert np.array_equal(np.concatenate(y), offline(x)[1])
    async with running(service(limits=Limits(streams=0))) as url:
        with pytest.raises(ConnectionError, match="is not there"):
            await asyncio.wait_for(streamed(url, x, patience=0.2), 10)


async def test_two_connections_come_back_at_once():
    async with by_hand() as (url, client):
        x, told = samples(500), await client.start()
        await client.give(0, x[:100])
        async with ByHand(url) as one, ByHand(url) as two:
            again = {"stream": told["stream"], "output": [0, 0], "saved": 0}
            await asyncio.gather(one.say("resume", **again), two.say("resume", **again))
            await asyncio.gather(one.told("started"), two.told("started"))
            first = asyncio.create_task(one.closed())
            done, _ = await asyncio.wait([first], timeout=0.3)
            left, gone = (two, one) if done else (one, two)
            assert (first.result() if done else await gone.closed()) == 4409
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await left.give(100, x[100:])
            await left.say("end", input=500)
            assert (await left.told("ended"))["output"] == [125, 500]


async def test_a_clock_that_is_set_back(monkeypatch):
    now = [2e9]

    def back():
        now[0] -= 1000
        return now[0]

    async with by_hand() as (url, client):
        monkeypatch.setattr(time, "time", back)
        equal(await streamed(url, samples(3000), 50, 0.005), offline(samples(3000)))
        monkeypatch.undo()


async def test_the_last_connection_wins():
    async with by_hand() as (url, client):
        told = await client.start()
        await client.give(0, samples(100))
        async with ByHand(url) as other:
            await other.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert (await other.told("started"))["input"] in (0, 100)
            assert await client.closed() == 4409


async def test_a_late_resume_hears_the_totals():
    async with by_hand() as (url, client):
        told = await client.start()
        await client.give(0, samples(100))
        await client.say("end", input=100)
        ended = await client.told("ended")
        await client.say("ack", output=ended["output"])
        assert await client.closed() == 1000
        async with ByHand(url) as other:
            await other.say("resume", stream=told["stream"], output=ended["output"], saved=100)
            assert (await other.told("ended"))["output"] == ended["output"]
        async with ByHand(url) as other:
            await other.say("resume", stream=told["stream"], output=[0, 0], saved=100)
            assert await other.closed() == 4404


async def test_streams_without_a_connection_leave_the_engine():
    own = service(limits=Limits(grace=0.1, keep=0.6, save=10))
    async with running(own) as url:
        async with ByHand(url) as client:
            told = await client.start()
            await client.give(0, samples(100))
            await asyncio.sleep(0.1)
        model = own.models["net"]
        await until(lambda: not own.streams)
        assert model.engine.ids == []
        async with ByHand(url) as client:
            await client.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert (await client.told("started"))["input"] == 100 and len(own.streams) == 1
            await client.give(100, samples(9))
            await until(lambda: model.engine.ids)
        await until(lambda: not own.streams)
        await asyncio.sleep(1.0)
        async with ByHand(url) as client:  # forgotten: what the client has dropped is lost, and it is told so
            await client.say("resume", stream=told["stream"], output=[0, 0], saved=50)
            assert await client.closed() == 4404


async def test_another_version_of_a_model(tmp_path):
    class Other(Net):
        def forward(self, x):
            y, z = super().forward(x)
            return y, z * 1.5

    async with running(service(FolderStore(tmp_path))) as url, ByHand(url) as client:
        told = await client.start()
    store, limits = FolderStore(tmp_path), Limits()
    other = Service({"net": Model("net", engine(Other), limits)}, store, limits)
    async with running(other) as url, ByHand(url) as client:
        await client.say("resume", stream=told["stream"], output=[0, 0], saved=0)
        assert await client.closed() == 4410


@pytest.mark.parametrize("standby", [False, True], ids=["alone", "standby"])
@pytest.mark.parametrize(
    ("kills", "store"),
    [
        (2, "folder"),
        pytest.param(50, "folder", marks=pytest.mark.slow),
        pytest.param(50, "redis", marks=pytest.mark.slow),
    ],
)
def test_killed_servers_lose_no_frame(tmp_path, kills, store, standby):
    engine().save(tmp_path / "net.dsm")
    with contextlib.ExitStack() as stack:
        state = str(tmp_path / "state") if store == "folder" else stack.enter_context(a_redis(tmp_path))
        _kill_and_call(tmp_path, kills, state, standby)


def _kill_and_call(tmp_path, kills, state, standby):
    with contextlib.closing(__import__("socket").create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dreamstream", "serve", str(tmp_path / "net.dsm"), "--port", str(port)]
    command += ["--state", state, "--save", "0.2"] + ["--standby"] * standby
    generator, gaps, frames, own = random.Random(0), [], 0, engine()
    # A server's modules are compiled once, as an installed package's are: else each start compiles all of them.
    told = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    told["PYTHONPYCACHEPREFIX"] = str(tmp_path / "compiled")
    subprocess.run([*command[:4], "--help"], env=told, stdout=subprocess.DEVNULL, check=True)
    servers = []  # the first serves, a second waits for its end

    def begin():
        while len(servers) < 1 + standby:
            servers.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=told))
        if generator.random() < 0.8:  # else it may be killed while it starts
            servers[0].stdout.readline()

    async def callers(k, going):
        nonlocal frames
        n = 0
        while going():
            x = samples(generator.randrange(1, 6000), [k, n])
            got = await streamed(f"ws://127.0.0.1:{port}", x, 51, 0.008, gaps=gaps)
            equal(got, [np.asarray(y) for y in own.step({"a": x}, "a", "a")["a"]])
            n, frames = n + 1, frames + len(x)
        return n

    async def main():
        begin()
        left, loop = kills, asyncio.get_running_loop()
        tasks = [asyncio.create_task(callers(k, lambda: left > 0)) for k in range(6)]
        while left:
            await asyncio.sleep(generator.uniform(1, 3) if kills > 2 else 0.5)
            killed = servers.pop(0)
            killed.kill()
            killed.wait()
            await loop.run_in_executor(None, begin)
            left -= 1
        streams = sum(await asyncio.gather(*tasks))
        assert streams >= 6
        outages = [gap for gap in gaps if gap > 0.2] or [0.0]
        p50, p99 = np.percentile(outages, [50, 99])
        print(f"{kills} kills, {streams} streams, {frames} frames; outages p50 {p50:.2f}, p99 {p99:.2f} s")
        for server in servers:  # one that waits has nothing to let end
            server.send_signal(signal.SIGTERM)
        assert 0 in [server.wait(30) for server in servers]

    asyncio.run(main())


class Slow(MemoryStore):
    """A remote store that does not answer before it may."""

    is_remote = outlives = True

    def __init__(self):
        super().__init__()
        self.may_answer, self.calls = threading.Event(), []

    def keep(self, records):
        self.calls.append(("keep", set(records)))
        assert self.may_answer.wait(20)
        return super().keep(records)

    def find(self, stream_ids):
        self.calls.append(("find", set(stream_ids)))
        return super().find(stream_ids)


async def test_streams_do_not_queue_before_a_slow_store():
    """What is asked while a store answers goes together: who comes back waits for two calls at most."""
    store, x = Slow(), samples(800)
    own = service(store, Limits(grace=60.0, save=0.1))
    async with contextlib.AsyncExitStack() as stack:
        url, clients = await stack.enter_async_context(running(own)), []
        stack.callback(store.may_answer.set)
        for _ in range(8):
            clients.append((client := await stack.enter_async_context(ByHand(url)), await client.start()))
            await client.give(0, x[:400])
            await until(lambda: all(stream.stepped == 400 for stream in own.streams.values()))
        clients[0][0].socket.transport.abort(), clients[1][0].socket.transport.abort()
        again = [await stack.enter_async_context(ByHand(url)) for _ in range(2)]
        for client, (_, told) in zip(again, clients):
            await client.say("resume", stream=told["stream"], output=[0, 0], saved=0)
        await until(lambda: sum(stream.connection is None for stream in own.streams.values()) == 2)
        await asyncio.sleep(0.1)
        store.may_answer.set()
        for client in again:
            assert (await client.told("started"))["input"] == 400
        ids = list(own.streams)
        kinds = [kind for kind, _ in store.calls]
        assert kinds[:3] == ["keep", "keep", "find"], kinds
        assert store.calls[1][1] == set(ids) and store.calls[2][1] == set(ids[:2])
        for client, _ in clients[2:]:
            assert (await client.told("saved"))["input"] == 400
        await again[0].end(400, x)
