"""How planning grows with the size of a model: the time of `ds.compile`, by number of layers.

Usage: python benchmarks/planning.py [--models stack-raw relu] [--sizes N ...] [--limit SECONDS] [--json]; another
source tree's with PYTHONPATH.

- stack-raw: blocks of norm, GLU, causal depthwise convolution and residual on raw audio (networks.Stack, 16
  channels, windows of 25 ms, 10 ms apart);
- relu: as many `relu` after one another.

`compile` without verification: capture in Python, planning, and the weights' panels, of which these models have
next to none. Then `ds.load` of the saved file, which captures nothing: reading, checking, planning. A figure is
the least of three, or of fewer where one takes more than a third of --limit. Where a model takes longer than
--limit, larger ones are left out.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import machine
from networks import Stack

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn


class Chain(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, x: Any) -> Any:
        for _ in range(self.n):
            x = F.relu(x)
        return x


MODELS: dict[str, tuple[Callable[[int], Any], tuple[Any, ...], list[int]]] = {
    "stack-raw": (lambda n: Stack(n, 16, raw=True), ("B", 1, "L"), [6, 12, 24, 48, 96]),
    "relu": (Chain, ("B", "L", 4), [1024, 4096, 16384, 32768]),
}


def seconds(call: Callable[[], Any], limit: float) -> float:
    """The least of three, or of fewer."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < limit / 3:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure(name: str, n: int, limit: float, folder: Path) -> dict[str, Any]:
    """One row."""
    make, spec, _ = MODELS[name]
    ds.manual_seed(0)
    model, path = make(n).eval(), folder / "model.dsm"
    row: dict[str, Any] = {"model": name, "size": n}
    try:
        ds.compile(model, spec, verify=False).save(path)
        row["compile"] = round(seconds(lambda: ds.compile(model, spec, verify=False), limit), 6)
        row["load"] = round(seconds(lambda: ds.load(path).close(), limit), 6)
        row["megabytes"] = round(path.stat().st_size / 1e6, 2)
    except ds.DreamStreamError as error:  # a limit
        row["refused"] = str(error)
    return row


def text(r: dict[str, Any]) -> str:
    if "refused" in r:
        return f"| {r['model']} | {r['size']} | – | refused | {r['refused'][:100]} |"
    return f"| {r['model']} | {r['size']} | {r['megabytes']:.2f} | {r['compile']:.3f} | {r['load']:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--sizes", type=int, nargs="+", help="instead of each model's own")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds; no larger size is tried then (20)")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    tell = (lambda *_: None) if args.json else print
    for line in machine(f"python {shlex.join(sys.argv)}"):
        tell(line)
    tell(f"tree      {Path(ds.__file__).parents[1]}\n")
    tell("| model | layers | file, MB | compile, s | load, s |\n|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            for n in args.sizes or MODELS[name][2]:
                row = measure(name, n, args.limit, Path(folder))
                print(json.dumps(row) if args.json else text(row), flush=True)
                if "refused" in row or row["compile"] > args.limit:
                    break


if __name__ == "__main__":
    main()
