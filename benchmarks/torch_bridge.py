"""What streaming costs a torch model: patched against bare, and compiled against torch eager and torch.compile.

Usage: python benchmarks/torch_bridge.py [--seconds S] [--streams 32] [--frames 10 32 100] [--no-compile]
[--reductions]

It needs torch. Two models of 5 million weights, `conv` (six convolutions, residuals, look-ahead) and `lstm` (three
layers of 512), and a small one, `tcn` (eight dilated layers of 64), get chunks of all streams in every step, in
mid-stream, on one thread:

- bare: the untouched module on the padded chunk ``(B, 80, T)``. It does less than it should: it knows nothing of
  the frames before the chunk, so that its answer at the edges is wrong; it is the floor of what torch can do;
- patched: ``ds.patch_module(model).online()`` on a StreamTensor of the same padded chunk, made beforehand;
- on engine: the same chunk with ``online(backend="engine")``;
- torch.compile: the bare module, compiled for exactly this shape;
- engine: ``ds.compile(model, ...)``, fed with arrays of this chunk, its answers taken as arrays.

"ragged" are rows of random lengths up to T: bare computes the padding too. Outputs of patched and engine are
compared with the module offline before anything is timed. Variants take turns; what is taken is CPU time of one
thread. A figure is the median of the steps in milliseconds, with the 10th and 90th percentile; "overhead" is
patched ÷ bare.

With ``--reductions``, instead: what reductions of L outside a forward cost, of as many rows as `--streams` says,
all of other lengths, of 8 features, against torch's of the padded tensor, which sees the padding.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import copy
import shlex
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from machine import kernels, machine
from torch import nn
from torch.nn import functional as F

import dreamstream as ds

TURN = 4
FEATURES = 80


class Conv(nn.Module):
    """Residual convolutions of 512 channels that look ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(FEATURES, 512, 5, padding=2)
        self.blocks = nn.ModuleList(nn.Conv1d(512, 512, 5, padding=2) for _ in range(4))
        self.head = nn.Conv1d(512, 64, 1)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.first(x))
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.head(x)


class Recurrent(nn.Module):
    """Three LSTM layers of 512."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(FEATURES, 512, 3, batch_first=True)
        self.head = nn.Linear(512, 64)

    def forward(self, x: Any) -> Any:
        return self.head(self.rnn(x.transpose(1, 2))[0]).transpose(1, 2)


class Dilated(nn.Module):
    """Eight causal dilated convolutions of 64 channels, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(FEATURES, 64, 1)
        self.wide = nn.ModuleList(nn.Conv1d(64, 64, 3, dilation=2**i) for i in range(8))
        self.narrow = nn.ModuleList(nn.Conv1d(64, 64, 1) for _ in range(8))

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for i, (wide, narrow) in enumerate(zip(self.wide, self.narrow)):
            x = x + narrow(F.relu(wide(F.pad(x, (2 ** (i + 1), 0)))))
        return x


MODELS = {"conv": Conv, "lstm": Recurrent, "tcn": Dilated}
Step = Callable[[], Any]


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def check(name: str) -> float:
    """Stream three rows in uneven chunks in every way; return the largest difference to offline."""
    model = make(name)
    whole = torch.randn(3, FEATURES, 90)
    want = model(whole)
    on_engine = ds.patch_module(copy.deepcopy(model)).online(backend="engine")
    ds.patch_module(model).online()
    engine = ds.compile(model, ("B", FEATURES, "L"), rate=100)
    ids, cuts, worst = ["a", "b", "c"], [0, 1, 20, 21, 90], 0.0
    got: list[list[Any]] = [[], [], []]
    for begin, end in zip(cuts, cuts[1:]):
        first, last = begin == 0, end == 90
        x = whole[..., begin:end]
        chunk = ds.stream_tensor(x, ids=ids, sos=first, eos=last)
        got[0].append(model(chunk)["c"])
        got[2].append(on_engine(chunk)["c"])
        flags = {"sos": ids if first else (), "eos": ids if last else ()}
        got[1].append(torch.from_numpy(engine.step(dict(zip(ids, x.numpy())), **flags)["c"]))
    for parts in got:
        y = torch.cat(parts, -1)
        assert y.shape == want[2].shape
        worst = max(worst, float((y - want[2]).abs().max() / want.abs().max().clamp(min=1)))
    assert worst < 1e-4, (name, worst)
    return worst


def variants(name: str, n_streams: int, n_frames: int, ragged: bool, compiled: bool) -> dict[str, Step]:
    """Return functions that run one step each, in mid-stream."""
    rng = np.random.default_rng(0)
    bare = make(name)
    patched = ds.patch_module(copy.deepcopy(bare)).online()
    on_engine = ds.patch_module(copy.deepcopy(bare)).online(backend="engine")
    engine = ds.compile(bare, ("B", FEATURES, "L"), rate=100, threads=1)
    ids = [f"stream-{i}" for i in range(n_streams)]
    lengths = rng.integers(1, n_frames + 1, n_streams) if ragged else np.full(n_streams, n_frames)
    lengths[0] = n_frames
    x = torch.randn(n_streams, FEATURES, n_frames)
    rows = {i: np.ascontiguousarray(row[:, :n].numpy()) for i, row, n in zip(ids, x, lengths)}
    for model in (patched, on_engine):
        model(ds.stream_tensor(x, ids=ids, sos=True, lengths=lengths))
    engine.step(rows, sos=ids)
    chunk = ds.stream_tensor(x, ids=ids, lengths=lengths)
    steps: dict[str, Step] = {
        "bare": lambda: bare(x),
        "patched": lambda: patched(chunk),
        "on engine": lambda: on_engine(chunk),
        "engine": lambda: engine.step(rows),
    }
    if compiled:
        fused = torch.compile(bare, dynamic=False)
        steps["torch.compile"] = lambda: fused(x)
    return steps


def reductions(n_streams: int, seconds: float, clock: Callable[[], float]) -> None:
    """Print a table of reductions of L outside a forward."""
    lengths = np.random.default_rng(0).permutation(np.arange(1, n_streams + 1))
    padded = torch.randn(n_streams, 8, n_streams)
    ids = [f"stream-{i}" for i in range(n_streams)]
    x: Any = ds.stream_tensor(padded, ids=ids, sos=True, lengths=lengths)
    print("| reduction | bare, ms | streams, ms | overhead |\n|---|--:|--:|--:|")
    for name in ("sum", "mean", "amax", "argmax", "logsumexp", "norm", "std", "median"):
        steps: dict[str, Step] = {
            "bare": lambda name=name: getattr(padded, name)(dim=-1),
            "streams": lambda name=name: getattr(x, name)(dim=-1),
        }
        times = measure(steps, seconds, clock)
        middle = {k: float(np.median(t)) for k, t in times.items()}
        row = (name, figure(times["bare"]), figure(times["streams"]), f"{middle['streams'] / middle['bare']:.1f}")
        print(f"| {' | '.join(row)} |", flush=True)


def measure(steps: dict[str, Step], seconds: float, clock: Callable[[], float]) -> dict[str, np.ndarray]:
    """Return each variant's step times in milliseconds."""
    for step in steps.values():
        for _ in range(3):
            step()
    times: dict[str, list[float]] = {label: [] for label in steps}
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times["bare"]) < 3 * TURN:
        for label, step in steps.items():
            for _ in range(TURN):
                begin = clock()
                step()
                times[label].append(1000 * (clock() - begin))
    return {label: np.array(t) for label, t in times.items()}


def figure(times: np.ndarray | None) -> str:
    if times is None:
        return "–"
    low, middle, high = np.percentile(times, [10, 50, 90])
    digits = 1 if middle > 2 else 3
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="per row of the table (4)")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--frames", type=int, nargs="+", default=[10, 32, 100])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--reductions", action="store_true", help="of reductions outside a forward, nothing else")
    parser.add_argument("--wall", action="store_true", help="take the clock on the wall, not CPU time")
    args = parser.parse_args()
    clock = time.perf_counter if args.wall else time.thread_time
    torch.set_num_threads(1)
    for line in machine(f"python {shlex.join(sys.argv)}", ("numpy", "torch")):
        print(line)
    print(kernels())
    if args.reductions:
        reductions(args.streams, args.seconds, clock)
        return
    with torch.no_grad():
        for name in args.models:
            size = sum(p.numel() for p in MODELS[name]().parameters())
            print(f"model     {name}: {size:,} weights; outputs within {check(name):.1e} of offline")
        print()
        columns = ["bare, ms", "patched, ms", "overhead", "torch.compile, ms", "engine, ms", "bare ÷ engine"]
        columns += ["on engine, ms", "÷ engine"]
        print(f"| model | rows | frames | {' | '.join(columns)} |")
        print(f"|---|---|{'--:|' * (1 + len(columns))}")
        for name in args.models:
            for n_frames in args.frames:
                for ragged in (False, True):
                    steps = variants(name, args.streams, n_frames, ragged, not args.no_compile and not ragged)
                    times = measure(steps, args.seconds, clock)
                    middle = {k: float(np.median(t)) for k, t in times.items()}
                    print(
                        f"| {name} | {'ragged' if ragged else 'even'} | {n_frames} | {figure(times['bare'])} | "
                        f"{figure(times['patched'])} | {middle['patched'] / middle['bare']:.2f} | "
                        f"{figure(times.get('torch.compile'))} | {figure(times['engine'])} | "
                        f"{middle['bare'] / middle['engine']:.2f} | {figure(times['on engine'])} | "
                        f"{middle['on engine'] / middle['engine']:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
