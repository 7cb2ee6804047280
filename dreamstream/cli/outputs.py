"""Files that hold what came out of a model."""

from __future__ import annotations

import csv
import os
import wave
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError

if TYPE_CHECKING:
    from .audio_file import AudioFile

Array = npt.NDArray[Any]

MOST_CHANNELS = 8
LEAST_RATE = 1000  # Hz, of what may be samples


def in_frames(array: Array, axis: int) -> Array:
    """Return an output frame by frame."""
    return np.moveaxis(array, axis, 0)


def in_pairs(array: Array) -> Array:
    """Return complex numbers as real and imaginary part, along one axis more; all others as they are."""
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def check_outputs(path: str, files: Sequence[AudioFile]) -> None:
    """Raise FormatError where what the files give can't be written so; before all the work."""
    kind = os.path.splitext(path)[1]
    n_arrays = sum(len(file.outputs) for file in files)
    if kind == ".npy" and n_arrays > 1:
        raise FormatError(f"{path} can hold one array, not {n_arrays}; give a .npz file")
    if kind == ".wav":
        if n_arrays > 1:
            raise FormatError(f"{path} can hold one output of one file, not {n_arrays}; give a .npz file")
        info = files[0].engine.outputs[0]
        sizes = [d for d in info.dimensions if isinstance(d, int)]
        samples = info.dtype == "float32" and info.rate >= LEAST_RATE and info.rate.denominator == 1
        if not samples or len(sizes) > 1 or max(sizes, default=1) > MOST_CHANNELS:
            raise FormatError(
                f"{path} takes samples, and the output is {info.dimensions} {info.dtype} at {info.rate} frames a "
                "second; give a .npz, .npy or .csv file"
            )


def write_outputs(path: str, files: Sequence[AudioFile]) -> None:
    """Write all outputs of all files.

    Parameters
    ----------
    path : str
        ``.npz``: an array per file, named by its path, and by its path and the output's name where a model
        has several; ``.npy``: the array of a single one; ``.csv``: a line per frame: file, start in
        seconds, values (of the first output; complex ones as pairs); ``.wav``: samples of 16 bits, what is
        beyond ±1 cut off.
    """
    kind = os.path.splitext(path)[1]
    if kind == ".csv":
        return _write_csv(path, files)
    if kind == ".wav":
        return _write_wav(path, files[0])
    arrays = {}
    for file in files:
        for k, info in enumerate(file.engine.outputs):
            name = file.path if len(file.outputs) == 1 else f"{file.path}:{info.name}"
            arrays[name] = file.output(k)
    if kind == ".npy":
        np.save(path, next(iter(arrays.values())))
    else:
        np.savez(path, **arrays)  # type: ignore[arg-type]  # names of files are no option's


def _write_csv(path: str, files: Sequence[AudioFile]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        for file in files:
            frames = in_pairs(in_frames(file.output(0), file.engine.stream_axis(0)))
            rate = file.engine.outputs[0].rate
            for i, frame in enumerate(frames):
                start = float(i / rate) if rate else 0.0
                writer.writerow([file.path, f"{start:.6f}", *np.ravel(frame).tolist()])


def _write_wav(path: str, file: AudioFile) -> None:
    frames = in_frames(file.output(0), file.engine.stream_axis(0))
    frames = frames.reshape(len(frames), -1 if frames.size else 1)
    with wave.open(path, "wb") as out:
        out.setparams((frames.shape[1], 2, int(file.engine.outputs[0].rate), 0, "NONE", ""))
        out.writeframes(np.rint(np.clip(frames, -1, 32767 / 32768) * 32768).astype("<i2").tobytes())
