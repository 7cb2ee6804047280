"""Clients of a server that mean harm: each is turned away, others hear what they should, memory is bounded."""

import asyncio
import contextlib
import gc
import zlib

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")

from serving import (
    RATE,
    ByHand,
    by_hand,
    closed,
    equal,
    frame,
    handshake,
    offline,
    posted,
    recorded,
    running,
    samples,
    service,
    streamed,
    until,
)

from dreamstream.client.protocol import message, packed
from dreamstream.serve import Limits

START = frame(0x81, message("start").encode())
FRAMES = frame(0x82, packed(0, 0, samples(100)))
RECORDING = b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
GAP = frame(0x82, packed(7, 0, samples(9)))

#: What is sent after the handshake, and the code that the server closes with; None where it need not answer.
AFTER = {
    "no mask": (bytes((0x81, 2)) + b"{}", 1002),
    "a reserved bit": (frame(0xC1, b"{}"), 1002),
    "a reserved opcode": (frame(0x83, b"{}"), 1002),
    "a long ping": (frame(0x89, b"x" * 126), 1002),
    "a ping in two": (frame(0x09, b"x"), 1002),
    "a continuation of nothing": (frame(0x80, b"x"), 1002),
    "a message within a message": (frame(0x01, b"{") + frame(0x81, b"{}"), 1002),
    "text that is no UTF-8": (frame(0x81, b"\xff\xfe"), 4400),
    "2^63 bytes": (frame(0x82, b"x", size=(1 << 63) - 1), 1009),
    "2^64 bytes": (frame(0x82, b"x", size=(1 << 64) - 1), 1009),
    "one byte too many": (frame(0x82, bytes(65545)), 1009),
    "fragments without end": (frame(0x02, b"x" * 9000) + frame(0x00, b"x" * 9000) * 8, 1009),
    "a close of one byte": (frame(0x88, b"x"), 1002),
    "a close with a code that is none": (frame(0x88, b"\x00\x01"), 1002),
    "pings by the thousand": (frame(0x89, b"x") * 5000 + frame(0x81, b"[]"), 4400),
    "frames before a start": (FRAMES * 50, 4400),
    "many starts": (START * 50, 4400),
    "a start, frames at once, and a gap": (
        START + frame(0x82, FRAMES) + frame(0x82, packed(7, 0, samples(9))),
        4400,
    ),
    "a deep object": (frame(0x81, b'{"type":' * 8000), 4400),
    "a huge number": (START + frame(0x81, b'{"type":"end","input":' + b"9" * 4000 + b"}"), 4400),
    "a number that is infinite": (START + frame(0x81, b'{"type":"ack","output":[1e999,0]}'), 4400),
    "no number": (START + frame(0x81, b'{"type":"ack","output":[NaN,0]}'), 4400),
    "a type that is a list": (frame(0x81, b'{"type":["start"]}'), 4400),
    "a model that is a list": (frame(0x81, b'{"type":"start","model":["net"]}'), 4404),
    "a path for a model": (frame(0x81, b'{"type":"start","model":"../../etc/passwd"}'), 4404),
    "a compressed frame": (frame(0xC2, zlib.compress(bytes(100))), 1002),
    "half a letter": (START + frame(0x81, b'{"type":"end","input":0,"x":"\xc3"}'), 4400),
    "half a letter for a rate": (frame(0x81, b'{"type":"start","rate":"\\ud800"}'), 4400),
    "half a letter for a number": (START + frame(0x81, b'{"type":"end","input":"\\ud800"}'), 4400),
    "a type that is half a letter": (START + frame(0x81, b'{"type":"\\ud800"}'), 4400),
    "an end beyond 2^63": (START + frame(0x81, b'{"type":"end","input":%d}' % 2**63), 4400),
    "an end at 2^56 - 1": (START + frame(0x81, b'{"type":"end","input":%d}' % (2**56 - 1)), 4400),
    "frames at 2^56 - 1": (START + frame(0x82, b"\xff" * 7 + b"\0" + bytes(40)), 4400),
    "frames of port 255": (START + frame(0x82, bytes(7) + b"\xff" + bytes(40)), 4400),
    "acknowledged beyond 2^64": (START + frame(0x81, b'{"type":"ack","output":[%d,0]}' % 2**64), 4400),
    "acknowledged ahead": (START + frame(0x81, b'{"type":"ack","output":[1,0]}') * 2, 4400),
    "a close within a message": (START + frame(0x02, bytes(9)) + frame(0x88, b"\x03\xe8"), 1002),
    "frames after a close": (START + frame(0x88, b"\x03\xe8") + FRAMES * 50, 1000),
    "a resume of a number": (frame(0x81, b'{"type":"resume","stream":7}'), 4401),
    "a resume of half a letter": (frame(0x81, b'{"type":"resume","stream":"\\ud800.x"}'), 4401),
    "noise": (np.random.default_rng(0).bytes(100_000), None),
}


async def code_after(url, data, pieces=1):
    """Send bytes after the handshake; return the code of the close that comes, or None."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    try:
        writer.write(handshake())
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        for k in range(pieces):
            writer.write(data[len(data) * k // pieces : len(data) * (k + 1) // pieces])
            if pieces > 1:
                await asyncio.sleep(0)
        while True:
            first, n = await asyncio.wait_for(reader.readexactly(2), 5)
            if n > 125:
                n = int.from_bytes(await reader.readexactly(2 if n == 126 else 8), "big")
            body = await asyncio.wait_for(reader.readexactly(n), 5)
            if first == 0x88:
                return int.from_bytes(body[:2], "big") if body else 1005
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        writer.close()


@pytest.mark.parametrize("what", AFTER)
async def test_hostile_frames(what):
    data, code = AFTER[what]
    own = service(limits=Limits(grace=0.1, handshake=0.5))
    async with running(own) as url:
        other = asyncio.create_task(streamed(url, samples(1000), 50, 0.002))
        for pieces in (1, 1, 7):
            found = await code_after(url, data, pieces)
            assert code is None or found == code
        equal(await other, offline(samples(1000)))


HEADS = {
    "an endless head": b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000,
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    "a line without end": b"G" * 20000,
    "two lengths": b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "a length and chunks": b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n"
    b"transfer-encoding: gzip\r\n\r\nhello",
    "a length below zero": b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\nhello",
    "a path upwards": b"GET /../../etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n",
    "a path in quotes": b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n",
    "a stream elsewhere": handshake().replace(b"/v1/stream", b"/v1/other"),
    "no key": handshake().replace(b"Sec-WebSocket-Key", b"Sec-Other-Key"),
    "an old version": handshake().replace(b"Version: 13", b"Version: 8"),
}


@pytest.mark.parametrize("what", HEADS)
async def test_hostile_heads(what):
    async with by_hand() as (url, client):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(HEADS[what])
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")) and b"root:" not in answer
        writer.close()
        equal(await streamed(url, samples(300)), offline(samples(300)))


async def test_connections_by_the_thousand():
    """Of streams and of recordings an address may have so many; others are told when to come again."""
    own = service(limits=Limits(handshake=0.3, opens=20))
    async with running(own) as url:
        port = int(url.rpartition(":")[2])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
        for head in (handshake(), RECORDING % 0):
            refused = 0
            for _ in range(300):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head)
                said = await reader.read(2000)
                refused += said.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in said
                writer.close()
            assert refused > 200
        await asyncio.sleep(1.1)
        equal(await streamed(url, samples(300)), offline(samples(300)))
        assert [await reader.read() for reader, _ in silent] == [b""] * 300
        for _, writer in silent:
            writer.close()


async def test_recordings_whose_clients_leave(logged):
    """One is run at a time, and those that nobody waits for are not."""
    own = service()
    async with running(own) as url:
        body = recorded(np.zeros(9000, np.int16))
        await own.files.acquire()
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(RECORDING % len(body) + body)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.transport.abort()
        await asyncio.sleep(0.05)
        own.files.release()
        assert (await posted(url, "/v1/files", body))[0] == 200
    gc.collect()
    assert not logged


async def test_an_hour_in_a_second():
    """What one client sends at once waits in its socket, not in the server."""
    own = service(limits=Limits(save=1e6))
    async with running(own) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(handshake() + START)
        other = asyncio.create_task(streamed(url, samples(2000), 50, 0.005))
        x, most = np.zeros(RATE * 2, np.float32), 0
        for k in range(1800):
            writer.write(frame(0x82, packed(len(x) * k, 0, x)))
            if k % 100 == 0:
                await asyncio.sleep(0.001)
            most = max([most, *(sum(map(len, s.queue)) for s in own.streams.values())])
        equal(await other, offline(samples(2000)))
        assert most <= 2 * 2 * RATE + len(x)
        writer.transport.abort()


#: What comes byte by byte, and never to its end; and the limit that ends it.
SLOW = {
    "nothing after a few letters": (b"GET /v1/str", b"", "handshake"),
    "nothing after the handshake": (handshake(), b"", "handshake"),
    "a head": (b"", handshake()[:-1], "handshake"),
    "a first message": (handshake(), START[:-1], "handshake"),
    "a later message": (handshake() + START, frame(0x82, bytes(4000))[:-1], "idle"),
    "a message in many frames": (handshake() + START + frame(0x02, b""), frame(0x00, b"") * 500, "idle"),
    "a recording": (RECORDING % 9999, bytes(999), "idle"),
}


@pytest.mark.parametrize("what", SLOW)
async def test_what_never_comes_to_its_end(what):
    begin, rest, kind = SLOW[what]
    own = service(limits=Limits(grace=0.1, handshake=0.3, idle=0.3))
    async with running(own) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(begin)

        async def trickle():
            for k in range(len(rest)):
                writer.write(rest[k : k + 1])
                await asyncio.sleep(0.01)

        task = asyncio.create_task(trickle())
        equal(await streamed(url, samples(1000), 50, 0.002), offline(samples(1000)))
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        task.cancel()
        assert closed(own, kind) == 1
        await until(lambda: not own.streams)


async def test_pings_whose_answers_are_not_read():
    own = service(limits=Limits(grace=0.1))
    async with running(own) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1)
        writer.write(handshake() + START)
        await until(lambda: any(s.connection for s in own.streams.values()))
        transport = next(iter(own.streams.values())).connection._transport
        other, most = asyncio.create_task(streamed(url, samples(2000), 50, 0.01)), 0
        with contextlib.suppress(ConnectionError):
            for _ in range(800):
                writer.write(frame(0x89, bytes(125)) * 500)
                await writer.drain()
                most = max(most, transport.get_write_buffer_size())
        assert closed(own, "unread") == 1 and most < 2 << 20
        equal(await other, offline(samples(2000)))
        writer.close()


async def test_resumed_with_what_is_not_its_own():
    """Tokens of other streams and servers, positions that it never had; the stream goes on where it was."""
    async with running() as url, running() as elsewhere, ByHand(url) as client, ByHand(elsewhere) as other:
        x, mine, foreign = samples(600), (await client.start())["stream"], (await other.start())["stream"]
        await client.give(0, x[:300])
        (head, sign), (its, other_sign) = mine.split("."), foreign.split(".")
        tokens = foreign, f"{head}.{other_sign}", f"{its}.{sign}", head, f"{head}A.{sign}"
        for fields, code in (
            *(({"stream": token}, 4401) for token in tokens),
            ({"stream": mine, "saved": 500}, 4404),
            ({"stream": mine, "output": [10**6, 0], "saved": 2**56 - 1}, 4404),
        ):
            async with ByHand(url) as thief:
                await thief.say("resume", **{"output": [0, 0], "saved": 0, **fields})
                assert await thief.closed() == code, fields
        await client.end(300, x)
