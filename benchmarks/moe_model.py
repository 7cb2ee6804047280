"""3M-ASR's Conformer of 18 layers and 32 experts, for moe.py: offline on 206 frames, then in chunks.

Weights are random, so that routing is "uniform"; "natural" routing has routers with a bias that likes some
experts better, and frames that resemble those before them. torch runs the same model, with a loop over experts,
each with the tokens that it finds by nonzero, and with tokens sorted by expert; in bf16 too, beside our
``products=``, where routers see other numbers and may choose otherwise ("error": how far ours is from ours in
fp32, the root of the mean square, relative). The bound is the weights that are hit by measured bandwidth, or the
operations by measured arithmetic, for experts and for all the rest, one after the other.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import arithmetic, figure, in_turns, spread

import dreamstream as ds
from dreamstream.models import ConformerMoE

FRAMES, FEATURES, E, D, H = 206, 40, 32, 512, 1024
STREAMING = {"causal": True, "decoding_chunk_size": 16, "num_decoding_left_chunks": 4}
EXPERT = 4 * (2 * D * H + D + H)
DENSE = 375e6  # bytes of weights that every call reads
FIXED, PER_PAIR = 300.9e6, 73.7e3  # operations: of a frame behind the subsampling, and of a pair of such


def speech(n: int, streams: int, natural: bool) -> np.ndarray:
    x = np.random.default_rng(n).standard_normal((streams, n, FEATURES)).astype(np.float32)
    for i in range(1, n if natural else 0):
        x[:, i] = 0.9 * x[:, i - 1] + 0.19**0.5 * x[:, i]
    return x


def made(natural: bool) -> ConformerMoE:
    ds.manual_seed(0)
    model = ConformerMoE.of_18_layers(moe_conf={"router_with_bias": True}, **STREAMING).eval()
    routers = [layer.feed_forward for layer in model.blocks]
    seen: dict[int, Any] = {}

    def watched(router: Any) -> Callable[[Any, Any], Any]:
        def joined(x: Any, embed: Any) -> Any:
            seen[id(router)] = both = type(router).joined(router, x, embed)
            return both

        return joined

    for router in routers:
        router.joined = watched(router)
    model(ds.tensor(speech(FRAMES, 1, natural)))
    order = np.random.default_rng(0)
    for router in routers:
        del router.joined
        # frames of a network with random weights are much alike: what they share is taken from the logits
        weights = router.router_weights.numpy()
        bias = -seen[id(router)].numpy().reshape(-1, len(weights)).mean(0) @ weights
        liked = -np.log(1.0 + order.permutation(E)) / 20 if natural else 0
        router.router_bias.numpy()[...] = bias + liked
        for array in (weights, router.router_bias.numpy()):
            array *= 20
    return model


# ---------------------------------------------------------------------- the same in torch
class InTorch:
    """The model's forward, by torch's functions on its weights."""

    def __init__(self, model: ConformerMoE, dtype: torch.dtype = torch.float32) -> None:
        self.w = {k: torch.from_numpy(v.numpy()).to(dtype) for k, v in model.state_dict().items()}
        self.heads, self.dtype = model.blocks[0].self_attn.heads, dtype

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def norm(self, name: str, x: torch.Tensor, eps: float = 1e-12) -> torch.Tensor:
        return F.layer_norm(x, (D,), self.w[f"{name}.weight"], self.w[f"{name}.bias"], eps)

    def conv(self, name: str, x: torch.Tensor, **more: Any) -> torch.Tensor:
        return F.conv1d(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"], **more)

    def attention(self, name: str, x: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v, p = (
            self.linear(f"{name}.linear_{part}", a).view(1, -1, self.heads, D // self.heads).transpose(1, 2)
            for part, a in (("q", x), ("k", x), ("v", x), ("pos", positions))
        )
        u, w = (self.w[f"{name}.pos_bias_{b}"][:, None] for b in "uv")
        scores = ((q + u) @ k.mT + (q + w) @ p.mT) / (D // self.heads) ** 0.5
        y = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v
        return self.linear(f"{name}.linear_out", y.transpose(1, 2).flatten(2))

    def convolution(self, name: str, x: torch.Tensor) -> torch.Tensor:
        x = F.glu(self.conv(f"{name}.pointwise_conv1", F.pad(x.mT, (14, 0))), 1)
        x = self.norm(f"{name}.norm", self.conv(f"{name}.depthwise_conv", x, groups=D).mT, 1e-5)
        return self.conv(f"{name}.pointwise_conv2", F.silu(x).mT).mT

    def products(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self.linear(f"{name}.w_2", F.silu(self.linear(f"{name}.w_1", x)))

    def experts(self, name: str, x: torch.Tensor, embed: torch.Tensor) -> torch.Tensor:
        w = {
            part: self.w[f"{name}.experts.{part}"] for part in ("w_1.weight", "w_1.bias", "w_2.weight", "w_2.bias")
        }
        tokens = x[0]
        router = self.w[f"{name}.router_weights"], self.w[f"{name}.router_bias"]
        score, index = (torch.cat([embed[0], tokens], -1) @ router[0] + router[1]).softmax(-1).max(-1)
        out = torch.empty_like(tokens)

        def expert(e: int, x: torch.Tensor) -> torch.Tensor:
            hidden = F.silu(F.linear(x, w["w_1.weight"][e], w["w_1.bias"][e]))
            return F.linear(hidden, w["w_2.weight"][e], w["w_2.bias"][e])

        if self.sorted:
            order = torch.argsort(index, stable=True)
            parts = tokens[order].split(torch.bincount(index, minlength=E).tolist())
            made = torch.cat([expert(e, part) for e, part in enumerate(parts) if len(part)])
            return (out.index_copy_(0, order, made) * score[:, None])[None]
        for e in range(E):
            hit = (index == e).nonzero()[:, 0]
            if len(hit):
                out[hit] = expert(e, tokens[hit]) * score[hit, None]
        return out[None]

    def stack(self, prefix: str, n: int, x: torch.Tensor, embed: torch.Tensor | None) -> torch.Tensor:
        for i in (0, 2):
            name = f"{prefix}subsampling.conv.{i}"
            x = F.relu(F.conv2d(x if i else x[:, None], self.w[f"{name}.weight"], self.w[f"{name}.bias"], 2))
        x = self.linear(f"{prefix}subsampling.out.0", x.transpose(1, 2).flatten(2)) * D**0.5
        t = torch.arange(x.shape[1], dtype=torch.float64)[:, None]
        t = t * 10000.0 ** (-torch.arange(0, D, 2) / D)
        positions = torch.stack([t.sin(), t.cos()], -1).flatten(1).to(x.dtype)[None]
        block = torch.arange(x.shape[1]) // 16
        behind = block[:, None] - block
        mask = (behind >= 0) & (behind <= 4)
        for i in range(n):
            b = f"{prefix}blocks.{i}"
            x = x + 0.5 * self.products(f"{b}.feed_forward_macaron", self.norm(f"{b}.norm_ff_macaron", x))
            x = x + self.attention(f"{b}.self_attn", self.norm(f"{b}.norm_mha", x), positions, mask)
            x = x + self.convolution(f"{b}.conv_module", self.norm(f"{b}.norm_conv", x))
            y, name = self.norm(f"{b}.norm_ff", x), f"{b}.feed_forward"
            x = x + 0.5 * (self.products(name, y) if embed is None else self.experts(name, y, embed))
            x = self.norm(f"{b}.norm_final", x)
        return self.norm(f"{prefix}after_norm", x)

    def __call__(self, x: torch.Tensor, in_order: bool = False) -> torch.Tensor:
        self.sorted = in_order
        with torch.inference_mode():
            x = x.to(self.dtype)
            return self.linear("out_linear", self.stack("", 18, x, self.stack("embed.", 6, x, None))).float()


# ---------------------------------------------------------------------- rows
def bound(n_tokens: int, hit: float, width: float, read: float, compute: float) -> float:
    """Seconds: experts, and all the rest, each by the longer of reading and computing; `width` of fp32's bytes."""
    experts = 18 * 2 * 2 * D * H * n_tokens
    rest = FIXED * n_tokens + PER_PAIR * n_tokens**2 - experts
    return max(18 * hit * EXPERT * width / read, experts / compute) + max(DENSE * width / read, rest / compute)


def hits(engine: ds.Engine, step: Callable[[], object]) -> float:
    """Experts that a layer's tokens hit in a step, on the mean."""
    engine.keep_statistics()
    step()
    found = [int((layer["counts"] > 0).sum()) for layer in engine.statistics()["layers"].values()]
    engine.keep_statistics(False)
    return float(np.mean(found))


def offline(natural: bool, seconds: float, read: float, compute: float, folder: Path) -> None:
    """Print rows of 206 frames, by format; leave a file of each."""
    model, x = made(natural), speech(FRAMES, 1, natural)
    tensor = torch.from_numpy(x)
    right: np.ndarray | None = None
    for fmt, width in (("fp32", 1.0), ("bf16", 0.5), ("int8", 0.25)):
        narrow = {} if fmt == "fp32" else {"products": fmt}
        ds.compile(model, model.spec, rate=100, verify=False, **narrow).save(folder / f"{fmt}.dsm")
        engine = ds.load(folder / f"{fmt}.dsm", threads=1)
        runs: dict[str, Callable[[], Any]] = {"own": partial(engine.step, {"s": x[0]}, sos="s", eos="s")}
        if fmt != "int8":
            theirs = InTorch(model, torch.bfloat16 if fmt == "bf16" else torch.float32)
            runs |= {"loop": partial(theirs, tensor), "sorted": partial(theirs, tensor, in_order=True)}
        own = runs["own"]()["s"]
        right = own if right is None else right
        error = float(np.sqrt(((own - right) ** 2).mean() / (right**2).mean()))
        if fmt == "fp32":
            assert all(np.abs(runs[k]()[0].numpy() - own).max() < 1e-3 for k in ("loop", "sorted"))
        times = {k: spread([1000 * t for t in v]) for k, v in in_turns(runs, seconds, time.thread_time).items()}
        hit, median = hits(engine, runs["own"]), times["own"][1]
        best = 1000 * bound(len(own), hit, width, read, compute if fmt == "fp32" else arithmetic(fmt))
        theirs = [times[k] for k in ("loop", "sorted") if k in times]
        cells = ["natural" if natural else "uniform", fmt, f"{hit:.1f}", figure(times["own"])]
        cells += [*map(figure, theirs), f"{min(t[1] for t in theirs) / median:.2f}"] if theirs else ["", "", ""]
        print(f"| {' | '.join(cells)} | {error:.1e} | {100 * best / median:.0f} % |", flush=True)
        del engine, runs


def whole_model(seconds: float, threads: int, read: float, compute: float) -> None:
    """Print the model's tables."""
    print(f"\n{FRAMES} frames of one stream, offline:\n")
    print("| routing | format | experts hit | dreamstream, ms | torch's loop, ms | torch sorted, ms "
          "| better torch ÷ dreamstream | error | of the bound |")  # fmt: skip
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for natural in (False, True):
            offline(natural, seconds, read, compute, Path(folder))
        path = Path(folder) / "fp32.dsm"
        in_chunks(path, seconds, threads)
        start = time.process_time()
        ds.load(path)
        took = time.process_time() - start
        print(f"\nloaded    {path.stat().st_size / 1e9:.2f} GB in {took:.2f} s of CPU time")


def in_chunks(path: Path, seconds: float, threads: int) -> None:
    print("\n| streams | experts hit | a step of 16 frames each, ms | frames/s | weights per frame, MB "
          f"| {threads} threads, ms | faster |\n|--:|--:|--:|--:|--:|--:|--:|")  # fmt: skip
    engines = [ds.load(path, threads=1), ds.load(path, threads=threads)]
    for streams in (1, 8, 32):
        x = speech(64, streams, True)
        runs = {}
        for engine in engines:
            chunks = {str(i): a for i, a in enumerate(x)}
            for k in range(6):
                engine.step(chunks, sos=[] if k else list(chunks))
            runs[str(engine.threads)] = lambda e=engine, c=chunks: e.step(c)
        hit = hits(engines[0], runs["1"])
        one, more = ([1000 * t for t in v] for v in in_turns(runs, seconds, time.perf_counter).values())
        per_frame = (DENSE + 18 * hit * EXPERT) / (16 * streams) / 1e6
        cells = [streams, f"{hit:.1f}", figure(spread(one)), f"{16 * streams / np.median(one) * 1000:.0f}"]
        cells += [f"{per_frame:.1f}", figure(spread(more)), f"{min(one) / min(more):.2f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        for engine in engines:
            engine.reset()
