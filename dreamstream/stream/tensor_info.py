"""What is known of a tensor of streams outside a forward, of NumPy or torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import ShapeError
from .metadata import StreamMetadata
from .rules import (
    BATCH,
    LENGTH,
    Fallback,
    IndexPlan,
    Names,
    cat_batch,
    cat_length,
    check_names,
    holds,
    plan_index,
    require_equal_rates,
    require_same,
    starts_of_batches,
    starts_of_chunks,
)

JOINED = "B_L"
"""The name of B and L where a forward returns them as one dimension."""

_ROLES = (BATCH, LENGTH, JOINED)

Starts = tuple[int | None, ...]


class Layout(NamedTuple):
    """Which dimensions of a padded tensor are what."""

    batch: int | None  #: The dimension B.
    length: int | None  #: The dimension L.
    joined: int | None  #: The dimension B_L.
    features: list[int]  #: All others.
    dims: tuple[Any, ...]  #: For each dimension ``"B"``, ``"L"``, ``"B_L"``, or the number of the feature axis.
    order: list[int] | None  #: What brings B, L and then the features to the front; None where they stand so.
    back: list[int] | None  #: What undoes it.
    n_roles: int  #: How many dimensions are no features.


@lru_cache(maxsize=256)
def layout_of(names: Names) -> Layout:
    """Return which dimensions of these names are what."""
    axes = {name: i for i, name in enumerate(names) if name in _ROLES}
    features = [i for i, name in enumerate(names) if name not in _ROLES]
    numbers = iter(range(len(features)))
    dims = tuple([name if name in _ROLES else next(numbers) for name in names])
    order = [axes[role] for role in _ROLES if role in axes] + features
    back = sorted(range(len(order)), key=order.__getitem__)
    ways = (order, back) if order != sorted(order) else (None, None)
    return Layout(axes.get(BATCH), axes.get(LENGTH), axes.get(JOINED), features, dims, ways[0], ways[1], len(axes))


@dataclass(slots=True, eq=False)
class Info:
    """Names of the dimensions, streams of the rows, and where their frames stand."""

    #: One per dimension: ``"B"``, ``"L"`` and ``"B_L"`` say what a dimension is, others are free. Without B there
    #: is one row; without L a row has one element or, where its length is 0, none.
    names: Names
    meta: StreamMetadata  #: ids, sos, eos and lengths.
    starts: Starts | None = None  #: Absolute position of each row's first frame, None where it is not known.
    rate: Fraction = Fraction(1)  #: Frames per frame of the reference clock.
    restart: bool = False  #: Whether ``sos`` on a live stream starts it anew.

    def with_names(self, names: Sequence[str | None]) -> Info:
        """Return the same with other dimensions."""
        return self if tuple(names) == self.names else replace(self, names=tuple(names))

    def with_rows(self, meta: StreamMetadata, starts: Starts | None) -> Info:
        """Return the same with other rows or frames."""
        return replace(self, meta=meta, starts=starts)

    def index(self, index: Any, width: int | None = None) -> tuple[IndexPlan, Info] | Fallback:
        """Return what ``x[index]`` does and what is known of it, or why it is plain; see `plan_index`."""
        if JOINED in self.names:
            return Fallback("B and L are joined")
        plan = plan_index(index, self.names, self.meta, width)
        if isinstance(plan, Fallback):
            return plan
        starts = plan.starts_of(self.starts, self.meta.lengths)
        return plan, replace(self, names=plan.names, meta=plan.meta, starts=starts)

    def reshaped(self, old: Sequence[int], new: Sequence[int]) -> Info | None:
        """Return what is known after a reshape of padded sizes, None where B or L would be merged or split."""
        names = _same_runs(self.names, old, new)
        if names is None or any(n in _ROLES and n not in names for n in self.names):
            return None
        return self.with_names(names)

    # ---------------------------------------------------------------- dimensions
    def axis(self, role: str) -> int | None:
        """Return the dimension B, L or B_L, None where there is none."""
        return self.names.index(role) if role in self.names else None

    @property
    def layout(self) -> Layout:
        """Return which dimensions are what."""
        return layout_of(self.names)

    def is_stream(self, axis: int) -> bool:
        """Return whether a dimension is B, L, or both."""
        return self.names[axis] in _ROLES

    @property
    def has_frames(self) -> bool:
        """Return whether there is a dimension L, alone or with B."""
        return LENGTH in self.names or JOINED in self.names

    @property
    def features(self) -> list[int]:
        """The dimensions that are neither B nor L."""
        return layout_of(self.names).features

    @property
    def dims(self) -> tuple[Any, ...]:
        """For each dimension ``"B"``, ``"L"``, ``"B_L"``, or the number of the feature axis."""
        return layout_of(self.names).dims

    def width_of(self, shape: Sequence[int]) -> int:
        """Return the extent along L of a padded tensor of this shape; 1 where there is no L."""
        _, length, joined, *_ = layout_of(self.names)
        if length is not None:
            return int(shape[length])
        if joined is None:
            return 1
        return int(shape[joined]) // len(self.meta) if len(self.meta) else 0

    def is_full(self, width: int) -> bool:
        """Return whether there is no padding."""
        n = self.meta.min_length
        return n >= width or not len(self.meta)

    def fits(self, shape: Sequence[int]) -> str | None:
        """Return what a padded tensor of this shape contradicts, None if nothing."""
        n, (batch, _, joined, *_) = len(self.meta), layout_of(self.names)
        if len(self.names) != len(shape):
            return f"{len(self.names)} names for the shape {tuple(shape)}"
        if batch is not None and shape[batch] != n:
            return f"{shape[batch]} rows for {n} ids"
        if batch is None and joined is None and n != 1:
            return f"{n} ids, but no dimension B"
        if joined is not None and n and shape[joined] % n:
            return f"{shape[joined]} rows and frames for {n} ids"
        if self.meta.max_length > self.width_of(shape):
            return f"lengths go up to {self.meta.max_length}, but there are {self.width_of(shape)} frames"
        return None


def _same_runs(names: Sequence[str | None], old: Sequence[int], new: Sequence[int]) -> list[str | None] | None:
    """Return the names after a reshape, None where B or L would be merged or split.

    Both shapes are cut into the shortest runs of equal product; a dimension that is a run by itself on both
    sides stays what it is.
    """
    least = min(len(old), len(new))
    lead = next((k for k in range(least) if old[k] != new[k]), least)
    trail = next((k for k in range(least - lead) if old[-1 - k] != new[-1 - k]), least - lead)
    i, j, n, m = lead, lead, len(old) - trail, len(new) - trail
    out = list(names[:lead])
    while i < n or j < m:
        a, b, begin, first = 1, 1, i, j
        if i < n:
            a, i = old[i], i + 1
        if j < m and (a == new[j] or begin == i or a != 1):
            b, j = new[j], j + 1
        while a != b:
            if j < m and not (a < b and i < n):
                b, j = b * new[j], j + 1
            elif i < n:
                a, i = a * old[i], i + 1
            else:
                return None
        run = names[begin:i]
        if len(run) == 1 and j - first == 1:
            out.append(run[0])
        elif any(name in _ROLES for name in run):
            return None
        else:
            out += [None] * (j - first)
    return out + list(names[n:])


def agree(infos: Sequence[Info], what: str) -> Info:
    """Return what is known of tensors that meet, by the one with most dimensions; raise where streams differ."""
    first = max(infos, key=lambda i: len(i.names))
    if len(infos) == 1:
        return first
    meta, starts = require_same([i.meta for i in infos], [i.starts for i in infos], what)
    require_equal_rates([i.rate for i in infos], what)
    return first.with_rows(meta, starts)


def join(infos: Sequence[Info], role: str) -> Info:
    """Return what is known of batches one below the other, or of chunks of the same streams, laid end to end."""
    cat, starts_of = (cat_batch, starts_of_batches) if role == BATCH else (cat_length, starts_of_chunks)
    metas = [i.meta for i in infos]
    return infos[0].with_rows(cat(metas), starts_of(metas, [i.starts for i in infos]))


def check(names: Sequence[str | None], rank: int) -> Names:
    """Return names that a stream tensor can have, one per dimension; raise ShapeError for others."""
    found = check_names(names, rank)
    merged = [n for n in found if n and "_" in n and n != JOINED]
    bad = [n for n in merged if holds(n, BATCH) or holds(n, LENGTH)]
    if bad:
        raise ShapeError(f"names {found}: {bad[0]!r} merges B or L with other dimensions")
    return found
