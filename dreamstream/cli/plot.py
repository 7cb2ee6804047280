"""A picture of a run: waveform, outputs over time, latency of steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..data import read_audio
from ..errors import FormatError
from .outputs import in_frames, in_pairs

if TYPE_CHECKING:
    from .audio_file import AudioFile

__all__ = ["new_figure", "plot", "require_matplotlib"]

Array = npt.NDArray[Any]

MOST_FILES = 4
MOST_LINES = 12  # more values per frame become an image


def require_matplotlib(path: str) -> None:
    """Raise ImportError where matplotlib is not installed, FormatError where it writes no such file."""
    try:
        from matplotlib import backend_bases
    except ImportError:
        raise ImportError("--plot needs matplotlib; install it with pip install dreamstream[plot]") from None
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
    figure = new_figure(10, 2 + 3.2 * len(shown))
    axes = figure.subplots(
        2 * len(shown) + 1, 1, sharex=True, height_ratios=[*[1, 1.4] * len(shown), 0.8], squeeze=False
    )[:, 0]
    for i, file in enumerate(shown):
        _draw_waveform(axes[2 * i], file)
        _draw_outputs(axes[2 * i + 1], file, chunk_ms)
    axes[-1].plot(
        (1 + np.arange(len(latencies))) * chunk_ms / 1000, 1000 * np.asarray(latencies), linewidth=0.8, color="0.3"
    )
    longest = max(file.samples / file.reader.sample_rate for file in shown)
    axes[-1].set(xlabel="seconds of audio", ylabel="ms per step", ylim=(0, None), xlim=(0, max(longest, 1e-3)))
    figure.savefig(path, dpi=120)


def _draw_waveform(axes: Any, file: AudioFile) -> None:
    samples, rate = read_audio(file.path)
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


def _leaving(file: AudioFile) -> Array:
    """Return how much audio had come when each frame of the first output left, in seconds."""
    seconds, counts = np.array(file.left).reshape(-1, 2).T
    left: Array = seconds[np.searchsorted(counts, np.arange(file.frames(0)), side="right")]
    return left
