"""One step with weights and products in fewer bits: wall time and memory of every network.

Usage: python benchmarks/weights.py [--networks ...] [--streams 1 8 32] [--frames 4] [--threads 1] [--seconds S]
[--json].

Engines of the same network (networks.py) that differ in how weights are stored, and rows in products, get the
same chunks of all streams in mid-stream, in turns. A figure is the median of the steps on the wall's clock, with
the 10th and 90th percentile; "fp32 ÷" is how many times faster a step is than with fp32.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import json
import shlex
import sys
from typing import Any

from machine import figure, machine, spread
from networks import NETWORKS
from stepping import Streams

import dreamstream as ds
from dreamstream.engine.weights import FORMATS, PRODUCTS

TURN = 0.03  # seconds of one before the next has its turn
ROUNDS = 4  # at least
DEFAULT = ["lstm", "conv", "silero", "tagger"]
WAYS = {w: {"weights": w} for w in FORMATS} | {f"{p}, products": {"products": p} for p in PRODUCTS[1:]}


def measure(name: str, n: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each way."""
    streams = {w: Streams(name, n, args.frames, args.threads, **narrow) for w, narrow in WAYS.items()}
    times: dict[str, list[float]] = {w: [] for w in WAYS}
    spent, rounds = 0.0, 0
    while spent < 1000 * len(WAYS) * args.seconds or rounds < ROUNDS:
        rounds += 1
        for w, s in streams.items():
            steps, _ = s.turn(min(TURN, args.seconds), 2)
            times[w] += steps
            spent += sum(steps)
    wide = spread(times["fp32"])[1]
    return [
        {
            "network": name,
            "streams": n,
            "weights": w,
            "step": spread(times[w]),
            "faster": wide / spread(times[w])[1],
            "by_the_least": min(times["fp32"]) / min(times[w]),
            "weights_size": streams[w].engine.weights_size,
        }
        for w in WAYS
    ]


def text(r: dict[str, Any]) -> str:
    cells = [
        r["network"],
        r["streams"],
        r["weights"],
        figure(r["step"]),
        f"{r['faster']:.2f}",
        f"{r['by_the_least']:.2f}",
        f"{r['weights_size'] / 1e6:.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=DEFAULT)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="per row (1)")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    tell = (lambda *_: None) if args.json else print
    for line in machine(f"python {shlex.join(sys.argv)}"):
        tell(line)
    tell(f"kernels   {ds.config.config()['kernels']}")
    tell("times     ms per step by the clock on the wall\n")
    tell("| network | streams | weights | a step, ms | fp32 ÷ | by the least | MB of weights held |")
    tell("|---|--:|---|--:|--:|--:|--:|")
    for name in args.networks:
        for n in args.streams:
            for r in measure(name, n, args):
                print(json.dumps(r) if args.json else text(r), flush=True)


if __name__ == "__main__":
    main()
