"""Three recipes of training, native and torch, from equal weights: the losses of their steps are the same."""

import numpy as np
import pytest
import torch
from recipes import conformer, cross_entropy, ctc, tagger

import dreamstream as ds

#: Of losses, relative: what rounding becomes in 10 and in 300 steps. That it is rounding shows in float64.
NEAR = {("float32", 10): 2e-6, ("float32", 300): 1e-4, ("float64", 10): 1e-13, ("float64", 300): 1e-11}


RECIPES = {
    "convolution and GRU by frames": (tagger, cross_entropy, "full-file-aligned"),
    "Conformer by chunks": (conformer, cross_entropy, "chunk-wise-aligned"),
    "CTC on whole files": (tagger, ctc, "full-file-unaligned"),
}


def recordings(n, of_frames, dtype):
    """Streams of random lengths whose classes can be learnt, and their targets."""
    rng = np.random.default_rng(2)
    centers = rng.standard_normal((6, 12))
    inputs, targets = {}, {}
    for i in map(str, range(n)):
        classes = np.repeat(rng.integers(1, 6, rng.integers(2, 7)), 12)[: -int(rng.integers(1, 9))]
        frames = centers[classes] + 0.7 * rng.standard_normal((len(classes), 12))
        inputs[i] = frames.T.astype(dtype)
        changes = classes[np.r_[True, classes[1:] != classes[:-1]]]
        targets[i] = classes[::2].copy() if of_frames else changes
    return inputs, targets


class Enough(Exception):
    """Ends an epoch."""


def losses_of(name, lib, start, n_steps, dtype):
    make, loss, variant = RECIPES[name]
    inputs, targets = recordings(24, loss is cross_entropy, dtype)
    model = make(lib)
    model.load_state_dict(start if lib is ds else {k: torch.tensor(v) for k, v in start.items()})
    ds.patch_module(model.to(getattr(lib, dtype)), train_variant=variant).train()
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_steps", [10, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RECIPES)
def test_losses(name, n_steps, dtype):
    ds.manual_seed(1)
    start = {k: np.array(v) for k, v in RECIPES[name][0](ds).state_dict().items()}
    ours, theirs = (losses_of(name, lib, start, n_steps, dtype) for lib in (ds, torch))
    far = np.abs(np.array(ours) / np.array(theirs) - 1)
    assert far.max() < NEAR[dtype, n_steps], (far.argmax(), far.max())
    assert n_steps < 300 or np.mean(ours[-10:]) < 0.7 * np.mean(ours[:10])
