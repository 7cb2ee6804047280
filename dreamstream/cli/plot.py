"""A picture of a run: waveform, outputs over time, latency of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import read_audio

if TYPE_CHECKING:
    from .audio_file import AudioFile

__all__ = ["plot", "require_matplotlib"]

MOST_FILES = 4
MOST_LINES = 12  # more values per frame become an image


def require_matplotlib() -> None:
    """Raise ImportError where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("--plot needs matplotlib; install it with pip install dreamstream[plot]") from None


def plot(path: str, files: Sequence[AudioFile], latencies: Sequence[float]) -> None:
    """Draw the first files and the seconds that each step took."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = files[:MOST_FILES]
    figure = Figure(figsize=(12, 3 + 3.5 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2 * len(shown) + 1, 1)
    for i, file in enumerate(shown):
        _draw_waveform(axes[2 * i], file)
        _draw_outputs(axes[2 * i + 1], file)
    axes[-1].plot(1000 * np.asarray(latencies), linewidth=0.8)
    axes[-1].set(title="latency per step", xlabel="step", ylabel="ms", ylim=(0, None))
    figure.savefig(path)


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
    axes.set(title=file.path, ylabel="samples", xlim=(0, max(len(samples) / rate, 1e-3)))


def _draw_outputs(axes: Any, file: AudioFile) -> None:
    info = file.engine.outputs[0]
    frames = np.moveaxis(file.output(0), file.engine.stream_axis(0), 0)
    frames = frames.reshape(len(frames), int(np.prod(frames.shape[1:])))
    seconds = file.samples / file.reader.sample_rate
    rate = float(info.rate) or 1.0
    if frames.shape[1] <= MOST_LINES:
        axes.plot(np.arange(len(frames)) / rate, frames, linewidth=0.8)
    else:
        axes.imshow(frames.T, aspect="auto", origin="lower", extent=(0, len(frames) / rate, 0, frames.shape[1]))
    axes.set(ylabel=info.name or "output", xlabel="seconds", xlim=(0, max(seconds, 1e-3)))
