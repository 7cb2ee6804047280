"""Recordings that are sent whole: what a model says of one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ..data import AudioReader
from ..engine import compile
from ..errors import FormatError
from ..nn import Resample
from ..stream.tree import leaves
from .streams import Model

_SECONDS = 1.0  # of a recording at a time
_MOST_VALUES = 5_000_000  # which JSON has in some 100 MB


def outputs_of(model: Model, file: BinaryIO) -> dict[str, Any]:
    """Return what a model gives for a recording, of JSON's types.

    Raises
    ------
    FormatError
        For what is no recording, and for a model that takes no samples.
    """
    engine = copy.copy(model.engine)
    rate = engine.inputs[0].rate
    if model.features not in ((), (1,)) or rate.denominator != 1 or rate == 1:
        raise FormatError(f"{model.name} takes {engine.inputs[0].dimensions} at a rate of {rate}, not samples")
    shape = engine.inputs[0].shape_of(-1)
    found: list[list[Any]] = [[] for _ in engine.outputs]
    n_samples = n_values = 0
    with AudioReader(file) as reader, engine.stream("file") as stream:
        for samples in _at_rate(reader, int(rate)):
            n_samples += len(samples)
            for parts, part in zip(found, leaves(stream.step(samples.reshape(shape)))):
                parts.append(part)
                n_values += part.size
            if n_values > _MOST_VALUES:
                raise FormatError(f"more than {_MOST_VALUES} numbers come out; send it as a stream")
        for parts, part in zip(found, leaves(stream.finish())):
            parts.append(part)
    arrays = [np.concatenate(parts, engine.stream_axis(k)) for k, parts in enumerate(found)]
    told = [
        {"name": o.name, "rate": str(o.rate), "shape": list(a.shape), "values": a.reshape(-1).tolist()}
        for o, a in zip(engine.outputs, arrays)
    ]
    return {"model": model.name, "samples": n_samples, "rate": str(rate), "outputs": told}


def _at_rate(reader: AudioReader, rate: int) -> Iterator[Any]:
    """Yield a recording's samples, of another rate where that is wanted."""
    chunks = reader.chunks(max(1, int(reader.sample_rate * _SECONDS)))
    if reader.sample_rate == rate:
        yield from chunks
        return
    front = compile(Resample(reader.sample_rate, rate).eval(), ("B", "L"), reader.sample_rate, verify=False)
    with front.stream("file") as stream:
        for samples in chunks:
            yield stream.step(samples)
        yield stream.finish()
