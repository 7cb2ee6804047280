"""Metadata rules for the batch dimension: selecting, joining and splitting rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError, StreamIdError, StreamIndexError
from ..metadata import StreamMetadata
from ._ints import as_int

__all__ = ["cat_batch", "drop_empty", "index_batch", "read_index", "rows_of", "split_batch", "unbind_batch"]


def read_index(index: Any, what: str) -> int | slice | npt.NDArray[Any]:
    """Read one index as an int, a slice, or a 1-D or larger array of int64 or bool; a single bool is none."""
    if isinstance(index, slice):
        return index
    number = hasattr(index, "__index__") and not hasattr(index, "ndim")
    if isinstance(index, (list, tuple, range)) or (hasattr(index, "__array__") and not number):
        try:
            array = np.asarray(index)
        except ValueError as error:
            raise StreamIndexError(f"{what}: {error}") from error
        if array.ndim == 0:
            index = array[()]
        elif array.dtype == np.bool_:
            return array
        elif array.dtype.kind in "iu" or array.size == 0:
            return array.astype(np.int64)
        else:
            raise StreamIndexError(f"{what} takes integers or bools, got an array of {array.dtype}")
    return as_int(index, f"an index ({what})")


def rows_of(meta: StreamMetadata, index: Any) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows that an index on B picks, in its order.

    NumPy's rules hold; an int picks one row, and an array has one dimension.
    """
    n = len(meta)
    key = read_index(index, "indexing the batch")
    if isinstance(key, slice):
        what = "a bound or step of a slice of the batch"
        parts = [None if p is None else as_int(p, what) for p in (key.start, key.stop, key.step)]
        if parts[2] == 0:
            raise StreamIndexError("a slice of the batch has step 0")
        return np.arange(*slice(*parts).indices(n), dtype=np.int64)
    if isinstance(key, int):
        if not -n <= key < n:
            raise StreamIndexError(f"row {key} of a batch of {n}")
        return np.array([key % n], dtype=np.int64)
    if key.ndim != 1:
        raise StreamIndexError(f"the batch takes indices of one dimension, got {key.ndim}")
    if key.dtype == np.bool_:
        if key.size != n:
            raise StreamIndexError(f"a mask of {key.size} for a batch of {n}")
        return np.flatnonzero(key)
    bad = (key < -n) | (key >= n)
    if bad.any():
        raise StreamIndexError(f"row {key[bad][0]} of a batch of {n}")
    return np.where(key < 0, key + n, key)


def index_batch(meta: StreamMetadata, index: Any) -> StreamMetadata:
    """Keep the rows that an int, a slice, a sorted or unsorted list or a mask picks, in its order.

    A row that is chosen twice raises StreamIdError, since a stream may occur only once in a batch; any other
    index StreamIndexError.
    """
    chosen = rows_of(meta, index)
    ids = meta.ids
    if chosen.size > 1:
        values, counts = np.unique(chosen, return_counts=True)
        twice = values[counts > 1]
        if twice.size:
            raise StreamIdError("an index picks a stream twice", [ids[r] for r in twice])
    kept = tuple(ids[r] for r in chosen)
    return StreamMetadata._of(kept, meta.sos[chosen], meta.eos[chosen], meta.lengths[chosen])


def cat_batch(metas: Sequence[StreamMetadata]) -> StreamMetadata:
    """Put batches one below the other.

    A stream that occurs in two of them raises StreamIdError, no batch ShapeError.
    """
    if not metas:
        raise ShapeError("concatenation needs at least one operand")
    if len(metas) == 1:
        return metas[0]
    return StreamMetadata(
        [i for m in metas for i in m.ids],
        np.concatenate([m.sos for m in metas]),
        np.concatenate([m.eos for m in metas]),
        np.concatenate([m.lengths for m in metas]),
    )


def split_batch(meta: StreamMetadata, sizes: int | Sequence[int]) -> list[StreamMetadata]:
    """Split into groups of so many rows, the last perhaps smaller, or of these sizes.

    Sizes that don't add up to the number of rows raise ShapeError.
    """
    groups = piece_sizes(sizes, len(meta))
    if sum(groups) != len(meta):
        raise ShapeError(f"sizes {groups} add up to {sum(groups)}, the batch has {len(meta)} rows")
    ends = np.cumsum([0, *groups]).tolist()
    return [index_batch(meta, slice(a, b)) for a, b in zip(ends, ends[1:])]


def piece_sizes(sizes: int | Sequence[int], extent: int) -> list[int]:
    """Read the sizes of pieces: an int is repeated until the extent is covered, at least once."""
    if not hasattr(sizes, "__iter__"):
        size = as_int(sizes, "a size")
        if size < 1:
            raise ShapeError(f"a piece must have 1 or more, got {size}")
        return [min(size, extent - a) for a in range(0, max(extent, 1), size)]
    pieces = [as_int(size, "a size") for size in sizes]
    if not pieces or min(pieces) < 0:
        raise ShapeError(f"sizes must be one or more, each 0 or more, got {pieces}")
    return pieces


def unbind_batch(meta: StreamMetadata) -> list[StreamMetadata]:
    """Return one metadata of one row per row."""
    return [index_batch(meta, r) for r in range(len(meta))]


def drop_empty(meta: StreamMetadata) -> StreamMetadata:
    """Keep the rows that have frames; the others' flags go with them."""
    return index_batch(meta, meta.lengths > 0)
