"""Say how often `dreamstream.models.Commands` errs: the figures of its card.

    python measure_commands.py FOLDER [--split valid] [--weights FILE] [--seed 0]

FOLDER is that of train_commands.py. Strings are one to four commands by one person, cut 0 to 100 ms before and
behind where they are loud, in noise 20 and 10 dB below them and with zeros between them. Of three strings one
has its words joined hard (0 to 30 ms apart), one closely (30 to 150 ms), one with pauses (150 to 600 ms). Noise
is the last part of each recording, which training doesn't have. Settings are chosen on `valid`; `test` is for
the card.
"""

from __future__ import annotations

import argparse
from collections import Counter
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


def measure(model: Commands, folder: Path, split: str, seed: int = 0) -> dict[str, float]:
    """Return the rates of errors, by what they are of."""
    of, rng, heard = Recordings(folder, split), np.random.default_rng(seed), Heard(model)
    noise = [ds.data.read_audio(path)[0] for path in sorted((folder / "_background_noise_").glob("*.flac"))]
    noise = [x[int(0.7 * len(x)) :] for x in noise]
    made, out = strings(of, rng, 600), {}
    for name, db in (("strings, 20 dB", 20.0), ("strings, 10 dB", 10.0), ("strings, zeros between", None)):
        wrong = []
        for said, parts in made:
            x = np.concatenate(parts)
            if db is not None:
                level = np.sqrt(np.square(np.concatenate(parts[1::2])).mean())
                n = noise[rng.integers(len(noise))]
                n = np.resize(np.roll(n, rng.integers(len(n))), len(x))
                x = x + n * level * 10 ** (-db / 20) / np.sqrt(np.square(n).mean() + 1e-12)
            wrong.append(errors(said, heard(x)))
        out[name] = sum(wrong) / sum(len(said) for said, _ in made)
        for i, gap in enumerate(GAPS):
            out[f"  {name}, {gap}"] = sum(wrong[i::3]) / sum(len(said) for said, _ in made[i::3])
    singles = [(word, heard(x)) for x, word in of.single]
    commands = [([word], got) for word, got in singles if word in WORDS]
    out["singles right"] = sum(said == got for said, got in commands) / len(commands)
    out["other words taken for commands"] = sum(bool(got) for word, got in singles if word not in WORDS)
    out["of other words"] = len(singles) - len(commands)
    seconds = sum(len(x) for x in of.speech) / RATE
    out["commands per hour of other speech"] = sum(len(heard(x)) for x in of.speech) / seconds * 3600
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
