"""What is known of a tensor of streams outside a forward, of NumPy or torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from ..errors import ShapeError
from .metadata import StreamMetadata
from .rules import BATCH, LENGTH, Names, check_names, holds

JOINED = "B_L"
"""The name of B and L where a forward returns them as one dimension."""

_ROLES = (BATCH, LENGTH, JOINED)

Starts = tuple[int | None, ...]


class Layout(NamedTuple):
    """Which dimensions of a padded tensor are what.

    Attributes
    ----------
    batch, length, joined : int or None
        The dimensions B, L and B_L.
    features : list of int
        All others.
    dims : tuple
        For each dimension ``"B"``, ``"L"``, ``"B_L"``, or the number of the feature axis.
    order, back : list of int
        What brings B, L and then the features to the front, and what undoes it.
    """

    batch: int | None
    length: int | None
    joined: int | None
    features: list[int]
    dims: tuple[Any, ...]
    order: list[int]
    back: list[int]


@lru_cache(maxsize=256)
def layout_of(names: Names) -> Layout:
    """Return which dimensions of these names are what."""
    axes = {name: i for i, name in enumerate(names) if name in _ROLES}
    features = [i for i, name in enumerate(names) if name not in _ROLES]
    numbers = iter(range(len(features)))
    dims = tuple([name if name in _ROLES else next(numbers) for name in names])
    order = [axes[role] for role in _ROLES if role in axes] + features
    back = sorted(range(len(order)), key=order.__getitem__)
    return Layout(axes.get(BATCH), axes.get(LENGTH), axes.get(JOINED), features, dims, order, back)


@dataclass(frozen=True, eq=False)
class Info:
    """Names of the dimensions, streams of the rows, and where their frames stand.

    Attributes
    ----------
    names : tuple of (str or None)
        One per dimension: ``"B"``, ``"L"`` and ``"B_L"`` say what a dimension is, others are free. Without B
        there is one row; without L a row has one element or, where its length is 0, none.
    meta : StreamMetadata
        ids, sos, eos and lengths.
    starts : tuple of (int or None) or None
        Absolute position of each row's first frame, None where it is not known.
    rate : Fraction
        Frames per frame of the reference clock.
    restart : bool
        Whether ``sos`` on a live stream starts it anew.
    """

    names: Names
    meta: StreamMetadata
    starts: Starts | None = None
    rate: Fraction = Fraction(1)
    restart: bool = False

    def with_names(self, names: Sequence[str | None]) -> Info:
        """Return the same with other dimensions."""
        return self if tuple(names) == self.names else replace(self, names=tuple(names))

    def with_rows(self, meta: StreamMetadata, starts: Starts | None) -> Info:
        """Return the same with other rows or frames."""
        return replace(self, meta=meta, starts=starts)

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


def check(names: Sequence[str | None], rank: int) -> Names:
    """Return names that a stream tensor can have.

    Raises
    ------
    ShapeError
        Another number of names, or B or L merged with something else.
    """
    found = check_names(names, rank)
    bad = [n for n in found if n not in (BATCH, LENGTH, JOINED) and (holds(n, BATCH) or holds(n, LENGTH))]
    if bad:
        raise ShapeError(f"names {found}: {bad[0]!r} merges B or L with other dimensions")
    return found
