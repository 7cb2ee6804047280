"""What a message costs a server, beside its engine; how many callers in real time it carries, and in what memory.

    python benchmarks/serving.py --model SileroVAD --callers 200 --chunk-ms 32 --seconds 60

A model is one of the package's, a file, or a name of networks.py: `audio` is the demo's, `u2` a Conformer.

The server is `dreamstream serve`, a process of its own; callers are in another, and as light as can be: they write
frames of WebSockets by hand. What comes back is compared with the engine alone, to the bit.

- CPU per message: processor time of the server's process, by the messages with frames that it got meanwhile.
- above the engine: less what the engine alone takes for as many rows as the server's steps had on average.
- answers: from the moment at which a chunk was to be sent to that at which the next output had come.
- memory: what the server's resident set grew by, per connection, without the engine's own state of a stream.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np
from machine import machine
from networks import NETWORKS

import dreamstream as ds
from dreamstream import models

_HANDSHAKE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: dreamstream.v1\r\n\r\n"
)


def framed(data: bytes, opcode: int) -> bytes:
    """A client's frame, with a mask of zeros."""
    size = struct.pack("!BB", 0x80 | opcode, 0x80 | len(data)) if len(data) < 126 else b""
    return (size or struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, len(data))) + bytes(4) + data


class Caller(asyncio.Protocol):
    """One stream: it sends when its time has come, acknowledges once a second, and notes when answers come."""

    def __init__(self) -> None:
        self.data, self.head = bytearray(), True
        self.late: list[float] = []
        self.found: list[bytes] = []
        self.due = 0.0
        self.have = 0
        self.started = asyncio.get_running_loop().create_future()
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(_HANDSHAKE)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        buffer = self.data
        buffer += data
        if self.head:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self.head = False
            del buffer[: end + 4]
        while len(buffer) >= 2:
            at, size = 2, buffer[1]
            if size == 126:
                at, size = 4, int.from_bytes(buffer[2:4], "big")
            elif size == 127:
                at, size = 10, int.from_bytes(buffer[2:10], "big")
            if len(buffer) < at + size:
                return
            self.take(buffer[0] & 15, bytes(buffer[at : at + size]))
            del buffer[: at + size]

    def take(self, opcode: int, data: bytes) -> None:
        """One message."""
        if opcode == 2:
            if self.due:
                self.late.append(time.perf_counter() - self.due)
            self.found.append(data[8:])
            self.have = struct.unpack("<Q", data[:8])[0]
        elif opcode == 9:
            self.transport.write(framed(data, 10))  # type: ignore[attr-defined]
        elif opcode == 1:
            told = json.loads(data)
            if told["type"] == "started":
                self.started.set_result(told)
            elif told["type"] == "ended":
                self.ended.set_result(told)
            elif told["type"] == "error":
                raise SystemExit(told["reason"])


async def call(
    port: int, delay: float, begin: float, args: argparse.Namespace, seed: int
) -> tuple[Caller, object]:
    """Stream noise in real time."""
    await asyncio.sleep(delay)
    _, caller = await asyncio.get_running_loop().create_connection(Caller, "127.0.0.1", port)
    write = caller.transport.write  # type: ignore[attr-defined]
    form = "f32" if args.features else "i16"
    write(framed(f'{{"type":"start","format":"{form}"}}'.encode(), 1))
    told = await caller.started
    rate = int(told["rate"])
    n, total = rate * args.chunk_ms // 1000, round(args.seconds * 1000 / args.chunk_ms)
    generator = np.random.default_rng(seed)
    x: np.ndarray = generator.integers(-9000, 9000, n * 8).astype("<i2")
    if args.features:
        x = generator.standard_normal((n * 8, *args.features), np.float32)
    parts = [x[k * n : k * n + n].tobytes() for k in range(8)]
    first = begin + delay / 4
    for k in range(total):
        due = first + k * args.chunk_ms / 1000
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        caller.due = due
        data = struct.pack("<Q", k * n) + parts[k % 8]
        write(framed(data, 2))
        if k % max(1, 1000 // args.chunk_ms) == seed % max(1, 1000 // args.chunk_ms):
            write(framed(json.dumps({"type": "ack", "output": caller.have}).encode(), 1))
    caller.due = 0.0
    write(framed(json.dumps({"type": "end", "input": total * n}).encode(), 1))
    ended = await caller.ended
    write(framed(json.dumps({"type": "ack", "output": ended["output"]}).encode(), 1))
    return caller, np.concatenate([x[k % 8 * n : k % 8 * n + n] for k in range(total)])


def metrics(port: int) -> dict[str, float]:
    """What the server counts."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
    return {m[1]: float(m[2]) for m in re.finditer(r"^dreamstream_(\w+) (\S+)$", text, re.M)}


def used(pid: int) -> tuple[float, int]:
    """Processor seconds of a process so far, and its resident bytes."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def alone(engine: ds.Engine, rows: int, n: int) -> float:
    """Processor seconds of the engine by itself, for a row of n frames of so many."""
    rows = max(1, rows)
    ids, room = [f"s{k}" for k in range(rows)], np.zeros((n * rows, *engine.inputs[0].features), np.float32)
    step = engine._core.step
    step(ids, [True] * rows, [False] * rows, [room], [[n] * rows], False)
    begin, times = time.process_time(), 0
    while time.process_time() - begin < 0.5:
        step(ids, [False] * rows, [False] * rows, [room], [[n] * rows], False)
        times += 1
    seconds = (time.process_time() - begin) / times / rows
    engine.reset(ids)
    return seconds


async def run(args: argparse.Namespace, engine: ds.Engine) -> None:
    """Serve, call, and print."""
    options = ["--port", "0", "--streams", "5000"]
    command = [sys.executable, *args.python, "-m", "dreamstream", "serve", args.path, *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().rpartition(":")[2])
        before = used(server.pid)
        spread = max(1.0, args.callers / 40)
        begin = time.perf_counter() + spread + 1
        tasks = [
            asyncio.create_task(call(port, spread * k / args.callers, begin, args, k)) for k in range(args.callers)
        ]
        await asyncio.sleep(spread + 1 + args.seconds * 0.2)
        first, counted, then = used(server.pid), metrics(port), time.perf_counter()
        await asyncio.sleep(args.seconds * 0.6)
        last, counts, now = used(server.pid), metrics(port), time.perf_counter()
        found = await asyncio.gather(*tasks)
    finally:
        server.terminate()
        server.wait()
    n = int(engine.rate) * args.chunk_ms // 1000
    for caller, x in found[:: max(1, len(found) // 20)]:
        values = x if args.features else x.astype(np.float32) / 32768
        want = engine.step({"x": values}, sos="x", eos="x")["x"]
        assert b"".join(caller.found) == np.ascontiguousarray(want).tobytes(), "not what is offline"
    late = np.sort(np.concatenate([caller.late for caller, _ in found])) * 1000
    messages = counts["messages_received_total"] - counted["messages_received_total"]
    steps = counts["step_seconds_count"] - counted["step_seconds_count"]
    rows = (counts["rows_stepped_total"] - counted["rows_stepped_total"]) / max(1.0, steps)
    cost, own = (last[0] - first[0]) / messages, alone(engine, round(rows), n)
    memory = (last[1] - before[1]) / args.callers - engine.state_size
    p50, p99, p999 = np.percentile(late, [50, 99, 99.9])
    cells = [args.model, f"{args.chunk_ms} ms", f"{args.callers}", f"{rows:.0f}"]
    cells += [f"{cost * 1e6:.0f}", f"{own * 1e6:.1f}", f"{(cost - own) * 1e6:.0f}"]
    cells += [f"{(last[0] - first[0]) / (now - then) * 100:.0f} %", f"{p50:.1f}", f"{p99:.1f}", f"{p999:.1f}"]
    cells += [f"{np.mean(late > args.chunk_ms) * 100:.3f} %", f"{memory / 1000:.0f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="SileroVAD")
    parser.add_argument("--callers", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--chunk-ms", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0)
    said = "options of the server's Python, as `-m cProfile -o FILE`; last"
    parser.add_argument("--python", nargs=argparse.REMAINDER, default=[], help=said)
    args = parser.parse_args()
    print("\n".join(machine("python benchmarks/serving.py " + " ".join(sys.argv[1:]), ("numpy", "websockets"))))
    args.path = args.model
    if args.model in NETWORKS:
        network = NETWORKS[args.model]
        engine = ds.compile(network.model(), network.spec, network.rate, verify=False)
        args.path = os.path.join(tempfile.mkdtemp(), f"{args.model}.dsm")
        engine.save(args.path)
    elif args.model.endswith(".dsm"):
        engine = ds.load(args.model)
    else:
        model = getattr(models, args.model)(pretrained=True).eval()
        engine = ds.compile(model, model.spec, rate=model.sample_rate, verify=False)
    args.features = engine.inputs[0].features
    print(
        "\n| model | chunk | callers | rows per step | CPU per message, µs | engine's, µs | above it, µs ", end=""
    )
    print("| of a core | answers p50, ms | p99 | p99.9 | later than a chunk | memory per connection, kB |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for callers in args.callers:
        args.callers = callers
        asyncio.run(run(args, engine))


if __name__ == "__main__":
    main()
