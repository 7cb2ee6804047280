"""Step latency and streams per core: compiled engine, eager online module, and PyTorch chunk by chunk.

Usage: python benchmarks/step_latency.py [--seconds S] [--streams 1 8 32] [--networks audio tagger]; needs torch.

Two networks with non-causal convolutions and LSTMs: `audio`, that of `dreamstream demo` (0.35 M weights,
raw audio at 16 kHz), and `tagger` (5.3 M weights, 80 features at 100 Hz). Every variant gets equal chunks
of all streams in every step, in mid-stream, on one thread:

- compiled: ``engine.step({id: array, ...})``;
- eager: ``model(ds.stream_tensor([array, ...], ids=...))``;
- torch: the same layers of torch.nn in eager mode, with all state kept by hand (the last frames of every
  convolution's input, of every residual, h and c), one batch for all streams, made beforehand; the other two
  take a list of arrays, and the time includes making their batches;
- torch, native LSTM: the same with oneDNN switched off for the LSTM, which is faster for one stream in short
  chunks, and slower for much work at once.

Weights are equal, and all variants' outputs are compared with torch's offline output before anything is
timed. Variants take turns, a few steps each. Each runs on the calling thread alone; what is taken is that
thread's CPU time, which on a machine of one's own is the latency, and on a shared one is disturbed less than the
clock on the wall (--wall). A figure is the median of the steps, with the 10th and 90th percentile.
"Torch ÷ compiled" takes the faster of the two torch variants, and so do the streams per core: streams x
duration of a chunk / median.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from machine import kernels, machine
from networks import NETWORKS, STEP, WINDOW

import dreamstream as ds

TURN = 6  # steps of one variant before the next has its turn
CHUNKS = (10, 100)  # frames of 10 ms


# ---------------------------------------------------------------------- the same in torch
class Kept:
    """Frames of a tensor that later calls need."""

    def __init__(self, frames: torch.Tensor) -> None:
        self.frames = frames

    def append(self, x: torch.Tensor) -> torch.Tensor:
        self.frames = torch.cat([self.frames, x], -1)
        return self.frames

    def drop(self, n: int) -> None:
        self.frames = self.frames[..., n:]


class TorchConv:
    """A convolution with zero padding, chunk by chunk: output frame m needs input up to m s + k - 1 - p."""

    def __init__(self, conv: torch.nn.Conv1d, n_streams: int) -> None:
        self.conv, (self.stride,), (self.size,) = conv, conv.stride, conv.kernel_size
        self.padding = conv.padding[0]
        self.kept = Kept(torch.zeros(n_streams, conv.in_channels, self.padding))

    def __call__(self, x: torch.Tensor, end: bool) -> torch.Tensor:
        x = self.kept.append(torch.nn.functional.pad(x, (0, self.padding)) if end else x)
        n = (x.shape[-1] - self.size) // self.stride + 1
        if n <= 0:
            return x.new_zeros(len(x), self.conv.out_channels, 0)
        self.kept.drop(n * self.stride)
        return torch.nn.functional.conv1d(x, self.conv.weight, self.conv.bias, self.stride)


class TorchResidual:
    """x + relu(conv(x)): x waits for the convolution."""

    def __init__(self, conv: torch.nn.Conv1d, n_streams: int) -> None:
        self.conv = TorchConv(conv, n_streams)
        self.kept = Kept(torch.zeros(n_streams, conv.out_channels, 0))

    def __call__(self, x: torch.Tensor, end: bool) -> torch.Tensor:
        waiting = self.kept.append(x)
        y = torch.relu(self.conv(x, end))
        self.kept.drop(y.shape[-1])
        return waiting[..., : y.shape[-1]] + y


class TorchLSTM:
    """An LSTM with its state."""

    def __init__(self, rnn: torch.nn.LSTM, native: bool) -> None:
        self.rnn, self.native, self.state = rnn, native, None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not x.shape[1]:
            return x.new_zeros(len(x), 0, self.rnn.hidden_size)
        if self.native:
            with torch.backends.mkldnn.flags(enabled=False):
                y, self.state = self.rnn(x, self.state)
        else:
            y, self.state = self.rnn(x, self.state)
        return y


class TorchNetwork(torch.nn.Module):
    """What both networks' twins share: a forward for whole sequences, a step for chunks."""

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.head(x), -1)


class TorchTagger(TorchNetwork):
    """networks.Tagger."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(80, 512, 5, stride=2, padding=2)
        self.block = torch.nn.Conv1d(512, 512, 3, padding=1)
        self.rnn = torch.nn.LSTM(512, 512, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(512, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x))
        x = x + torch.relu(self.block(x))
        return self.scores(self.rnn(x.transpose(1, 2))[0])

    def stepper(self, n_streams: int, native: bool) -> Callable[..., torch.Tensor]:
        conv, block = TorchConv(self.conv, n_streams), TorchResidual(self.block, n_streams)
        rnn = TorchLSTM(self.rnn, native)

        def step(x: torch.Tensor, end: bool = False) -> torch.Tensor:
            x = block(torch.relu(conv(x, end)), end)
            return self.scores(rnn(x.transpose(1, 2)))

        return step


class TorchAudio(TorchNetwork):
    """networks.Audio."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = torch.nn.Linear(WINDOW, 128, bias=False)
        self.conv = torch.nn.Conv1d(64, 96, 5, padding=2)
        self.blocks = torch.nn.ModuleList([torch.nn.Conv1d(96, 96, 5, padding=2) for _ in range(2)])
        self.down = torch.nn.Conv1d(96, 128, 3, stride=2, padding=1)
        self.rnn = torch.nn.LSTM(128, 128, batch_first=True)
        self.head = torch.nn.Linear(128, 16)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = self.filters(x.unfold(1, WINDOW, STEP))
        power = x[..., :64].square() + x[..., 64:].square()
        return ((power + 1e-6).log() * 0.4 + 5.0).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(self.features(x)))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.scores(self.rnn(self.down(x).transpose(1, 2))[0])

    def stepper(self, n_streams: int, native: bool) -> Callable[..., torch.Tensor]:
        kept = Kept(torch.zeros(n_streams, 0))
        conv, down = TorchConv(self.conv, n_streams), TorchConv(self.down, n_streams)
        blocks = [TorchResidual(block, n_streams) for block in self.blocks]
        rnn = TorchLSTM(self.rnn, native)

        def step(x: torch.Tensor, end: bool = False) -> torch.Tensor:
            x = kept.append(x)
            n = max(0, (x.shape[-1] - WINDOW) // STEP + 1)
            kept.drop(n * STEP)
            x = self.features(x) if n else x.new_zeros(n_streams, 64, 0)
            x = torch.relu(conv(x, end))
            for block in blocks:
                x = block(x, end)
            return self.scores(rnn(down(x, end).transpose(1, 2)))

        return step


TWINS = {"audio": TorchAudio, "tagger": TorchTagger}


def make(name: str) -> tuple[Any, Any]:
    """Return a network and its twin with the same weights."""
    model, twin = NETWORKS[name].model(), TWINS[name]().eval()
    twin.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in model.state_dict().items()})
    return model, twin


# ---------------------------------------------------------------------- variants
Step = Callable[[Sequence[np.ndarray], bool], list[np.ndarray]]


def variants(name: str, model: Any, twin: Any, n_streams: int) -> dict[str, Step]:
    """Return functions of the streams' next chunks, each with fresh state, and of whether they end."""
    spec, rate = NETWORKS[name].spec, NETWORKS[name].rate
    ids = [f"stream-{i}" for i in range(n_streams)]
    engine = ds.compile(model, spec, rate=rate, threads=1)
    ds.patch_module(model).online()
    model.reset()
    begun = dict.fromkeys(("compiled", "eager"), False)

    def first(which: str) -> bool:
        sos, begun[which] = not begun[which], True
        return sos

    def compiled(chunks: Sequence[np.ndarray], end: bool) -> list[np.ndarray]:
        out = engine.step(dict(zip(ids, chunks)), sos=ids if first("compiled") else (), eos=ids if end else ())
        return list(out.values())

    def eager(chunks: Sequence[np.ndarray], end: bool) -> list[np.ndarray]:
        y = model(ds.stream_tensor(chunks, ids=ids, sos=first("eager"), eos=end))
        return [y[i].numpy() for i in ids]

    def of_torch(native: bool) -> Step:
        step = twin.stepper(n_streams, native)
        batches: dict[int, torch.Tensor] = {}

        def run(chunks: Sequence[np.ndarray], end: bool) -> list[np.ndarray]:
            if id(chunks) not in batches:  # the first time: not timed
                batches[id(chunks)] = torch.from_numpy(np.stack(chunks))
            return list(step(batches[id(chunks)], end).numpy())

        return run

    return {
        "compiled": compiled, "eager": eager, "torch": of_torch(False), "torch, native LSTM": of_torch(True)
    }  # fmt: skip


def check(name: str, rng: np.random.Generator) -> float:
    """Run all variants on three streams in uneven chunks; return their largest difference to offline."""
    model, twin = make(name)
    spec, unit = NETWORKS[name].spec, NETWORKS[name].unit
    shape = [3 if d == "B" else 233 * unit + unit // 2 if d == "L" else d for d in spec]
    whole = (0.1 * rng.standard_normal(shape)).astype(np.float32)
    expected = twin(torch.from_numpy(whole)).numpy()
    worst = 0.0
    cuts = [0, 1, 7, 30, 31, 130, 131, 200]
    stops = [*(c * unit for c in cuts[1:]), whole.shape[-1]]
    chunks = [[np.ascontiguousarray(w[..., a:b]) for w in whole] for a, b in zip([c * unit for c in cuts], stops)]
    for label, step in variants(name, model, twin, 3).items():
        parts = [step(c, c is chunks[-1]) for c in chunks]
        got = np.stack([np.concatenate([p[i] for p in parts]) for i in range(3)])
        assert got.shape == expected.shape, (name, label, got.shape, expected.shape)
        gap = float(np.abs(got - expected).max()) / max(1.0, float(np.abs(expected).max()))
        assert gap < 1e-4, (name, label, gap)
        worst = max(worst, gap)
    return worst


# ---------------------------------------------------------------------- timing
def measure(
    name: str, n_streams: int, n_frames: int, seconds: float, clock: Callable[[], float]
) -> dict[str, np.ndarray]:
    """Return each variant's step times in milliseconds."""
    rng = np.random.default_rng(0)
    shape = NETWORKS[name].chunk(n_frames)
    chunks = [(0.1 * rng.standard_normal(shape)).astype(np.float32) for _ in range(n_streams)]
    steps = variants(name, *make(name), n_streams)
    times: dict[str, list[float]] = {label: [] for label in steps}
    for step in steps.values():
        for _ in range(3):
            step(chunks, False)
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times["torch"]) < 3 * TURN:
        for label, step in steps.items():
            for _ in range(TURN):
                begin = clock()
                step(chunks, False)
                times[label].append(1000 * (clock() - begin))
    return {label: np.array(t) for label, t in times.items()}


def figure(times: np.ndarray) -> str:
    low, middle, high = np.percentile(times, [10, 50, 90])
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="per row of the table (2)")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--networks", nargs="+", choices=list(TWINS), default=list(TWINS))
    parser.add_argument("--wall", action="store_true", help="take the clock on the wall, not CPU time")
    args = parser.parse_args()
    clock = time.perf_counter if args.wall else time.thread_time
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="TF32")
    rng = np.random.default_rng(0)
    with torch.inference_mode():
        for line in machine(f"python {shlex.join(sys.argv)}", ("numpy", "torch")):
            print(line)
        print(kernels())
        print(f"threads   1 each (torch {torch.get_num_threads()})")
        print(f"times     {'clock on the wall' if args.wall else 'CPU time of the one thread'}")
        for name in args.networks:
            n_weights, gap = sum(p.numel() for p in make(name)[0].parameters()), check(name, rng)
            print(f"network   {name}: {n_weights:,} weights; outputs within {gap:.1e} of torch's offline")
        print()
        print(
            "| network | streams | chunk | compiled, ms | eager, ms | torch, ms | torch, native LSTM, ms "
            "| torch ÷ compiled | streams per core: compiled | eager | torch |"
        )
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
        for name in args.networks:
            for n_frames in CHUNKS:
                for n_streams in args.streams:
                    times = measure(name, n_streams, n_frames, args.seconds, clock)
                    compiled, eager, *both = (float(np.median(t)) for t in times.values())
                    capacity = [f"{n_streams * 10 * n_frames / m:.0f}" for m in (compiled, eager, min(both))]
                    row = [
                        name,
                        str(n_streams),
                        f"{n_frames * 10} ms",
                        *map(figure, times.values()),
                        f"{min(both) / compiled:.1f}",
                        *capacity,
                    ]
                    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
