"""What a call of a patched module costs in Python: calls of functions, and time beside the bare module's.

Usage: python benchmarks/patched.py [--before FOLDER] [--rounds N] [--json]; needs torch.

For the native front end and torch's, one stream, ten frames, one thread, in mid-stream:

- one Conv1d(64, 64, 5): how many Python functions a warm call runs, and in how many files;
- `tcn`, 40 operations (eight times: padding, a dilated convolution of 64 channels, ReLU, a 1x1 convolution, a
  residual): milliseconds of a patched call, the same by the tree in `--before` (built in place), by processes that
  take turns, and with torch of the bare module on the same frames, which forgets what came before them.

Times are the least of the rounds of 50 calls, and the median of the rounds' medians.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

ROOT = Path(__file__).resolve().parent.parent
CHANNELS, FRAMES, TURN = 64, 10, 50


def tcn(nn: Any, functional: Any, layers: int = 8) -> Any:
    """A causal convolutional network, of either library."""

    class Tcn(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.ModuleList([nn.Conv1d(CHANNELS, CHANNELS, 3, dilation=2**i) for i in range(layers)])
            self.b = nn.ModuleList([nn.Conv1d(CHANNELS, CHANNELS, 1) for _ in range(layers)])

        def forward(self, x: Any) -> Any:
            for i, (a, b) in enumerate(zip(self.a, self.b)):
                x = x + b(functional.relu(a(functional.pad(x, (2 ** (i + 1), 0)))))
            return x

    return Tcn()


def front(name: str) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Layers, functions, and what makes a tensor of an array."""
    import dreamstream as ds

    if name == "native":
        return ds.nn, ds.nn.functional, lambda array: array
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    return torch.nn, torch.nn.functional, torch.from_numpy


def patched(model: Any, tensor: Callable[[Any], Any]) -> Callable[[], Any]:
    """Patch a module, bring it into mid-stream, and return a call's input."""
    import dreamstream as ds

    ds.patch_module(model.eval()).online()
    frames = np.random.default_rng(0).standard_normal((CHANNELS, FRAMES), dtype=np.float32)

    def chunk(sos: bool = False) -> Any:
        return ds.stream_tensor([tensor(frames)], ids=["a"], sos=sos)

    model(chunk(True))
    for _ in range(3):
        model(chunk())
    return chunk


def count(name: str) -> dict[str, Any]:
    """Python functions that one warm call of a convolution runs."""
    nn, _, tensor = front(name)
    model = nn.Conv1d(CHANNELS, CHANNELS, 5)
    x = patched(model, tensor)()
    seen: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_filename)

    sys.setprofile(note)
    model(x)
    sys.setprofile(None)
    return {"front": name, "calls": len(seen), "files": len(set(seen))}


def worker(name: str) -> None:
    """Time turns of calls as lines come in; a line out is the least and the median, in milliseconds."""
    nn, functional, tensor = front(name.removeprefix("bare "))
    model = tcn(nn, functional)
    if name.startswith("bare"):
        model.eval()
        frames = np.random.default_rng(0).standard_normal((1, CHANNELS, FRAMES), dtype=np.float32)
        chunk: Callable[[], Any] = lambda: tensor(frames)  # noqa: E731
    else:
        chunk = patched(model, tensor)
    print("ready", flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(TURN):
            x = chunk()
            start = time.perf_counter()
            model(x)
            times.append(time.perf_counter() - start)
        print(1e3 * min(times), 1e3 * float(np.median(times)), flush=True)


class Turns:
    """A process that times one variant when it is asked to."""

    def __init__(self, name: str, root: Path) -> None:
        path = os.pathsep.join([str(root), str(Path(__file__).parent)])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self.least: list[float] = []
        self.medians: list[float] = []
        self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a worker failed; see above")
        return line

    def turn(self) -> None:
        """Time some calls."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        least, median = map(float, self._line().split())
        self.least.append(least)
        self.medians.append(median)

    def figures(self) -> tuple[float, float]:
        """The least, and the median of medians, in milliseconds."""
        return min(self.least), float(np.median(self.medians))


def main() -> None:
    parser = argparse.ArgumentParser(description="What a call of a patched module costs in Python.")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    variants = {name: Turns(name, ROOT) for name in ("native", "torch", "bare torch")}
    if options.before:
        variants |= {f"{name} before": Turns(name, options.before) for name in ("native", "torch")}
    for _ in range(options.rounds):
        for variant in variants.values():
            variant.turn()
    found = {name: variant.figures() for name, variant in variants.items()}
    rows = []
    for name in ("native", "torch"):
        rows.append({**count(name), "least": found[name][0], "median": found[name][1]})
        if options.before:
            rows[-1]["before"] = found[f"{name} before"][0]
        if name == "torch":
            rows[-1]["bare"] = found["bare torch"][0]
    if options.json:
        for row in rows:
            print(json.dumps(row))
        return
    for line in machine(shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]), ("numpy", "torch")):
        print(line)
    print("\n| front end | calls | files | tcn, ms, least (median) | before, ms | ÷ before | bare, ms | ÷ bare |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        cells = [row["front"], row["calls"], row["files"], f"{row['least']:.2f} ({row['median']:.2f})"]
        for other in ("before", "bare"):
            known = row.get(other)
            cells += ["–", "–"] if known is None else [f"{known:.2f}", f"{row['least'] / known:.2f}"]
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
