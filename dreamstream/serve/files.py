"""Recordings that are sent whole: what a model says of one."""

from __future__ import annotations

import copy
import json
from typing import Any, BinaryIO

import numpy as np

from ..data import AudioReader
from ..data.reading import resampled
from ..data.values import in_frames
from ..decode import Word, log_probabilities
from ..decode.hypotheses import as_dict
from ..errors import FormatError
from ..stream.tree import leaves
from .streams import Model

_SECONDS = 1.0  # of a recording at a time
_MOST_VALUES = 5_000_000  # which JSON has in some 100 MB
_PIECE = 4096  # numbers that are written as JSON at a time


def answer(model: Model, file: BinaryIO) -> bytes:
    """Return what `outputs_of` gives as JSON; other threads have the interpreter between pieces of it."""
    found, values = outputs_of(model, file), []
    for output in found.get("outputs", ()):
        values.append(output["values"])
        output["values"] = []
    empty = '"values": []'  # not in a string of JSON's, whose quotes are escaped
    text, *rest = json.dumps(found).split(empty)
    pieces = [text]
    for numbers, text in zip(values, rest):
        parts = (json.dumps(numbers[k : k + _PIECE].tolist())[1:-1] for k in range(0, len(numbers), _PIECE))
        pieces += [empty[:-1], ", ".join(parts), "]", text]
    return "".join(pieces).encode()


def outputs_of(model: Model, file: BinaryIO) -> dict[str, Any]:
    """Return what a model gives for a recording, of JSON's types, but for arrays of `values`.

    What is no recording raises FormatError, and so does a model that takes no samples.
    """
    engine = copy.copy(model.engine)
    rate = engine.inputs[0].rate
    if model.features not in ((), (1,)) or rate.denominator != 1 or rate == 1:
        raise FormatError(f"{model.name} takes {engine.inputs[0].dimensions} at a rate of {rate}, not samples")
    shape = engine.inputs[0].shape_of(-1)
    found: list[list[Any]] = [[] for _ in engine.outputs]
    words, decoder = list[Word](), copy.copy(model.decoder)
    n_samples = n_values = 0

    def take(new: Any, sos: bool, eos: bool) -> None:
        nonlocal n_values
        for k, part in enumerate(leaves(new)):
            if decoder is None:
                found[k].append(part)
                n_values += part.size
            elif k == 0:
                scores = log_probabilities(in_frames(part, engine.stream_axis(0)))
                heard = decoder.step({"file": scores}, ["file"] if sos else (), ["file"] if eos else ())["file"]
                words.extend(heard.since(words[-1].end if words else 0.0)[0])
        if n_values > _MOST_VALUES:
            raise FormatError(f"more than {_MOST_VALUES} numbers come out; send it as a stream")

    with AudioReader(file) as reader, engine.stream("file") as stream:
        pieces = reader.chunks(max(1, int(reader.sample_rate * _SECONDS)))
        for samples in pieces if reader.sample_rate == rate else resampled(pieces, reader.sample_rate, int(rate)):
            take(stream.step(samples.reshape(shape)), n_samples == 0, False)
            n_samples += len(samples)
        take(stream.finish(), n_samples == 0, True)
    fields = {"model": model.name, "samples": n_samples, "rate": str(rate)}
    if decoder is not None:
        return fields | {"text": " ".join(word.text for word in words), "words": [as_dict(word) for word in words]}
    arrays = [np.concatenate(parts, engine.stream_axis(k)) for k, parts in enumerate(found)]
    outputs = [
        {"name": o.name, "rate": str(o.rate), "shape": list(a.shape), "values": a.reshape(-1)}
        for o, a in zip(engine.outputs, arrays)
    ]
    return fields | {"outputs": outputs}
