"""Three recipes of training, native and torch, from equal weights: the losses of their steps are the same."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dreamstream as ds

#: Of losses, relative: what float32 rounding becomes in 10 and in 300 steps.
NEAR = {10: 2e-6, 300: 1e-4}


def tagger(lib):
    """A convolution that looks ahead, recurrent layers and a layer per frame."""

    class Tagger(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = lib.nn.Conv1d(12, 24, 5, stride=2, padding=2)
            self.rnn, self.head = lib.nn.GRU(24, 24, num_layers=2, batch_first=True), lib.nn.Linear(24, 6)

        def forward(self, x):
            return self.head(self.rnn(self.conv(x).relu().transpose(1, 2))[0])

    return Tagger()


def conformer(lib):
    """Blocks of half feed-forward layers, attention over all frames so far, and a gated convolution."""
    f = lib.nn.functional

    class Block(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = lib.nn.ModuleList(lib.nn.LayerNorm(24) for _ in range(5))
            self.first, self.last = (
                lib.nn.Sequential(lib.nn.Linear(24, 48), lib.nn.SiLU(), lib.nn.Linear(48, 24)) for _ in range(2)
            )
            self.q, self.k, self.v, self.out = (lib.nn.Linear(24, 24) for _ in range(4))
            self.wide, self.depth = lib.nn.Conv1d(24, 48, 1), lib.nn.Conv1d(24, 24, 5, padding=2, groups=24)
            self.narrow = lib.nn.Conv1d(24, 24, 1)

        def forward(self, x):
            x = x + self.first(self.norms[0](x)) * 0.5
            y = self.norms[1](x)
            q, k, v = (layer(y).unflatten(-1, (3, 8)).transpose(1, 2) for layer in (self.q, self.k, self.v))
            x = x + self.out(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            y = f.glu(self.wide(self.norms[2](x).transpose(1, 2)), 1)
            x = x + self.narrow(f.silu(self.depth(y))).transpose(1, 2)
            return self.norms[4](x + self.last(self.norms[3](x)) * 0.5)

    class Conformer(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.front = lib.nn.Conv1d(12, 24, 3, stride=2, padding=1)
            self.blocks, self.head = lib.nn.Sequential(Block(), Block()), lib.nn.Linear(24, 6)

        def forward(self, x):
            return self.head(self.blocks(self.front(x).transpose(1, 2)))

    return Conformer()


def cross_entropy(lib):
    return lambda y, target: lib.nn.functional.cross_entropy(y.transpose(1, 2), target)


def ctc(lib):
    f = lib.nn.functional

    def loss(y, target):
        parts = []
        for i, labels in zip(y.ids, target):
            scores = f.log_softmax(y[i], -1)
            parts.append(f.ctc_loss(scores, lib.tensor(labels), lib.tensor(len(scores)), lib.tensor(len(labels))))
        return sum(parts) / len(parts)

    return loss


RECIPES = {
    "convolution and GRU by frames": (tagger, cross_entropy, "full-file-aligned"),
    "Conformer by chunks": (conformer, cross_entropy, "chunk-wise-aligned"),
    "CTC on whole files": (tagger, ctc, "full-file-unaligned"),
}


def recordings(n, of_frames):
    """Streams of random lengths whose classes can be learnt, and their targets."""
    rng = np.random.default_rng(2)
    centers = rng.standard_normal((6, 12))
    inputs, targets = {}, {}
    for i in map(str, range(n)):
        classes = np.repeat(rng.integers(1, 6, rng.integers(2, 7)), 12)[: -int(rng.integers(1, 9))]
        frames = centers[classes] + 0.7 * rng.standard_normal((len(classes), 12))
        inputs[i] = np.float32(frames.T)
        changes = classes[np.r_[True, classes[1:] != classes[:-1]]]
        targets[i] = classes[::2].copy() if of_frames else changes
    return inputs, targets


class Enough(Exception):
    """Ends an epoch."""


def losses_of(name, lib, start, n_steps):
    make, loss, variant = RECIPES[name]
    inputs, targets = recordings(24, loss is cross_entropy)
    model = make(lib)
    model.load_state_dict(start if lib is ds else {k: torch.tensor(v) for k, v in start.items()})
    ds.patch_module(model, train_variant=variant).train()
    optimizer = lib.optim.AdamW(model.parameters(), lr=2e-3)
    found = []

    def note(trainer):
        found.append(trainer.last)
        if len(found) == n_steps:
            raise Enough

    together, aligned = variant != "chunk-wise-aligned", loss is cross_entropy
    loader = ds.data.StreamLoader(inputs, 16, 4, shuffle=True, targets=targets, together=together)
    callbacks = [ds.train.ClipGradNorm(1.0), note]
    trainer = ds.train.ChunkTrainer(model, optimizer, loss(lib), aligned=aligned, callbacks=callbacks)
    with pytest.raises(Enough):
        trainer.fit(loader, epochs=n_steps)
    return found


@pytest.mark.parametrize("n_steps", [10, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RECIPES)
def test_losses(name, n_steps):
    ds.manual_seed(1)
    start = {k: np.array(v) for k, v in RECIPES[name][0](ds).state_dict().items()}
    ours, theirs = (losses_of(name, lib, start, n_steps) for lib in (ds, torch))
    far = np.abs(np.array(ours) / np.array(theirs) - 1)
    assert far.max() < NEAR[n_steps], (far.argmax(), far.max())
    assert n_steps < 300 or np.mean(ours[-10:]) < 0.7 * np.mean(ours[:10])
