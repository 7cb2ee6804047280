"""Pictures of a run: waveform, outputs, latency of steps; experts over time, and how often each ran; words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..data.values import in_frames, in_pairs
from ..errors import FormatError

if TYPE_CHECKING:
    from ..decode.hypotheses import Word
    from .audio_file import AudioFile

Array = npt.NDArray[Any]

MOST_FILES = 4
MOST_LAYERS = 4  # with experts, of a file
MOST_LINES = 12  # more values per frame become an image


def require_matplotlib(path: str) -> None:
    """Raise ImportError where matplotlib is not installed, FormatError where it writes no such file."""
    try:
        from matplotlib import backend_bases
    except ImportError:
        raise ImportError("--plot needs matplotlib; install it with pip install matplotlib") from None
    kinds = backend_bases.FigureCanvasBase.get_supported_filetypes()
    if os.path.splitext(path)[1][1:].lower() not in kinds:
        raise FormatError(f"--plot writes {', '.join(sorted(kinds))} files, got {path}")


def new_figure(width: float, height: float) -> Any:
    """Return a figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plot(path: str, files: Sequence[AudioFile], latencies: Sequence[float], chunk_ms: int) -> None:
    """Draw the first files and the seconds that each step took, all over the same time."""
    shown = files[:MOST_FILES]
    routed = [_routed(file) for file in shown]
    experts = [[float(np.clip(0.1 * len(layer["counts"]), 1, 4)) for _, layer in layers] for layers in routed]
    heights = [h for own in experts for h in (1, 1.4, *own)]
    figure = new_figure(10, 2 + 1.33 * sum(heights))
    axes = figure.subplots(len(heights) + 1, 1, sharex=True, height_ratios=[*heights, 0.8], squeeze=False)[:, 0]
    free = iter(axes)
    for file, layers in zip(shown, routed):
        _draw_waveform(next(free), file)
        _draw_outputs(next(free), file, chunk_ms)
        for name, layer in layers:
            _draw_experts(next(free), name, layer, file.path)
    ends = (1 + np.arange(len(latencies))) * chunk_ms / 1000
    axes[-1].plot(ends, 1000 * np.asarray(latencies), linewidth=0.8, color="0.3")
    longest = max(file.seconds for file in shown)
    axes[-1].set(xlabel="seconds of audio", ylabel="ms per step", ylim=(0, None), xlim=(0, max(longest, 1e-3)))
    _save(figure, path)


def plot_words(path: str, files: Sequence[AudioFile], words: Mapping[str, Sequence[tuple[Word, float]]]) -> None:
    """Draw the first files with their words, and when each was final.

    `words` are by file the words, and how much of it had come when each was final, in seconds.
    """
    shown = files[:MOST_FILES]
    figure = new_figure(10, 0.6 + 2.2 * len(shown))
    for file, axes in zip(shown, figure.subplots(len(shown), 1, squeeze=False)[:, 0]):
        _draw_waveform(axes, file)
        top = 1.15 * float(np.abs(file.recording()).max(initial=1e-3))
        for i, (word, final) in enumerate(words[file.path]):
            color = f"C{i % 10}"
            axes.axvspan(word.start, word.end, color=color, alpha=0.25, linewidth=0)
            axes.text((word.start + word.end) / 2, top, word.text, ha="center", va="bottom", color=color)
            axes.plot([word.end, final], [-top, -top], color=color, linewidth=1)
            axes.plot(final, -top, marker="|", markersize=9, color=color)
        axes.set(ylim=(-1.2 * top, 1.4 * top), xlim=(0, max(file.seconds, 1e-3)))
    axes.set(xlabel="seconds; below, from the end of each word to when it was final")
    _save(figure, path)


def _save(figure: Any, path: str) -> None:
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        error.filename = path
        raise


def _draw_waveform(axes: Any, file: AudioFile) -> None:
    samples, rate = file.recording(), file.reader.sample_rate
    step = max(1, len(samples) // 4000)  # the extremes of so many samples make one column
    n = len(samples) // step
    columns = samples[: n * step].reshape(n, step) if n else np.zeros((1, 1))
    times = np.arange(len(columns)) * step / rate
    if step == 1:
        axes.plot(times, columns, linewidth=0.8)
    else:
        axes.fill_between(times, columns.min(1), columns.max(1), linewidth=0.4)
    axes.set(title=os.path.basename(file.path), ylabel="samples")


def _draw_outputs(axes: Any, file: AudioFile, chunk_ms: int) -> None:
    """Draw the first output at the time that it is about, and again when it left."""
    info = file.engine.outputs[0]
    frames = in_pairs(in_frames(file.output(0), file.engine.stream_axis(0)))
    frames = frames.reshape(len(frames), int(np.prod(frames.shape[1:])))
    rate = float(info.rate) or 1.0
    times = np.arange(len(frames)) / rate
    name = info.name or "output"
    if frames.shape[1] > MOST_LINES:
        axes.imshow(frames.T, aspect="auto", origin="lower", extent=(0, len(frames) / rate, 0, frames.shape[1]))
    else:
        for i, line in enumerate(frames.T):
            label = name if frames.shape[1] == 1 else f"{name} {i}"
            axes.plot(times, line, linewidth=1.2, label=label, color=f"C{i % 10}")
            seen = "as it leaves" if i == 0 else None
            axes.plot(_leaving(file), line, linewidth=0.8, linestyle=":", label=seen, color=f"C{i % 10}")
        axes.legend(loc="lower right", fontsize="small")
    samples, at = file.delay, file.reader.sample_rate
    delay = f"{samples} samples, {1000 * samples / at:.0f} ms" if np.isfinite(samples) else "until the end"
    axes.set(ylabel=name, title=f"delay {delay}; chunks of {chunk_ms} ms")


def _routed(file: AudioFile) -> list[tuple[str, Any]]:
    """Return the name and the statistics of the layers that are drawn, first and last among them."""
    found = list(file.engine.statistics()["layers"].items())
    found = [(name, layer) for name, layer in found if file.path in layer["streams"]]
    places = np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST_LAYERS)).round().astype(int))
    return [found[i] for i in places]


def _draw_experts(axes: Any, name: str, layer: Any, path: str) -> None:
    """Draw which experts each frame was given to, and beside it the share that each expert had."""
    own, n = layer["streams"][path], len(layer["counts"])
    chosen, rate = own["experts"], float(layer["rate"])
    times = (np.arange(len(chosen)) + 0.5) / rate
    for rank, experts in reversed(list(enumerate(chosen.T))):
        axes.scatter(times[experts >= 0], experts[experts >= 0], s=5 if rank == 0 else 2, color=f"C{rank % 10}")
    step = -(-n // 40)
    axes.set(ylabel="expert", ylim=(n - 0.5, -0.5), yticks=range(0, n, step))
    axes.tick_params("y", labelsize=6 if n > 12 else 8)
    axes.grid(axis="y", linewidth=0.3)
    title = f"{name or 'experts'}: {own['tokens']} frames, {own['dead']} of {n} experts unused"
    axes.set_title(title, fontsize="medium")
    load = axes.inset_axes((1.01, 0, 0.1, 1), sharey=axes)
    load.barh(range(n), 100 * own["load"], color="0.5")
    load.set_xlabel("load, %", fontsize=7)
    load.tick_params("y", labelleft=False)
    load.tick_params("x", labelsize=6)


def _leaving(file: AudioFile) -> Array:
    """Return how much audio had come when each frame of the first output left, in seconds."""
    seconds, counts = np.array(file.left).reshape(-1, 2).T
    return seconds[np.searchsorted(counts, np.arange(file.frames(0)), side="right")]
