"""Make the recording of the demo and its pictures: ``python docs/figures/make_commands.py [COMMANDS | LOG.csv]``.

COMMANDS is a folder of Speech Commands with its ``split.csv``; without one only the pictures are made. LOG.csv is
what ``train_commands.py --log`` writes, and becomes the picture of a training.
"""

from __future__ import annotations

import csv
import hashlib
import subprocess
import sys
import wave
from collections import defaultdict
from pathlib import Path

import numpy as np

from dreamstream.cli.demo import SAMPLE_RATE, SPOKEN
from dreamstream.data import AudioReader

HERE = Path(__file__).parent
RECORDING = HERE.parent.parent / "dreamstream" / "assets" / "commands.wav"
LENGTH, FADE = 9216, 160  # samples of a word, and of those over which it comes and goes


def chosen(folder: Path) -> list[Path]:
    """Return the first recording of each word, by the people who said all ten and whose hashes are the least."""
    by_person: dict[str, dict[str, Path]] = defaultdict(dict)
    with open(folder / "split.csv") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["file"])
    for row in rows:
        if row["split"] == "test" and row["word"] in " ".join(SPOKEN).split():
            by_person[row["speaker"]].setdefault(row["word"], folder / row["file"])
    people = [person for person, files in by_person.items() if len(files) == 10]
    people.sort(key=lambda person: hashlib.sha256(person.encode()).hexdigest())
    return [by_person[person][word] for person, words in zip(people, SPOKEN) for word in words.split()]


def loudest(path: Path) -> np.ndarray:
    """Return the part of a recording that has most of its energy."""
    with AudioReader(path, dtype="int16") as reader:
        samples = reader.read().astype(float)
    at = int(np.convolve(samples**2, np.ones(LENGTH), "valid").argmax())
    part = samples[at : at + LENGTH]
    ramp = np.minimum(1, np.arange(LENGTH) / (FADE - 1))
    return np.round(part * ramp * ramp[::-1])


def make_recording(folder: Path) -> None:
    """Write the words of four people, one behind the other."""
    with wave.open(str(RECORDING), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        for path in chosen(folder):
            file.writeframes(loudest(path).astype("<i2").tobytes())


def make_pictures() -> None:
    """Draw what transcribe draws of one caller's words, and what the demo prints, as text."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    command = [sys.executable, "-m", "dreamstream"]
    plot = [*command, "transcribe", str(RECORDING), "--plot", str(HERE / "transcribe.png")]
    subprocess.run(plot, check=True, stdout=subprocess.DEVNULL)
    text = subprocess.run([*command, "demo"], check=True, capture_output=True, text=True).stdout
    text = "$ dreamstream demo\n" + "\n".join(text.splitlines()[:16])
    figure = Figure(figsize=(9.2, 0.165 * (text.count("\n") + 2)), facecolor="#1e1e1e")
    FigureCanvasAgg(figure)
    figure.text(0.015, 0.97, text, family="monospace", fontsize=9, color="#e6e6e6", va="top", linespacing=1.35)
    figure.savefig(HERE / "demo.png", dpi=110)


def make_curve(log: Path) -> None:
    """Draw the losses of a training, means of a hundred steps, and which commands of `valid` were right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = np.loadtxt(log, delimiter=",", skiprows=1)
    rows = rows[: len(rows) // 100 * 100].reshape(-1, 100, rows.shape[1]).mean(1)
    figure = Figure(figsize=(9.2, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    losses, right = figure.subplots(1, 2)
    losses.plot(rows[:, 1], rows[:, 2], label="CTC, of a row")
    losses.plot(rows[:, 1], rows[:, 3], label="name of each frame")
    losses.legend()
    right.plot(rows[:, 1], 100 * rows[:, 4], color="C2")
    right.set_ylabel("% right")
    for axes in (losses, right):
        axes.set_xlabel("minutes")
    figure.savefig(HERE / "commands_training.png", dpi=110)


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if given is not None and given.suffix == ".csv":
        make_curve(given)
    else:
        if given is not None:
            make_recording(given)
        make_pictures()
