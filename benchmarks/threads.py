"""One step on one thread and on two: wall time of every network.

Usage: python benchmarks/threads.py [--threads 2] [--networks ...] [--formats fp32 bf16 int8 ...]
[--streams 1 32 1000] [--frames 1 10] [--seconds S] [--json].

Two engines of the same network (networks.py), one with a thread, one with more, get the same chunks of all
streams in mid-stream, in turns; their outputs have the same bits, which is checked. A figure is the median of the
steps on the wall's clock, with the 10th and 90th percentile. A row is marked where more threads are slower, by
more than 3 % (--noise) in the median and in the shortest step. CPU time is that of the process per step: what
waiting threads burn is in it.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import itertools
import json
import shlex
import sys
from typing import Any

from machine import figure, machine, spread
from networks import FORMATS, NETWORKS
from stepping import Streams

import dreamstream as ds

TURN = 0.03  # seconds of one before the other has its turn
ROUNDS = 4  # at least


def measure(name: str, fmt: str, n: int, n_frames: int, args: argparse.Namespace) -> dict[str, Any]:
    """One row of the table."""
    streams = {threads: Streams(name, n, n_frames, threads, **FORMATS[fmt]) for threads in (1, args.threads)}
    assert len({s.facts()["bits"] for s in streams.values()}) == 1, f"{name}, {fmt}: other bits with more threads"
    times: dict[int, list[float]] = {threads: [] for threads in streams}
    cpu: dict[int, list[float]] = {threads: [] for threads in streams}
    spent, rounds = 0.0, 0
    while spent < 2000 * args.seconds or rounds < ROUNDS:
        rounds += 1
        for threads, s in streams.items():
            steps, each = s.turn(min(TURN, args.seconds), 2)
            times[threads] += steps
            cpu[threads].append(each)
            spent += sum(steps)
    one, more = (spread(t) for t in times.values())
    least = [min(t) for t in times.values()]
    slower = more[1] > (1 + args.noise) * one[1] and least[1] > (1 + args.noise) * least[0]
    return {"network": name, "format": fmt, "streams": n, "frames": n_frames, "one": one, "more": more,
            "cpu": [spread(c)[1] for c in cpu.values()], "faster": one[1] / more[1],
            "by_the_least": least[0] / least[1], "slower": slower}  # fmt: skip


def text(r: dict[str, Any]) -> str:
    cells = [
        r["network"],
        r["format"],
        r["streams"],
        r["frames"],
        figure(r["one"]),
        figure(r["more"]),
        f"{r['faster']:.2f}",
        f"{r['by_the_least']:.2f}",
        f"{r['cpu'][1] / r['cpu'][0]:.2f}",
        "slower" if r["slower"] else "",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2, help="beside one (2)")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=["fp32"])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 1000])
    parser.add_argument("--frames", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--seconds", type=float, default=1.0, help="per row and number of threads (1)")
    parser.add_argument("--noise", type=float, default=0.03, help="what is not called slower (0.03)")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    if args.threads < 2:
        parser.error("--threads is 2 or more")
    tell = (lambda *_: None) if args.json else print
    for line in machine(f"python {shlex.join(sys.argv)}"):
        tell(line)
    tell(f"kernels   {ds.config.config()['kernels']}")
    tell("times     ms per step by the clock on the wall\n")
    tell(
        f"| network | format | streams | frames | one thread, ms | {args.threads} threads, ms | one ÷ more "
        "| by the least | CPU time, more ÷ one | |\n|---|---|--:|--:|--:|--:|--:|--:|--:|---|"
    )
    rows = []
    for case in itertools.product(args.networks, args.formats, args.streams, args.frames):
        rows.append(measure(*case, args))
        print(json.dumps(rows[-1]) if args.json else text(rows[-1]), flush=True)
    tell(f"\n{sum(r['slower'] for r in rows)} of {len(rows)} rows are slower with {args.threads} threads")


if __name__ == "__main__":
    main()
