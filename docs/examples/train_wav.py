"""Train a model chunk by chunk on a folder of WAV files: it learns to tell the next frame's band energies.

    python train_wav.py FOLDER [--epochs 5] [--lanes 8] [--chunk 50] [--device cpu]

Nothing has to be cut to equal lengths, and no more than a chunk is on the tape at a time, however long the files
are. It prints the mean squared error of every epoch, beside that of saying that nothing changes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

import dreamstream as ds

BANDS = 24


class Predictor(torch.nn.Module):
    """From log energies ``(B, bands, L)`` to those one frame later, ``(B, L, bands)``."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(BANDS, hidden, 5, padding=4)
        self.rnn = torch.nn.LSTM(hidden, hidden, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(hidden, BANDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        past = F.gelu(self.conv(x)[..., :-4])  # no frame sees a later one
        y, _ = self.rnn(past.transpose(1, 2))
        return x.transpose(1, 2) + self.head(y)


def energies(path: Path) -> torch.Tensor:
    """Return a recording's log energies in bands ``(bands, frames)``, 100 frames per second."""
    samples, rate = ds.data.read_audio(path)
    width, step = rate // 40, rate // 100
    wave, window = torch.from_numpy(samples), torch.hann_window(width)
    if len(wave) < width:
        return torch.empty(BANDS, 0)
    spectrum = torch.stft(wave, width, step, window=window, center=False, return_complex=True)
    power = F.adaptive_avg_pool1d(spectrum.abs().square().T[None], BANDS)[0].T
    return torch.log(power + 1e-6) / 4


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description="Train on a folder of WAV files, chunk by chunk.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=8, help="files at a time")
    parser.add_argument("--chunk", type=int, default=50, help="frames per step, of 10 ms")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    paths = sorted(options.folder.rglob("*.wav"))
    if not paths:
        sys.exit(f"there are no WAV files in {options.folder}")
    whole = {str(p): energies(p) for p in paths}
    inputs = {i: e[:, :-1] for i, e in whole.items() if e.shape[1] > 1}
    targets = {i: e[:, 1:].T for i, e in whole.items()}
    frames = sum(e.shape[1] for e in inputs.values())
    still = sum(float((e[:, 1:] - e[:, :-1]).square().sum()) for e in whole.values()) / (frames * BANDS)
    print(f"{len(inputs)} files, {frames} frames; if nothing changed, the error were {still:.4f}")

    model = ds.patch_module(Predictor(), train_variant="chunk-wise-aligned").to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    trainer = ds.train.ChunkTrainer(model.train(), optimizer, F.mse_loss, options.chunk, options.lanes)
    errors = []
    for epoch in range(options.epochs):
        order = [list(inputs)[k] for k in torch.randperm(len(inputs))]
        errors.append(trainer.epoch({i: inputs[i] for i in order}, targets))
        print(f"epoch {epoch + 1}: {errors[-1]:.4f}")
    return errors


if __name__ == "__main__":
    main()
