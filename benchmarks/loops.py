"""Loops over frames: a Mamba block beside PyTorch and ONNX Runtime, and loops of cells beside the layers.

Usage: python benchmarks/loops.py [--seconds S] [--no-compile] [--only mamba | cells | far].

The block is Mamba's of 256 channels and a state of 16 for each, written as a loop over frames. PyTorch and ONNX
Runtime get a step: (frames, what the convolution keeps, state), the same arithmetic for all frames at once but for
the recurrence, which is a loop; PyTorch also compiled, for fixed sizes. The bound is what the products take by the
arithmetic that is measured just before, and the exponentials by torch's exp. Loops of GRUCell and LSTMCell, 128
features, are compared with our own step of nn.GRU and nn.LSTM. A million frames go through a linear recurrence
whose decays come near one: the greatest error against float64, beside that of NumPy's float32, by size of chunks.

Figures are microseconds of CPU time per step on one thread, in turns: median, 10th and 90th percentile.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import arithmetic, figure, in_turns, kernels, least, machine, spread
from torch import nn

import dreamstream as ds

WIDTH, INNER, STATE, RANK, KERNEL = 128, 256, 16, 8, 4
CELL = 128
FAR = 1_000_000
RUNS = ("dreamstream", "PyTorch", "compiled", "ONNX Runtime")
SHAPES = [(1, 1), (1, 10), (8, 1), (8, 10), (32, 1), (32, 10)]


class Mamba(nn.Module):
    """(B, L, 128) -> (B, L, 128)."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.conv1d = nn.Conv1d(INNER, INNER, KERNEL, groups=INNER, padding=KERNEL - 1)
        self.x_proj = nn.Linear(INNER, RANK + 2 * STATE, bias=False)
        self.dt_proj = nn.Linear(RANK, INNER)
        self.A_log = nn.Parameter(torch.arange(1.0, STATE + 1).repeat(INNER, 1).log())
        self.D = nn.Parameter(torch.ones(INNER))
        self.out_proj = nn.Linear(INNER, WIDTH, bias=False)

    def terms(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Decays and inputs (B, L, 256, 16), and what the state is read by."""
        dt, b, c = self.x_proj(x).split([RANK, STATE, STATE], -1)
        dt = F.softplus(self.dt_proj(dt))
        return torch.exp(dt[..., None] * -self.A_log.exp()), (dt * x)[..., None] * b[:, :, None], c

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.in_proj(x).split([INNER, INNER], -1)
        x = F.silu(self.conv1d(x.transpose(1, 2))[:, :, : x.size(1)].transpose(1, 2))
        a, b, c = self.terms(x)
        h, ys = torch.zeros(x.size(0), INNER, STATE), []
        for t in range(x.size(1)):
            h = a[:, t] * h + b[:, t]
            ys.append((h * c[:, t, None]).sum(-1))
        return self.out_proj((torch.stack(ys, 1) + x * self.D) * F.silu(gate))


class Step(nn.Module):
    """The same of the next frames: (x, kept, h) -> (y, kept, h)."""

    def __init__(self, block: Mamba) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor, kept: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        block = self.block
        x, gate = block.in_proj(x).split([INNER, INNER], -1)
        x = torch.cat([kept, x.transpose(1, 2)], 2)
        kept, conv = x[:, :, 1 - KERNEL :], block.conv1d
        x = F.silu(F.conv1d(x, conv.weight, conv.bias, groups=INNER).transpose(1, 2))
        a, b, c = block.terms(x)
        ys = []
        for t in range(x.shape[1]):
            h = a[:, t] * h + b[:, t]
            ys.append((h @ c[:, t, :, None])[..., 0])
        return block.out_proj((torch.stack(ys, 1) + x * block.D) * F.silu(gate)), kept, h


class Loop(nn.Module):
    """A loop of a cell."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, ys = None, []
        for t in range(x.size(1)):
            state = self.cell(x[:, t], state)
            ys.append(state[0] if isinstance(self.cell, nn.LSTMCell) else state)
        return torch.stack(ys, 1)


class Layer(nn.Module):
    """The layer without its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def stepped(model: nn.Module, width: int, streams: int, frames: int) -> Callable[[], object]:
    """A step of an engine in mid-stream."""
    engine = ds.compile(model.eval(), ("B", "L", width), threads=1, verify=False)
    rng = np.random.default_rng(0)
    chunks = {str(i): rng.standard_normal((frames, width)).astype(np.float32) for i in range(streams)}
    engine.step(chunks, sos=list(chunks))
    return lambda: engine.step(chunks)


def by_onnxruntime(step: Step, given: tuple[torch.Tensor, ...]) -> Callable[[], object]:
    """The step in ONNX Runtime."""
    import onnxruntime

    names = ["x", "kept", "h"]
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        torch.onnx.export(step, given, file.name, dynamo=False, input_names=names)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(file.name, options, providers=["CPUExecutionProvider"])
    feed = {name: x.numpy() for name, x in zip(names, given)}
    return lambda: session.run(None, feed)


def bound() -> float:
    """Microseconds of a frame."""
    products = WIDTH * 2 * INNER + INNER * (KERNEL + RANK + 2 * STATE) + RANK * INNER + INNER * WIDTH
    x = torch.rand(INNER, STATE)
    fastest = least(lambda: [torch.exp(x) for _ in range(100)]) / 100
    return 1e6 * (2 * products / arithmetic() + fastest)


def mamba(seconds: float, compiled: bool) -> None:
    """Print the table of the block."""
    torch.manual_seed(0)
    block = Mamba().eval().requires_grad_(False)
    step, at_best = Step(block), bound()
    print(f"bound of a frame: {at_best:.2f} us\n")
    print(f"| streams | frames | {' | '.join(RUNS)} | best ÷ dreamstream | of the bound |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    for streams, frames in SHAPES:
        given = (torch.randn(streams, frames, WIDTH), torch.randn(streams, INNER, KERNEL - 1))
        given = (*given, torch.randn(streams, INNER, STATE))
        runs: dict[str, Any] = {"dreamstream": stepped(block, WIDTH, streams, frames)}
        runs["PyTorch"] = lambda given=given: step(*given)
        if compiled:
            fast = torch.compile(step, dynamic=False)
            runs["compiled"] = lambda given=given, fast=fast: fast(*given)
        runs["ONNX Runtime"] = by_onnxruntime(step, given)
        with torch.inference_mode():
            times = in_turns(runs, seconds, time.thread_time)
        cells = {name: spread([1e6 * t for t in found]) for name, found in times.items()}
        ours, best = cells["dreamstream"][1], min(c[1] for n, c in cells.items() if n != "dreamstream")
        shown = [figure(cells[n]) if n in cells else "" for n in RUNS]
        share = f"{100 * streams * frames * at_best / ours:.0f} %"
        print(f"| {streams} | {frames} | {' | '.join(shown)} | {best / ours:.2f} | {share} |", flush=True)


def cells(seconds: float) -> None:
    """Print the table of loops of cells."""
    print("| cell | streams | frames | loop | layer | loop ÷ layer |\n|---|--:|--:|--:|--:|--:|")
    for kind in ("GRU", "LSTM"):
        torch.manual_seed(0)
        cell, layer = getattr(nn, f"{kind}Cell")(CELL, CELL), getattr(nn, kind)(CELL, CELL, batch_first=True)
        layer.load_state_dict({f"{k}_l0": v for k, v in cell.state_dict().items()})
        for streams, frames in SHAPES:
            runs = {
                "loop": stepped(Loop(cell), CELL, streams, frames),
                "layer": stepped(Layer(layer), CELL, streams, frames),
            }
            times = in_turns(runs, seconds, time.thread_time)
            ours, whole = (spread([1e6 * t for t in times[name]]) for name in runs)
            ratio = f"{ours[1] / whole[1]:.2f}"
            print(f"| {kind} | {streams} | {frames} | {figure(ours)} | {figure(whole)} | {ratio} |")


class Recurrence(nn.Module):
    """h = a h + b of 8 features, with decays of 0.98 to 0.9998."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = 0.9899 + 0.0099 * torch.tanh(x[..., :8]), x[..., 8:]
        h, ys = torch.zeros(x.size(0), 8), []
        for t in range(x.size(1)):
            h = a[:, t] * h + b[:, t]
            ys.append(h)
        return torch.stack(ys, 1)


def far() -> None:
    """Print the table of a million frames."""
    x = np.random.default_rng(0).standard_normal((FAR, 16)).astype(np.float32)
    whole: dict[Any, Any] = {}
    with torch.no_grad():
        a = (0.9899 + 0.0099 * torch.tanh(torch.from_numpy(x[:, :8]))).numpy()
    for kind in (np.float64, np.float32):
        h, rows = np.zeros(8, kind), np.empty((FAR, 8), kind)
        for t, (decay, value) in enumerate(zip(a.astype(kind), x[:, 8:].astype(kind))):
            rows[t] = h = decay * h + value
        whole[kind] = rows
    scale = np.abs(whole[np.float64]).max()
    plain = np.abs(whole[np.float32] - whole[np.float64]).max() / scale
    print(f"greatest error of {FAR} frames in NumPy's float32: {plain:.2e} of the greatest value\n")
    print(
        "| frames of a chunk | greatest error | of the last 1000 frames | the first row's bits | us of a frame |"
    )
    print("|--:|--:|--:|--:|--:|")
    first: Any = None
    for size in (1000, 777, 50_000, FAR):
        engine, began = ds.compile(Recurrence(), ("B", "L", 16), threads=1, verify=False), time.thread_time()
        chunks = [x[at : at + size] for at in range(0, FAR, size)]
        parts = [engine.step({"s": c}, sos=["s"] * (i == 0))["s"] for i, c in enumerate(chunks)]
        spent, got = time.thread_time() - began, np.concatenate(parts)
        off = np.abs(got - whole[np.float64]).max(1) / scale
        first = got if first is None else first
        bits = "the same" if np.array_equal(got, first) else "others"
        print(
            f"| {size} | {off.max():.2e} | {off[-1000:].max():.2e} | {bits} | {1e6 * spent / FAR:.3f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each row (default: %(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--only", choices=("mamba", "cells", "far"), help="one of the tables")
    args = parser.parse_args()
    torch.set_num_threads(1)
    command = shlex.join(["python", *sys.argv])
    print("\n".join([*machine(command, ("numpy", "torch", "onnxruntime")), kernels()]), end="\n\n")
    if args.only in (None, "mamba"):
        mamba(args.seconds, not args.no_compile)
    if args.only is None:
        print()
    if args.only in (None, "cells"):
        cells(args.seconds)
    if args.only in (None, "far"):
        far()


if __name__ == "__main__":
    main()
