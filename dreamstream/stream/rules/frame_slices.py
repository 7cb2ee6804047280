"""Metadata rules for the stream axis, outside a forward: selecting, joining and splitting frames.

Indices are relative to the chunk at hand, negative ones to its longest row. One invariant holds for
every form of index: of any partition of L, exactly one piece carries a flagged row's ``sos`` and
exactly one its ``eos``.  ``sos`` goes with frame 0, ``eos`` with the row's last frame, and both flags
of a row without frames with frame 0 (where L itself is empty: the piece that would hold it).

A single position is no piece: there ``eos`` says that the stream has ended by this frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError, StreamIdError, StreamIndexError, StreamMismatchError
from ..metadata import MAX_LENGTH, StreamMetadata
from ._ints import as_int
from .rows import piece_sizes, read_index

__all__ = ["cat_length", "index_length", "kept_lengths", "read_length_index", "split_length"]

LengthIndex = int | slice | npt.NDArray[np.int64]


def _bound(value: Any, max_length: int) -> int | None:
    """Read a slice's start or stop; negative ones count from the longest row's end."""
    if value is None:
        return None
    number = as_int(value, "a bound of a slice of L")
    return max(0, number + max_length) if number < 0 else number


def read_length_index(index: Any, max_length: int, width: int | None = None) -> LengthIndex:
    """Read an index on L, as of `index_length`, into one without negative numbers, which count from `max_length`.

    It is a position; a slice with start >= 0, stop >= 0 or None and step >= 1; or sorted positions.
    """
    width = max_length if width is None else width
    key = read_index(index, "indexing L")
    if isinstance(key, slice):
        step = 1 if key.step is None else as_int(key.step, "the step of a slice of L")
        if step < 1:
            raise StreamIndexError(f"L can't be read backwards: step {step} must be 1 or more")
        start = _bound(key.start, max_length)
        return slice(start or 0, _bound(key.stop, max_length), step)
    if isinstance(key, int):
        if not -max_length <= key < width:
            raise StreamIndexError(f"frame {key} of {width}")
        return key + max_length if key < 0 else key
    if key.ndim != 1:
        raise StreamIndexError(f"L takes indices of one dimension, got {key.ndim}")
    if key.dtype == np.bool_:
        if key.size not in (width, max_length):
            raise StreamIndexError(f"a mask of {key.size} for {width} frames")
        return np.flatnonzero(key)
    bad = (key < -max_length) | (key >= width)
    if bad.any():
        raise StreamIndexError(f"frame {key[bad][0]} of {width}")
    positions: npt.NDArray[np.int64] = np.where(key < 0, key + max_length, key)
    if (np.diff(positions) < 0).any():
        raise StreamIndexError("indices on L must be sorted: frames can't change their order")
    return positions


def kept_lengths(key: LengthIndex, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many valid frames of each row an index (of `read_length_index`) picks."""
    if isinstance(key, int):
        return np.minimum(np.maximum(lengths - key, 0), 1)
    if isinstance(key, slice):
        stop = lengths if key.stop is None else np.minimum(lengths, key.stop)
        return -(-np.maximum(stop - key.start, 0) // key.step)
    return np.searchsorted(key, lengths, side="left").astype(np.int64)


def _piece(meta: StreamMetadata, key: slice | npt.NDArray[np.int64], first: bool) -> StreamMetadata:
    """Return the metadata of one piece of L; `first`: it holds (or would hold) frame 0."""
    last = meta.lengths - 1
    if isinstance(key, slice):
        below = np.ones(len(meta), np.bool_) if key.stop is None else last < key.stop
        holds_last = (last >= key.start) & below & ((last - key.start) % key.step == 0)
    else:
        holds_last = np.isin(last, key)
    eos = meta.eos & np.where(meta.lengths > 0, holds_last, first)
    return StreamMetadata._of(tuple(meta.ids), meta.sos & first, eos, kept_lengths(key, meta.lengths))


def index_length(meta: StreamMetadata, index: Any, width: int | None = None) -> StreamMetadata:
    """Keep the frames that an index picks of a tensor `width` long, by default the longest row.

    A slice has a step of 1 or more; a list is sorted and may repeat; negative numbers count from the width. An
    int gives lengths of 0 or 1, ``sos`` only at 0, and ``eos`` where the stream has ended by that frame, so
    also in its padding. Any other index raises StreamIndexError.
    """
    width = meta.max_length if width is None else width
    key = read_length_index(index, meta.max_length, width)
    if isinstance(key, int):
        sos = meta.sos & (key == 0)
        eos = meta.eos & (meta.lengths <= key + 1)
        return StreamMetadata._of(tuple(meta.ids), sos, eos, kept_lengths(key, meta.lengths))
    if isinstance(key, slice):
        return _piece(meta, key, key.start == 0 and (key.stop is None or key.stop > 0))
    return _piece(meta, key, bool(key[0] == 0) if key.size else width == 0)


def split_length(meta: StreamMetadata, sizes: int | Sequence[int]) -> list[StreamMetadata]:
    """Split into runs of so many frames each, or of these sizes; `cat_length` puts them together again.

    Sizes that cover less than the longest row raise ShapeError.
    """
    pieces = piece_sizes(sizes, meta.max_length)
    if sum(pieces) < meta.max_length:
        raise ShapeError(f"sizes {pieces} cover {sum(pieces)} of {meta.max_length} frames")
    with_frame_0 = next((i for i, n in enumerate(pieces) if n), 0)
    ends = np.cumsum([0, *pieces]).tolist()
    return [_piece(meta, slice(a, b, 1), i == with_frame_0) for i, (a, b) in enumerate(zip(ends, ends[1:]))]


def cat_length(metas: Sequence[StreamMetadata]) -> StreamMetadata:
    """Lay chunks of the same streams end to end.

    A row may begin after the first operand, or end before the last, if the operands before, or behind, hold
    neither frames nor flags of it, as pieces of `split_length` may. Other streams, or another order, raise
    StreamIdError; a stream that begins where it is under way or goes on after its end StreamMismatchError; no
    operand, and a row that becomes too long, ShapeError.
    """
    if not metas:
        raise ShapeError("concatenation needs at least one operand")
    first = metas[0]
    if len(metas) == 1:
        return first
    ids = first.ids
    sos, eos, lengths = first.sos, first.eos, first.lengths
    for meta in metas[1:]:
        if meta.ids != ids:
            odd = set(meta.ids) ^ set(ids)
            text = "chunks of different streams" if odd else "streams in another order"
            raise StreamIdError(f"{text} can't be laid end to end along L", sorted(odd or ids))
        _refuse_rows(meta.sos & (sos | eos | (lengths > 0)), ids, "a stream begins twice")
        _refuse_rows(eos & (meta.eos | (meta.lengths > 0)), ids, "a stream goes on after its end")
        lengths = lengths + meta.lengths
        if (lengths > MAX_LENGTH).any():
            raise ShapeError("lengths must be below 2**62")
        sos, eos = sos | meta.sos, eos | meta.eos
    return StreamMetadata._of(tuple(ids), sos, eos, lengths)


def _refuse_rows(bad: npt.NDArray[np.bool_], ids: list[str], text: str) -> None:
    if bad.any():
        raise StreamMismatchError(f"concatenation along L: {text}", [ids[r] for r in np.flatnonzero(bad)])
