"""What a call costs: steps of the same models by the C API, by Python and, with a JDK and --java, by Java.

Usage: python benchmarks/capi.py [--seconds S] [--streams 1 32 100 1000] [--networks bare small silero audio]
[--java] [--wall] [--json]; needs a C compiler. With --java the program in C runs twice: so much is noise.

A model (networks.py) is compiled, saved, and stepped by capi.c (built against the installed package), by
``engine.step({id: array, ...})`` and, where there is one, by ``engine.step_batch(ids, array)``, on one thread, in
equal chunks of all streams, in mid-stream: one frame each (`bare`, a linear layer of 8 units: nearly all of its
time is the call; `small`), a window of 32 ms (`silero`), 100 ms (`audio`). The first step's outputs are compared,
to the bit, before anything is timed; then all take turns. A figure is the median of the steps, with the 10th and
90th percentile. What others take more is told per step, and, beyond what one stream costs, for each more stream
of its batch. It is the median, over all turns, of what the quickest step of one took more than the quickest of C's
turn next to it: on a machine that does other things meanwhile a few microseconds are lost among what these cost.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import copy
import json
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from machine import figure, machine, spread
from networks import NETWORKS, chunks

import dreamstream as ds
from dreamstream.config.flags import cflags, libs
from dreamstream.config.jar import java_home

WARM = 12_000  # steps until a JVM has compiled what they take
TURN = 20  # steps of one before the other has its turn
FRAMES = {"bare": 1, "small": 1, "silero": 1, "audio": 10}  # of each network's chunks


def build(folder: Path) -> Path:
    """Compile capi.c as a stranger would."""
    program = folder / "capi"
    command = [
        *os.environ.get("CC", "cc").split(),
        "-std=c11",
        "-O2",
        str(Path(__file__).with_suffix(".c")),
        "-o",
        str(program),
        *shlex.split(f"{cflags()} {libs()}"),
    ]
    subprocess.run(command, check=True)
    return program


class Program:
    """A program that steps as often as it is told, and prints the times."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Program:
        return self

    def __call__(self, steps: int) -> list[int]:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{steps}\n")
        process.stdin.flush()
        return [int(t) for t in process.stdout.readline().split()]

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def measure(name: str, n: int, folder: Path, args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Microseconds of every step, by C and by others."""
    network = NETWORKS[name]
    clock = time.perf_counter_ns if args.wall else time.thread_time_ns
    engine = ds.compile(network.model(), network.spec, rate=network.rate, threads=1)
    given, made = folder / "in", folder / "out"
    engine.save(folder / "model.dsm")
    arrays = chunks(name, n, FRAMES[name])
    batch = np.stack(list(arrays.values()))
    frames_first = np.moveaxis(batch, network.spec.index("L"), 1)
    np.ascontiguousarray(frames_first).tofile(given)
    outputs = engine.step(arrays, sos=list(arrays))
    ways = {"step": lambda: engine.step(arrays)}
    if hasattr(engine, "step_batch"):
        other, ids = copy.copy(engine), list(arrays)
        padded, _ = other.step_batch(ids, batch, sos=np.ones(n, bool))
        assert all(np.array_equal(a, b) for a, b in zip(padded, outputs.values())), "step and step_batch differ"
        room, _ = other.step_batch(ids, batch)
        ways["step_batch"] = lambda: other.step_batch(ids, batch)
        ways["step_batch, out"] = lambda: other.step_batch(ids, batch, out=room)
    words = [
        str(folder / "model.dsm"),
        str(given),
        str(made),
        str(n),
        str(FRAMES[name] * network.unit),
        str(int(args.wall)),
    ]
    expected = b"".join(y.tobytes() for y in outputs.values())
    times: dict[str, list[int]] = {"C": [], **{way: [] for way in ways}}
    with ExitStack() as stack:
        asked = {}
        for way, command in args.programs.items():
            asked[way] = stack.enter_context(Program([*command, *words]))
            asked[way](WARM if way != "C" else 1)
            assert made.read_bytes() == expected, f"{way} and Python differ"
            times.setdefault(way, [])
        stop = time.perf_counter() + args.seconds
        while time.perf_counter() < stop or not times["C"]:
            for way, steps in asked.items():
                times[way] += steps(TURN + 1)[1:]
            for way, step in ways.items():
                step()
                for _ in range(TURN):
                    begin = clock()
                    step()
                    times[way].append(clock() - begin)
    return {way: np.array(t) / 1000 for way, t in times.items()}


def summary(name: str, n: int, times: dict[str, np.ndarray], one: dict[str, float]) -> dict[str, Any]:
    """One row of the table; `one`: what each other way takes more with one stream, where that is known."""
    us = {way: spread(t) for way, t in times.items()}
    quickest = {way: t.reshape(-1, TURN).min(axis=1) for way, t in times.items()}
    more = {way: round(float(np.median(quickest[way] - quickest["C"])), 2) for way in us if way != "C"}
    if n == 1:
        one.update(more)
    each = {way: round((m - one[way]) / (n - 1), 3) for way, m in more.items() if n > 1 and way in one}
    return {"network": name, "streams": n, "us": us, "more_us": more, "more_us_per_further_stream": each}


def text(r: dict[str, Any]) -> str:
    """A line per way other than C."""
    lines = []
    for way, more in r["more_us"].items():
        each = r["more_us_per_further_stream"].get(way)
        cells = [
            r["network"],
            r["streams"],
            way,
            figure(r["us"]["C"]),
            figure(r["us"][way]),
            f"{r['us']['C'][1] / r['streams']:.2f}",
            f"{more:.1f}",
            "" if each is None else f"{each:.2f}",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(FRAMES), default=list(FRAMES))
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 100, 1000])
    parser.add_argument("--seconds", type=float, default=4.0, help="per network and number of streams (4)")
    parser.add_argument("--java", action="store_true", help="by Java too, which needs a JDK")
    parser.add_argument("--wall", action="store_true", help="the clock on the wall, not the thread's CPU time")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    tell = (lambda *_: None) if args.json else print
    for line in machine(f"python {shlex.join(sys.argv)}"):
        tell(line)
    tell(f"kernels   {ds.config.config()['kernels']}")
    tell(f"times     {'clock on the wall' if args.wall else 'CPU time of the one thread'}")
    tell(
        "\n| network | streams | by | C, µs per step | by it, µs per step | C, µs per stream "
        "| more, µs per step | … per further stream |\n|---|--:|---|--:|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        args.programs = {"C": [str(build(folder))]}
        if args.java:
            jar = folder / "dreamstream.jar"
            subprocess.run([sys.executable, "-m", "dreamstream.config", "--jar", str(jar)], check=True, stdout=2)
            source = Path(__file__).with_suffix("").with_name("Capi.java")
            args.programs["C, again"] = args.programs["C"]  # what differs without a difference
            args.programs["Java"] = [str(java_home() / "bin" / "java"), "-cp", str(jar), str(source)]
        for name in args.networks:
            one: dict[str, float] = {}
            for n in args.streams:
                row = summary(name, n, measure(name, n, folder, args), one)
                print(json.dumps(row) if args.json else text(row), flush=True)


if __name__ == "__main__":
    main()
