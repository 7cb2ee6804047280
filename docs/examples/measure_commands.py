"""Say how often `dreamstream.models.Commands` errs: the figures of its card.

    python measure_commands.py FOLDER [--split valid] [--weights FILE] [--seed 0]

FOLDER is that of train_commands.py. Strings are one to four commands by one person, cut 0 to 100 ms before and
behind where they are loud, in noise 20 and 10 dB below them and with zeros between them. Of three strings one
has its words joined hard (0 to 30 ms apart), one closely (30 to 150 ms), one with pauses (150 to 600 ms). Noise
is the last part of each recording, which training doesn't have. Settings are chosen on `valid`; `test` is for
the card. Some strings are measured once more as other microphones, rooms and levels have them; and what is heard
in a minute each of sounds in which nothing is said.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from train_commands import RATE, Recordings, spoken

import dreamstream as ds
from dreamstream.models import Commands
from dreamstream.models.commands import WORDS
from dreamstream.nn.state import read_safetensors

Array = Any


class Heard:
    """What a model hears in samples, one stream at a time."""

    def __init__(self, model: Commands) -> None:
        self.engine = ds.compile(model, model.spec, rate=model.sample_rate, verify=False)
        self.decoder = ds.decode.CTCDecoder(model.tokens, beam=0, rate=model.rate)

    def __call__(self, x: Array) -> list[str]:
        scores = self.engine.step({"x": x.astype(np.float32)}, sos="x", eos="x")
        return self.decoder.step(scores, sos="x", eos="x")["x"].text.split()


def errors(said: list[str], heard: list[str]) -> int:
    """Return the least number of words to change, to add and to take away."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        new = [i]
        for j, other in enumerate(heard, 1):
            new.append(min(row[j] + 1, new[-1] + 1, row[j - 1] + (word != other)))
        row = new
    return row[-1]


#: Seconds between the words of a string.
GAPS = {"joined hard": (0.0, 0.03), "close": (0.03, 0.15), "with pauses": (0.15, 0.6)}


def strings(of: Recordings, rng: Any, n: int) -> list[tuple[list[str], list[Array]]]:
    """Return `n` times the words that one person says, and their samples with zeros around them."""
    out, people = [], sorted(of.words)
    for i in range(n):
        gap = list(GAPS.values())[i % len(GAPS)]
        by = of.words[people[rng.integers(len(people))]]
        said = [sorted(by)[rng.integers(len(by))] for _ in range(rng.integers(1, 5))]
        parts = [np.zeros(RATE // 4)]
        for word in said:
            x = by[word][rng.integers(len(by[word]))]
            begin, end = spoken(x)
            before, behind = rng.integers(0, RATE // 10, 2)
            parts += [x[max(0, begin - before) : end + behind], np.zeros(int(rng.uniform(*gap) * RATE))]
        out.append((said, [*parts, np.zeros(RATE // 4)]))
    return out


def resampled(x: Array, rate: int) -> Array:
    """Return the samples without what is above half a lower rate."""
    spectrum = np.fft.rfft(x)
    spectrum[int(len(spectrum) * rate / RATE) :] = 0
    return np.fft.irfft(spectrum, len(x))


def in_a_room(x: Array) -> Array:
    """Return the samples with an echo that fades by 60 dB in 0.4 s."""
    n = int(0.3 * RATE)
    echo = np.random.default_rng(3).standard_normal(n) * np.exp(-np.arange(n) / 1000)
    echo[0] = 6
    spectrum = np.fft.rfft(x, len(x) + n) * np.fft.rfft(echo / np.linalg.norm(echo), len(x) + n)
    return np.fft.irfft(spectrum, len(x) + n)[: len(x)]


#: What is done to strings in noise 20 dB below them.
CHANGES: dict[str, Callable[[Array], Array]] = {
    "as they are": lambda x: x,
    "20 dB less": lambda x: x / 10,
    "30 dB less": lambda x: x / 10**1.5,
    "10 dB more": lambda x: (x * 10**0.5).clip(-1, 1),
    "20 dB more, clipped": lambda x: (x * 10).clip(-1, 1),
    "an offset of 0.05": lambda x: x + 0.05,
    "an offset of 0.2": lambda x: x + 0.2,
    "8,000 per second": lambda x: resampled(x, 8000),
    "11,025 per second": lambda x: resampled(x, 11025),
    "8 bits": lambda x: np.round(x * 128) / 128,
    "in a room": in_a_room,
    "behind 10 s of zeros": lambda x: np.concatenate([np.zeros(10 * RATE), x]),
}


def wordless(noise: list[Array], seconds: int) -> dict[str, Array]:
    """Return sounds in which nothing is said, of so many seconds each."""
    rng, t = np.random.default_rng(5), np.arange(seconds * RATE) / RATE
    notes = np.repeat(220 * 2 ** (rng.integers(0, 24, 8 * seconds) / 12), RATE // 8)
    fading = np.tile(np.exp(-np.arange(RATE // 2) / 3000), 2 * seconds)
    sounds = {f"noise {i}": np.resize(x, len(t)) for i, x in enumerate(noise, 1)}
    return sounds | {
        "white noise": 0.1 * rng.standard_normal(len(t)),
        "faint white noise": 0.01 * rng.standard_normal(len(t)),
        "a melody": sum(np.sin(2 * np.pi * notes * t * k) * 0.1 / k for k in (1, 2, 3)) * fading,
        "a sweep": 0.3 * np.sin(2 * np.pi * (100 + 50 * t) * t),
        "clicks": (np.arange(len(t)) % (RATE // 2) < 20) * 0.8,
        "zeros": np.zeros(len(t)),
    }


def measure(
    model: Commands, folder: Path, split: str, seed: int = 0, few: int = 150, seconds: int = 60
) -> dict[str, float]:
    """Return the rates of errors, by what they are of; `few` strings are changed, sounds last `seconds`."""
    of, rng, heard = Recordings(folder, split), np.random.default_rng(seed), Heard(model)
    noise = [ds.data.read_audio(path)[0] for path in sorted((folder / "_background_noise_").glob("*.flac"))]
    noise = [x[int(0.7 * len(x)) :] for x in noise]
    made, out = strings(of, rng, 600), {}
    for name, db in (("strings, 20 dB", 20.0), ("strings, 10 dB", 10.0), ("strings, zeros between", None)):
        wrong, sounds = list[int](), list[Array]()
        for said, parts in made:
            x = np.concatenate(parts)
            if db is not None:
                level = np.sqrt(np.square(np.concatenate(parts[1::2])).mean())
                n = noise[rng.integers(len(noise))]
                n = np.resize(np.roll(n, rng.integers(len(n))), len(x))
                x = x + n * level * 10 ** (-db / 20) / np.sqrt(np.square(n).mean() + 1e-12)
            wrong.append(errors(said, heard(x)))
            sounds += [x] * (len(sounds) < few)
        out[name] = sum(wrong) / sum(len(said) for said, _ in made)
        for i, gap in enumerate(GAPS):
            out[f"  {name}, {gap}"] = sum(wrong[i::3]) / sum(len(said) for said, _ in made[i::3])
        for change in CHANGES if db == 20 else ():
            many = sum(errors(said, heard(CHANGES[change](x))) for (said, _), x in zip(made[:few], sounds))
            out[f"  {few} of these, {change}"] = many / sum(len(said) for said, _ in made[:few])
    out |= {f"words in {seconds} s of {name}": len(heard(x)) for name, x in wordless(noise, seconds).items()}
    singles = [(word, heard(x)) for x, word in of.single]
    commands = [([word], got) for word, got in singles if word in WORDS]
    out["singles right"] = sum(said == got for said, got in commands) / len(commands)
    out["other words taken for commands"] = sum(bool(got) for word, got in singles if word not in WORDS)
    out["of other words"] = len(singles) - len(commands)
    hours = sum(len(x) for x in of.speech) / RATE / 3600
    out["commands per hour of other speech"] = sum(len(heard(x)) for x in of.speech) / hours
    said_by = Counter(row["speaker"] for row in of.rows)
    for name, many in (("  by people with 20 or more", True), ("  by people with fewer", False)):
        of_these = [
            [row["word"]] == got
            for row, (_, got) in zip(of.rows, singles)
            if row["word"] in WORDS and (said_by[row["speaker"]] >= 20) == many
        ]
        out[name] = sum(of_these) / max(1, len(of_these))
    by_word = Counter(said[0] for said, got in commands if said == got)
    total = Counter(said[0] for said, _ in commands)
    return {**out, **{f"  {word}": by_word[word] / total[word] for word in WORDS}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure the recogniser of ten commands.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split", default="valid", choices=("train", "valid", "test"))
    parser.add_argument("--weights", type=Path, help="instead of those that come with the package")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    network = Commands(pretrained=args.weights is None).eval()
    if args.weights is not None:
        network.load_state_dict({**network.state_dict(), **read_safetensors(args.weights)})
    for key, value in measure(network, args.folder, args.split, args.seed).items():
        print(f"{key:36} {value:.3f}")
