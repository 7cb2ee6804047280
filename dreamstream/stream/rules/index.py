"""What ``x[...]`` does outside a forward, as data.

`parse_index` lays an index against the dimensions' names; `plan_index` adds what becomes of the
metadata. Combinations that would pair or merge streams and frames with other dimensions are reported
as a `Fallback`: the caller indexes the plain padded tensor and says so in a warning.

Semantics are torch's: integers are applied first, so they never count as index arrays; one index
array (a list, or an array of integers or bools) per index keeps its place. Two of them would be
paired with each other, which is a fallback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import StreamIndexError
from ..metadata import StreamMetadata
from .frame_slices import LengthIndex, index_length, read_length_index
from .names import BATCH, LENGTH, Names, holds
from .rows import index_batch, read_index, rows_of

__all__ = ["Fallback", "IndexParts", "IndexPlan", "is_full_slice", "parse_index", "plan_index"]

Basic = int | slice | None
Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class Fallback:
    """An operation can't keep the metadata; the result is a plain tensor."""

    reason: str  #: For the warning.


@dataclass(frozen=True, eq=False)
class IndexParts:
    """An index laid against the dimensions."""

    #: The index on ``"B"`` as the user wrote it, ``slice(None)`` where untouched or absent. Other objects (a
    #: `Length`) are passed on as they are inside slices.
    batch: Any
    length: Any  #: The same on ``"L"``.
    #: Basic index for the other dimensions *in visible order*: for rows stored as ``frames[L][features]`` with the
    #: feature axes in visible order it is applied as ``frames[(slice(None), *features)]``.
    features: tuple[Basic, ...]
    #: Then an index array: ``frames[(slice(None),) * (1 + axis) + (array,)]``.
    take: tuple[int, npt.NDArray[Any]] | None
    #: The result's visible dimensions: ``"B"``, ``"L"`` (or a joined name that holds one of them), or the number
    #: of the result's feature axis.
    dims: Dims
    names: Names  #: The result's names.
    #: The whole index with the Ellipsis written out: an entry per dimension and new axis.
    expanded: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class IndexPlan(IndexParts):
    """What an index does to a stream tensor."""

    meta: StreamMetadata  #: The result's metadata.
    rows: npt.NDArray[np.int64] | None  #: Rows of the input that the result's rows are, None if untouched.
    #: Frames that are kept of each row, without negative numbers, None if untouched; see `frames_of`.
    frames: LengthIndex | None
    #: The same index for a plain padded torch tensor: ``padded[plain]`` has the result's dimensions.
    plain: tuple[Any, ...]

    def frames_of(self, length: int) -> slice | npt.NDArray[np.int64]:
        """Return the index to apply to the frames of one row, ``frames[index]``."""
        if self.frames is None:
            return slice(None)
        if isinstance(self.frames, int):
            return slice(self.frames, self.frames + 1)
        if isinstance(self.frames, slice):
            return self.frames
        return self.frames[self.frames < length]

    def starts_of(
        self, starts: Sequence[int | None] | None, lengths: Sequence[int] | npt.NDArray[np.int64]
    ) -> tuple[int | None, ...] | None:
        """Return the absolute positions of the first frames left, or None, of those and the lengths before."""
        if starts is None:
            return None
        rows = range(len(starts)) if self.rows is None else self.rows.tolist()
        if self.frames is None:
            return tuple(starts[r] for r in rows)
        if isinstance(self.frames, int):
            shift = self.frames
        elif isinstance(self.frames, slice) and self.frames.step == 1:
            shift = self.frames.start
        else:
            return None  # frames that are no run of the stream have no position in it
        known = ((starts[r], int(lengths[r])) for r in rows)
        return tuple(None if s is None else s + min(shift, n) for s, n in known)


def is_full_slice(index: Any) -> bool:
    """Return whether an index is a slice that keeps everything as it is, such as ``:``."""
    if not isinstance(index, slice) or index.stop is not None:
        return False
    start, step = index.start, index.step
    return (start is None or (type(start) is int and start == 0)) and (
        step is None or (type(step) is int and step == 1)
    )


def _read(item: Any) -> Any:
    """Read one entry: None, Ellipsis, a Fallback, int, slice or array."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if getattr(item, "is_stream", False):
        return Fallback("the index is a stream itself")
    if isinstance(item, (bool, np.bool_)) or (
        getattr(item, "ndim", None) == 0 and np.asarray(item).dtype == np.bool_
    ):
        return Fallback("the index is a single bool")
    return read_index(item, "an index")


def _extent(item: Any) -> int:
    """Return how many dimensions an entry consumes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == np.bool_ else 1


def _expand(index: Any, rank: int) -> tuple[Any, ...] | Fallback:
    """Read all entries, write out the Ellipsis and append what is left out."""
    items = [_read(i) for i in (index if isinstance(index, tuple) else (index,))]
    for item in items:
        if isinstance(item, Fallback):
            return item
    used = sum(_extent(i) for i in items)
    if used > rank:
        raise StreamIndexError(f"{used} indices for {rank} dimensions")
    gaps = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(gaps) > 1:
        raise StreamIndexError("an index can hold only one Ellipsis (...)")
    at = gaps[0] if gaps else len(items)
    fill = [slice(None)] * (rank - used)
    return (*items[:at], *fill, *items[at + 1 :])


def parse_index(index: Any, names: Names) -> IndexParts | Fallback:
    """Lay what stands between the brackets against the names of the dimensions.

    Returns the parts, or why the result must be a plain tensor. Too many indices, an array that is no index,
    and one of several dimensions on B or L raise StreamIndexError.
    """
    expanded = _expand(index, len(names))
    if isinstance(expanded, Fallback):
        return expanded
    if sum(isinstance(i, np.ndarray) for i in expanded) > 1:
        return Fallback("several index arrays are paired with each other")
    ends: dict[str, Any] = {BATCH: slice(None), LENGTH: slice(None)}
    features: list[Basic] = []
    dims: list[int | str] = []
    result: list[str | None] = []
    take: tuple[int, npt.NDArray[Any]] | None = None
    n_axes = 0  # of the result's features
    dim = 0
    for item in expanded:
        if item is None:
            features.append(None)
            dims.append(n_axes)
            result.append(None)
            n_axes += 1
            continue
        own = names[dim : dim + _extent(item)]
        dim += len(own)
        special = [n for n in own if holds(n, BATCH) or holds(n, LENGTH)]
        if isinstance(item, np.ndarray) and item.ndim > 1 and special:
            if item.dtype != np.bool_:
                raise StreamIndexError(f"dimension {special[0]!r} takes index arrays of one dimension")
            return Fallback("a mask of several dimensions merges B or L with others")
        if special:
            name = str(special[0])
            if name in ends:
                ends[name] = item
            elif not is_full_slice(item):
                return Fallback(f"dimension {name!r} is merged and can't be indexed")
            if not isinstance(item, int):
                dims.append(name)
                result.append(name)
        elif isinstance(item, np.ndarray):
            mask = item.dtype == np.bool_
            take = (n_axes, item)
            features += [slice(None)] * len(own)
            n_new = 1 if mask else item.ndim
            dims += range(n_axes, n_axes + n_new)
            n_axes += n_new
            if n_new == 1:
                parts = [n or "?" for n in own]
                result.append(own[0] if len(own) == 1 else "_".join(parts) if any(own) else None)
            else:  # the last of the new dimensions is the one that was picked from
                result += [None] * (n_new - 1) + [own[0]]
        else:
            features.append(item)
            if isinstance(item, slice):
                dims.append(n_axes)
                result.append(own[0])
                n_axes += 1
    return IndexParts(ends[BATCH], ends[LENGTH], tuple(features), take, tuple(dims), tuple(result), expanded)


def plan_index(index: Any, names: Names, meta: StreamMetadata, width: int | None = None) -> IndexPlan | Fallback:
    """Say what a getitem index does to a stream tensor, outside a forward, or why the result must be plain.

    As `parse_index`, and as `index_batch` and `index_length` of its metadata, whose `width` is the padded array's.
    The sizes of other dimensions are not known here: NumPy checks them when the plan is carried out.
    """
    parts = parse_index(index, names)
    if isinstance(parts, Fallback):
        return parts
    rows: npt.NDArray[np.int64] | None = None
    frames: LengthIndex | None = None
    if not is_full_slice(parts.batch):
        rows = rows_of(meta, parts.batch)
    # Frames first: negative numbers and masks are relative to the whole batch's longest row.
    result = meta
    if not is_full_slice(parts.length):
        frames = read_length_index(parts.length, meta.max_length, width)
        result = index_length(meta, parts.length, width)
    if rows is not None:
        result = index_batch(result, rows)
    plain = []
    dim = 0
    for item in parts.expanded:
        on_length = item is not None and names[dim] == LENGTH
        plain.append(frames if on_length and frames is not None else item)
        dim += _extent(item)
    return IndexPlan(**vars(parts), meta=result, rows=rows, frames=frames, plain=tuple(plain))
