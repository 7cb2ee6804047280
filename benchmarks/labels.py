"""What narrow formats change of trained networks' answers: labels of frames, and decisions.

Usage: python benchmarks/labels.py [--digits FOLDER [--steps 1000] [--weights FILE]]
[--voice WEIGHTS RECORDING...] [--formats ...]; needs torch.

- digits: FOLDER has recordings of single spoken digits, `{digit}_{speaker}_{index}.wav`, as the Free Spoken Digit
  Dataset has them (https://github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0). A small Conformer
  (four layers of 96 features, attention to the last 64 frames, CTC) learns to read rows of digits; recordings 0
  to 4 of each digit and speaker are left out. Of these a stream is made for every speaker, all digits in random
  order with pauses between. `--weights` keeps what was learnt, or reads it where the file exists.
- voice: WEIGHTS are those of Silero VAD at 16 kHz (`silero_vad_16k.safetensors`), by which every RECORDING, or
  every one of a folder, is a stream; a window is taken for speech from one half on.

All streams are read in chunks in each format. Printed are, beside the engine in fp32: the share of frames whose
label, blanks among them, or decision is the same; the digits that are wrong (edits ÷ digits); and the error of
the scores (rms of the difference ÷ rms).
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from networks import FORMATS
from torch import nn
from torch.nn import functional as F

import dreamstream as ds
from dreamstream.cli.demo import word_errors
from dreamstream.models import SileroVAD

BANDS, SIZE, HEADS, LAYERS, WINDOW, KERNEL = 40, 96, 4, 4, 64, 15
DIGITS = 10  # and a blank, the last label
LEFT_OUT = 5
CHUNK = {"digits": 32, "voice": 20 * 512}  # frames of 10 ms, samples
ROWS = 8  # in a step of learning


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q, k, v = self.project(x).view(b, n, 3, HEADS, SIZE // HEADS).permute(2, 0, 3, 1, 4)
        i = torch.arange(n, device=x.device)
        seen = (i[:, None] >= i) & (i[:, None] - i < WINDOW)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.out(y.transpose(1, 2).reshape(b, n, SIZE))


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = nn.Linear(SIZE, 2 * SIZE), nn.Linear(SIZE, SIZE)
        self.depthwise = nn.Conv1d(SIZE, SIZE, KERNEL, groups=SIZE)
        self.norm = nn.LayerNorm(SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.pad(F.glu(self.before(x)).transpose(1, 2), (KERNEL - 1, 0))
        return self.behind(F.silu(self.norm(self.depthwise(y).transpose(1, 2))))


def feed_forward() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(SIZE), nn.Linear(SIZE, 4 * SIZE), nn.SiLU(), nn.Linear(4 * SIZE, SIZE))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = feed_forward(), feed_forward()
        self.attention = nn.Sequential(nn.LayerNorm(SIZE), Attention())
        self.convolution = nn.Sequential(nn.LayerNorm(SIZE), Convolution())
        self.norm = nn.LayerNorm(SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.first(x)
        x = x + self.attention(x)
        x = x + self.convolution(x)
        return self.norm(x + 0.5 * self.last(x))


class Reader(nn.Module):
    """Log energies ``(B, bands, L)`` to scores ``(B, L', labels)``, one for two frames."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv1d(BANDS, SIZE, 4, stride=2)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.head = nn.Linear(SIZE, DIGITS + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.front(F.pad(x, (2, 0)))).transpose(1, 2)
        return self.head(self.layers(y))


# ---------------------------------------------------------------------- recordings
def energies(wave: np.ndarray, rate: int) -> torch.Tensor:
    """Return log energies in bands ``(bands, frames)``, 100 frames per second."""
    width, step = rate // 40, rate // 100
    spectrum = torch.stft(torch.from_numpy(wave), width, step, window=torch.hann_window(width), center=False,
                          return_complex=True)  # fmt: skip
    power = F.adaptive_avg_pool1d(spectrum.abs().square().T[None], BANDS)[0].T
    return (torch.log(power + 1e-5) + 6) / 4


Recording = tuple[int, np.ndarray]


def read(folder: Path) -> tuple[int, dict[str, list[Recording]], dict[str, list[Recording]]]:
    """Return the rate, and each speaker's digits and samples: to learn from, and those left out."""
    learnt: dict[str, list[Recording]] = {}
    kept: dict[str, list[Recording]] = {}
    rate = 0
    for path in sorted(folder.glob("*_*_*.wav")):
        digit, speaker, index = path.stem.split("_")
        wave, rate = ds.data.read_audio(path)
        (kept if int(index) < LEFT_OUT else learnt).setdefault(speaker, []).append((int(digit), wave))
    if not learnt or not kept:
        sys.exit(f"there are no recordings {{digit}}_{{speaker}}_{{index}}.wav in {folder}")
    return rate, learnt, kept


def row(rng: np.random.Generator, recordings: Sequence[Recording], rate: int) -> torch.Tensor:
    """Return the energies of recordings one after the other, with pauses of noise."""
    parts = []
    for _, wave in recordings:
        pause = rng.integers(rate // 20, rate // 3)
        parts += [wave, np.float32(1e-3) * rng.standard_normal(pause, np.float32)]
    return energies(np.concatenate(parts), rate)


def learn(model: Reader, learnt: dict[str, list[Recording]], rate: int, steps: int) -> None:
    rng, speakers = np.random.default_rng(0), sorted(learnt)
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, steps)
    model.train()
    for step in range(steps):
        rows, labels = [], []
        for speaker in rng.choice(speakers, ROWS):
            chosen = [learnt[speaker][k] for k in rng.integers(0, len(learnt[speaker]), rng.integers(1, 6))]
            rows.append(row(rng, chosen, rate).T)
            labels.append(torch.tensor([digit for digit, _ in chosen]))
        lengths = torch.tensor([len(r) // 2 for r in rows])
        x = nn.utils.rnn.pad_sequence(rows, batch_first=True).transpose(1, 2)
        scores = model(x + 0.1 * torch.randn_like(x)).log_softmax(-1).transpose(0, 1)
        sizes = torch.tensor([len(y) for y in labels])
        loss = F.ctc_loss(scores, torch.cat(labels), lengths, sizes, blank=DIGITS, zero_infinity=True)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: {float(loss.detach()):.3f}", file=sys.stderr, flush=True)
    model.eval()


# ---------------------------------------------------------------------- answers
def scores_of(engine: Any, streams: dict[str, np.ndarray], size: int) -> dict[str, np.ndarray]:
    """Return the scores ``(L', ...)`` of streams in chunks of a size."""
    got: dict[str, list[np.ndarray]] = {i: [] for i in streams}
    at, sos = 0, list(streams)
    while streams:
        chunk = {i: np.ascontiguousarray(x[..., at : at + size]) for i, x in streams.items()}
        eos = [i for i, x in streams.items() if x.shape[-1] <= at + size]
        for i, y in engine.step(chunk, sos=sos, eos=eos).items():
            got[i].append(y)
        streams = {i: x for i, x in streams.items() if i not in eos}
        at, sos = at + size, []
    return {i: np.concatenate(parts) for i, parts in got.items()}


def digits_of(labels: np.ndarray) -> list[int]:
    """Return what labels of frames say: repeated ones once, blanks dropped."""
    changes = labels[np.flatnonzero(np.diff(labels, prepend=-1))]
    return [int(c) for c in changes if c != DIGITS]


def compare(model: Any, spec: Any, rate: int, streams: dict[str, np.ndarray], size: int,
            formats: Sequence[str]) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:  # fmt: skip
    """Yield a row of the table for every format, and the answers."""
    want: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(("fp32", *formats)):
        engine = ds.compile(model, spec, rate=rate, threads=1, **FORMATS[name])
        got = scores_of(engine, streams, size)
        want = want or got
        said, right = ({i: answers(y) for i, y in scores.items()} for scores in (got, want))
        same = np.concatenate([said[i] == right[i] for i in said])
        off = np.concatenate([(got[i] - want[i]).ravel() for i in got])
        error = np.sqrt(np.mean(off**2) / np.mean(np.concatenate([y.ravel() for y in want.values()]) ** 2))
        yield {"format": name, "frames": len(same), "same": float(same.mean()), "error": float(error)}, said


def answers(scores: np.ndarray) -> np.ndarray:
    """Return the label of the highest score, or whether the only one is a half."""
    return scores.argmax(-1) if scores.ndim == 2 else scores >= 0.5


def digits(folder: Path, steps: int, weights: Path | None, formats: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Learn to read digits; yield the rows."""
    rate, learnt, kept = read(folder)
    model = Reader()
    if weights and weights.exists():
        model.load_state_dict(torch.load(weights))
    else:
        learn(model, learnt, rate, steps)
        if weights:
            torch.save(model.state_dict(), weights)
    rng, streams, spoken = np.random.default_rng(1), {}, {}
    for speaker, recordings in kept.items():
        order = [recordings[k] for k in rng.permutation(len(recordings))]
        streams[speaker], spoken[speaker] = row(rng, order, rate).numpy(), [digit for digit, _ in order]
    n = sum(map(len, spoken.values()))
    for cells, said in compare(model.eval(), ("B", BANDS, "L"), 100, streams, CHUNK["digits"], formats):
        wrong = sum(word_errors(digits_of(said[i]), spoken[i]) for i in said) / n
        yield {"network": "digits", "streams": len(streams), **cells, "wrong": wrong}


def voice(weights: Path, recordings: Sequence[Path], formats: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of Silero's decisions."""
    model = SileroVAD().eval()
    model.load_state_dict(weights)
    paths = [p for given in recordings for p in (sorted(given.rglob("*.wav")) if given.is_dir() else [given])]
    streams = {str(p): ds.data.read_audio(p, model.sample_rate)[0] for p in paths}
    for cells, _ in compare(model, model.spec, model.sample_rate, streams, CHUNK["voice"], formats):
        yield {"network": "voice", "streams": len(streams), **cells}


def text(r: dict[str, Any]) -> str:
    wrong = f"{100 * r['wrong']:.1f} %" if "wrong" in r else "–"
    cells = (r["network"], r["streams"], r["format"], r["frames"], f"{100 * r['same']:.2f} %", wrong)
    return f"| {' | '.join(map(str, cells))} | {r['error']:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--digits", metavar="FOLDER", type=Path)
    parser.add_argument("--steps", type=int, default=1000, help="of learning (1000: some minutes)")
    parser.add_argument("--weights", type=Path, help="of the network for digits")
    parser.add_argument("--voice", metavar="FILE", nargs="+", type=Path, help="weights, and recordings")
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows: list[Iterator[dict[str, Any]]] = []
    if args.digits:
        rows.append(digits(args.digits, args.steps, args.weights, args.formats))
    if args.voice:
        rows.append(voice(args.voice[0], args.voice[1:], args.formats))
    if not args.json:
        print(*machine(f"python {shlex.join(sys.argv)}", ("numpy", "torch")), "", sep="\n")
        print("| network | streams | format | frames | same answer | wrong digits | error of scores |")
        print("|---|--:|---|--:|--:|--:|--:|")
    for r in itertools.chain(*rows):
        print(json.dumps(r) if args.json else text(r), flush=True)


if __name__ == "__main__":
    main()
