"""A file that is being run: its stream, and what came out so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import nn
from ..data import AudioReader
from ..data.values import in_pairs
from ..engine import Engine
from ..errors import FormatError

Array = npt.NDArray[Any]


@dataclass
class AudioFile:
    """A file, its stream, and what came out so far."""

    path: str  #: As it was given, "-" for standard input; the stream's id.
    reader: AudioReader
    engine: Engine  #: The engine of a model at the file's own sample rate, or of a model file.
    model: nn.Module | None  #: None where the model came as a file.
    front: Engine | None  #: Resamples for the engine of a model file.
    new: list[Array] = field(default_factory=list)  #: Per output of the model, what the last step gave.
    #: After each step the seconds fed so far, and the frames of the first output that had left.
    left: list[tuple[float, int]] = field(default_factory=list)
    samples: int = 0  #: How many samples were fed so far.
    ended: bool = False
    fault: FormatError | None = None  #: Why the recording ended before it should.
    #: Whether all that was fed, and all that came out, is held for `recording` and `output`.
    keeps_samples: bool = False
    keeps_outputs: bool = False
    #: Least, most and mean value of the first output; not numbers as long as there is none.
    least: float = math.nan
    most: float = math.nan
    mean: float = math.nan

    def __post_init__(self) -> None:
        self._heard: list[Array] = []
        self._outputs: list[list[Array]] = [[] for _ in self.engine.outputs]
        self._frames = [0] * len(self._outputs)
        self._n_values = 0

    def next(self, n_frames: int) -> Array:
        """Return the next chunk; it is shorter only where the recording has ended, or broken off."""
        parts = [np.empty(0, np.float32)]
        try:
            while n_frames > 0 and len(part := self.reader.read(n_frames)):
                parts.append(part)
                n_frames -= len(part)
        except FormatError as error:
            self.fault = error
        self.ended = n_frames > 0
        chunk = parts[1] if len(parts) == 2 else np.concatenate(parts)
        self.samples += len(chunk)
        if self.keeps_samples:
            self._heard.append(chunk)
        return chunk

    def add(self, outputs: list[Array]) -> None:
        """Take what a step gave."""
        self.new = outputs
        for k, frames in enumerate(outputs):
            self._frames[k] += frames.shape[self.engine.stream_axis(k)]
            if self.keeps_outputs:
                self._outputs[k].append(frames)
        if self.keeps_samples:
            self.left.append((self.samples / self.reader.sample_rate, self._frames[0]))
        if (values := in_pairs(outputs[0])).size:
            n, self._n_values = self._n_values, self._n_values + values.size
            self.least = float(values.min() if n == 0 else np.minimum(self.least, values.min()))
            self.most = float(values.max() if n == 0 else np.maximum(self.most, values.max()))
            total = float(values.sum(dtype=np.float64)) + (self.mean * n if n else 0.0)
            self.mean = total / self._n_values

    def frames(self, k: int) -> int:
        """Return how many frames of output k there were so far, along its L."""
        return self._frames[k]

    def n_axes(self, k: int) -> int:
        """Return the number of axes of output k's arrays."""
        return sum(d != "B" for d in self.engine.outputs[k].dimensions)

    def recording(self) -> Array:
        """Return all samples that were fed, where they are kept."""
        return np.concatenate(self._heard)

    def output(self, k: int) -> Array:
        """Return all frames of output k so far, laid end to end, where they are kept."""
        self._outputs[k] = [np.concatenate(self._outputs[k], axis=self.engine.stream_axis(k))]
        return self._outputs[k][0]

    @property
    def seconds(self) -> float:
        """Of audio, fed so far."""
        return self.samples / self.reader.sample_rate

    @property
    def delay(self) -> float:
        """Samples of the file that an output frame waits for at most."""
        if self.front is None:
            return self.engine.delay
        behind = self.engine.delay * self.front.rate / self.engine.rate
        return self.front.delay + (math.ceil(behind) if math.isfinite(behind) else math.inf)
