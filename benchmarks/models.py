"""Streaming networks in our engine and in what users would pick: PyTorch, ONNX Runtime, OpenVINO.

Usage: python benchmarks/models.py [--networks conv lstm ...] [--formats fp32 bf16 int8] [--engines torch ...]
[--threads N] [--json] [--plot FILE]; needs torch and, for the others, `pip install .[bench]`. What is not
installed is left out, with a line that says so.

- conv: 8 causal convolutions (256 channels, kernel 5) with ReLU and residuals on 80 features at 100 Hz, in
  chunks of 16 frames; 2.4 M weights;
- lstm: nn.LSTM(640, 640, num_layers=5), one frame of 40 ms per step; 16.4 M weights;
- lstm-2x512: nn.LSTM(512, 512, num_layers=2), 25 frames per step; 4.2 M;
- silero: models.SileroVAD, 16 kHz, a window of 512 samples per step; 0.3 M;
- small: four causal convolutions of 64 channels and a GRU of 64, one frame of 10 ms per step; 0.1 M;
- u2: models.U2Encoder, a causal Conformer of 12 layers of 256 on 80 features at 100 Hz, under a chunk mask of 16
  frames of 40 ms with four chunks on the left, a chunk per step; 33 M.

moe.py has the mixture of experts.

One step of n streams, in mid-stream, with as many threads for each. Ours is ``engine.step({id: chunk, ...})``,
and ``engine.step_batch``: it keeps the streams' states, and gives their outputs one by one. The others run one
function (x, states) -> (y, states), the same module for all three, each in the way that costs it least: torch
in inference mode, its convolutions also with channels last, its recurrences also without oneDNN, and compiled
("torch.compile", with frozen weights); the others from ONNX as torch exports it, with all arrays bound
beforehand (ONNX Runtime's IOBinding, OpenVINO's tensors in shared memory, hint LATENCY), so that nothing is
copied by their bindings for Python, states going to and fro between two sets of arrays; OpenVINO also with
states as its variables. They get all chunks already in one batch, and their states lie in one batch from step
to step; what a server does to gather and scatter the states of streams that come and go isn't counted. In fp32
each is also run stream by stream, batch 1, with one copy of the weights. The fastest way counts, by its median,
and is named.

Formats: "bf16" and "int8" of ours are ``products=``, of the others what peers.py says; "fp16 weights" and the
like are ``weights=``, products in fp32, which no other has. All outputs are compared before anything is timed:
fp32 within 1e-4 of ours; for the rest the table says how far they are from ours in fp32 (the root of the mean
square, relative).

The bound is what reading the weights would take, from wherever so many bytes stay, or the operations of large
products of that format, whichever is longer: both as measured just before, on one thread.

All take turns, of 20 ms or three steps. A figure is the CPU time of the process (--wall: the clock on the
wall), as the median of the steps, with the 10th and 90th percentile. Streams per core: streams x duration of a
step's audio / median, which with one thread is also audio seconds per CPU second.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DREAMSTREAM_THREADS="1")
os.environ.setdefault("TORCHINDUCTOR_FREEZING", "1")

import argparse
import copy
import functools
import importlib.util
import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import u2_step
from machine import arithmetic, bandwidth, kernels, machine
from networks import FORMATS as OURS, NETWORKS
from peers import FORMATS as THEIRS, ConvStep, LSTMStep, SileroStep, SmallStep, Step, peers
from torch.utils.flop_counter import FlopCounterMode
from u2_step import U2Step

import dreamstream as ds

SHARED = ("fp32", "bf16", "int8")  # formats that others have, too
TURN = 0.02  # seconds of one variant before the next has its turn; three steps at least
OWN = "dreamstream"


class Setting(NamedTuple):
    twin: Callable[[], Any]
    frames: int  # in a chunk
    streams: tuple[int, ...] = (1, 8, 32, 128)
    before: int = 0  # input frames, zeros, that streams begin with, so that a chunk's outputs leave with it


SETTINGS = {
    "conv": Setting(ConvStep, 16),
    "lstm": Setting(LSTMStep, 1),
    "lstm-2x512": Setting(functools.partial(LSTMStep, 512, 2), 25),
    "silero": Setting(SileroStep, 1),
    "small": Setting(SmallStep, 1),
    "u2": Setting(U2Step, u2_step.CHUNK, (1, 8, 32), u2_step.BEFORE),
}


def seconds_of(name: str) -> float:
    """Of one chunk."""
    return SETTINGS[name].frames * NETWORKS[name].unit / NETWORKS[name].rate


def compiled(name: str, model: Any, fmt: str, threads: int) -> ds.Engine:
    network = NETWORKS[name]
    return ds.compile(model, network.spec, rate=network.rate, threads=threads, **OURS[fmt])


def ours(name: str, engine: ds.Engine, n: int) -> Iterator[tuple[str, Step]]:
    network = NETWORKS[name]
    ids = [f"stream-{i}" for i in range(n)]
    shape = (SETTINGS[name].before if d == "L" else d for d in network.spec[1:])
    zeros = dict.fromkeys(ids, np.zeros([*shape], np.float32))
    engine.step(zeros, sos=ids)

    def step(x: np.ndarray) -> list[np.ndarray]:
        return list(engine.step(dict(zip(ids, x))).values())

    yield "step", step
    other = copy.copy(engine)
    other.step(zeros, sos=ids)
    yield "step_batch", lambda x: other.step_batch(ids, x)[0]


# ---------------------------------------------------------------------- measuring
class Variant(NamedTuple):
    engine: str
    fmt: str
    way: str


class Case:
    """A network and a number of streams: all variants, in mid-stream, after some steps in which they agreed."""

    def __init__(self, name: str, n: int, args: argparse.Namespace) -> None:
        network = NETWORKS[name]
        model, twin = network.model(), SETTINGS[name].twin().eval()
        weights = {k: torch.from_numpy(v.numpy().copy()) for k, v in model.state_dict().items()}
        known = twin.state_dict()  # Silero's lstm_cell.weight_ih is an LSTM's weight_ih_l0 here
        twin.load_state_dict({k if k in known else k.removesuffix("_l0"): v for k, v in weights.items()})
        rng = np.random.default_rng(0)
        chunks = [
            rng.standard_normal((n, *network.chunk(SETTINGS[name].frames)), dtype=np.float32) for _ in range(4)
        ]
        self.name, self.n, self.x = name, n, chunks[0]
        self.steps: dict[Variant, Step] = {}
        self.bounds: dict[str, float] = {}  # milliseconds, by format
        self.weights: dict[str, int] = {}  # bytes that ours holds
        operations = count(twin, chunks[0])
        for fmt in args.formats:
            engine = compiled(name, model, fmt, args.threads)
            self.weights[fmt] = size = engine.weights_size
            self.bounds[fmt] = 1000 * max(
                size / bandwidth(size), operations / peak(fmt if fmt in SHARED else "fp32")
            )
            self.steps |= {Variant(OWN, fmt, way): step for way, step in ours(name, engine, n)}
            for other in args.engines:
                if fmt in THEIRS[other]:
                    made = peers(other, fmt, twin, chunks[0], args.threads)
                    self.steps |= {Variant(other, fmt, way): step for way, step in made}
        squares = {variant: np.zeros(2) for variant in self.steps}
        for x in chunks:
            right = np.array(self.steps[Variant(OWN, args.formats[0], "step")](x))
            for variant, step in self.steps.items():
                if variant != Variant(OWN, args.formats[0], "step"):
                    gap = np.asarray(step(x)).reshape(right.shape) - right
                    squares[variant] += [(gap**2).sum(), (right**2).sum()]
                    assert variant.fmt != "fp32" or np.abs(gap).max() < 1e-4, f"{name}: {variant} differs"
        self.errors = {variant: float((a / max(b, 1e-30)) ** 0.5) for variant, (a, b) in squares.items()}

    def measure(self, args: argparse.Namespace) -> dict[Variant, np.ndarray]:
        """Milliseconds of every step of every variant."""
        clock = time.perf_counter if args.wall else time.process_time
        times: dict[Variant, list[float]] = {variant: [] for variant in self.steps}
        stop = time.perf_counter() + args.seconds
        rounds = 0
        while time.perf_counter() < stop or rounds < 3:
            rounds += 1
            for variant, step in self.steps.items():
                step(self.x)  # what others left in the caches is not its own
                turn, end = 0, time.perf_counter() + TURN
                while turn < 3 or time.perf_counter() < end:
                    begin = clock()
                    step(self.x)
                    times[variant].append(1000 * (clock() - begin))
                    turn += 1
        return {variant: np.array(t) for variant, t in times.items()}


def count(twin: Any, x: np.ndarray) -> float:
    """Operations of a step's products."""
    with FlopCounterMode(display=False) as counter, torch.backends.mkldnn.flags(enabled=False):
        twin(torch.from_numpy(x), *twin.states(len(x)))
    return float(counter.get_total_flops())


@functools.cache
def peak(fmt: str) -> float:
    return arithmetic(fmt)


def summary(case: Case, times: dict[Variant, np.ndarray]) -> dict[str, Any]:
    """One row: per engine and format its best way."""
    row: dict[str, Any] = {"network": case.name, "streams": case.n, "weights_size": case.weights, "engines": {}}
    for engine, fmt in dict.fromkeys(variant[:2] for variant in times):
        ways = {variant: t for variant, t in times.items() if variant[:2] == (engine, fmt)}
        best = min(ways, key=lambda variant: float(np.median(ways[variant])))
        low, middle, high = np.percentile(ways[best], [10, 50, 90])
        row["engines"].setdefault(engine, {})[fmt] = {
            "way": best.way,
            "ms": [round(float(t), 4) for t in (low, middle, high)],
            "error": case.errors[best],
            "of_the_bound": case.bounds[fmt] / float(middle),
            "streams_per_core": round(case.n * seconds_of(case.name) * 1000 / float(middle), 1),
            "other_ways_ms": {v.way: round(float(np.median(t)), 4) for v, t in ways.items() if v != best},
        }
    return row


HEAD = (
    "\n| network | streams | format | engine | ms per step | way | other ways, ms | error | of the bound "
    "| streams per core | ÷ ours |\n|---|--:|---|---|--:|---|---|--:|--:|--:|--:|"
)


def text(row: dict[str, Any], formats: list[str]) -> Iterator[str]:
    for fmt in formats:
        mine = row["engines"][OWN][fmt]["ms"][1]
        for engine, of in row["engines"].items():
            if fmt not in of:
                continue
            r = of[fmt]
            low, middle, high = r["ms"]
            others = "; ".join(f"{way} {ms:.3f}" for way, ms in r["other_ways_ms"].items())
            yield (
                f"| {row['network']} | {row['streams']} | {fmt} | {engine} | {middle:.3f} ({low:.3f}–{high:.3f}) "
                f"| {r['way']} | {others} | {r['error']:.1e} | {100 * r['of_the_bound']:.0f} % "
                f"| {r['streams_per_core']:.0f} | {middle / mine:.2f} |"
            )


def least(row: dict[str, Any], formats: list[str], own: bool) -> tuple[float, str]:
    """The fastest of ours, or of all others: milliseconds, and which."""
    found = [
        (r["ms"][1], fmt if own else f"{engine} {fmt}")
        for engine, of in row["engines"].items()
        for fmt, r in of.items()
        if (engine == OWN) == own and fmt in formats
    ]
    return min(found, default=(float("nan"), "none"))


def ratios(row: dict[str, Any], formats: list[str]) -> str:
    """Ours, and how many times longer the best of the others takes, in each format and in any; weights alone."""
    cells = [row["network"], row["streams"]]
    for group in [*([fmt] for fmt in SHARED if fmt in formats), formats]:
        (mine, which), (other, whose) = least(row, group, True), least(row, group, False)
        whose = f"{which} to {whose}" if len(group) > 1 else whose.split()[0]
        cells.append(f"{mine:.3f} ms, {other / mine:.2f} ({whose})")
    mine = row["engines"][OWN]
    cells += [f"{mine['fp32']['ms'][1] / mine[fmt]['ms'][1]:.2f}" for fmt in formats if fmt not in SHARED]
    return f"| {' | '.join(map(str, cells))} |"


def picture(rows: list[dict[str, Any]], formats: list[str], path: Path) -> None:
    """How many times longer each engine takes than ours, format by format."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    formats = [fmt for fmt in formats if fmt in SHARED]
    figure, axes = plt.subplots(len(formats), 1, figsize=(11, 2.6 * len(formats)), squeeze=False, sharex=True)
    engines = [engine for engine in rows[0]["engines"] if engine != OWN]
    for fmt, axis in zip(formats, axes[:, 0]):
        for k, engine in enumerate(engines):
            of = [row["engines"].get(engine, {}).get(fmt) for row in rows]
            own = [row["engines"][OWN][fmt]["ms"][1] for row in rows]
            at = [i + (k - len(engines) / 2 + 0.5) * 0.8 / len(engines) for i in range(len(rows))]
            high = [r["ms"][1] / mine if r else np.nan for r, mine in zip(of, own)]
            axis.bar(at, high, 0.8 / len(engines), label=engine)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_yscale("log")
        axis.set_ylabel(f"{fmt}: time ÷ ours")
    axes[0, 0].legend(ncols=4, fontsize="small")
    axes[-1, 0].set_xticks(range(len(rows)), [str(row["streams"]) for row in rows], fontsize="small")
    below = axes[-1, 0].get_xaxis_transform()
    for name in dict.fromkeys(row["network"] for row in rows):
        of = [i for i, row in enumerate(rows) if row["network"] == name]
        axes[-1, 0].text(
            sum(of) / len(of), -0.2, f"{name}, streams", transform=below, ha="center", fontsize="small"
        )
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--streams", type=int, nargs="+", help="instead of each network's own numbers")
    parser.add_argument("--formats", nargs="+", choices=list(OURS), default=list(OURS))
    parser.add_argument("--engines", nargs="*", choices=list(THEIRS), default=list(THEIRS), help="beside ours")
    parser.add_argument("--seconds", type=float, default=20.0, help="per network and number of streams (20)")
    parser.add_argument("--threads", type=int, default=1, help="of each engine; above 1 it is --wall (1)")
    parser.add_argument("--wall", action="store_true", help="the clock on the wall, not CPU time")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the tables")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios; needs matplotlib")
    args = parser.parse_args()
    args.wall |= args.threads > 1
    args.formats = list(dict.fromkeys(["fp32", *args.formats]))
    tell = (lambda *_: None) if args.json else print
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore")
    if importlib.util.find_spec("openvino"):
        import openvino  # noqa: F401 - its import is not to be timed
    packages = ("numpy", "torch", "onnx", "onnxruntime", "openvino", "nncf")
    for line in machine(f"python {shlex.join(sys.argv)}", packages):
        tell(line)
    tell(kernels())
    tell(f"times     {'clock on the wall' if args.wall else 'CPU time of the process'}")
    tell(f"threads   {args.threads} each")
    for engine in ("onnxruntime", "openvino"):
        if engine in args.engines and not (importlib.util.find_spec("onnx") and importlib.util.find_spec(engine)):
            args.engines.remove(engine)
            tell(f"missing   {engine}: it needs `pip install onnx {engine}`")
    if not importlib.util.find_spec("nncf"):
        THEIRS["openvino"] = ("fp32", "bf16")
        tell("missing   nncf: OpenVINO in int8 needs `pip install nncf`")
    tell(HEAD)
    rows = []
    with torch.inference_mode():
        for name in args.networks:
            for n in args.streams or SETTINGS[name].streams:
                case = Case(name, n, args)
                rows.append(summary(case, case.measure(args)))
                torch.compiler.reset()
                print(json.dumps(rows[-1]) if args.json else "\n".join(text(rows[-1], args.formats)), flush=True)
    alone = [f"{fmt}: fp32 ÷" for fmt in args.formats if fmt not in SHARED]
    heads = [*(fmt for fmt in SHARED if fmt in args.formats), "any", *alone]
    tell("\nOurs, and the best of the others ÷ ours; of weights alone how much faster than fp32 we are:\n")
    tell(f"| network | streams | {' | '.join(heads)} |")
    tell("|---|--:" + "|---" * len(heads) + "|")
    for row in rows:
        tell(ratios(row, args.formats))
    if args.plot:
        picture(rows, args.formats, args.plot)


if __name__ == "__main__":
    main()
