"""Streams in a Redis: servers that take over from each other, one that comes back, a Redis that goes away."""

import asyncio
import contextlib
import shutil
import time

import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")
pytest.importorskip("redis")

from serving import ByHand, a_redis, equal, offline, running, samples, service, streamed
from websockets.exceptions import ConnectionClosed

from dreamstream.serve import Limits, StoreError, open_store
from dreamstream.serve.records import Record

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server")


def test_records_and_whose_they_are(tmp_path):
    record = Record("f", 3, [3, 4], [0, 4], b"x" * 9, b"z", [(0, b"y")], False, 0.5)
    with a_redis(tmp_path) as url:
        one, two = open_store(url, keep=60), open_store(url, keep=60)
        assert one.key == two.key and len(one.key) == 32
        assert (
            one.keep({"a": record, "b": record}) == {}
            and one.find(["a"]) == {"a": record}
            and one.find(["c"]) == {}
        )
        assert two.find(["b"]) == {"b": record}  # and has it now
        assert one.keep({"a": record, "b": record}) == {"b": "taken"} and two.keep({"b": record}) == {}
        one.delete("b"), two.delete("a")
        assert two.find(["a"]) == {"a": record} and two.find(["b"]) == {"b": record}
        two.delete("a")
        assert two.find(["a"]) == {}
        one.close(), two.close()
    with pytest.raises(StoreError, match=r"redis\.sock"):
        open_store(url)
    with pytest.raises(StoreError, match="appendfsync"):
        open_store(url, durable=True)


def test_streams_that_nobody_has_are_forgotten(tmp_path):
    record = Record("f", 3, [3], [0])
    with a_redis(tmp_path) as url:
        store = open_store(url, keep=0.4)
        store.keep({"live": record, "left": record})
        for _ in range(8):
            store.sweep(0.4, {"live"})
            time.sleep(0.1)
        assert store.find(["left"]) == {} and store.find(["live"]) == {"live": record}
        store.close()


def test_one_server_after_the_other(tmp_path):
    """A client that meets another server each time hears what is offline."""

    async def main(url):
        x = samples(3000)
        async with running(service(open_store(url))) as first, running(service(open_store(url))) as second:
            parts, have = [[], []], [0, 0]
            async with ByHand(first) as client:
                told = await client.start()
                await client.give(0, x[:1000])
                while (saved := (await client.told("saved"))["input"]) < 800:
                    pass
                async with ByHand(second) as other:
                    await other.say("resume", stream=told["stream"], output=have, saved=0)
                    at = (await other.told("started"))["input"]
                    assert saved <= at <= 1000
                    with contextlib.suppress(ConnectionClosed):  # to the server that has it no longer
                        await client.give(1000, x[1000:2000])
                    assert await client.closed() == 4409
                    await other.give(at, x[at:])
                    await other.say("end", input=3000)
                    await other.told("ended")
                    for position, port, rest in other.frames:
                        assert position == have[port]
                        have[port] += len(rest) // (12 if port == 0 else 4)
                        parts[port].append(bytes(rest))
            for found, want in zip(parts, offline(x)):
                assert b"".join(found) == want.tobytes()

    with a_redis(tmp_path) as url:
        asyncio.run(main(url))


def test_a_redis_that_goes_away(tmp_path, logged):
    async def main():
        x = samples(6000)
        with a_redis(tmp_path) as where:
            own = service(open_store(where), limits=Limits(grace=0.2, save=0.05, drain=1.0))
            server = running(own)
            url = await server.__aenter__()
            caller = asyncio.create_task(streamed(url, x, 50, 0.005))
            await asyncio.sleep(0.15)
        await asyncio.sleep(0.15)
        async with ByHand(url) as client:  # a stream of which nothing can be read
            told = await client.start()
            own.streams.clear()
            async with ByHand(url) as other:
                await other.say("resume", stream=told["stream"], output=[0, 0], saved=0)
                assert await other.closed() == 1013
        caller.cancel()
        with a_redis(tmp_path):
            equal(await streamed(url, x, 500), offline(x))
            await server.__aexit__(None, None, None)

    asyncio.run(main())
    assert "are not stored" in "\n".join(logged)
