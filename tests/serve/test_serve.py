"""Serving: streams over sockets, equal offline to the bit whatever breaks; limits; what clients do wrong."""

import asyncio
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")

from serving import (
    RATE,
    ByHand,
    by_hand,
    engine,
    equal,
    fetched,
    offline,
    posted,
    recorded,
    running,
    samples,
    service,
    streamed,
    until,
)
from websockets.asyncio.client import connect as open_socket
from websockets.asyncio.server import serve as serve_sockets
from websockets.exceptions import InvalidStatus

from dreamstream import nn
from dreamstream.cli import main
from dreamstream.cli.serve import _tell_cost
from dreamstream.client import ServerError, connect
from dreamstream.client.protocol import PATH, SUBPROTOCOL, message, packed
from dreamstream.errors import DTypeError, ModeError
from dreamstream.serve import FolderStore, Limits
from dreamstream.serve.hosts import Here
from dreamstream.serve.runner import cost_of


# ---------------------------------------------------------------- streams
async def test_many_callers_at_once_hear_what_is_offline():
    async with running() as url:
        xs = [samples(n, n) for n in (0, 1, 5, 100, 1601, 4000, 7777)]
        found = await asyncio.gather(
            *(streamed(url, x, chunk) for x, chunk in zip(xs, (1, 1, 3, 7, 1000, 99, 5000)))
        )
        for x, y in zip(xs, found):
            equal(y, offline(x))


async def test_frames_after_the_end_are_refused_by_the_client():
    async with running() as url, connect(url) as stream:
        await stream.send(samples(10))
        await stream.end()
        with pytest.raises(ValueError, match="ended after 10 frames"):
            await stream.send(samples(1))


async def test_samples_of_16_bits():
    async with running() as url:
        x = (samples(3000) * 8000).astype(np.int16)
        equal(await streamed(url, x, format="i16"), offline(x.astype(np.float32) / 32768))


async def test_a_client_takes_what_an_engine_takes():
    x = (samples(300) * 8000).astype(np.int16)
    async with running() as url:
        for path, given in (("", x), ("/", (x / np.float32(32768)).astype(float)), (PATH, list(x / 32768))):
            equal(await streamed(url + path, given), offline(x))
        wrong = {"i16": (x / 32768, x.astype(int) * 9), "f32": (x.astype(int), x * 1j)}
        for form, kind in (("i16", "int16"), ("f32", "float32")):
            async with connect(url, format=form) as stream:
                for given in wrong[form]:
                    with pytest.raises(DTypeError, match=f"expected {kind}, got "):
                        await stream.send(given)


async def test_a_client_waits_for_nothing_that_does_not_come():
    """What is no server of ours, an entry that is cancelled, a stream that was left."""

    async def answer(socket):
        await socket.send(json.dumps({"type": "started"}))
        await socket.wait_closed()

    for wrong in ("http://127.0.0.1", "127.0.0.1:8765", []):
        with pytest.raises(ValueError, match="expected addresses like"):
            connect(wrong)
    tasks = asyncio.all_tasks()
    async with running() as url, serve_sockets(answer, "127.0.0.1", 0, subprotocols=[SUBPROTOCOL]) as other:
        port = other.sockets[0].getsockname()[1]
        for address, options, error in (
            (url + "/other", {}, "has no streams: .*HTTP 404"),
            (url, {"token": {1}}, "not JSON serializable"),
            (f"ws://127.0.0.1:{port}", {}, "names"),
        ):
            with pytest.raises(Exception, match=error):
                await asyncio.wait_for(connect(address, **options).__aenter__(), 5)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(connect("ws://127.0.0.1:1").__aenter__(), 0.1)
        async with connect([url + "/other", url]) as stream:
            await stream.end()
            assert [x async for x in stream] == []
        for early in (connect(url).__anext__(), connect(url).send(samples(9)), stream.__aenter__()):
            with pytest.raises(ModeError, match="entered"):
                await asyncio.wait_for(early, 5)
        async with connect(url) as stream:
            pass
        for late in (stream.send(samples(9)), stream.__anext__(), stream.__aenter__()):
            with pytest.raises(ConnectionError, match="left before its end"):
                await asyncio.wait_for(late, 5)
    await until(lambda: asyncio.all_tasks() == tasks)


async def test_streams_that_are_stepped_in_a_thread():
    own = service(limits=Limits(tick=1e-6, save=0.1))
    async with running(own) as url:
        if own._thread is None:
            pytest.skip("one processor")
        xs = [samples(6000, k) for k in range(5)]
        for x, y in zip(xs, await asyncio.gather(*(streamed(url, x, 77, 0.001) for x in xs))):
            equal(y, offline(x))
        assert own.streams == {}


async def test_a_step_that_waits_for_a_processor_stays_in_the_loop():
    """A thread would only wait for the interpreter, too."""

    class Waits:
        def step(self, rows):
            time.sleep(0.01)
            threads.add(threading.current_thread())

    host, threads = Here(Waits(), 0.004), set()
    with ThreadPoolExecutor(1) as pool:
        for _ in range(20):
            begin = time.perf_counter()
            await host.step([], pool)
            host.timed(begin)
    assert threads == {threading.current_thread()}


CHECKS = """
NUMBER = 3

def may(token, address):
    return address == "127.0.0.1" and {"secret": lambda: True, "late": late}[token]()

async def late():
    return True
"""


@pytest.fixture
def typed(tmp_path, monkeypatch):
    """A folder to be in, with a model, a check of tokens, and a certificate that is trusted."""
    engine().save(tmp_path / "net.dsm")
    (tmp_path / "check.py").write_text(CHECKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem"
    command += " -out cert.pem -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    if subprocess.run(command.split(), capture_output=True).returncode:
        pytest.skip("no openssl")


def test_encrypted_and_for_those_who_may(typed, monkeypatch):
    """As it is typed: certificate, key and check; callers by our client, by another, and by plain requests."""
    command = "-m dreamstream serve net.dsm --port 0 --cert cert.pem --key key.pem --auth check:may"
    server = subprocess.Popen([sys.executable, *command.split()], stdout=subprocess.PIPE, text=True)
    x = (samples(3000) * 8000).astype(np.int16)

    async def streams(url):
        equal(await streamed(url, x, format="i16", token="secret"), offline(x.astype(np.float32) / 32768))
        for token in (None, "wrong", "late"):  # a check that fails, or that is no plain function, lets nobody in
            with pytest.raises(ServerError, match="token is not accepted") as refused:
                await streamed(url, x, format="i16", token=token)
            assert refused.value.code == 4401
        async with open_socket(url + PATH, subprotocols=[SUBPROTOCOL]) as other:
            await other.send(message("start", token="secret"))
            assert json.loads(await other.recv())["type"] == "started"
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 5) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert not plain.recv(1000).startswith(b"HTTP")

    def posted(url, token):
        head = {"Authorization": f"Bearer {token}"}
        with urlopen(Request(url, recorded(x), head), timeout=20) as answer:
            return json.load(answer)

    try:
        url = server.stdout.readline().split()[-1]
        assert url.startswith("wss://127.0.0.1:")
        asyncio.run(streams(url))
        files = url.replace("wss", "https") + "/v1/files"
        found = posted(files, "secret")["outputs"]
        for got, want in zip(found, offline(x.astype(np.float32) / 32768)):
            assert np.array_equal(np.asarray(got["values"], np.float32), want.ravel())
        for token in ("wrong", "late"):
            with pytest.raises(HTTPError) as refused:
                posted(files, token)
            assert refused.value.code == 401
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            posted(files, "secret")
        with pytest.raises(ServerError, match="CERTIFICATE_VERIFY_FAILED") as refused:
            asyncio.run(connect(url).__aenter__())
        assert refused.value.code == 1015
    finally:
        server.terminate()
    assert server.wait(20) == 0


async def test_an_encrypted_connection_is_ended_by_the_server(typed):
    """The client waits for that, as long as it is told to."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain("cert.pem", "key.pem")
    async with running(service(limits=Limits(handshake=600)), tls) as url:
        client = await open_socket(url + PATH, subprotocols=[SUBPROTOCOL], close_timeout=None)
        await asyncio.wait_for(client.close(), 60)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--cert net.dsm", r"--cert net\.dsm --key None: no certificate and key in PEM"),
        ("--cert cert.pem --key none.pem", r"--cert cert\.pem --key none\.pem: .*No such file"),
        ("--key key.pem", "--key goes with --cert"),
        ("--auth check:nothing", "has no attribute 'nothing'"),
        ("--auth check:NUMBER", "NUMBER is no function"),
        ("--auth check", "has no attribute ''"),
        ("--auth nowhere:may", "No module named 'nowhere'"),
        ("--workers 2", "--workers goes with --ray"),
        ("--durable", "--durable goes with --state"),
        ("--lm-weight 2", "--lm-weight goes with --tokens"),
        ("--beam 0", "--beam goes with --tokens"),
        ("--streams 0", "--streams: expected 1 or more"),
    ],
)
def test_options_that_are_refused(typed, capsys, options, said):
    with suppress(SystemExit):
        assert main(["serve", "net.dsm", "--port", "0", *options.split()]) == 1
    assert re.search(said, capsys.readouterr().err)


def test_a_port_that_is_taken(tmp_path):
    engine().save(tmp_path / "net.dsm")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "dreamstream", "serve", str(tmp_path / "net.dsm"), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "already in use" in done.stderr and "Task" not in done.stderr


class Attentive(nn.Module):
    """Attention to all that came before."""

    def forward(self, x):
        y = x.unsqueeze(2).expand(-1, -1, 8)
        return nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True)


def test_what_it_takes_to_keep_a_stream(capsys):
    cost = cost_of(engine())
    assert cost.growth == 0 and 100 < cost.size < 5000
    cost = cost_of(engine(Attentive))
    made = engine(Attentive)
    sizes = []
    for k in range(3):
        made.step({"a": samples(RATE)}, "a" if k == 0 else ())
        sizes.append(len(made.snapshot("a")))
    assert (cost.size, cost.growth) == (sizes[0], sizes[1] - sizes[0]) and sizes[2] - sizes[1] == cost.growth
    _tell_cost("net", made, 2.0)
    said = capsys.readouterr().err
    assert f"{sizes[0]:,} bytes, kept every 2 s" in said and "after ten minutes" in said.replace("\n", " ")


async def test_few_outputs_are_acknowledged_each_second_too():
    """While input comes all the time, and outputs are fewer than those of which each is acknowledged."""
    own = service()
    async with running(own) as url, connect(url) as stream:
        (live,) = own.streams.values()
        for k in range(26):
            await stream.send(samples(1, k))
            await asyncio.sleep(0.05)
        assert live.made[1] < 64 and live.acknowledged[1] > 0


# ---------------------------------------------------------------- messages
async def test_what_a_client_is_told():
    async with by_hand() as (url, client):
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
async def test_first_messages_that_are_wrong(what):
    do, code = WRONG[what]
    async with by_hand() as (url, client):
        await do(client)
        assert await client.closed() == code
        equal(await streamed(url, samples(500)), offline(samples(500)))  # nobody else is hurt


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
    "an end at 2^56": lambda c: c.say("end", input=1 << 56),
    "an end that is no number": lambda c: c.say("end", input="100"),
    "outputs that are not made": lambda c: c.say("ack", output=[0, 10**9]),
    "one number for two outputs": lambda c: c.say("ack", output=1),
    "true": lambda c: c.say("ack", output=[True, 0]),
}


@pytest.mark.parametrize("what", AFTER)
async def test_later_messages_that_are_wrong(what):
    """The connection ends, and the stream may be resumed."""
    async with by_hand() as (url, client):
        x, told = samples(500), await client.start()
        await client.give(0, x[:100])
        await AFTER[what](client)
        assert await client.closed() == 4400
        async with ByHand(url) as again:
            await again.say("resume", stream=told["stream"], output=[0, 0], saved=0)
            assert (await again.told("started"))["input"] == 100
            await again.end(100, x)


async def test_rates_by_their_value():
    for rate in (RATE, float(RATE), str(RATE)):
        async with by_hand() as (_, client):
            assert (await client.start(rate=rate))["rate"] == str(RATE)


async def test_messages_of_no_frames():
    async with by_hand() as (url, client):
        x = samples(100)
        await client.start()
        for begin, end in ((0, 0), (0, 50), (50, 50), (50, 100), (100, 100)):
            await client.give(begin, x[begin:end])
        await client.end(100, x)


async def test_frames_after_the_end():
    async with by_hand() as (url, client):
        await client.start()
        await client.give(0, samples(100))
        await client.say("end", input=100)
        await client.say("end", input=100)  # twice is once
        await client.give(100, samples(4))
        assert await client.closed() == 4400


# ---------------------------------------------------------------- plain requests, the end
async def test_pages():
    async with by_hand() as (url, client):
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


async def test_long_answers_are_written_in_pieces(monkeypatch):
    """So that whoever steps meanwhile has the interpreter."""
    sizes, dumps = [], json.dumps

    def noted(told, **options):
        outputs = [] if isinstance(told, list) else told.get("outputs", [])
        sizes.extend(map(len, [told, *(output["values"] for output in outputs)]))
        return dumps(told, **options)

    x = (samples(30_000) * 8000).astype(np.int16)
    async with running() as url:
        monkeypatch.setattr(json, "dumps", noted)
        status, body = await posted(url, "/v1/files", recorded(x))
        assert status == 200 and max(sizes) <= 4096
        for got, want in zip(json.loads(body)["outputs"], offline(x.astype(np.float32) / 32768)):
            assert np.array_equal(np.asarray(got["values"], np.float32).reshape(got["shape"]), want)


async def test_recordings_that_are_sent_whole():
    x = (samples(5000) * 8000).astype(np.int16)
    file = recorded(x)
    async with by_hand(service(limits=Limits(file=65536))) as (url, client):
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


async def test_a_recording_at_which_the_server_fails_has_an_answer(monkeypatch, logged):
    async with running() as url:
        monkeypatch.setattr("dreamstream.serve.server.answer", lambda *_: 1 // 0)
        assert await posted(url, "/v1/files", recorded(np.zeros(9, np.int16))) == (500, b"the server has failed\n")
    assert "a recording for net" in "\n".join(logged)


def test_a_step_that_fails_ends_its_streams_alone(logged):
    async def main():
        own = service()
        async with running(own) as url, ByHand(url) as client:
            runner = own.models["net"].hosts[0]._runner
            step, fails = runner.step, [True]
            runner.step = lambda rows: step(None if fails and fails.pop() else rows)
            await client.start()
            await client.give(0, samples(100))
            assert await client.closed() == 4500
            assert own.streams == {}
            equal(await streamed(url, samples(500)), offline(samples(500)))

    asyncio.run(main())
    assert "a step of net" in "\n".join(logged)


async def test_a_server_that_ends_lets_streams_come_to_their_end():
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


async def test_streams_that_do_not_end_in_time_are_told_to_come_back():
    own = service(limits=Limits(drain=0.2))
    async with by_hand(own) as (_, client):
        told = await client.start()
        assert told["input"] == 0
        await client.give(0, samples(100))
        ending = asyncio.create_task(own.drain())
        assert await client.closed() == 1001
        await ending


async def test_a_full_disk_ends_no_stream(tmp_path, monkeypatch, logged):
    def full(self, entries):
        raise OSError(28, "No space left on device")

    async with by_hand(service(FolderStore(tmp_path))) as (url, client):
        monkeypatch.setattr(FolderStore, "_append", full)
        equal(await streamed(url, samples(3000)), offline(samples(3000)))
        monkeypatch.undo()
    assert "No space left" in "\n".join(logged)
