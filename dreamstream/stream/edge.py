"""What is known of a value inside a forward, whoever computes its elements."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .rules.length import Sizes
from .rules.lineage import Cid

__all__ = ["Counts", "Edge", "Entry"]

#: (rows, 4) int64: known and total before the call, known and total now.
Counts = npt.NDArray[np.int64]


class Entry(Protocol):
    """One run of a forward on streams: an eager call, or a capture."""

    #: Whether layers that need the whole stream may wait for its end.
    buffers: bool
    #: The most frames that they may wait for, or None.
    buffer_limit: int | None
    #: What sizes of B and L are.
    sizes: Sizes

    def run(
        self,
        name: str,
        attributes: dict[str, Any],
        op: Any,
        edges: Sequence[Edge],
        values: Sequence[Any],
        weights: Sequence[Any],
    ) -> list[tuple[Any, Edge]]:
        """Run one operator: its outputs' values, each with its edge."""

    def misuse(self, message: str) -> Exception:
        """Return the exception for a use that streams can't have."""


class Edge:
    """Where a value stands in a forward.

    Attributes
    ----------
    entry : Entry
        The run of the forward that it belongs to.
    cid : tuple
        Lineage: edges of equal cid have equal counts, always.
    rate : Fraction
        Frames per frame of the reference clock; 0 without a stream axis.
    dtype, features : str, tuple of int
        Of one frame.
    counts : (rows, 4) int64 or None
        None while a graph is captured.
    handle : int or None
        The graph's edge while one is captured.
    """

    __slots__ = ("cid", "counts", "dtype", "entry", "features", "handle", "rate")

    def __init__(
        self,
        entry: Entry,
        cid: Cid,
        rate: Fraction,
        dtype: str,
        features: tuple[int, ...],
        counts: Counts | None = None,
        handle: int | None = None,
    ) -> None:
        self.entry = entry
        self.cid = cid
        self.rate = rate
        self.dtype = dtype
        self.features = features
        self.counts = counts
        self.handle = handle

    @property
    def signature(self) -> tuple[str, tuple[int, ...], int, int]:
        """dtype, features and rate as the engine wants them."""
        return (self.dtype, self.features, self.rate.numerator, self.rate.denominator)

    def misuse(self, message: str) -> Exception:
        """Return the exception for a wrong use of a size."""
        return self.entry.misuse(message)
