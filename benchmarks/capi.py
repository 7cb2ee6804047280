"""What a call costs: steps of the same models by the C API and by Python's engine.step.

Usage: python benchmarks/capi.py [--seconds S] [--streams 1 32] [--networks bare silero audio] [--wall] [--json];
needs a C compiler.

A model is compiled, saved, and stepped by capi.c (built against the installed package) and by
``engine.step({id: array, ...})``, on one thread, in equal chunks of all streams, in mid-stream. `bare` is one
linear layer of 8 units on one frame: nearly all of its time is the call. `silero` gets windows of 32 ms, `audio`
(the network of `dreamstream demo`) chunks of 100 ms. The first step's outputs are compared, to the bit, before
anything is timed; then both take turns. A figure is the median of the steps, with the 10th and 90th percentile.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from machine import machine

import dreamstream as ds
from dreamstream import nn
from dreamstream.cli.demo import DemoNetwork
from dreamstream.config.flags import cflags, libs
from dreamstream.models import SileroVAD

TURN = 20  # steps of one before the other has its turn


class Network(NamedTuple):
    make: Callable[[], Any]
    spec: tuple[Any, ...]
    rate: int
    chunk: tuple[int, ...]  # one stream's: frames first


NETWORKS = {
    "bare": Network(lambda: nn.Linear(8, 8), ("B", "L", 8), 100, (1, 8)),
    "silero": Network(SileroVAD, ("B", "L"), 16000, (512,)),
    "audio": Network(DemoNetwork, ("B", "L"), 16000, (1600,)),
}


def build(folder: Path) -> Path:
    """Compile capi.c as a stranger would."""
    program = folder / "capi"
    command = [*os.environ.get("CC", "cc").split(), "-std=c11", "-O2", str(Path(__file__).with_suffix(".c")),
               "-o", str(program), *shlex.split(f"{cflags()} {libs()}")]
    subprocess.run(command, check=True)
    return program


def measure(name: str, n: int, folder: Path, args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Microseconds of every step, by C and by Python."""
    network = NETWORKS[name]
    clock = time.perf_counter_ns if args.wall else time.thread_time_ns
    ds.manual_seed(0)
    engine = ds.compile(network.make().eval(), network.spec, rate=network.rate, threads=1)
    given, made = folder / "in", folder / "out"
    engine.save(folder / "model.dsm")
    x = np.random.default_rng(0).standard_normal((n, *network.chunk), dtype=np.float32) * np.float32(0.1)
    x.tofile(given)
    chunks = {f"stream-{i}": x[i] for i in range(n)}
    outputs = engine.step(chunks, sos=list(chunks))
    command = [str(args.program), str(folder / "model.dsm"), str(given), str(made), str(n), str(network.chunk[0]),
               str(int(args.wall))]
    times: dict[str, list[int]] = {"C": [], "Python": []}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def by_c(steps: int) -> list[int]:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
            return [int(t) for t in process.stdout.readline().split()]

        def by_python(steps: int) -> list[int]:
            taken = []
            for _ in range(steps):
                begin = clock()
                engine.step(chunks)
                taken.append(clock() - begin)
            return taken

        by_c(1)
        assert made.read_bytes() == b"".join(y.tobytes() for y in outputs.values()), "C and Python differ"
        by_python(1)
        stop = time.perf_counter() + args.seconds
        while time.perf_counter() < stop or not times["C"]:
            times["C"] += by_c(TURN)
            times["Python"] += by_python(TURN)
        process.stdin.close()
    return {way: np.array(t) / 1000 for way, t in times.items()}


def summary(name: str, n: int, times: dict[str, np.ndarray]) -> dict[str, Any]:
    """One row of the table."""
    spread = {way: [round(float(p), 2) for p in np.percentile(t, [10, 50, 90])] for way, t in times.items()}
    more = spread["Python"][1] - spread["C"][1]
    return {"network": name, "streams": n, "us": spread, "python_more_us": round(more, 2)}


def text(r: dict[str, Any]) -> str:
    cells = [f"{middle:.1f} ({low:.1f}–{high:.1f})" for low, middle, high in (r["us"]["C"], r["us"]["Python"])]
    c, more, n = r["us"]["C"][1], r["python_more_us"], r["streams"]
    return f"| {r['network']} | {n} | {cells[0]} | {cells[1]} | {c / n:.2f} | {more:.1f} | {more / n:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--seconds", type=float, default=4.0, help="per network and number of streams (4)")
    parser.add_argument("--wall", action="store_true", help="the clock on the wall, not the thread's CPU time")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    tell = (lambda *_: None) if args.json else print
    for line in machine(f"python {shlex.join(sys.argv)}"):
        tell(line)
    tell(f"kernels   {ds.config.config()['kernels']}")
    tell(f"times     {'clock on the wall' if args.wall else 'CPU time of the one thread'}")
    tell("\n| network | streams | C, µs per step | Python, µs per step | C, µs per stream "
         "| Python more, µs per step | … per stream |\n|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        args.program = build(folder)
        for name in args.networks:
            for n in args.streams:
                row = summary(name, n, measure(name, n, folder, args))
                print(json.dumps(row) if args.json else text(row), flush=True)


if __name__ == "__main__":
    main()
