"""Random torch forwards made of what models do with lengths and ends of streams, on streams of few frames."""

import linecache
from random import Random
from typing import Any

import numpy as np
import torch
from nets import net

import dreamstream as ds
from dreamstream.errors import DreamStreamError
from dreamstream.stream.tree import leaves

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 12)

#: Lines of a forward; `n` is the length of `y`, `K` and `J` are numbers from 1 to 5.
LINES = (
    "y = torch.tanh(y) * 2", "y = y.clamp(-1, 1)", "y = y[:, K:]", "y = y[:, :-K]", "y = y[:, ::2]",
    "y = y[:, : n - K]", "y = y[:, : max(n - K, 1)]", "y = y[:, min(n, K) :]", "y = y[:, : -min(n, K)]",
    "y = y[:, : n // 2 * 2]",
    "y = y[:, K : max(n - K, J)]", "y = F.pad(y, (0, 0, K, J))", "y = F.pad(y, (0, 0, 1, -n % K))",
    "y = F.pad(y, (0, 0, 0, max(0, K - n)))", "y = F.pad(y, (0, 0, max(0, K - n), J), value=1.0)",
    "y = torch.cat([y, y.new_zeros(y.size(0), max(0, K - n), 3)], 1)",
    "y = torch.cat([y.new_ones(y.size(0), max(0, K - n), 3), y], 1)",
    "y = torch.cat([y[:, :K] * w[:K, None], y[:, K:]], 1)",
    "y = torch.cat([y[:, :-K], y[:, -K:] * w[:K, None]], 1)",
    "y = torch.cat([y[:, :-K], torch.tanh(y[:, -K:]) + y[:, -K:]], 1)", "y = torch.cat([y, y[:, -K:] * 2], 1)",
    "y = torch.cat([y[:, 1:K].flip(1), y], 1)", "k = min(n, K)\ny = torch.cat([y[:, :k] * 0.5, y[:, k:]], 1)",
    "k = min(n, K)\ny = torch.cat([y[:, : n - k], y[:, n - k :] * 0.5], 1)",
    "y = y.clone()\ny[:, :K] *= w[:K, None]", "y = y.clone()\ny[:, -K:] *= 0.5", "y = y.clone()\ny[:, -K:] = 0",
    "y = y.clone()\nt = y[:, -K:]\nt += 1", "y = y.cumsum(1)", "y = y * (torch.arange(n) < K)[:, None]",
    "y = y * (torch.arange(n) % 2 == 0)[None, :, None]", "y = y + torch.arange(n)[:, None]",
    "y = (y * 9).int()\ny = (y * 3 // 2).float()", "y = (y > 0).int().cumsum(1).float()",
    "if n < K:\n    y = F.pad(y, (0, 0, 0, K - n))", "if n < K:\n    y = F.pad(y, (0, 0, K - n, 0))",
    "if n % K:\n    y = F.pad(y, (0, 0, 0, K - n % K))", "y = y[:, 1:] - y[:, :-1]", "y = y - y[:, :1]",
    "if n > K:\n    y = y * 2", "if not n:\n    return x", "y = y * (x.size(1) - n)",
    "y = y if n >= x.size(1) else x * 2",
    "y = F.pad(y, (0, 0, 0, x.size(1) - n))", "y = F.pad(y, (0, 0, max(x.size(1) - n, K), 0))",
    "y = y[:, (x.size(1) - n) // 2 :]", "y = y[:, : x.size(1) - K]", "y = x[:, x.size(1) - n :] + y",
    "for k in range(min(n - x.size(1), K)):\n    y = y + k", "y = torch.cat(y.split([K, n - K], 1), 1)",
    "y = torch.cat([torch.tanh(y[:, :K]) - y[:, 1 : K + 1], y[:, K:]], 1)",
)  # fmt: skip
RESULTS = (
    "y", "y", "(y * 9).int() + 1", "(y * 9).short() * 2", "(y * 99).byte() + 200", "y > 0", "y.half()", "y.sum(1)",
    "y[:, -K:].mean(1)", "y[:, -min(n, K):].sum(1)", "y.amax(1)", "(y * 9).int().sum(1)", "y[:, -1]",
    "torch.full((y.size(0),), n).int() // 2", "(y, (torch.full((y.size(0),), n) - 1) // 2 + 1)",
)  # fmt: skip


def written(random: Random) -> str:
    """Return the source of a forward."""

    def line(of: tuple[str, ...]) -> str:
        return random.choice(of).replace("K", random.choice("12345")).replace("J", random.choice("12345"))

    body = ["y = x", "n = y.size(1)", "least.append(n)"]
    for _ in range(random.randint(1, 4)):
        body += [*line(LINES).split("\n"), "n = y.size(1)", "least.append(n)"]
    return "\n    ".join(["def forward(self, x):", *body, f"return {line(RESULTS)}"]) + "\n"


def model_of(text: str, name: str, least: list[Any]) -> torch.nn.Module:
    """Return a module with this forward; `least` is given its lengths."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "least": least, "w": torch.arange(1, 6) / 4}
    exec(compile(text, name, "exec"), names)
    model: torch.nn.Module = net(torch.nn, names["forward"])
    return model


@torch.no_grad()
def differences(seed: int) -> tuple[list[str], int]:
    """Stream a random forward by a patched module and an engine, whole and frame by frame.

    Returns what differs from the forward offline in frames, values or types, and how many streams were compared.
    Streams that are refused aren't.
    """
    text, least, found, n_compared = written(Random(seed)), [], [], 0
    rng, offline = np.random.default_rng(seed), model_of(text, f"<short {seed}>", least)
    streams = {f"{n}": rng.standard_normal((n, 3), np.float32) for n in LENGTHS}
    expected: dict[str, Any] = {}
    for i, x in streams.items():
        least.clear()
        try:
            said = leaves(offline(torch.from_numpy(x[None].copy())))
        except (RuntimeError, IndexError):
            continue
        if least[0]:
            expected[i] = [y[0].numpy() for y in said]
    for way in ("patched", "engine"):
        model = model_of(text, f"<short {seed} {way}>", [])
        try:
            opened = ds.patch_module(model).online() if way == "patched" else ds.compile(model, ("B", "L", 3))
        except DreamStreamError:
            continue
        for i, wanted in expected.items():
            for n_cuts in (0, len(streams[i])):
                try:
                    got = _streamed(opened, i, streams[i], n_cuts)
                except DreamStreamError:
                    break
                n_compared += 1
                for a, b in zip(got, wanted, strict=True):
                    if a is None:  # a number of a stream that has no frames
                        continue
                    b = b.reshape(a.shape) if a.ndim < b.ndim and a.size == b.size else b  # some last frames
                    near = {"rtol": 1e-3 if b.dtype == np.float16 else 1e-5, "atol": 1e-5, "equal_nan": True}
                    if a.shape != b.shape or a.dtype != b.dtype or not np.allclose(a, b, **near):
                        found.append(f"{way}, {i} frames in {n_cuts + 1} chunks:\n{text}{a}\n{b}")
    return found, n_compared


def _streamed(model: Any, name: str, x: Any, n_cuts: int) -> list[Any]:
    """Return what comes out of one stream, laid end to end."""
    parts: list[list[Any]] = []
    chunks = np.split(x, np.arange(n_cuts))
    for t, chunk in enumerate(chunks):
        rows: Any = [chunk if isinstance(model, ds.Engine) else torch.from_numpy(chunk.copy())]
        flags = {"sos": t == 0, "eos": t == len(chunks) - 1}
        out = leaves(model(ds.stream_tensor(rows, names=("B", "L", None), ids=[name], **flags)))
        parts.append([(np.asarray(y[name].numpy()), "L" in y.names) for y in out])
    ends = [np.squeeze(own[-1][0]) if own[-1][0].size else None for own in zip(*parts)]
    return [np.concatenate([a for a, _ in own]) if own[0][1] else end for own, end in zip(zip(*parts), ends)]
