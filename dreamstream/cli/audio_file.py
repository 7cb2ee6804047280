"""A file that is being run: its stream, and what came out so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import nn
from ..data import AudioReader
from ..engine import Engine

Array = npt.NDArray[Any]


@dataclass
class AudioFile:
    """A file, its stream, and what came out so far.

    Attributes
    ----------
    path : str
        As it was given; the stream's id.
    engine : Engine
        Of a model at the file's own sample rate, or of a model file.
    model : Module or None
        None where the model came as a file.
    front : Engine or None
        Resamples for the engine of a model file.
    outputs : list of list of array
        Per output of the model, what each step gave.
    left : list of (float, int)
        After each step the seconds fed so far, and the frames of the first output that had left.
    samples : int
        Fed so far.
    """

    path: str
    reader: AudioReader
    engine: Engine
    model: nn.Module | None
    front: Engine | None
    outputs: list[list[Array]] = field(init=False)
    left: list[tuple[float, int]] = field(default_factory=list)
    samples: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        self.outputs = [[] for _ in self.engine.outputs]
        self._frames = [0] * len(self.outputs)

    def add(self, outputs: list[Array]) -> None:
        """Add what a step gave."""
        for k, frames in enumerate(outputs):
            self.outputs[k].append(frames)
            self._frames[k] += frames.shape[self.engine.stream_axis(k)]
        self.left.append((self.samples / self.reader.sample_rate, self._frames[0]))

    def frames(self, k: int) -> int:
        """Return how many frames of output k there were so far, along its L."""
        return self._frames[k]

    def output(self, k: int) -> Array:
        """Return all frames of output k, laid end to end, once the stream has ended."""
        self.outputs[k] = [np.concatenate(self.outputs[k], axis=self.engine.stream_axis(k))]
        return self.outputs[k][0]

    @property
    def delay(self) -> float:
        """Samples of the file that an output frame waits for at most."""
        if self.front is None:
            return self.engine.delay
        behind = self.engine.delay * self.front.rate / self.engine.rate
        return self.front.delay + (math.ceil(behind) if math.isfinite(behind) else math.inf)
