"""A small model behind a server in this process, and clients of it: ours, and one that does what it is told."""

import asyncio
import contextlib
import io
import json
import subprocess
import time
import wave

import numpy as np
import pytest
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

import dreamstream as ds
from dreamstream import nn
from dreamstream.client import connect
from dreamstream.client.protocol import PATH, SUBPROTOCOL, message, packed, unpacked
from dreamstream.serve import Limits, MemoryStore, Model, Service
from dreamstream.serve.server import serve

RATE = 1600


class Net(nn.Module):
    """It looks ahead, leaves fewer frames than it takes, and has a state and two outputs."""

    def __init__(self):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(1, 4, 5, stride=4, padding=2), nn.LSTM(4, 3, batch_first=True)

    def forward(self, x):
        y = self.conv(x.unsqueeze(1)).transpose(1, 2)
        return self.rnn(y)[0], x * 2


class Attentive(Net):
    """Its state grows: it attends to all that came before."""

    def forward(self, x):
        y, z = super().forward(x)
        y = y.unsqueeze(1)
        return nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True).squeeze(1), z


def engine(cls=Net, **options):
    ds.manual_seed(0)
    return ds.compile(cls().eval(), ("B", "L"), rate=RATE, verify=False, **options)


def samples(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def offline(x, cls=Net):
    return [np.asarray(y) for y in engine(cls).step({"a": x}, "a", "a")["a"]]


def service(store=None, limits=None, cls=Net, **options):
    limits = limits or Limits(grace=0.2, save=0.1, drain=1.0)
    store = store or MemoryStore()
    return Service({"net": Model("net", engine(cls), limits)}, store, limits, **options)


@contextlib.asynccontextmanager
async def running(own=None, tls=None):
    """A server in this process; its address."""
    own = own or service()
    port = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(own, port=0, tls=tls, listening=lambda _, p: port.set_result(p)))
    try:
        yield f"{'wss' if tls else 'ws'}://127.0.0.1:{await port}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def received(url, x, chunk=100, pause=0.0, gaps=None, **options):
    """Stream samples; return what came, in its order; `gaps` gets the seconds between what came."""
    found, last = [], None
    async with connect(url, **options) as stream:

        async def read():
            nonlocal last
            async for each in stream:
                found.append(each)
                now = time.monotonic()
                if gaps is not None and last is not None:
                    gaps.append(now - last)
                last = now

        reader = asyncio.create_task(read())
        try:
            at = 0
            while at < len(x):
                end = at + (chunk() if callable(chunk) else chunk)
                await stream.send(x[at:end])
                await asyncio.sleep(pause() if callable(pause) else pause)
                at = end
            await stream.end()
        finally:
            await reader
    return found


async def streamed(url, x, chunk=100, pause=0.0, **options):
    """Stream samples; return what came, output by output."""
    found = await received(url, x, chunk, pause, **options)
    out = []
    for port in range(2):
        mine, at = [f for f in found if f.port == port], 0
        for each in mine:
            assert each.position == at
            at += len(each.frames)
        out.append(np.concatenate([each.frames for each in mine]) if mine else None)
    return out


def equal(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a is None and b.shape[0] == 0 if a is None else np.array_equal(a, b)


def recorded(x):
    """Samples of 16 bits as a file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1), written.setsampwidth(2), written.setframerate(RATE)
        written.writeframes(x.tobytes())
    return file.getvalue()


async def posted(url, path, body, size=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    length = len(body) if size is None else size
    writer.write(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode() + body)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def closed(own, kind):
    """How many connections a service has closed for a reason."""
    return own.metrics.registry.get_sample_value("dreamstream_connections_closed_total", {"kind": kind}) or 0


async def until(holds, seconds=10.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def fetched(url, path, method="GET"):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@contextlib.contextmanager
def a_redis(folder):
    """A server of its own, at a socket in a folder; its URL."""
    where = folder / "redis.sock"
    command = f"redis-server --port 0 --unixsocket {where} --dir {folder} --appendonly yes".split()
    import redis

    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            with contextlib.closing(redis.Redis(unix_socket_path=str(where))) as client:
                end = time.monotonic() + 20
                while True:
                    try:
                        client.ping()
                        break
                    except redis.ConnectionError:
                        assert time.monotonic() < end
                        time.sleep(0.02)
            yield f"unix://{where}"
        finally:
            process.kill()


# ---------------------------------------------------------------- by hand
def handshake():
    """What a client says that writes its frames itself."""
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13"
    return f"GET {PATH} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{key}\r\n\r\n".encode()


def frame(first, data, mask=b"\0\0\0\0", size=None):
    """A frame by hand: its first byte, and a size that need not be true."""
    n = len(data) if size is None else size
    form = 0 if n < 126 else 2 if n < 65536 else 8
    head = bytes((first, (n, 254, 255)[(form + 2) // 4] | 128)) + (n.to_bytes(form, "big") if form else b"")
    return head + mask + data


class ByHand:
    """A client that does what it is told, right or wrong."""

    def __init__(self, url, **options):
        self._url, self._options = url, options

    async def __aenter__(self):
        # It takes whatever comes, or it would not hear that the server has closed.
        limits = {"compression": None, "max_size": None, "max_queue": None, **self._options}
        self.socket = await open_socket(self._url + PATH, subprotocols=[SUBPROTOCOL], **limits)
        return self

    async def __aexit__(self, *_):
        await self.socket.close()

    async def told(self, kind):
        """The next message of a type; frames before it are kept."""
        self.frames = []
        while True:
            data = await asyncio.wait_for(self.socket.recv(), 10)
            if isinstance(data, bytes):
                self.frames.append(unpacked(data))
                continue
            found = json.loads(data)
            if found["type"] == kind:
                return found

    async def say(self, kind, **fields):
        await self.socket.send(message(kind, **fields))

    async def start(self, **fields):
        await self.say("start", **fields)
        return await self.told("started")

    async def give(self, at, x):
        await self.socket.send(packed(at, 0, x))

    async def end(self, at, x, cls=Net):
        """Give what is left of a stream, and end it; what comes then is to be what it gives offline."""
        await self.give(at, x[at:])
        await self.say("end", input=len(x))
        await self.told("ended")
        for port, want in enumerate(offline(x, cls)):
            y = b"".join(bytes(rest) for _, p, rest in self.frames if p == port)
            assert y == want.tobytes()

    async def closed(self):
        """The code with which the server closes."""
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                await asyncio.wait_for(self.socket.recv(), 10)
        return caught.value.rcvd.code if caught.value.rcvd else 1006


@contextlib.asynccontextmanager
async def by_hand(own=None):
    """A server's address, and a client of it."""
    async with running(own) as url, ByHand(url) as client:
        yield url, client
