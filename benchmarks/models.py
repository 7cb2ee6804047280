"""Streaming networks in our engine and in what users would pick: PyTorch, ONNX Runtime, OpenVINO.

Usage: python benchmarks/models.py [--networks conv lstm silero] [--json]; needs torch and, for the columns of the
others, `pip install .[bench]`. What is not installed is left out, with a line that says so.

- conv: 8 causal convolutions (256 channels, kernel 5) with ReLU and residuals on 80 features at 100 Hz, in
  chunks of 16 frames; 2.4 M weights;
- lstm: nn.LSTM(640, 640, num_layers=5), one frame of 40 ms per step; 16.4 M weights;
- silero: models.SileroVAD, 16 kHz, a window of 512 samples per step, with random weights; 0.3 M.

One step of n streams, in mid-stream, float32, one thread. Ours is ``engine.step({id: chunk, ...})``: it takes
the streams' chunks one by one, keeps their states, and gives their outputs one by one. The others run one
function (x, states) -> (y, states), the same module for all three: torch in eager mode without gradients, the
others from ONNX as torch exports it, OpenVINO with hint LATENCY. They get all chunks already in one batch, and
their states lie in one batch from step to step; what a server does to gather and scatter the states of streams
that come and go isn't counted. Each is also run stream by stream, batch 1, and torch's LSTM also without oneDNN;
the faster way counts, by its median, and is named. All outputs are compared before anything is timed.

All take turns, of 20 ms or three steps. A figure is the CPU time of the process (--wall: the clock on the wall),
as the median of the steps, with the 10th and 90th percentile. Streams per core: streams x duration of a step's
audio / median, which is also audio seconds per CPU second.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import importlib.util
import json
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from machine import kernels, machine

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn

LAYERS, CHANNELS, KERNEL, FEATURES = 8, 256, 5, 80
HIDDEN, DEPTH = 640, 5
WINDOW, CONTEXT = 512, 64
TURN = 0.02  # seconds of one variant before the next has its turn; three steps at least


# ---------------------------------------------------------------------- networks
class Conv(nn.Module):
    """(B, 80, L) -> (B, 256, L)."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [FEATURES, *[CHANNELS] * LAYERS]
        self.convs = nn.ModuleList([nn.Conv1d(a, CHANNELS, KERNEL, padding="causal") for a in sizes[:-1]])

    def forward(self, x: Any) -> Any:
        for i, conv in enumerate(self.convs):
            y = F.relu(conv(x))
            x = y if i == 0 else x + y
        return x


class ConvStep(torch.nn.Module):
    """Its twin: one step, with the last frames of every convolution's input as states."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [FEATURES, *[CHANNELS] * LAYERS]
        self.convs = torch.nn.ModuleList([torch.nn.Conv1d(a, CHANNELS, KERNEL) for a in sizes[:-1]])

    def states(self, n: int) -> list[torch.Tensor]:
        return [torch.zeros(n, conv.in_channels, KERNEL - 1) for conv in self.convs]

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = []
        for i, (conv, state) in enumerate(zip(self.convs, states)):
            joined = torch.cat([state, x], -1)
            kept.append(joined[..., -(KERNEL - 1) :])
            y = torch.relu(conv(joined))
            x = y if i == 0 else x + y
        return x, *kept


class LSTM(nn.Module):
    """(B, L, 640) -> (B, L, 640)."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(HIDDEN, HIDDEN, num_layers=DEPTH, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.rnn(x)[0]


class LSTMStep(torch.nn.Module):
    """Its twin."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = torch.nn.LSTM(HIDDEN, HIDDEN, num_layers=DEPTH, batch_first=True)

    def states(self, n: int) -> list[torch.Tensor]:
        return [torch.zeros(DEPTH, n, HIDDEN) for _ in range(2)]

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.rnn(x, (h, c))
        return y, h, c


class SileroStep(torch.nn.Module):
    """The twin of models.SileroVAD: (B, 512) -> (B, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = torch.nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = torch.nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = torch.nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = torch.nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = torch.nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = torch.nn.LSTMCell(128, 128)
        self.final_conv = torch.nn.Conv1d(128, 1, 1)

    def states(self, n: int) -> list[torch.Tensor]:
        return [torch.zeros(n, CONTEXT), torch.zeros(n, 128), torch.zeros(n, 128)]

    def forward(
        self, x: torch.Tensor, context: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        window = torch.nn.functional.pad(torch.cat([context, x], 1)[:, None], (0, 64), mode="reflect")
        spectrum = self.stft_conv(window)
        y = torch.sqrt(spectrum[:, :129].square() + spectrum[:, 129:].square())
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            y = torch.relu(conv(y))
        h, c = self.lstm_cell(y[..., 0], (h, c))
        y = torch.sigmoid(self.final_conv(torch.relu(h)[..., None]))
        return y[..., 0], x[:, -CONTEXT:], h, c


class Network(NamedTuple):
    make: Callable[[], Any]
    twin: Callable[[], Any]
    spec: tuple[Any, ...]
    rate: int
    chunk: tuple[int, ...]  # one stream's, in the order of the spec
    streams: tuple[int, ...]

    @property
    def seconds(self) -> float:
        return self.chunk[self.spec.index("L") - 1] / self.rate


def silero() -> Any:
    from dreamstream.models import SileroVAD

    return SileroVAD()


NETWORKS = {
    "conv": Network(Conv, ConvStep, ("B", FEATURES, "L"), 100, (FEATURES, 16), (1, 32)),
    "lstm": Network(LSTM, LSTMStep, ("B", "L", HIDDEN), 25, (1, HIDDEN), (1, 32)),
    "silero": Network(silero, SileroStep, ("B", "L"), 16000, (WINDOW,), (1, 100)),
}


# ---------------------------------------------------------------------- ways to run them
Step = Callable[[np.ndarray], Any]  # all streams' chunks -> all outputs: an array, or one per stream


def ours(network: Network, model: Any, n: int) -> Iterator[tuple[str, Step]]:
    engine = ds.compile(model, network.spec, rate=network.rate, threads=1)
    ids = [f"stream-{i}" for i in range(n)]
    engine.step({}, sos=ids)

    def step(x: np.ndarray) -> list[np.ndarray]:
        out = engine.step(dict(zip(ids, x)))
        return [out[name] for name in ids]

    yield "all at once", step


def by_torch(twin: Any, n: int, *, native: bool) -> Step:
    states = twin.states(n)

    def step(x: np.ndarray) -> np.ndarray:
        nonlocal states
        y, *states = twin(torch.from_numpy(x), *states)
        return y.numpy()

    def without_onednn(x: np.ndarray) -> np.ndarray:
        with torch.backends.mkldnn.flags(enabled=False):
            return step(x)

    return without_onednn if native else step


def by_onnxruntime(model: bytes, twin: Any, n: int) -> Step:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    states = [state.numpy() for state in twin.states(n)]

    def step(x: np.ndarray) -> np.ndarray:
        nonlocal states
        y, *states = session.run(None, dict(zip(names, [x, *states])))
        return y

    return step


def by_openvino(model: bytes, twin: Any, n: int) -> Step:
    import openvino

    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1,
               "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()
    request = core.compile_model(core.read_model(model), "CPU", options).create_infer_request()
    states = [state.numpy() for state in twin.states(n)]

    def step(x: np.ndarray) -> np.ndarray:
        nonlocal states
        y, *states = request.infer([x, *states], share_inputs=True).to_tuple()  # copies of its own
        return y

    return step


def exported(twin: Any, x: np.ndarray) -> bytes:
    """ONNX of the twin for a batch of this size."""
    states = twin.states(len(x))
    names = [f"state{i}" for i in range(len(states))]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "step.onnx"
        torch.onnx.export(twin, (torch.from_numpy(x), *states), str(path), dynamo=False, opset_version=17,
                          input_names=["x", *names], output_names=["y", *(f"new_{name}" for name in names)])
        return path.read_bytes()


def peers(engine: str, twin: Any, x: np.ndarray) -> Iterator[tuple[str, Step]]:
    """Its ways to run the twin: in a batch, one by one."""
    ways = [("batch", len(x))] + ([("one by one", 1)] if len(x) > 1 else [])
    for way, size in ways:
        if engine == "torch":
            makers = {way: lambda size=size: by_torch(twin, size, native=False)}
            if any(isinstance(module, torch.nn.LSTM) for module in twin.modules()):
                makers[f"{way}, no oneDNN"] = lambda size=size: by_torch(twin, size, native=True)
        else:
            run = {"onnxruntime": by_onnxruntime, "openvino": by_openvino}[engine]
            model = exported(twin, x[:size])
            makers = {way: lambda run=run, size=size, model=model: run(model, twin, size)}
        for name, make in makers.items():
            if size == len(x):
                yield name, make()
            else:
                steps = [make() for _ in x]
                yield name, lambda x, steps=steps: np.concatenate([s(x[i : i + 1]) for i, s in enumerate(steps)])


# ---------------------------------------------------------------------- measuring
def ways_to_run(name: str, n: int, engines: list[str]) -> dict[tuple[str, str], Step]:
    """All variants by engine and way, each with fresh state, after some steps in which they agreed."""
    network = NETWORKS[name]
    ds.manual_seed(0)
    model, twin = network.make().eval(), network.twin().eval()
    weights = {k: torch.from_numpy(v.numpy().copy()) for k, v in model.state_dict().items()}
    known = twin.state_dict()  # Silero's lstm_cell.weight_ih is an LSTM's weight_ih_l0 here
    twin.load_state_dict({k if k in known else k.removesuffix("_l0"): v for k, v in weights.items()})
    rng = np.random.default_rng(0)
    chunks = [rng.standard_normal((n, *network.chunk), dtype=np.float32) for _ in range(4)]
    steps = {("dreamstream", way): step for way, step in ours(network, model, n)}
    for engine in engines:
        steps |= {(engine, way): step for way, step in peers(engine, twin, chunks[0])}
    for x in chunks:
        expected = np.array(steps["dreamstream", "all at once"](x))
        for (engine, way), step in steps.items():
            if engine != "dreamstream":
                y = step(x).reshape(expected.shape)
                gap = np.abs(y - expected).max()
                assert gap < 1e-4, f"{name}: {engine}, {way} differs by {gap:.1e}"
    return steps


def measure(name: str, n: int, engines: list[str], args: argparse.Namespace) -> dict[tuple[str, str], np.ndarray]:
    """Milliseconds of every step of every variant."""
    clock = time.perf_counter if args.wall else time.process_time
    steps = ways_to_run(name, n, engines)
    x = np.random.default_rng(1).standard_normal((n, *NETWORKS[name].chunk), dtype=np.float32)
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
            "way": best, "ms": [round(float(t), 4) for t in (low, middle, high)],
            "streams_per_core": round(n * NETWORKS[name].seconds * 1000 / float(middle), 1),
            "other_ways_ms": {way: round(float(np.median(t)), 4) for way, t in ways.items() if way != best},
        }
    return row


def text(row: dict[str, Any]) -> Iterator[str]:
    mine = row["engines"]["dreamstream"]["ms"][1]
    for engine, r in row["engines"].items():
        low, middle, high = r["ms"]
        others = "; ".join(f"{way} {ms:.3f}" for way, ms in r["other_ways_ms"].items())
        yield (f"| {row['network']} | {row['streams']} | {engine} | {middle:.3f} ({low:.3f}–{high:.3f}) "
               f"| {r['way']} | {others} | {r['streams_per_core']:.0f} | {middle / mine:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--streams", type=int, nargs="+", help="instead of each network's own numbers")
    parser.add_argument("--seconds", type=float, default=20.0, help="per network and number of streams (20)")
    parser.add_argument("--wall", action="store_true", help="the clock on the wall, not CPU time")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    tell = (lambda *_: None) if args.json else print
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="TF32")
    if importlib.util.find_spec("openvino"):
        import openvino  # noqa: F401 - its import is not to be timed
    engines = ["torch"]
    for line in machine(f"python {shlex.join(sys.argv)}", ("numpy", "torch", "onnx", "onnxruntime", "openvino")):
        tell(line)
    tell(kernels())
    tell(f"times     {'clock on the wall' if args.wall else 'CPU time of the process'}; one thread each")
    for engine in ("onnxruntime", "openvino"):
        if importlib.util.find_spec("onnx") and importlib.util.find_spec(engine):
            engines.append(engine)
        else:
            tell(f"missing   {engine}: it needs `pip install onnx {engine}`")
    if "silero" in args.networks and not importlib.util.find_spec("dreamstream.models"):
        args.networks = [name for name in args.networks if name != "silero"]
        tell("missing   silero: this version has no dreamstream.models")
    tell("\n| network | streams | engine | ms per step | way | other ways, ms | streams per core | ÷ ours |"
         "\n|---|--:|---|--:|---|---|--:|--:|")
    with torch.inference_mode():
        for name in args.networks:
            for n in args.streams or NETWORKS[name].streams:
                row = summary(name, n, measure(name, n, engines, args))
                print(json.dumps(row) if args.json else "\n".join(text(row)), flush=True)


if __name__ == "__main__":
    main()
