"""One stream's frames, read front to back and cut to chunks of the same length whatever pieces they come in."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import nn
from ..engine import Engine, compile
from ..errors import ShapeError, StreamMismatchError
from .audio import BLOCK, AudioReader
from .items import is_path


class Cut(NamedTuple):
    """How streams are cut."""

    chunk: int | None  #: Frames of a chunk; None for whole streams.
    axis: int = -1  #: Which dimension of an item is L.
    sample_rate: int | None = None  #: The rate that recordings are resampled to; None: they stay as they are.


class Chunk(NamedTuple):
    """Frames of a stream, L at its place; whether they are its last; of a recording, its frames per second."""

    frames: Any
    last: bool
    rate: int | None = None


def chunks_of(x: Any, how: Cut, skip: int = 0) -> Iterator[Chunk]:
    """Yield the chunks of an item but for its first frames, the last one marked; an item without frames has one.

    No more than a chunk, and what comes with one piece, is held at a time.
    """
    if not is_path(x):
        yield from _cut(_pieces(x), how, skip)
    elif Path(x).suffix.lower() == ".npy":
        yield from _cut([np.load(x, mmap_mode="r")], how, skip)
    else:
        with AudioReader(x) as reader:
            rate = reader.sample_rate
            n = min(how.chunk or BLOCK, BLOCK)
            pieces: Iterable[Any] = reader.chunks(n)
            if how.sample_rate is not None and how.sample_rate != rate:
                pieces, rate = resampled(pieces, rate, how.sample_rate), how.sample_rate
            for chunk in _cut(pieces, how._replace(axis=0), skip, np.zeros(0, np.float32)):
                yield chunk._replace(rate=rate)


def _pieces(x: Any) -> Iterable[Any]:
    """Return the arrays that an item in memory is made of."""
    x = x() if callable(x) else x
    if hasattr(x, "shape"):
        return (x,)
    if isinstance(x, (list, tuple)) and all(isinstance(n, (int, float)) for n in x):
        return (np.asarray(x, np.float32),)
    if not isinstance(x, Iterable):
        raise TypeError(
            "expected a path, an array, an iterable of arrays or a function that returns one, got "
            f"{type(x).__name__}"
        )
    return x


def _cut(pieces: Iterable[Any], how: Cut, skip: int, empty: Any = None) -> Iterator[Chunk]:
    held: list[Any] = []
    n, left = 0, skip
    for piece in pieces:
        piece = frames_first(piece, how.axis)
        if left:
            left, piece = left - min(left, len(piece)), piece[left:]
        held.append(piece)
        n += len(piece)
        if how.chunk is None or n <= how.chunk:
            continue
        whole, at = joined(held), 0
        while n - at > how.chunk:  # the last frames wait until it is known whether they are
            yield Chunk(as_given(whole[at : at + how.chunk], how.axis), False)
            at += how.chunk
        held, n = [whole[at:]], n - at
    if left:
        raise StreamMismatchError(f"{skip} of its frames had been read, now it has only {skip - left}")
    if not held and empty is None:
        raise ShapeError("an iterable gave no arrays; an empty one says what a frame is")
    yield Chunk(as_given(joined(held) if held else empty, how.axis), True)


def frames_first(piece: Any, axis: int) -> Any:
    """Return an array, or what makes one, with L as its first dimension."""
    if not hasattr(piece, "movedim"):  # torch's tensors, on any device, stay what they are
        piece = np.asarray(piece)
    if not -piece.ndim <= axis < piece.ndim:
        raise ShapeError(f"axis is {axis}, but an array has {piece.ndim} dimensions")
    return piece.movedim(axis, 0) if hasattr(piece, "movedim") else np.moveaxis(piece, axis, 0)


def as_given(frames: Any, axis: int) -> Any:
    """Return frames with L where it was."""
    return frames.movedim(0, axis) if hasattr(frames, "movedim") else np.moveaxis(frames, 0, axis)


def joined(pieces: list[Any]) -> Any:
    """Return arrays, or torch's tensors, as one: frames end to end."""
    if len(pieces) == 1:
        return pieces[0]
    if hasattr(pieces[0], "movedim"):
        import torch

        return torch.cat(pieces)
    return np.concatenate(pieces)


# ---------------------------------------------------------------------- sample rates
@lru_cache(maxsize=8)
def _resampler(rate: int, wanted: int) -> Engine:
    resample = nn.Resample(rate, wanted).eval()
    return compile(resample, ("B", "L"), rate=rate, threads=1, verify=False)


def resampled(pieces: Iterable[Any], rate: int, wanted: int) -> Iterator[Any]:
    """Yield a recording's samples at another rate."""
    with copy.copy(_resampler(rate, wanted)).stream("resampled") as stream:
        for piece in pieces:
            yield stream.step(piece)
        yield stream.finish()
