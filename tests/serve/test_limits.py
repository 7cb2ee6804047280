"""What a server allows: clients that flood, read nothing, vanish, or come too many."""

import asyncio
import contextlib
import gc
import random
import time
from functools import partial

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")

from serving import (
    ByHand,
    by_hand,
    closed,
    equal,
    fetched,
    frame,
    handshake,
    offline,
    running,
    samples,
    service,
    streamed,
    until,
)
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request

from dreamstream.client import ServerError
from dreamstream.client.protocol import PATH, SUBPROTOCOL, message, packed
from dreamstream.serve import Limits


# ---------------------------------------------------------------- limits
async def test_pings_are_answered_while_steps_are_long():
    own = service(limits=Limits(ping=0.05, tick=1e-6, save=10))
    async with running(own) as url:
        if own._thread is None:
            pytest.skip("one processor")
        runner = own.models["net"].hosts[0]._runner
        step = runner.step
        runner.step = lambda rows: (time.sleep(0.3), step(rows))[1]
        x = samples(600)
        equal(await streamed(url, x, 100, 0.1), offline(x))
        assert own.metrics.resumed._value.get() == 0


async def test_connections_keep_nothing_of_their_requests():
    async with running() as url:
        port, writers = int(url.rpartition(":")[2]), []
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(handshake())
            await reader.readuntil(b"\r\n\r\n")
            writers.append(writer)
        gc.collect()
        assert not [kept for kept in gc.get_objects() if isinstance(kept, Request)]
        for writer in writers:
            writer.close()


async def test_clients_whose_network_is_unsteady():
    """Frames come late and many at a time, in messages of any size: each hears what is offline."""
    own = service(limits=Limits(queued=0.5, save=0.1))
    chance, xs = random.Random(0), [samples(4000, seed) for seed in range(12)]
    sizes, pauses = partial(chance.choice, (1, 7, 51, 51, 400)), partial(chance.choice, (0, 0, 0, 0, 0, 0.03, 0.2))
    async with running(own) as url:
        for x, y in zip(xs, await asyncio.gather(*(streamed(url, x, sizes, pauses) for x in xs))):
            equal(y, offline(x))
        await until(lambda: closed(own, "done") == 12)
        assert own.metrics.resumed._value.get() == 0 and own.streams == {}


@pytest.mark.parametrize("n", [6, pytest.param(100, marks=pytest.mark.slow)])
async def test_clients_that_vanish_are_not_counted(n):
    """Nothing of them is left, of ten thousand too, and a stream beside them is what it is offline."""
    own, sizes, x = service(limits=Limits(opens=1e5, grace=0.1, keep=0.2, streams=2000)), [], samples(400 * n)
    start = frame(0x81, message("start").encode()) + frame(0x82, packed(0, 0, samples(50)))

    async def opened(port, k):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(handshake() + (start if k % 4 else b""))
        await asyncio.wait_for(reader.read(2000), 20)
        (writer.transport.abort if k % 2 else writer.close)()

    async with running(own) as url:
        other = asyncio.create_task(streamed(url, x, 16, 0.01))
        for _ in range(2):
            for _ in range(n // 2):
                await asyncio.gather(*(opened(int(url.rpartition(":")[2]), k) for k in range(n)))
            await until(lambda: len(own.streams) <= 1 and len(own.store._entries) <= 1, 20)
            gc.collect()
            sizes.append(len(gc.get_objects()))
        assert sizes[1] < sizes[0] + 1000
        equal(await other, offline(x))
        await until(lambda: not own.streams)
        assert "dreamstream_connections 0.0" in (await fetched(url, "/metrics"))[1]
        assert own.models["net"].engine.ids == [] and own.models["net"].hosts[0].streams == {}


async def test_nothing_is_compressed():
    options = {"subprotocols": [SUBPROTOCOL], "compression": "deflate"}
    async with running() as url, open_socket(url + PATH, **options) as socket:
        assert socket.protocol.extensions == []


async def test_a_client_that_reads_nothing_and_acknowledges_all():
    own = service(limits=Limits(unacknowledged=60, queued=1e6, save=1e6))
    async with running(own) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1)
        writer.write(handshake())
        writer.write(frame(0x81, message("start").encode()))
        await until(lambda: own.streams)
        (stream,) = own.streams.values()
        x = np.zeros(8000, np.float32)
        for k in range(300):
            writer.write(frame(0x82, packed(8000 * k, 0, x)))
            await until(lambda k=k: stream.stepped == 8000 * (k + 1) or stream.connection is None)
            if stream.connection is None:
                break
            stream.acknowledge(stream.made)
        assert stream.connection is None and k < 299 and closed(own, "unread") == 1
        writer.close()


async def test_a_client_that_floods_is_not_read():
    async with by_hand() as (url, client):
        await client.start()
        x, task = samples(16000), None
        for k in range(40):
            task = client.give(16000 * k, x)
            try:
                await asyncio.wait_for(task, 0.5)
            except (asyncio.TimeoutError, ConnectionClosed):
                break
        client.socket.transport.abort()
        equal(await streamed(url, samples(500)), offline(samples(500)))


async def test_a_client_that_acknowledges_nothing():
    own = service(limits=Limits(unacknowledged=0.2, save=10))
    async with running(own) as url, ByHand(url) as client:
        told = await client.start()
        await client.give(0, samples(100))
        await asyncio.sleep(0.3)
        await client.give(100, samples(100))
        (stream,) = own.streams.values()
        await asyncio.sleep(0.1)
        assert stream.stepped == 100  # it waits
        assert own.metrics.registry.get_sample_value("dreamstream_streams_held") == 1
        assert await client.closed() == 4429 and closed(own, "not acknowledged") == 1
        async with ByHand(url) as other:
            await other.say("resume", stream=told["stream"], output=[20, 100], saved=0)
            await other.told("started")
            await until(lambda: stream.stepped == 200)


async def test_too_many_streams_and_too_fast():
    own = service(limits=Limits(streams=10, opens=12.0))
    async with running(own) as url, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(ByHand(url)) for _ in range(10)]
        for client in clients[:9]:
            await client.start()
        await clients[9].say("start")
        assert await clients[9].closed() == 1013  # a tenth is for those that come back
        with pytest.raises(InvalidStatus) as caught:
            for _ in range(20):
                await stack.enter_async_context(ByHand(url))
        assert caught.value.response.status_code == 503
        assert caught.value.response.headers["retry-after"] == "1"
        assert closed(own, "full") == 1 and closed(own, "opens") == 1


async def test_who_may_stream():
    async with by_hand(service(authorize=lambda token, address: token == "right" and address == "127.0.0.1")) as (
        url,
        client,
    ):
        await client.say("start", token="wrong")
        assert await client.closed() == 4401
        with pytest.raises(ServerError, match="token") as caught:
            await streamed(url, samples(5))
        assert caught.value.code == 4401
        equal(await streamed(url, samples(500), token="right"), offline(samples(500)))


async def test_messages_that_are_too_large():
    own = service()
    async with running(own) as url, ByHand(url) as client:
        await client.start()
        await client.give(0, samples(16384))  # 64 KiB, and the header
        (stream,) = own.streams.values()
        await until(lambda: stream.wanted == 16384)
        await client.give(16384, samples(16385))
        assert await client.closed() == 1009 and closed(own, "too large") == 1


async def test_steps_take_a_part_of_what_is_there():
    """Of so many streams, and of each so many frames: the rest waits for the next step."""
    own = service(limits=Limits(rows=3, chunk=0.05, queued=10.0))
    runner, taken = own.models["net"].hosts[0]._runner, []
    step = runner.step
    runner.step = lambda rows: (taken.append([row.n for row in rows]), step(rows))[1]
    async with running(own) as url:
        xs = [samples(2000, k) for k in range(7)]
        for x, y in zip(xs, await asyncio.gather(*(streamed(url, x, 2000) for x in xs))):
            equal(y, offline(x))
    assert max(map(len, taken)) == 3 and max(n for rows in taken for n in rows) == 4 * 80


async def test_frames_that_wait_for_too_long():
    """A stream that isn't stepped is not read; then it may come back."""
    own = service(limits=Limits(unacknowledged=0.2, queued=0.1, save=10))
    model = own.models["net"]
    (host,), model.hosts = model.hosts, []  # as where no worker is there
    async with running(own) as url, ByHand(url) as client:
        x, told = samples(2000), await client.start()
        await client.give(0, x[:400])
        (stream,) = own.streams.values()
        await until(lambda: stream.is_paused)
        assert own.metrics.registry.get_sample_value("dreamstream_streams_paused") == 1
        assert await client.closed() == 4413 and closed(own, "queued") == 1
        own.add(model, host)
        async with ByHand(url) as again:
            await again.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert (await again.told("started"))["input"] == 400
            await again.end(400, x)


async def test_connections_that_give_nothing():
    own = service(limits=Limits(idle=0.2, grace=0.2))
    async with running(own) as url, ByHand(url) as client:
        told = await client.start()
        assert await client.closed() == 4408 and closed(own, "idle") == 1
        async with ByHand(url) as again:
            await again.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert (await again.told("started"))["input"] == 0


async def test_connections_that_answer_no_ping():
    """As of a client whose network is gone: its stream waits to be resumed."""
    own = service(limits=Limits(ping=0.05, grace=60.0))
    async with running(own) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(handshake() + frame(0x81, message("start").encode()))
        await until(lambda: closed(own, "ping") == 1)
        (stream,) = own.streams.values()
        await until(lambda: stream.connection is None)
        writer.close()


async def test_a_resume_that_has_more_than_was_made():
    """A client may have outputs of which no record says so, and acknowledges them; but no more than these."""
    own = service()
    async with by_hand(own) as (url, client):
        x, told = samples(500), await client.start()
        await client.give(0, x[:100])
        (stream,) = own.streams.values()
        await until(lambda: stream.stepped == 100)
        async with ByHand(url) as other:
            await other.say("resume", stream=told["stream"], output=[120, 480], saved=0)
            assert (await other.told("started"))["input"] == 100
            await other.say("ack", output=[120, 480])
            await other.give(100, x[100:])
            await until(lambda: stream.stepped == 500)
            await other.say("ack", output=[120, 501])
            assert await other.closed() == 4400
        async with ByHand(url) as other:
            await other.say("resume", stream=told["stream"], output=[1 << 56, 0], saved=0)
            assert await other.closed() == 4400
