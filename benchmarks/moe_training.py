"""A small mixture of experts learns in chunks: losses, and how often each expert is chosen, as a picture.

Usage: python benchmarks/moe_training.py [--plot docs/figures/moe_training.png].

Streams switch among four ways of making their targets of their frames; a recurrent layer sees which, and a mixture
of eight experts, two for each frame, learns them. Training is chunk by chunk, by the variant "chunk-wise-aligned".
It ends with an error where an expert is hardly ever chosen.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import dreamstream as ds
from dreamstream.torch import nn as T

WAYS, E, D, CHUNK, CHUNKS = 4, 8, 8, 24, 6


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(D, 32, batch_first=True)
        self.experts = T.FMoETransformerMLP(E, 32, 32, top_k=2)
        self.head = torch.nn.Linear(32, D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, _ = self.gru(x)
        return self.head(x + self.experts(x))


def streams(rng: np.random.Generator, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames, whose first features say which way, and targets (n, frames, D)."""
    maps = np.random.default_rng(0).standard_normal((WAYS, D, D)) / D**0.5
    way = np.repeat(rng.integers(0, WAYS, (n, CHUNKS)), CHUNK, 1)
    x = rng.standard_normal((n, CHUNK * CHUNKS, D))
    x[..., :WAYS] += 2 * (way[..., None] == np.arange(WAYS))
    y = np.einsum("btd,btde->bte", x, maps[way])
    return torch.from_numpy(np.float32(x)), torch.from_numpy(np.float32(np.tanh(y)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50, help="batches of streams")
    parser.add_argument("--plot", metavar="PNG")
    args = parser.parse_args()
    torch.manual_seed(0)
    rng, model = np.random.default_rng(1), Model()
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    ds.patch_module(model, train_variant="chunk-wise-aligned")
    model.train().online()
    losses, loads = [], []
    for step in range(args.steps):
        x, y = streams(rng, 8)
        model.experts.keep_statistics()
        for k in range(CHUNKS):
            part = slice(k * CHUNK, (k + 1) * CHUNK)
            ids = [f"{step}-{i}" for i in range(len(x))]
            flags = {"sos": [k == 0] * len(x), "eos": [k == CHUNKS - 1] * len(x)}
            out = model(ds.stream_tensor(list(x[:, part]), ids=ids, names=("B", "L", None), **flags))
            loss = torch.stack([(out[i] - t).square().mean() for i, t in zip(ids, y[:, part])]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        loads.append(model.experts.statistics()["load"])
    first, last = np.mean(losses[:CHUNKS]), np.mean(losses[-CHUNKS:])
    print(f"loss      {first:.3f} at first, {last:.3f} at last, in {len(losses)} steps of {CHUNK} frames")
    print(f"loads     {', '.join(f'{100 * share:.0f} %' for share in loads[-1])}")
    if args.plot:
        draw(args.plot, losses, np.array(loads))
    if last > 0.6 * first or loads[-1].min() < 0.01:
        raise SystemExit("it has not learnt, or experts have collapsed")


def draw(path: str, losses: list[float], loads: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 5), layout="constrained")
    above.plot(losses, linewidth=0.8)
    above.set(ylabel="loss", ylim=(0, None))
    steps = (np.arange(len(loads)) + 0.5) * CHUNKS
    below.stackplot(steps, 100 * loads.T, labels=[f"expert {e}" for e in range(E)])
    below.set(ylabel="load, %", xlabel="steps", ylim=(0, 100), xlim=(0, len(losses)))
    below.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
