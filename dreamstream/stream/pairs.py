"""What a forward builds over two stream axes, and what it says of attention.

A mask that is written as ``arange(L)[:, None] >= arange(L)``, by `tril`, by blocks ``i // 16`` or as additive -inf is
a function of the number of frames. It is tried at a length that is long enough to show all its constants, and
recognised as what each query sees (a `Context`) and what is added to scores as a function of the distance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .context import Context

__all__ = ["LONGEST", "Recognised", "Unrecognised", "long_enough", "recognised"]

Array = npt.NDArray[Any]

#: The most frames at which pairs are looked at.
LONGEST = 4096
#: What stands for -inf where it is added to scores.
MASKED = -1e4


class Unrecognised(Exception):
    """Why pairs say nothing that streams."""


@dataclass(frozen=True)
class Recognised:
    """What pairs say.

    Attributes
    ----------
    context : Context
    bias : ndarray or None
        ``(1 or heads, n)``: what is added to scores, by distance of the query from the key, from `first` on.
    first : int
    linear : bool
        Whether it goes on by its last step beyond its ends, not by its last value.
    """

    context: Context
    bias: Array | None = None
    first: int = 0
    linear: bool = False


def long_enough(constants: set[int]) -> int:
    """Return the frames at which all that these integers of a program say can be seen.

    Raises
    ------
    Unrecognised
        Where these are too many.
    """
    n = 4 * int(np.prod([c + 1 for c in constants], dtype=object))
    if n > LONGEST and constants:
        n = max(LONGEST // 2, 4 * (max(constants) + 1))
    if n > 2 * LONGEST:
        raise Unrecognised(f"it looks at {max(constants)} frames, more than can be tried")
    return max(n, 64)


def recognised(values: Callable[[int], Array], n: int) -> Recognised:
    """Return what pairs say.

    Parameters
    ----------
    values : callable
        From a number of frames n to ``(heads or 1, n, n)``: whether query i sees key j, or what is added to their
        score.
    n : int
        At which they are looked at.

    Raises
    ------
    Unrecognised
        Where they say something else than a context and a function of the distance.
    """
    at = values(n)
    seen = _seen(at)
    context = _context(seen, n)
    for more in range(n - max(context.chunk or 1, 2), n):
        if not np.array_equal(_seen(values(more)), _expected(context, more)):
            raise Unrecognised(f"at {more} frames it is no {_said(context)}, as at {n}")
    if at.dtype == bool:
        return Recognised(context)
    return _with_bias(context, at, seen, n)


def _seen(at: Array) -> Array:
    seen = at if at.dtype == bool else at > MASKED
    if not (seen == seen[:1]).all():
        raise Unrecognised("heads see different keys")
    if at.dtype != bool and np.isnan(at).any():
        raise Unrecognised("it has entries that are NaN")
    out: Array = seen[0]
    return out


def _said(context: Context) -> str:
    return f"block of {context.chunk} that sees {context.left} before and {context.right} behind it"


def _context(seen: Array, n: int) -> Context:
    """Return the three integers that the rows' first and last keys say, where they say the same."""
    if seen.all():
        return Context(chunk=None)
    if not seen.any(1).all():
        raise Unrecognised(f"query {int(np.argmin(seen.any(1)))} sees no key")
    low, high = seen.argmax(1), n - seen[:, ::-1].argmax(1)
    rises = np.flatnonzero(high != high[0])
    ends = bool(len(rises))  # else every query sees the future without bound
    falls = np.flatnonzero(low > 0)
    chunk = int(rises[0]) if ends else _period(low)
    right = int(high[0]) - chunk if ends else None
    left = None
    if len(falls):
        i = int(falls[-1])
        left = i // chunk * chunk - int(low[i])
    if chunk > n // 3 or (right or 0) < 0 or (left or 0) < 0:
        raise Unrecognised(_strange(seen))
    context = Context(chunk, left, right)
    if not np.array_equal(seen, _expected(context, n)):
        raise Unrecognised(_strange(seen))
    return context


def _period(low: Array) -> int:
    steps = np.diff(np.flatnonzero(np.diff(low) > 0))
    return int(steps[0]) if len(steps) else 1


def _strange(seen: Array) -> str:
    rows = ", ".join("".join("x" if s else "." for s in row[:12]) for row in seen[:4])
    return f"its rows begin as {rows}: no blocks of one size that see as many keys before and behind them"


def _expected(context: Context, n: int) -> Array:
    """Return what a context says of n frames."""
    i, j = np.arange(n)[:, None], np.arange(n)
    if context.chunk is None:
        return np.ones((n, n), bool)
    begin = i // context.chunk * context.chunk
    seen = np.ones((n, n), bool)
    if context.left is not None:
        seen &= j >= begin - context.left
    if context.right is not None:
        seen &= j < begin + context.chunk + context.right
    return seen


def _with_bias(context: Context, at: Array, seen: Array, n: int) -> Recognised:
    """Return the function of the distance that is added to what is seen, up to one of the query alone."""
    values = np.where(seen, at.astype(np.float64), np.nan)
    own = values[:, np.arange(n), np.arange(n)]
    if np.isnan(own).any():
        raise Unrecognised("queries don't see their own frame")
    values = values - own[..., None]
    distance = np.arange(n)[:, None] - np.arange(n)
    low, high = int(distance[seen].min()), int(distance[seen].max())
    table = np.full((len(at), high - low + 1), np.nan)
    table[:, (distance - low)[seen]] = values[:, seen]
    exact = 1e-6 * max(1.0, float(np.nanmax(np.abs(values))))
    if not np.all(np.abs(table[:, (distance - low)[seen]] - values[:, seen]) <= exact):
        raise Unrecognised("what is added to scores is no function of the distance")
    if not np.abs(table).max() > 0:
        return Recognised(context)
    table = np.where(np.isnan(table), 0, table)
    if len(table) > 1 and (table == table[:1]).all():
        table = table[:1]
    bounded = context.left is not None and context.right is not None
    steps = np.diff(table, axis=1)
    if table.shape[1] > 2 and np.abs(steps - steps[:, :1]).max() <= exact:  # a slope
        return Recognised(context, table[:, [-low, -low + 1]] if -low + 1 < table.shape[1] else table, 0, True)
    if not bounded:
        moves = np.flatnonzero(np.abs(steps).max(0) > 0)
        if moves[-1] > 3 * n // 4 or (context.right is None and moves[0] < n // 4):
            raise Unrecognised("what is added to scores goes on to change with the distance")
        low, table = low + int(moves[0]), table[:, moves[0] : moves[-1] + 2]
    return Recognised(context, table, low)
