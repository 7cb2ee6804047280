"""Train `dreamstream.models.Commands` without torch: strings of words, made of recordings of single ones.

    python train_commands.py FOLDER OUT.safetensors [--minutes 50] [--rows 16] [--weights FILE] [--mix 1]

FOLDER has what the model card names: `split.csv` (file, word, speaker, split), a folder per word,
`_background_noise_` and `_other_speech_` with its `files.csv` (file, seconds, split). Rows are made while training
runs: words by one speaker or several at changed speed and level, with silence, noise or a room between and around
them; and what is no command: other words, halves of words, words backwards, sentences, noise. The loss is CTC's,
and in training alone a second one, which names the word that each frame lies in. What is written is a mean of the
weights of the last steps, with as much less for the blank as was best on `valid`. With `--weights` training goes
on where that of an equal or a smaller network ended: what is new adds nothing at first; with `--mix` what is
written is a mean of both ends. Every 500 steps it prints how many single words of the people of `valid` are right;
nothing of `test` is read.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream import container, nn
from dreamstream.models import Commands
from dreamstream.models.commands import FLOOR, WORDS
from dreamstream.nn.state import read_safetensors

F = nn.functional
RATE, FRAME = 16000, 640  # samples per second, and of a frame of scores
OTHER = len(WORDS) + 1  # the label of speech that holds no command
Array = Any


def resampled(x: Array, speed: float) -> Array:
    """Return samples as they are at another speed."""
    x = x[: len(x) // 160 * 160] if len(x) >= 1600 else np.pad(x, (0, 1600 - len(x)))
    n = max(10, round(len(x) / speed / 160)) * 160
    spectrum = np.fft.rfft(x)
    spectrum = np.pad(spectrum, (0, max(0, n // 2 + 1 - len(spectrum))))[: n // 2 + 1]
    return (np.fft.irfft(spectrum, n) * (n / len(x))).astype(np.float32)


def spoken(x: Array) -> tuple[int, int]:
    """Return from where to where a recording is loud."""
    n = len(x) // 160
    db = 10 * np.log10(np.square(x[: n * 160].reshape(n, 160)).mean(1) + 1e-9)
    db = np.convolve(np.pad(db, 1, "edge"), np.ones(3) / 3, "valid")
    top, floor = np.sort(db)[-5:].mean(), np.percentile(db, 10)
    loud = np.flatnonzero(db > max(top - 32, min(floor + 6, top - 12)))
    return max(int(loud[0]) * 160 - 160, 0), min(int(loud[-1]) * 160 + 480, len(x))


class Recordings:
    """The recordings of a split: words by speaker, other words, sentences, noise."""

    def __init__(self, folder: Path, split: str) -> None:
        with open(folder / "split.csv") as file:
            self.rows = [row for row in csv.DictReader(file) if row["split"] == split]
        self.words: dict[str, dict[str, list[Array]]] = {}  # by speaker, by word
        self.others: list[Array] = []
        self.single: list[tuple[Array, str]] = []
        for row in self.rows:
            x = ds.data.read_audio(folder / row["file"])[0]
            self.single.append((x, row["word"]))
            if row["word"] in WORDS:
                self.words.setdefault(row["speaker"], {}).setdefault(row["word"], []).append(x)
            else:
                self.others.append(x)
        with open(folder / "_other_speech_" / "files.csv") as file:
            part = "test" if split == "test" else "train"  # there is none of its own for valid
            names = [row["file"] for row in csv.DictReader(file) if row["split"] == part]
        self.speech = [ds.data.read_audio(folder / "_other_speech_" / name)[0] for name in names]
        noise = [ds.data.read_audio(path)[0] for path in sorted((folder / "_background_noise_").glob("*.flac"))]
        self.noise = [x[: int(0.7 * len(x))] for x in noise]


class Maker:
    """Makes rows: samples, targets, and which label lies from where to where."""

    def __init__(self, recordings: Recordings, seed: int) -> None:
        self.of, self.rng = recordings, np.random.default_rng(seed)

    def pick(self, items: Any) -> Any:
        items = list(items)
        return items[self.rng.integers(len(items))]

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def piece(self, x: Array, n: int) -> Array:
        x = np.tile(x, n // len(x) + 1) if len(x) < n else x
        at = self.rng.integers(0, len(x) - n + 1)
        return x[at : at + n]

    def word(self, x: Array, speed: float, whole: bool) -> tuple[Array, float, float]:
        """Return a word, trimmed unless it is to be whole, and from where to where it is loud."""
        begin, end = spoken(x)
        first, last = (0, len(x)) if whole else (
            max(0, begin - int(self.uniform(0, 0.12) * RATE)),
            min(len(x), end + int(self.uniform(0, 0.12) * RATE)),
        )  # fmt: skip
        y = resampled(x[first:last], speed)
        if not whole and self.chance(0.6):
            ramp = np.linspace(0, 1, min(160, len(y) // 4), dtype=np.float32)
            y = y * np.concatenate([ramp, np.ones(len(y) - 2 * len(ramp), np.float32), ramp[::-1]])
        return y, (begin - first) / speed, (end - first) / speed

    def no_command(self, speed: float) -> Array:
        kind, spoken_by = self.rng.random(), self.of.words[self.pick(self.of.words)]
        name = self.pick(spoken_by)
        x = self.pick(spoken_by[name])
        begin, end = spoken(x)
        if kind < 0.15 and name not in ("on", "no"):
            return self.word(x, speed, False)[0][::-1]
        if kind < 0.33:
            half = int(begin + (end - begin) * self.uniform(0.35, 0.5))
            return resampled(x[begin:half] if self.chance(0.5) else x[half + (end - half) // 3 : end], speed)
        if kind < 0.43:
            return resampled(self.piece(self.pick(self.of.speech), int(self.uniform(0.3, 0.9) * RATE)), speed)
        return self.word(self.pick(self.of.others), speed, self.chance(0.3))[0]

    def drawn(self, n: int) -> list[tuple[str, Array]]:
        speaker, out, alone = self.pick(self.of.words), [], self.chance(0.6)
        for _ in range(n):
            said = self.of.words[speaker if alone or self.chance(0.4) else self.pick(self.of.words)]
            name = self.pick(said)
            out.append((name, self.pick(said[name])))
        return out

    def noise(self, n: int) -> Array:
        kind = self.rng.random()
        if kind < 0.2:
            spectrum = np.fft.rfft(self.rng.standard_normal(n))
            y = np.fft.irfft(spectrum * np.arange(1, len(spectrum) + 1) ** self.uniform(-1, 0.1), n)
        elif kind < 0.45:
            y = sum(self.piece(self.pick(self.of.speech), n) * self.uniform(0.3, 1) for _ in range(3))
        else:
            y = self.piece(self.pick(self.of.noise), n)
        return (y / np.sqrt(np.square(y).mean() + 1e-10)).astype(np.float32)

    def room(self, x: Array) -> Array:
        n = int(self.uniform(0.05, 0.4) * RATE)
        tail = self.rng.standard_normal(n) * np.exp(-6.9 * np.arange(n) / RATE / self.uniform(0.1, 0.6))
        tail *= self.uniform(0.1, 0.8) / np.sqrt(np.square(tail).sum())
        tail[0], size = 1, 1 << (len(x) + n).bit_length()
        return np.fft.irfft(np.fft.rfft(x, size) * np.fft.rfft(tail, size), size)[: len(x)].astype(np.float32)

    def row(self) -> tuple[Array, list[int], list[tuple[int, float, float]]]:
        parts: list[Array] = []
        marks: list[tuple[int, float, float]] = []
        targets: list[int] = []
        kind, speed, whole, at = self.rng.random(), self.uniform(0.82, 1.2), self.chance(0.35), 0
        items: list[tuple[str, Array] | None] = []
        if kind < 0.13:
            y = resampled(self.piece(self.pick(self.of.speech), int(self.uniform(2, 4.5) * RATE)), speed)
            parts, marks, at = [y], [(OTHER, 0, len(y))], len(y)
            items = [*self.drawn(int(self.rng.integers(1, 3)))] if self.chance(0.45) else []
        elif kind < 0.16:
            parts, at = [np.zeros(int(self.uniform(0.5, 3) * RATE), np.float32)], 1
            at = len(parts[0])
        elif kind < 0.31:
            items = [None] * int(self.rng.integers(1, 5))
        else:
            items = [*self.drawn(int(self.rng.choice([1, 2, 3, 4], p=[0.3, 0.25, 0.25, 0.2])))]
            for _ in range(self.rng.choice(3, p=[0.55, 0.32, 0.13])):
                items.insert(int(self.rng.integers(0, len(items) + 1)), None)
        for number in range(len(items) + 1):
            if not self.chance(0.45 if whole else 0.25):
                long = self.chance(0.3)
                parts.append(np.zeros(int(self.uniform(0.3, 1.1) * RATE if long else self.uniform(0, 0.4) * RATE)))
                at += len(parts[-1])
            if number == len(items):
                break
            item, own = items[number], speed * self.uniform(0.96, 1.04)
            if item is None:
                y = self.no_command(own)
                marks.append((OTHER, at, at + len(y)))
            else:
                y, begin, end = self.word(item[1], own, whole)
                targets.append(1 + WORDS.index(item[0]))
                marks.append((targets[-1], at + begin, at + end))
            parts.append(y * 10 ** (self.uniform(-4, 4) / 20))
            at += len(y)
        x = np.concatenate(parts).astype(np.float32)
        x = np.pad(x, (0, max(0, 4800 - len(x))))
        x = self.room(x) if self.chance(0.35) else x
        loud = x[np.abs(x) > 1e-5]
        level = np.sqrt(np.square(loud).mean()) if len(loud) else 0.05
        if self.chance(0.62):
            x = x + self.noise(len(x)) * level * 10 ** (-self.uniform(2, 30) / 20)
        db = self.uniform(-58, -10) - 20 * np.log10(level) if self.chance(0.55) else self.uniform(-10, 8)
        db += self.uniform(0, 16) if self.chance(0.12) else 0
        offset = self.uniform(-0.25, 0.25) if self.chance(0.12) else 0
        return np.clip(x * 10 ** (db / 20) + offset, -1, 1).astype(np.float32), targets, marks

    def features(self, x: Array, stretch: float) -> Array:
        """Stretch features ``(40, L)`` in time and along the mel scale, add a curve, and hide parts."""
        bands, n = len(x), max(16, round(x.shape[1] / stretch))
        for axis, at in (
            (1, np.minimum(np.arange(n) * stretch, x.shape[1] - 1)),
            (0, np.clip(np.arange(bands) * self.uniform(0.92, 1.08) + self.uniform(-0.7, 0.7), 0, bands - 1)),
        ):
            low = at.astype(int)
            part = (at - low).astype(np.float32)
            part = part[:, None] if axis == 0 else part
            high = np.minimum(low + 1, x.shape[axis] - 1)
            x = x.take(low, axis) * (1 - part) + x.take(high, axis) * part
        curve = np.interp(np.arange(bands), np.linspace(0, bands - 1, 5), self.rng.normal(0, 0.8, 5))
        x = np.maximum(x + curve[:, None], np.log(FLOOR)).astype(np.float32)
        for axis, times in ((0, self.rng.integers(0, 3)), (1, self.rng.integers(0, 1 + n // 100))):
            for _ in range(times if self.chance(0.6) else 0):
                width = int(self.rng.integers(1, 7))
                at0 = int(self.rng.integers(0, x.shape[axis] - width))
                x[(slice(None),) * axis + (slice(at0, at0 + width),)] = x.mean()
        return x


def shares(n: int, marks: list[tuple[int, float, float]], stretch: float) -> Array:
    """Return for each of `n` frames, and each label, how much of the second loss it has."""
    at, labels = (np.arange(n) * FRAME + 520) * stretch, np.zeros(n, int)
    for label, begin, end in marks:
        labels[(at >= begin) & (at < end + (0 if label == OTHER else 600))] = label
        if label != OTHER:
            labels[(at >= begin) & (at < begin + 0.4 * (end - begin))] = -1  # nobody knows yet
    return np.where(labels >= 0, np.where(labels == 0, 0.4, 1), 0)[:, None] * np.eye(OTHER + 1)[labels]


class Trainee(nn.Module):
    """The network on features, and beside its scores those of the second loss."""

    def __init__(self) -> None:
        super().__init__()
        self.commands = Commands()
        self.second = nn.Linear(self.commands.head.weight.shape[1], OTHER + 1)

    def forward(self, x: Any) -> Any:
        hidden = self.commands.encode(x)
        return F.log_softmax(self.commands.head(hidden), -1), F.log_softmax(self.second(hidden), -1)


def grown(weights: dict[str, Array]) -> dict[str, Array]:
    """Return weights for more blocks, and wider ones, that give the scores of those given."""
    out = {}
    for name, p in Commands().named_parameters():
        new, old = np.array(p.numpy()), weights.get(name)
        if name.endswith("down.weight") or (old is None and name.endswith("down.bias")):
            new[:] = 0  # what is new adds nothing yet
        if old is not None:
            new[tuple(slice(n) for n in old.shape)] = old
        out[name] = new
    return out


def right(model: Commands, recordings: Recordings) -> float:
    """Return the share of single words that are heard, and nothing besides."""
    heard = []
    for x, word in recordings.single:
        if word in WORDS:
            best = model(ds.tensor(x[None])).numpy()[0].argmax(1)
            said = [int(k) for i, k in enumerate(best) if k and (i == 0 or k != best[i - 1])]
            heard.append(said == [1 + WORDS.index(word)])
    return float(np.mean(heard))


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train the recogniser of ten commands.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--weights", type=Path, help="to begin with, of as large a network or a smaller one")
    parser.add_argument("--mix", type=float, default=1, help="how much of the end is written; the rest is WEIGHTS")
    parser.add_argument("--blank", type=float, default=-1.25, help="what the blank's bias gets at the end")
    parser.add_argument("--rows", type=int, default=16, help="of a step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a CSV file of the losses: a line for every step")
    args = parser.parse_args(arguments)
    ds.manual_seed(args.seed)
    began = grown(read_safetensors(args.weights)) if args.weights else {}
    maker, valid = Maker(Recordings(args.folder, "train"), args.seed), Recordings(args.folder, "valid")
    net = ds.patch_module(Trainee(), train_variant="full-file-unaligned").train().online()
    mean, log_mel = Commands().eval(), Commands().features
    net.load_state_dict({**net.state_dict(), **{f"commands.{name}": value for name, value in began.items()}})
    optimizer = ds.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.03)
    weights = {name: np.array(p.numpy()) for name, p in net.commands.named_parameters()}
    pool: list[Any] = []  # rows are used twice or so, each time with other features
    begin, step, share = time.time(), 0, 0.0
    log = ["step,minutes,ctc,second,right"]  # `right`: of the single words of `valid`, as they were counted last
    while (done := (time.time() - begin) / 60 / args.minutes) < 1 or step == 0:
        for _ in range(args.rows * (4 if step == 0 else 1) // 2):
            samples, targets, marks = maker.row()
            with ds.no_grad():
                pool.append((log_mel(ds.tensor(samples[None])).numpy()[0], targets, marks))
        pool = pool[-4000:]
        inputs, targets_of, parts = [], {}, {}
        for k in range(args.rows):
            x, targets, marks = maker.pick(pool)
            stretch = maker.uniform(0.85, 1.18) if maker.chance(0.6) else 1.0
            inputs.append(maker.features(x, stretch))
            targets_of[str(k)] = targets
            frames = ((inputs[-1].shape[1] + 1) // 2 + 1) // 2
            parts[str(k)] = shares(frames, marks, stretch).astype(np.float32)
        x = ds.stream_tensor(inputs, names=("B", None, "L"), ids=list(targets_of), sos=True, eos=True)
        scores, second = net(x)
        goals = [targets_of[i] for i in scores.ids]
        classes, lengths = np.array([k for g in goals for k in g], np.int64), np.array([len(g) for g in goals])
        ctc = F.ctc_loss(scores.transpose(0, 1), classes, None, lengths, reduction="sum", zero_infinity=True)
        named = -(second * ds.train.align(second, parts)).sum() / float(sum(p.sum() for p in parts.values()))
        for group in optimizer.param_groups:
            group["lr"] = (
                args.lr * min(1, (step + 1) / 150) * (0.01 + 0.99 * np.cos(np.pi / 2 * min(done, 1)) ** 2)
            )
        optimizer.zero_grad()
        (ctc / (2 * args.rows) + named * (1.5 * (1 - min(done, 1)) + 0.3)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        step += 1
        decay = min(0.999, (1 + step) / (10 + step))
        for name, p in net.commands.named_parameters():
            weights[name] = decay * weights[name] + (1 - decay) * p.numpy()
        minutes = (time.time() - begin) / 60
        log.append(f"{step},{minutes:.3f},{ctc.item() / args.rows:.4f},{named.item():.4f},{share:.4f}")
        if step % 500 == 0 or step == 1:
            mean.load_state_dict({**mean.state_dict(), **weights})
            share = right(mean, valid)
            if args.log:
                args.log.write_text("\n".join(log) + "\n")
            print(
                f"step {step}: CTC {ctc.item() / args.rows:.3f}, {100 * share:.1f} % of single words", flush=True
            )
    if args.log:
        args.log.write_text("\n".join(log) + "\n")
    weights["head.bias"][0] += args.blank
    weights = {name: args.mix * end + (1 - args.mix) * began.get(name, end) for name, end in weights.items()}
    half = {name: value.astype(np.float16) for name, value in weights.items()}
    tensors = [container.Tensor(name, "F16", value.shape, value.tobytes()) for name, value in half.items()]
    args.out.write_bytes(container.write(tensors, {}))
    return share


if __name__ == "__main__":
    main()
