"""What loading a model file costs, and what a stream does: CPU time, and memory by whom it is shared.

Usage: python benchmarks/loading.py [--mb 500] [--streams 10000] [--file FILE] [--compile]; Linux.

A model file of some hundred MB (a convolution, then linear layers of 2048 features) is written by one process and
loaded by others, each having imported the package before anything is measured:

- a process loads it and streams one frame;
- a second one does the same while the first is still there;
- that one then opens many streams, each with a first frame (its name and its place in Python's dict count, too).

With the reference kernels, which read weights where the file is mapped, and with those that are chosen here,
which make panels of them. Memory is what /proc/self/smaps_rollup says that the process has more than before: its
own (the pages written to: panels, states), and the file's, which are the same pages for all processes. The file
has just been written, so it is read from the system's cache.

--compile: what `compile` of U2 costs instead, in fp32, narrow and as "auto" chooses, with its comparison and
without: CPU seconds, and how much memory the process has more at most, each the least of three in turns.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault("DREAMSTREAM_THREADS", "1")

import numpy as np
from machine import machine

import dreamstream as ds
from dreamstream import nn

WIDTH, FEATURES, CLASSES = 2048, 80, 29
KERNELS = {"reference": {"DREAMSTREAM_ISA": "ref", "DREAMSTREAM_BLAS": "none"}, "chosen": {}}
GROUP = 100  # streams that one step opens


class Network(nn.Module):
    """80 features in, 29 scores out; mostly weights."""

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(FEATURES, WIDTH, 3, padding=1)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(n_layers)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        x = nn.functional.relu(self.conv(x)).transpose(1, 2)
        for layer in self.layers:
            x = nn.functional.relu(layer(x))
        return self.head(x)


# ---------------------------------------------------------------------- processes that are measured
def memory() -> dict[str, int]:
    """Bytes of this process: its own, of files, all, and all with each page divided by its users."""
    with open("/proc/self/smaps_rollup") as file:
        told = {line.split()[0][:-1]: line.split()[1] for line in file.readlines()[1:]}
    kilo = {name: int(value) for name, value in told.items()}
    own = kilo["Private_Dirty"] + kilo["Shared_Dirty"]
    parts = {"own": own, "file": kilo["Rss"] - own, "all": kilo["Rss"], "proportional": kilo["Pss"]}
    return {name: 1024 * value for name, value in parts.items()}


def growth(before: dict[str, int]) -> dict[str, int]:
    now = memory()
    return {name: now[name] - before[name] for name in now}


def write(path: str, megabytes: int) -> None:
    ds.manual_seed(1)
    n_layers = max(1, round(megabytes * 1e6 / (4 * WIDTH * WIDTH)))
    model = Network(n_layers).eval()
    ds.compile(model, ("B", FEATURES, "L"), rate=100, verify=False).save(path)


def open_streams(engine: ds.Engine, begin: int, end: int, frame: np.ndarray) -> None:
    """Give each its first frame, which they keep: none comes out before the second."""
    for i in range(begin, end, GROUP):
        ids = [f"stream {j}" for j in range(i, min(i + GROUP, end))]
        engine.step(dict.fromkeys(ids, frame[:, :1]), sos=ids)


def load(path: str, n_streams: int) -> None:
    """Print what is measured, a line at a time; go on when a line comes in."""
    warm = ds.compile(nn.Linear(2, 2).eval(), ("B", "L", 2), verify=False)
    warm.step({"a": np.zeros((1, 2), np.float32)}, sos=["a"])
    frame = np.random.default_rng(0).standard_normal((FEATURES, 2), dtype=np.float32)

    before = memory()
    cpu, wall = time.process_time(), time.perf_counter()
    engine = ds.load(path)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    told: dict[str, Any] = {"cpu": cpu, "wall": wall, "loaded": growth(before)}
    cpu = time.process_time()
    y = engine.step({"one": frame}, sos=["one"])["one"]
    told |= {"first": time.process_time() - cpu, "stepped": growth(before)}
    cpu = time.process_time()
    engine.step({"one": frame[:, :1]})
    told |= {"next": time.process_time() - cpu, "bits": hashlib.sha256(y.tobytes()).hexdigest()}
    told |= {"kernels": ds.config.config()["kernels"], "weights": engine.weights_size}
    print(json.dumps(told), flush=True)

    for line in sys.stdin:
        if line.strip() == "memory":
            told = growth(before)
        else:
            open_streams(engine, -GROUP, 0, frame)  # what a step of so many needs is there
            held = memory()
            open_streams(engine, 0, n_streams, frame)
            told = {**growth(held), "streams": len(engine.ids) - 1 - GROUP, "state": engine.state_size}
        print(json.dumps(told), flush=True)


def compile_costs() -> None:
    """Print a table of what compiling U2 takes, by how its weights are stored."""
    from networks import u2

    ways: dict[str, dict[str, Any]] = {
        "fp32": {}, "products int8": {"products": "int8"}, "weights int8": {"weights": "int8"},
        "products bf16": {"products": "bf16"}, "weights bf16": {"weights": "bf16"},
        "weights auto": {"weights": "auto"},
    }  # fmt: skip
    model = u2().eval()
    times: dict[tuple[str, bool], float] = {}
    most: dict[tuple[str, bool], float] = {}
    for _ in range(3):
        for name, how in ways.items():
            for verify in (True, False):
                ctypes.CDLL(None).malloc_trim(0)  # what is free goes back, so that taking it again counts
                before, cpu = resident("VmRSS"), time.process_time()
                with open("/proc/self/clear_refs", "w") as file:
                    file.write("5")  # the peak so far is forgotten
                engine = ds.compile(model, ("B", "L", 80), verify=verify, **how)
                cpu, peak = time.process_time() - cpu, resident("VmHWM") - before
                del engine
                times[name, verify] = min(cpu, times.get((name, verify), cpu))
                most[name, verify] = min(peak, most.get((name, verify), peak))
    print(f"weights   {sum(p.numpy().nbytes for p in model.parameters()) / 1e6:.0f} MB in fp32\n")
    print("| | CPU s | ÷ fp32 | peak, MB | verify=False: CPU s | ÷ fp32 | peak, MB |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name in ways:
        cells = [
            f"{times[name, v]:.3f} | {times[name, v] / times['fp32', v]:.2f} | {most[name, v]:.0f}"
            for v in (True, False)
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def resident(what: str) -> float:
    """Return a number of /proc/self/status in MB: VmRSS now, VmHWM the most so far."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(what + ":")) * 1024 / 1e6


# ---------------------------------------------------------------------- what starts them
class Process:
    """One of them."""

    def __init__(self, path: str, environment: dict[str, str], n_streams: int) -> None:
        command = [sys.executable, os.path.abspath(__file__), "--load", "--file", path]
        command += ["--streams", str(n_streams)]
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.told = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"loading.py: a process that loads ended with status {self.process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told

    def ask(self, question: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self._read()

    def end(self) -> None:
        self.process.communicate()


def measure(path: str, environment: dict[str, str], n_streams: int) -> dict[str, Any]:
    first = Process(path, environment, n_streams)
    second = Process(path, environment, n_streams)
    together = [process.ask("memory") for process in (first, second)]
    streams = second.ask("streams")
    first.end()
    second.end()
    if first.told["bits"] != second.told["bits"]:
        sys.exit("loading.py: two processes disagree")
    return {"first": first.told, "second": second.told, "together": together, "streams": streams}


def figures(name: str, r: dict[str, Any]) -> list[str]:
    """Rows of the table: the processes."""
    rows = []
    for i, which in enumerate(("first", "second")):
        p = r[which]
        numbers = [f"{p['cpu']:.2f}", f"{p['wall']:.2f}", f"{1e3 * p['first']:.0f}", f"{1e3 * p['next']:.0f}"]
        sizes = [p[when][whose] for when in ("loaded", "stepped") for whose in ("own", "file")]
        numbers += [f"{n_bytes / 1e6:.0f}" for n_bytes in (*sizes, r["together"][i]["proportional"])]
        rows.append(f"| {p['kernels']} | {which} | {' | '.join(numbers)} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=500, help="of weights in the file (500)")
    parser.add_argument("--streams", type=int, default=10000, help="streams to open (10000)")
    parser.add_argument("--file", help="a model file of an earlier run; or where to keep it")
    parser.add_argument("--json", action="store_true", help="one object per line instead of a table")
    parser.add_argument("--compile", action="store_true", help="what compiling a network costs instead")
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load or args.write:
        load(args.file, args.streams) if args.load else write(args.file, args.mb)
        return
    if args.compile:
        for line in machine(f"python {shlex.join(sys.argv)}", ("numpy",)):
            print(line)
        compile_costs()
        return
    with tempfile.TemporaryDirectory() as folder:
        path = args.file or os.path.join(folder, "large.dsm")
        if not os.path.exists(path):
            command = [sys.executable, os.path.abspath(__file__), "--write", "--mb", str(args.mb), "--file", path]
            subprocess.run(command, check=True)
        results = {name: measure(path, environment, args.streams) for name, environment in KERNELS.items()}
        n_bytes = os.path.getsize(path)
    if len({r["first"]["bits"] for r in results.values()}) != 1:
        sys.exit("loading.py: the kernels disagree")
    if args.json:
        for name, r in results.items():
            print(json.dumps({"kernels": name, "file": n_bytes, **r}))
        return
    for line in machine(f"python {shlex.join(sys.argv)}"):
        print(line)
    print(f"file      {n_bytes / 1e6:.0f} MB, in the system's cache; outputs of all have the same bits\n")
    print(
        "| kernels | process | load: CPU s | wall s | first step: CPU ms | second | loaded: own MB | file's MB "
        "| stepped: own MB | file's MB | both there: its share, MB |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, r in results.items():
        print("\n".join(figures(name, r)))
    print("\n| kernels | streams opened | own bytes per stream | state_size | of files, MB |")
    print("|---|--:|--:|--:|--:|")
    for r in results.values():
        s = r["streams"]
        print(
            f"| {r['first']['kernels']} | {s['streams']} | {s['own'] / s['streams']:.0f} | {s['state']} "
            f"| {s['file'] / 1e6:.1f} |"
        )


if __name__ == "__main__":
    main()
