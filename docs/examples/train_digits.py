"""Train a recogniser of spoken digits from nothing, without torch: chunk by chunk, evaluated and saved as a .dsm.

    DREAMSTREAM_TEST_DATA=FOLDER python train_digits.py [--epochs 12] [--checkpoint FILE] [--output digits.dsm]

FOLDER holds `fsdd/{digit}_{speaker}_{index}.wav`, the recordings of the Free Spoken Digit Dataset; those with
an index below 5 are kept for the evaluation. Without the variable ten made sounds take the place of the digits,
which are learnt in seconds. A program that was ended in whatever way, and is started again with the same
--checkpoint, goes on where it was.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn

RATE, WIDTH, STEP, BANDS = 8000, 256, 80, 40
Recording = tuple[str, object, int]  # id, path or samples, digit


class Recogniser(nn.Module):
    """Samples ``(B, L)`` to scores of ten digits ``(B, L / 160, 10)``, which look 50 ms ahead."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.bands = nn.Conv1d(WIDTH // 2 + 1, BANDS, 1, bias=False).requires_grad_(False)
        self.bands.weight.copy_(ds.tensor(triangles()[..., None]))
        self.near = nn.Conv1d(BANDS, hidden, 5, stride=2, padding=2)
        self.wide = nn.Conv1d(hidden, hidden, 5, padding=2)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 10)

    def forward(self, samples: ds.Tensor) -> ds.Tensor:
        window = ds.tensor(np.hanning(WIDTH).astype(np.float32))
        real, imag = F.stft(samples, WIDTH, STEP, window=window, center=False)
        x = (self.bands(real * real + imag * imag) + 1e-4).log() / 4
        x = F.relu(self.near(x))
        x = x + F.relu(self.wide(x))
        y, _ = self.rnn(x.transpose(1, 2))
        return self.head(y)


def triangles() -> np.ndarray:
    """Return weights of bands that are equally wide on the mel scale, (bands, bins of the spectrum)."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 1400), BANDS + 2) / 2595) - 1)
    bins = np.arange(WIDTH // 2 + 1) * RATE / WIDTH
    low, middle, high = (edges[k : k + BANDS, None] for k in range(3))
    return np.float32(np.clip(np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle)), 0, None))


def frames_of(samples: int) -> int:
    """Return how many frames the model gives of a recording."""
    return ((samples - WIDTH) // STEP) // 2 + 1


def recordings() -> tuple[list[Recording], list[Recording]]:
    """Return what is learnt, and what is kept for the evaluation."""
    folder = os.environ.get("DREAMSTREAM_TEST_DATA")
    if folder is None:
        return made(8, seed=0), made(3, seed=1)
    found: list[list[Recording]] = [[], []]
    for path in sorted(Path(folder, "fsdd").glob("*.wav")):
        digit, _, index = path.stem.split("_")
        found[int(index) < 5].append((path.stem, path, int(digit)))
    return found[0], found[1]


def made(n_each: int, seed: int) -> list[Recording]:
    """Return sounds that rise from one of ten pitches, of random lengths, in noise."""
    rng, out = np.random.default_rng(seed), []
    for digit in range(10):
        for k in range(n_each):
            n = int(rng.integers(2000, 5000))
            pitch = np.linspace(1, 1.1, n) * (300 + 300 * digit) * rng.uniform(0.97, 1.03)
            sound = np.sin(2 * np.pi * np.cumsum(pitch) / RATE) * rng.uniform(0.1, 0.5)
            out.append((f"{digit}-{k}", np.float32(sound + 0.01 * rng.standard_normal(n)), digit))
    return out


def targets_of(found: list[Recording]) -> dict[str, np.ndarray]:
    """Return each recording's digit, once for each frame that the model gives of it."""
    out = {}
    for name, x, digit in found:
        if isinstance(x, Path):
            with ds.data.AudioReader(x) as reader:
                n = reader.frames
        else:
            n = len(x)  # type: ignore[arg-type]
        out[name] = np.full(frames_of(n or 0), digit)
    return out


def accuracy(engine: ds.Engine, found: list[Recording]) -> float:
    """Return which part of the recordings an engine recognises, by the sum of all frames' scores."""
    digits = {name: digit for name, _, digit in found}
    right = 0
    for name, y in ds.data.bulk(engine, [(name, x) for name, x, _ in found], chunk=800, quiet=True):
        scores = y - np.log(np.exp(y).sum(-1, keepdims=True))
        right += int(scores.sum(0).argmax()) == digits[name]
    return right / len(found)


class Told(ds.train.Callback):
    """Prints how each epoch went."""

    def after_epoch(self, trainer: ds.train.ChunkTrainer) -> None:
        right = 100 * trainer.result.metrics["frames right"]
        print(f"epoch {trainer.epochs}: loss {trainer.result:.3f}, {right:.1f} % of the frames right", flush=True)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train on spoken digits, chunk by chunk.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lanes", type=int, default=16, help="recordings at a time")
    parser.add_argument("--chunk", type=int, default=1600, help="samples per step")
    parser.add_argument("--workers", type=int, default=0, help="processes that read")
    parser.add_argument("--checkpoint", help="goes on from this file, and writes it every 100 steps")
    parser.add_argument("--output", default="digits.dsm")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    ds.manual_seed(options.seed)

    learnt, kept = recordings()
    model = ds.patch_module(Recogniser()).train()
    optimizer = ds.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    loader = ds.data.StreamLoader(
        learnt, options.chunk, options.lanes, options.workers, shuffle=True, targets=targets_of(learnt)
    )
    samples = 2 * STEP * sum(len(t) for t in targets_of(learnt).values())
    steps = options.epochs * (samples // (options.chunk * options.lanes) + 1)
    schedule = ds.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.05, 1 - n / steps))

    def loss(y: ds.Tensor, target: ds.Tensor) -> ds.Tensor:
        return F.cross_entropy(y.transpose(1, 2), target)

    trainer = ds.train.ChunkTrainer(
        model,
        optimizer,
        loss,
        callbacks=[ds.train.ClipGradNorm(1.0), ds.train.Schedule(schedule), Told()],
        metrics={"frames right": lambda y, target: (y.argmax(-1) == target).float().mean()},
    )
    print(f"{len(learnt)} recordings are learnt, {len(kept)} are kept")
    trainer.fit(loader, epochs=options.epochs, path=options.checkpoint, every=100)

    engine = ds.compile(model.eval(), ("B", "L"), rate=RATE)
    engine.save(options.output)
    with ds.load(options.output) as loaded:
        share = accuracy(loaded, kept)
    print(f"{options.output}: {100 * share:.1f} % of the {len(kept)} recordings that were kept are recognised")
    return share


if __name__ == "__main__":
    main()
