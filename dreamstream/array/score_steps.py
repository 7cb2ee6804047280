"""What is done to scores of attention that are noted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..stream.rules import Length
from .axes_of_scores import KEYS, QUERIES, Axes
from .symbolic import Symbolic

__all__ = ["OTHER", "Step", "number_of", "turned"]


class Step(NamedTuple):
    """Something that is done to scores.

    Attributes
    ----------
    name : str
        "add", "mul", "times", "fill", "keep", or "sum": what other steps give.
    by : Any
        Pairs, a number, or steps.
    value : float or None
        What pairs are multiplied by, or the number that stands where they say so.
    axes : Axes
        What the dimensions are at that time.
    """

    name: str
    by: Any
    value: Any
    axes: Axes

    def programs(self) -> Iterator[Any]:
        """Give all pairs in it."""
        if self.name == "sum":
            for step in self.by:
                yield from step.programs()
        elif hasattr(self.by, "says"):
            yield self.by

    def replaced(self, number: int, by: int) -> Step:
        """Return it with another number in place of one of its pairs'."""
        if self.name == "sum":
            return self._replace(by=tuple(s.replaced(number, by) for s in self.by))
        return self._replace(by=self.by.replaced(number, by)) if hasattr(self.by, "says") else self

    def hides_nothing(self) -> bool:
        """Whether it is a mask that hides nothing, zeros that are added, or a factor, whatever the lengths."""
        if not hasattr(self.by, "says"):
            return self.name == "mul"
        found = [self.by._probe(n) for n in (24, 37)]
        return not any(bool((x == 0).any() if self.name == "keep" else (x != 0).any()) for x in found)

    def turned(self) -> Step:
        """Return it where queries are keys, and keys queries."""
        by = tuple(s.turned() for s in self.by) if self.name == "sum" else self.by
        return self._replace(by=by, axes=turned(self.axes))


OTHER = {QUERIES: KEYS, KEYS: QUERIES}


def turned(axes: Axes) -> Axes:
    return axes.like([tuple(OTHER.get(a, a) for a in dim) for dim in axes.dims])


def number_of(x: Any) -> Any:
    """Return a number, or a constant that is one number everywhere as it; None of anything else."""
    if isinstance(x, Symbolic) and not (x.position or isinstance(x.value, Length)):
        x = x.value
    if isinstance(x, (int, float, np.number)):
        return float(x)
    if getattr(x, "is_stream", None) is False and math.prod(x.shape) == 1:
        return float(np.asarray(x.numpy()).reshape(()))
    return None
