"""Mixtures of experts: one layer of 3M-ASR's size beside PyTorch's, and beside what the machine could do at best.

Usage: python benchmarks/moe.py [--layers N] [--seconds S] [--threads 2] [--model | --only-model].

The network is a stack of layers x + MoE(x) of 32 experts, 512 features, 1024 within, swish, the best expert of
a token chosen by an embedding and the token (EmbeddingGate); 2.1 million weights of an expert are read where it
is hit. Several layers make sure that none stays in a cache. Figures are milliseconds per layer, of 50 frames
(206 before subsampling) of one stream, then of chunks of 16 frames of several streams.

Routing is "uniform" where random gates see random frames, and "natural" where neighbouring frames are alike and
some experts are liked better. PyTorch does the same in a loop over experts, each with the tokens that it finds
by nonzero, and with tokens sorted by expert and split. The bound is what reading the weights that are hit, or
computing, would take, whichever is longer, of every product: by the bandwidth and the arithmetic that are
measured just before, on one thread. A figure is the median of CPU time, in turns, with the 10th and 90th
percentile; threads are compared by wall time, and with the bound of what they read together: on some machines no
more than one of them.

--model adds 3M-ASR's Conformer of 18 layers and 32 experts (moe_model.py), 711 million parameters: two minutes,
15 GB of memory. --only-model --seconds 2 prints its tables alone.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import shlex
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from machine import arithmetic, bandwidth, bandwidth_together, figure, in_turns, kernels, machine, spread
from moe_model import whole_model

import dreamstream as ds
from dreamstream.torch import nn as T

E, D, H = 32, 512, 1024
EXPERT_BYTES = 2 * D * H * 4


class Stack(torch.nn.Module):
    """Layers x + MoE(x, embedding)."""

    def __init__(self, n: int, natural: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        made = (
            T.FMoETransformerMLP(E, D, H, torch.nn.SiLU(), gate=T.EmbeddingGate(D, E, gate_bias=True))
            for _ in range(n)
        )
        self.layers = torch.nn.ModuleList(made)
        for layer in self.layers:
            layer.gate.router_weights.data.normal_(0, 1 / D**0.5)
            if natural:
                layer.gate.router_bias.data = -torch.log(1.0 + torch.randperm(E))

    def forward(self, x: torch.Tensor, embed: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x, embed)
        return x


def frames(n: int, streams: int, natural: bool) -> np.ndarray:
    """Random frames (streams, n, D); natural ones resemble those before them."""
    x = np.random.default_rng(n).standard_normal((streams, n, D)).astype(np.float32)
    for i in range(1, n if natural else 0):
        x[:, i] = 0.9 * x[:, i - 1] + 0.19**0.5 * x[:, i]
    return x


# ---------------------------------------------------------------------- PyTorch
def by_loop(layer: torch.nn.Module, x: torch.Tensor, index: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
    up, down = layer.experts.htoh4, layer.experts.h4toh
    out = torch.zeros_like(x)
    for e in range(E):
        token = (index == e).nonzero()[:, 0]
        if len(token):
            hidden = F.silu(F.linear(x.index_select(0, token), up.weight[e], up.bias[e]))
            out.index_copy_(0, token, F.linear(hidden, down.weight[e], down.bias[e]) * score[token])
    return out


def by_sorting(layer: torch.nn.Module, x: torch.Tensor, index: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
    up, down = layer.experts.htoh4, layer.experts.h4toh
    order = torch.argsort(index[:, 0], stable=True)
    sizes = torch.bincount(index[:, 0], minlength=E).tolist()
    parts = []
    for e, part in enumerate(x[order].split(sizes)):
        if len(part):
            hidden = F.silu(F.linear(part, up.weight[e], up.bias[e]))
            parts.append(F.linear(hidden, down.weight[e], down.bias[e]))
    return torch.empty_like(x).index_copy_(0, order, torch.cat(parts)) * score


def in_torch(
    model: Stack, x: torch.Tensor, embed: torch.Tensor, experts: Callable[..., torch.Tensor]
) -> torch.Tensor:
    with torch.inference_mode():
        for layer in model.layers:
            gate = layer.gate
            p = torch.addmm(gate.router_bias, torch.cat([embed, x], -1), gate.router_weights).softmax(-1)
            score, index = p.max(-1, keepdim=True)
            x = x + experts(layer, x, index, score)
    return x


# ---------------------------------------------------------------------- the machine
def hits(model: Stack, x: np.ndarray, embed: np.ndarray) -> list[int]:
    """How many experts each layer's tokens hit."""
    out, y, e = [], torch.from_numpy(x.reshape(-1, D)), torch.from_numpy(embed.reshape(-1, D))
    with torch.inference_mode():
        for layer in model.layers:
            out.append(len(layer.route(y, e).index.unique()))
            y = y + layer(y, e)
    return out


def bound(n_tokens: int, hit: list[int], read: float, compute: float) -> float:
    """Seconds of all layers, serially: router and experts."""

    def longer(n_bytes: float, operations: float) -> float:
        return max(n_bytes / read, operations / compute)

    router = longer(2 * D * E * 4, 4 * D * E * n_tokens)
    return sum(router + longer(n * EXPERT_BYTES, 4 * D * H * n_tokens) for n in hit)


# ---------------------------------------------------------------------- timing
class Engine:
    """A compiled stack in the middle of its streams."""

    def __init__(self, model: Stack, x: np.ndarray, embed: np.ndarray, threads: int = 1) -> None:
        dims = {"x": ("B", "L", D), "embed": ("B", "L", D)}
        self.engine = ds.compile(model, dims, threads=threads, verify=False)
        self.chunks = {str(i): {"x": a, "embed": b} for i, (a, b) in enumerate(zip(x, embed))}
        self.out = self.engine.step(self.chunks, sos=list(self.chunks))

    def step(self) -> object:
        return self.engine.step(self.chunks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", action="store_true", help="the model of 18 layers, too")
    parser.add_argument("--only-model", action="store_true", help="that alone")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for line in machine(shlex.join(["python", *sys.argv]), ("numpy", "torch")):
        print(line)
    print(kernels())
    read, compute = bandwidth(), arithmetic()
    print(f"machine   reads {read / 1e9:.1f} GB/s, computes {compute / 1e9:.0f} GFLOP/s, on one thread\n")
    if not args.only_model:
        layers(args, read, compute)
    if args.model or args.only_model:
        whole_model(args.seconds, args.threads, read, compute)


def layers(args: argparse.Namespace, read: float, compute: float) -> None:
    n, ms = args.layers, 1000 / args.layers
    print("| routing | streams | frames | experts hit | dreamstream, ms | torch's loop, ms | torch sorted, ms "
          "| better torch ÷ dreamstream | of the bound | frames/s | weights per frame, MB |")  # fmt: skip
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    rows = [(natural, 1, 50) for natural in (False, True)] + [(False, s, 16) for s in (1, 8, 32)]
    for natural, streams, length in rows:
        model = Stack(n, natural).eval()
        x, embed = frames(length, streams, natural), frames(length + 1, streams, natural)[:, 1:]
        engine = Engine(model, x, embed)
        flat = [torch.from_numpy(np.ascontiguousarray(a.reshape(-1, D))) for a in (x, embed)]
        wanted = in_torch(model, *flat, by_loop).numpy()
        got = np.concatenate([engine.out[i] for i in engine.chunks])
        assert (
            np.abs(got - wanted).max() < 1e-3
            and np.abs(in_torch(model, *flat, by_sorting).numpy() - wanted).max() < 1e-3
        )
        runs = {
            "own": engine.step,
            "loop": lambda m=model, f=flat: in_torch(m, *f, by_loop),
            "sorted": lambda m=model, f=flat: in_torch(m, *f, by_sorting),
        }
        times = {k: spread([t * ms for t in v]) for k, v in in_turns(runs, args.seconds, time.thread_time).items()}
        hit = hits(model, x, embed)
        best = bound(streams * length, hit, read, compute) * ms
        own, other = times["own"][1], min(times["loop"][1], times["sorted"][1])
        tokens = streams * length
        cells = [
            "natural" if natural else "uniform",
            streams,
            length,
            f"{np.mean(hit):.1f}",
            *map(figure, times.values()),
        ]
        cells += [f"{other / own:.2f}", f"{100 * best / own:.0f} %", f"{tokens / own * 1000 / n:.0f}"]
        print(f"| {' | '.join(map(str, cells))} | {np.mean(hit) * EXPERT_BYTES / tokens / 1e6:.2f} |", flush=True)
    together = max(read, bandwidth_together(args.threads))
    print(f"\n{args.threads} threads read {together / 1e9:.1f} GB/s together, {together / read:.2f} times one's\n")
    print(
        f"| routing | streams | frames | one thread, ms | {args.threads} threads, ms | faster | of the bound |\n"
        "|---|--:|--:|--:|--:|--:|--:|"
    )
    for natural, streams, length in rows:
        model = Stack(n, natural).eval()
        x, embed = frames(length, streams, natural), frames(length + 1, streams, natural)[:, 1:]
        runs = {str(t): Engine(model, x, embed, t).step for t in (1, args.threads)}
        one, more = ([t * ms for t in v] for v in in_turns(runs, args.seconds, time.perf_counter).values())
        cells = ["natural" if natural else "uniform", streams, length, figure(spread(one)), figure(spread(more))]
        best = bound(streams * length, hits(model, x, embed), together, args.threads * compute) * ms
        cells += [f"{min(one) / min(more):.2f}", f"{100 * best / min(more):.0f} %"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
