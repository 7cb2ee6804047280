"""Streaming networks in our engine and in what users would pick: PyTorch, ONNX Runtime, OpenVINO.

Usage: python benchmarks/models.py [--networks conv lstm silero] [--threads N] [--json]; needs torch and, for the
columns of the others, `pip install .[bench]`. What is not installed is left out, with a line that says so.

- conv: 8 causal convolutions (256 channels, kernel 5) with ReLU and residuals on 80 features at 100 Hz, in
  chunks of 16 frames; 2.4 M weights;
- lstm: nn.LSTM(640, 640, num_layers=5), one frame of 40 ms per step; 16.4 M weights;
- silero: models.SileroVAD, 16 kHz, a window of 512 samples per step; 0.3 M;
- u2: models.U2Encoder, a causal Conformer of 12 layers of 256 on 80 features at 100 Hz, under a chunk mask of 16
  frames of 40 ms with four chunks on the left, a chunk per step; 33 M.

One step of n streams, in mid-stream, float32, with as many threads for each. Ours is ``engine.step({id: chunk,
...})``, and ``engine.step_batch`` where there is one: it keeps the streams' states, and gives their outputs one by
one. The others run one function (x, states) -> (y, states), the same module for all three, each in the way that
costs it least: torch in inference mode, its convolutions also with channels last, its LSTM also without oneDNN;
the others from ONNX as torch exports it, with all arrays bound beforehand (ONNX Runtime's IOBinding, OpenVINO's
tensors in shared memory, hint LATENCY), so that nothing is copied by their bindings for Python, states going to
and fro between two sets of arrays; OpenVINO also with states as its variables. They get all chunks already in one
batch, and their states lie in one batch from step to step; what a server does to gather and scatter the states of
streams that come and go isn't counted. Each is also run stream by stream, batch 1, with one copy of the weights.
The fastest way counts, by its median, and is named. All outputs are compared before anything is timed.

All take turns, of 20 ms or three steps. A figure is the CPU time of the process (--wall: the clock on the wall),
as the median of the steps, with the 10th and 90th percentile. Streams per core: streams x duration of a step's
audio / median, which with one thread is also audio seconds per CPU second.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import copy
import importlib.util
import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import u2_step
from machine import kernels, machine
from networks import NETWORKS
from peers import ConvStep, LSTMStep, SileroStep, Step, peers
from u2_step import U2Step

import dreamstream as ds

TURN = 0.02  # seconds of one variant before the next has its turn; three steps at least


class Setting(NamedTuple):
    twin: Callable[[], Any]
    frames: int  # in a chunk
    streams: tuple[int, ...]
    before: int = 0  # input frames, zeros, that streams begin with, so that a chunk's outputs leave with it


SETTINGS = {
    "conv": Setting(ConvStep, 16, (1, 32)),
    "lstm": Setting(LSTMStep, 1, (1, 32)),
    "silero": Setting(SileroStep, 1, (1, 100)),
    "u2": Setting(U2Step, u2_step.CHUNK, (1, 8, 32), u2_step.BEFORE),
}


def seconds_of(name: str) -> float:
    """Of one chunk."""
    return SETTINGS[name].frames * NETWORKS[name].unit / NETWORKS[name].rate


def ours(name: str, model: Any, n: int, threads: int) -> Iterator[tuple[str, Step]]:
    network = NETWORKS[name]
    engine = ds.compile(model, network.spec, rate=network.rate, threads=threads)
    ids = [f"stream-{i}" for i in range(n)]
    shape = (SETTINGS[name].before if d == "L" else d for d in network.spec[1:])
    zeros = dict.fromkeys(ids, np.zeros([*shape], np.float32))
    engine.step(zeros, sos=ids)

    def step(x: np.ndarray) -> list[np.ndarray]:
        return list(engine.step(dict(zip(ids, x))).values())

    yield "step", step
    if hasattr(engine, "step_batch"):
        other = copy.copy(engine)
        other.step(zeros, sos=ids)
        yield "step_batch", lambda x: other.step_batch(ids, x)[0]


# ---------------------------------------------------------------------- measuring
Steps = dict[tuple[str, str], Step]  # by engine and way


def ways_to_run(name: str, n: int, engines: list[str], threads: int) -> tuple[Steps, np.ndarray]:
    """All variants by engine and way, each with fresh state, after some steps in which they agreed; a chunk."""
    network = NETWORKS[name]
    model, twin = network.model(), SETTINGS[name].twin().eval()
    weights = {k: torch.from_numpy(v.numpy().copy()) for k, v in model.state_dict().items()}
    known = twin.state_dict()  # Silero's lstm_cell.weight_ih is an LSTM's weight_ih_l0 here
    twin.load_state_dict({k if k in known else k.removesuffix("_l0"): v for k, v in weights.items()})
    rng = np.random.default_rng(0)
    chunks = [rng.standard_normal((n, *network.chunk(SETTINGS[name].frames)), dtype=np.float32) for _ in range(4)]
    steps = {("dreamstream", way): step for way, step in ours(name, model, n, threads)}
    for engine in engines:
        steps |= {(engine, way): step for way, step in peers(engine, twin, chunks[0], threads)}
    for x in chunks:
        expected = np.array(steps["dreamstream", "step"](x))
        for (engine, way), step in steps.items():
            if (engine, way) != ("dreamstream", "step"):
                gap = np.abs(np.asarray(step(x)).reshape(expected.shape) - expected).max()
                assert gap < 1e-4, f"{name}: {engine}, {way} differs by {gap:.1e}"
    return steps, chunks[0]


def measure(name: str, n: int, engines: list[str], args: argparse.Namespace) -> dict[tuple[str, str], np.ndarray]:
    """Milliseconds of every step of every variant."""
    clock = time.perf_counter if args.wall else time.process_time
    steps, x = ways_to_run(name, n, engines, args.threads)
    times: dict[tuple[str, str], list[float]] = {variant: [] for variant in steps}
    stop = time.perf_counter() + args.seconds
    rounds = 0
    while time.perf_counter() < stop or rounds < 3:
        rounds += 1
        for variant, step in steps.items():
            step(x)  # what others left in the caches is not its own
            turn, end = 0, time.perf_counter() + TURN
            while turn < 3 or time.perf_counter() < end:
                begin = clock()
                step(x)
                times[variant].append(1000 * (clock() - begin))
                turn += 1
    return {variant: np.array(t) for variant, t in times.items()}


def summary(name: str, n: int, times: dict[tuple[str, str], np.ndarray]) -> dict[str, Any]:
    """One row: per engine its best way."""
    row: dict[str, Any] = {"network": name, "streams": n, "engines": {}}
    for engine in dict.fromkeys(engine for engine, _ in times):
        ways = {way: t for (which, way), t in times.items() if which == engine}
        best = min(ways, key=lambda way: float(np.median(ways[way])))
        low, middle, high = np.percentile(ways[best], [10, 50, 90])
        row["engines"][engine] = {
            "way": best,
            "ms": [round(float(t), 4) for t in (low, middle, high)],
            "streams_per_core": round(n * seconds_of(name) * 1000 / float(middle), 1),
            "other_ways_ms": {way: round(float(np.median(t)), 4) for way, t in ways.items() if way != best},
        }
    return row


def text(row: dict[str, Any]) -> Iterator[str]:
    mine = row["engines"]["dreamstream"]["ms"][1]
    for engine, r in row["engines"].items():
        low, middle, high = r["ms"]
        others = "; ".join(f"{way} {ms:.3f}" for way, ms in r["other_ways_ms"].items())
        yield (
            f"| {row['network']} | {row['streams']} | {engine} | {middle:.3f} ({low:.3f}–{high:.3f}) "
            f"| {r['way']} | {others} | {r['streams_per_core']:.0f} | {middle / mine:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--streams", type=int, nargs="+", help="instead of each network's own numbers")
    parser.add_argument("--seconds", type=float, default=20.0, help="per network and number of streams (20)")
    parser.add_argument("--threads", type=int, default=1, help="of each engine; above 1 it is --wall (1)")
    parser.add_argument("--wall", action="store_true", help="the clock on the wall, not CPU time")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    args.wall |= args.threads > 1
    tell = (lambda *_: None) if args.json else print
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", message="TF32")
    if importlib.util.find_spec("openvino"):
        import openvino  # noqa: F401 - its import is not to be timed
    engines = ["torch"]
    for line in machine(f"python {shlex.join(sys.argv)}", ("numpy", "torch", "onnx", "onnxruntime", "openvino")):
        tell(line)
    tell(kernels())
    tell(f"times     {'clock on the wall' if args.wall else 'CPU time of the process'}")
    tell(f"threads   {args.threads} each")
    for engine in ("onnxruntime", "openvino"):
        if importlib.util.find_spec("onnx") and importlib.util.find_spec(engine):
            engines.append(engine)
        else:
            tell(f"missing   {engine}: it needs `pip install onnx {engine}`")
    tell(
        "\n| network | streams | engine | ms per step | way | other ways, ms | streams per core | ÷ ours |"
        "\n|---|--:|---|--:|---|---|--:|--:|"
    )
    with torch.inference_mode():
        for name in args.networks:
            for n in args.streams or SETTINGS[name].streams:
                row = summary(name, n, measure(name, n, engines, args))
                print(json.dumps(row) if args.json else "\n".join(text(row)), flush=True)


if __name__ == "__main__":
    main()
