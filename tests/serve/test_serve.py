"""Serving: streams over sockets, equal offline to the bit whatever breaks; limits; what clients do wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import ssl
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")

from serving import (
    RATE,
    ByHand,
    Net,
    a_redis,
    by_hand,
    engine,
    equal,
    offline,
    posted,
    recorded,
    running,
    samples,
    service,
    streamed,
)
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dreamstream.client import ServerError, connect
from dreamstream.client.protocol import PATH, SUBPROTOCOL, message, packed
from dreamstream.serve import FolderStore, Limits, Model, Service


# ---------------------------------------------------------------- streams
def test_many_callers_at_once_hear_what_is_offline():
    async def main():
        async with running() as url:
            xs = [samples(n, n) for n in (0, 1, 5, 100, 1601, 4000, 7777)]
            found = await asyncio.gather(
                *(streamed(url, x, chunk) for x, chunk in zip(xs, (1, 1, 3, 7, 1000, 99, 5000)))
            )
            for x, y in zip(xs, found):
                equal(y, offline(x))

    asyncio.run(main())


def test_frames_after_the_end_are_refused_by_the_client():
    async def main():
        async with running() as url, connect(url) as stream:
            await stream.send(samples(10))
            await stream.end()
            with pytest.raises(ValueError, match="ended after 10 frames"):
                await stream.send(samples(1))

    asyncio.run(main())


def test_samples_of_16_bits():
    async def main():
        async with running() as url:
            x = (samples(3000) * 8000).astype(np.int16)
            equal(await streamed(url, x, format="i16"), offline(x.astype(np.float32) / 32768))

    asyncio.run(main())


def test_streams_that_are_stepped_in_a_thread():
    async def main():
        own = service(limits=Limits(tick=1e-6, save=0.1))
        async with running(own) as url:
            if own._thread is None:
                pytest.skip("one processor")
            xs = [samples(6000, k) for k in range(5)]
            for x, y in zip(xs, await asyncio.gather(*(streamed(url, x, 77, 0.001) for x in xs))):
                equal(y, offline(x))
            assert own.streams == {}

    asyncio.run(main())


def test_encrypted(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            cert,
            "-subj",
            "/CN=localhost",
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl")

    async def main():
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(cert, key)
        async with running(tls=tls) as url:
            trust = ssl.create_default_context(cafile=str(cert))
            trust.check_hostname = False
            async with open_socket(url + PATH, ssl=trust, subprotocols=[SUBPROTOCOL]) as socket:
                await socket.send(message("start"))
                assert json.loads(await socket.recv())["type"] == "started"

    asyncio.run(main())


# ---------------------------------------------------------------- messages
def test_what_a_client_is_told():
    async def talk(url, client):
        told = await client.start(model="net", format="f32")
        assert (told["input"], told["saved"], told["output"]) == (0, 0, [0, 0])
        assert (told["rates"], told["shapes"], told["types"]) == (["400", "1600"], [[3], []], ["float32"] * 2)
        assert told["window"] == 3200 and told["chunk"] == 51 and len(told["fingerprint"]) > 20
        await client.give(0, samples(400))
        assert (await client.told("saved"))["input"] > 0
        assert sum(len(rest) // (12 if port == 0 else 4) for _, port, rest in client.frames) > 200
        await client.say("end", input=400)
        ended = await client.told("ended")
        assert (ended["input"], ended["output"]) == (400, [100, 400])
        await client.say("ack", output=[100, 400])
        assert await client.closed() == 1000

    by_hand(talk)


WRONG = {
    "no JSON": (lambda c: c.socket.send("start"), 4400),
    "no object": (lambda c: c.socket.send("[]"), 4400),
    "deep JSON": (lambda c: c.socket.send("[" * 60000), 4400),
    "no such type": (lambda c: c.say("begin"), 4400),
    "frames first": (lambda c: c.give(0, samples(4)), 4400),
    "no such model": (lambda c: c.say("start", model="other"), 4404),
    "no such format": (lambda c: c.say("start", format="f64"), 4400),
    "a format that is none": (lambda c: c.say("start", format=["f32"]), 4400),
    "another rate": (lambda c: c.say("start", rate=8000), 4400),
    "no token": (lambda c: c.say("resume"), 4401),
    "a forged token": (lambda c: c.say("resume", stream="eyJpZCI6MX0.AAAA"), 4401),
    "a token that is none": (lambda c: c.say("resume", stream="ä.ö"), 4401),
    "too long": (lambda c: c.socket.send("x" * 70000), 1009),
}


@pytest.mark.parametrize("what", WRONG)
def test_first_messages_that_are_wrong(what):
    do, code = WRONG[what]

    async def talk(url, client):
        await do(client)
        assert await client.closed() == code
        equal(await streamed(url, samples(500)), offline(samples(500)))  # nobody else is hurt

    by_hand(talk)


AFTER = {
    "a gap": lambda c: c.give(101, samples(4)),
    "an overlap": lambda c: c.give(50, samples(4)),
    "the far end": lambda c: c.give((1 << 56) - 1, samples(4)),
    "another port": lambda c: c.socket.send(packed(100, 1, samples(4))),
    "half a frame": lambda c: c.socket.send(packed(100, 0, np.zeros(5, np.uint8))),
    "no header": lambda c: c.socket.send(b"abc"),
    "text for frames": lambda c: c.socket.send("frames"),
    "another start": lambda c: c.say("start"),
    "an end before what was sent": lambda c: c.say("end", input=99),
    "an end beyond it": lambda c: c.say("end", input=101),
    "an end that is no number": lambda c: c.say("end", input="100"),
    "outputs that are not made": lambda c: c.say("ack", output=[0, 10**9]),
    "one number for two outputs": lambda c: c.say("ack", output=1),
    "true": lambda c: c.say("ack", output=[True, 0]),
}


@pytest.mark.parametrize("what", AFTER)
def test_later_messages_that_are_wrong(what):
    """The connection ends, and the stream may be resumed."""

    async def talk(url, client):
        x, told = samples(500), await client.start()
        await client.give(0, x[:100])
        await AFTER[what](client)
        assert await client.closed() == 4400
        async with ByHand(url) as again:
            await again.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert (await again.told("started"))["input"] == 100
            await again.give(100, x[100:])
            await again.say("end", input=500)
            await again.told("ended")
            y = b"".join(bytes(rest) for _, port, rest in again.frames if port == 1)
            assert np.array_equal(np.frombuffer(y, np.float32), offline(x)[1])

    by_hand(talk)


def test_frames_after_the_end():
    async def talk(url, client):
        await client.start()
        await client.give(0, samples(100))
        await client.say("end", input=100)
        await client.say("end", input=100)  # twice is once
        await client.give(100, samples(4))
        assert await client.closed() == 4400

    by_hand(talk)


# ---------------------------------------------------------------- streams that come back
def test_outputs_before_a_record_are_not_lost(tmp_path):
    """Frames that left and never arrived are sent again by the server that comes after."""

    async def main():
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
            await client.give(again["input"], x[again["input"] :])
            await client.say("end", input=1000)
            await client.told("ended")
            for port, want in enumerate(offline(x)):
                y = b"".join(bytes(rest) for _, p, rest in client.frames if p == port)
                assert y == want.tobytes()

    asyncio.run(main())


def test_the_last_connection_wins():
    async def talk(url, client):
        told = await client.start()
        await client.give(0, samples(100))
        async with ByHand(url) as other:
            await other.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert (await other.told("started"))["input"] in (0, 100)
            assert await client.closed() == 4409

    by_hand(talk)


def test_a_late_resume_hears_the_totals():
    async def talk(url, client):
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

    by_hand(talk)


def test_streams_without_a_connection_leave_the_engine():
    async def main():
        own = service(limits=Limits(grace=0.1, keep=0.6, save=10))
        async with running(own) as url:
            async with ByHand(url) as client:
                told = await client.start()
                await client.give(0, samples(100))
                await asyncio.sleep(0.1)
            model = own.models["net"]
            await _until(lambda: not own.streams)
            assert model.engine.ids == []
            async with ByHand(url) as client:
                await client.say("resume", stream=told["stream"], output=[0, 0], saved=0)
                assert (await client.told("started"))["input"] == 100 and len(own.streams) == 1
                await client.give(100, samples(9))
                await _until(lambda: model.engine.ids)
            await _until(lambda: not own.streams)
            await asyncio.sleep(1.0)
            async with ByHand(url) as client:  # forgotten: what the client has dropped is lost, and it is told so
                await client.say("resume", stream=told["stream"], output=[0, 0], saved=50)
                assert await client.closed() == 4404

    asyncio.run(main())


async def _until(holds, seconds=5.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_another_version_of_a_model(tmp_path):
    class Other(Net):
        def forward(self, x):
            y, z = super().forward(x)
            return y, z * 1.5

    async def main():
        async with running(service(FolderStore(tmp_path))) as url, ByHand(url) as client:
            told = await client.start()
        store, limits = FolderStore(tmp_path), Limits()
        other = Service({"net": Model("net", engine(Other), limits)}, store, limits)
        async with running(other) as url, ByHand(url) as client:
            await client.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert await client.closed() == 4410

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kills", "store"),
    [
        (2, "folder"),
        pytest.param(50, "folder", marks=pytest.mark.slow),
        pytest.param(50, "redis", marks=pytest.mark.slow),
    ],
)
def test_killed_servers_lose_no_frame(tmp_path, kills, store):
    engine().save(tmp_path / "net.dsm")
    with contextlib.ExitStack() as stack:
        state = str(tmp_path / "state") if store == "folder" else stack.enter_context(a_redis(tmp_path))
        _kill_and_call(tmp_path, kills, state)


def _kill_and_call(tmp_path, kills, state):
    with contextlib.closing(__import__("socket").create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dreamstream", "serve", str(tmp_path / "net.dsm"), "--port", str(port)]
    command += ["--state", state, "--save", "0.2"]
    generator = random.Random(0)

    def begin():
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    async def callers(k, going):
        n = 0
        while going():
            x = samples(generator.randrange(1, 6000), [k, n])
            equal(await streamed(f"ws://127.0.0.1:{port}", x, 51, 0.008), offline(x))
            n += 1
        return n

    async def main():
        process, left = begin(), kills
        tasks = [asyncio.create_task(callers(k, lambda: left > 0)) for k in range(6)]
        while left:
            await asyncio.sleep(generator.uniform(0.8, 2.5))
            process.kill()
            process.wait()
            process, left = begin(), left - 1
        assert sum(await asyncio.gather(*tasks)) >= 6
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0

    asyncio.run(main())


# ---------------------------------------------------------------- limits
def test_a_client_that_floods_is_not_read():
    async def talk(url, client):
        await client.start()
        x, task = samples(16000), None
        for k in range(40):
            task = client.give(16000 * k, x)
            try:
                await asyncio.wait_for(task, 0.5)
            except (asyncio.TimeoutError, ConnectionClosed):
                break
        equal(await streamed(url, samples(500)), offline(samples(500)))

    by_hand(talk)


def test_a_client_that_acknowledges_nothing():
    async def main():
        own = service(limits=Limits(unacknowledged=0.2, save=10))
        async with running(own) as url, ByHand(url) as client:
            told = await client.start()
            await client.give(0, samples(100))
            await asyncio.sleep(0.3)
            await client.give(100, samples(100))
            (stream,) = own.streams.values()
            await asyncio.sleep(0.1)
            assert stream.stepped == 100  # it waits
            assert await client.closed() == 4429
            async with ByHand(url) as other:
                await other.say("resume", stream=told["stream"], output=[20, 100], saved=0)
                await other.told("started")
                await _until(lambda: stream.stepped == 200)

    asyncio.run(main())


def test_too_many_streams_and_too_fast():
    async def main():
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

    asyncio.run(main())


def test_a_connection_that_says_nothing():
    async def main():
        async with running(service(limits=Limits(handshake=0.2))) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET /v1/str")
            assert await asyncio.wait_for(reader.read(), 5) == b""
            async with ByHand(url) as client:
                assert await client.closed() == 1006

    asyncio.run(main())


def test_who_may_stream():
    async def talk(url, client):
        await client.say("start", token="wrong")
        assert await client.closed() == 4401
        with pytest.raises(ServerError, match="token") as caught:
            await streamed(url, samples(5))
        assert caught.value.code == 4401
        equal(await streamed(url, samples(500), token="right"), offline(samples(500)))

    by_hand(talk, lambda: service(authorize=lambda token, address: token == "right" and address == "127.0.0.1"))


# ---------------------------------------------------------------- plain requests, the end
async def fetched(url, path, method="GET"):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def test_pages():
    async def talk(url, client):
        await client.start()
        assert await fetched(url, "/healthz") == (200, "ok\n") and await fetched(url, "/readyz") == (
            200,
            "ready\n",
        )
        status, page = await fetched(url, "/metrics")
        assert status == 200 and "dreamstream_streams_live 1.0" in page and "dreamstream_connections 1.0" in page
        assert json.loads((await fetched(url, "/models"))[1])[0]["model"] == "net"
        status, page = await fetched(url, "/")
        assert (
            status == 200
            and "AudioWorklet" in page
            and "http" not in page.replace('location.origin.replace("http"', "")
        )
        assert (await fetched(url, "/etc/passwd"))[0] == 404 and (await fetched(url, "/models", "POST"))[0] == 405
        assert (await fetched(url, "/x" * 20000))[0] == 400

    by_hand(talk)


def test_recordings_that_are_sent_whole():
    x = (samples(5000) * 8000).astype(np.int16)
    file = recorded(x)

    async def talk(url, client):
        status, body = await posted(url, "/v1/files?model=net", file)
        found = json.loads(body)
        assert (status, found["samples"]) == (200, 5000)
        for told, want in zip(found["outputs"], offline(x.astype(np.float32) / 32768)):
            assert np.array_equal(np.array(told["values"], np.float32).reshape(told["shape"]), want)
        head = bytearray(file)
        head[24:28] = (2 * RATE).to_bytes(4, "little")  # as if of twice the rate
        status, body = await posted(url, "/v1/files", bytes(head))
        assert (status, json.loads(body)["samples"]) == (200, 2500)
        for path, content, code in (
            ("/v1/files", b"nothing", 415),
            ("/v1/files", file[:99], 415),
            ("/v1/files?model=other", file, 404),
            ("/v1/files", b"x" * 70000, 413),
        ):
            assert (await posted(url, path, content))[0] == code
        assert (await posted(url, "/v1/files", b"", "abc"))[0] == 400

    by_hand(talk, lambda: service(limits=Limits(file=65536)))


def test_a_server_that_ends_lets_streams_come_to_their_end():
    async def main():
        own = service(limits=Limits(drain=5.0))
        async with running(own) as url, ByHand(url) as client:
            await client.start()
            await client.give(0, samples(100))
            ending = asyncio.create_task(own.drain())
            assert (await client.told("drain"))["seconds"] == 5.0
            with pytest.raises(InvalidStatus):
                await ByHand(url).__aenter__()
            assert (await fetched(url, "/readyz"))[0] == 503
            await client.say("end", input=100)
            ended = await client.told("ended")
            await client.say("ack", output=ended["output"])
            assert await client.closed() == 1000
            await asyncio.wait_for(ending, 2)

    asyncio.run(main())


def test_a_full_disk_ends_no_stream(tmp_path, monkeypatch, caplog):
    def full(self, entries):
        raise OSError(28, "No space left on device")

    async def talk(url, client):
        monkeypatch.setattr(FolderStore, "_append", full)
        equal(await streamed(url, samples(3000)), offline(samples(3000)))
        monkeypatch.undo()

    by_hand(talk, lambda: service(FolderStore(tmp_path)))
    assert "No space left" in caplog.text
