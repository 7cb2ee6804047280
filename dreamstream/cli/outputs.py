"""Files that hold what came out of a model."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FormatError

if TYPE_CHECKING:
    from .audio_file import AudioFile

__all__ = ["write_outputs"]


def write_outputs(path: str, files: Sequence[AudioFile]) -> None:
    """Write all outputs of all files.

    Parameters
    ----------
    path : str
        ``.npz``: an array per file, named by its path, and by its path and the output's name where a model
        has several; ``.npy``: the array of a single one; ``.csv``: a line per frame: file, start in
        seconds, values (of the first output).

    Raises
    ------
    FormatError
        For several arrays in a ``.npy`` file.
    """
    kind = os.path.splitext(path)[1]
    arrays = {}
    for file in files:
        for k, info in enumerate(file.engine.outputs):
            name = file.path if len(file.outputs) == 1 else f"{file.path}:{info.name}"
            arrays[name] = file.output(k)
    if kind == ".npy" and len(arrays) > 1:
        raise FormatError(f"{path} can hold one array, not {len(arrays)}; give a .npz file")
    if kind == ".csv":
        _write_csv(path, files)
    elif kind == ".npy":
        np.save(path, next(iter(arrays.values())))
    else:
        np.savez(path, **arrays)  # type: ignore[arg-type]  # names of files are no option's


def _write_csv(path: str, files: Sequence[AudioFile]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        for file in files:
            frames = np.moveaxis(file.output(0), file.engine.stream_axis(0), 0)
            rate = file.engine.outputs[0].rate
            for i, frame in enumerate(frames):
                start = float(i / rate) if rate else 0.0
                writer.writerow([file.path, f"{start:.6f}", *np.ravel(frame).tolist()])
