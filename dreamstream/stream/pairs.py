"""What a forward builds over two stream axes, and what it says of attention.

A mask that is written as ``arange(L)[:, None] >= arange(L)``, by `tril`, by blocks ``i // 16`` or as additive -inf
is a function of the number of frames. It is tried at a length that is long enough to show all its constants, and
recognised as what each query sees (a `Context`) and what is added to scores as a function of the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .context import Context

__all__ = [
    "FAR",
    "FARTHEST_TRIED",
    "LONGEST",
    "Recognised",
    "Unrecognised",
    "confirm",
    "expected",
    "extended",
    "long_enough",
    "recognised",
]

Array = npt.NDArray[Any]

#: The most frames at which pairs are looked at.
LONGEST = 4096
#: The greatest number whose effect is seen at so many.
FARTHEST_TRIED = LONGEST // 2 - 1
#: The greatest that isn't tried by smaller ones first.
FAR = 255
#: What stands for -inf where it is added to scores.
MASKED = -1e4
#: What stands for it in a table of sums.
_HIDDEN = -1e30


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
    cells : tuple of ndarray or None
        A query and a key for each distance of the bias.
    """

    context: Context
    bias: Array | None = None
    first: int = 0
    linear: bool = False
    cells: tuple[Array, Array] | None = None

    @property
    def hides(self) -> bool:
        """Whether heads don't see all of the context."""
        return self.bias is not None and bool(np.isinf(self.bias).any())


def long_enough(constants: set[int]) -> int:
    """Return the frames at which all that these integers of a program say can be seen.

    Raises
    ------
    Unrecognised
        Where these are too many.
    """
    n = 4 * int(np.prod([c + 1 for c in constants], dtype=object))
    if n > LONGEST and constants:
        n = max(LONGEST // 4, 2 * (max(constants) + 1))
    if n > LONGEST:
        raise Unrecognised(f"it looks at {max(constants)} frames, more than can be tried")
    return max(n, 64)


def recognised(values: Callable[[int], Array], n: int, most: int = LONGEST) -> Recognised:
    """Return what pairs say.

    Parameters
    ----------
    values : callable
        From a number of frames n to ``(heads or 1, n, n)``: whether query i sees key j, or what is added to their
        score.
    n : int
        At which they are looked at.
    most : int
        The most frames at which they can be.

    Raises
    ------
    Unrecognised
        Where they say something else than a context and a function of the distance.
    """
    at = values(n)
    seen = _seen(at)
    near = None  # what each head sees by distance, where that isn't all of the context
    try:
        if not (seen == seen[:1]).all():
            raise Unrecognised("heads see different keys")
        context = _context(seen[0], n)
    except Unrecognised as error:
        near = _by_distance(seen, n)
        around = None if near is None else _around(near, n)
        if around is None:
            raise error from None
        context = around
    for other in _others(context, n, most, near is not None):
        shown = expected(context, other)
        if near is not None:
            distances = np.subtract.outer(np.arange(other), np.arange(other))
            shown = shown & near[:, np.clip(distances, 1 - n, n - 1) + n - 1]
        if not (_seen(values(other)) == shown).all():
            raise Unrecognised(f"at {other} frames it says something else than at {n}")
    if at.dtype == bool and near is None:
        return Recognised(context)
    return _with_bias(context, np.where(seen, at, -np.inf), n)


def _others(context: Context, n: int, most: int, holes: bool) -> list[int]:
    """Return other lengths that decide: one of each remainder by the chunk, some that show all that is seen."""
    chunk, longest = context.chunk or 1, max(n, min(most, LONGEST // 4))
    few, reach = max(chunk, 2), (context.left or 0) + (context.right or 0) + 3 * chunk
    low = min(max(64, 2 * chunk), n - few)
    high = n - few if holes else min(max(reach, low), n - few)
    out = {*range(low, low + few), *(high + k for k in (0, 1, chunk // 2, few - 1)), longest}
    return sorted(out - {n})


def confirm(found: Recognised, values: Callable[[int], Array], n: int) -> None:
    """Look whether pairs say what was recognised without them, at n frames.

    Raises
    ------
    Unrecognised
        Where they don't.
    """
    at, distances = values(n), np.arange(1 - n, n)
    seen, shown, terms = _seen(at), expected(found.context, n), _terms(found, distances)
    cells = np.subtract.outer(np.arange(n), np.arange(n)) + n - 1
    for head in range(max(len(at), len(terms))):
        own, sees = at[head % len(at)], seen[head % len(at)]
        term = terms[head % len(terms)][cells]
        same = np.array_equal(sees, shown & ~np.isinf(term))
        if same and (found.bias is not None or at.dtype != bool):
            gap = np.where(sees, own, 0.0) - np.where(sees, term, 0.0)
            gap = np.where(sees, gap - np.diagonal(gap)[:, None], 0.0)
            same = bool(np.abs(gap).max() <= 1e-6 * max(1.0, np.abs(term[sees]).max()))
        if not same:
            raise Unrecognised(f"at {n} frames it says something else than with smaller numbers")


def _terms(found: Recognised, distances: Array) -> Array:
    """Return what is added to scores at distances, up to one of the query alone."""
    if found.bias is None:
        return np.zeros((1, len(distances)))
    bias = found.bias.astype(np.float64)
    near = np.clip(distances - found.first, 0, bias.shape[1] - 1)
    if not found.linear:
        return bias[:, near]
    beyond = distances - found.first - near
    steps = np.where(beyond < 0, bias[:, 1:2] - bias[:, :1], bias[:, -1:] - bias[:, -2:-1])
    out: Array = bias[:, near] + steps * beyond
    return out


def extended(found: Sequence[Recognised], times: int) -> Recognised:
    """Return what pairs say with a number too great to be tried, of what they say with smaller ones.

    Parameters
    ----------
    found : sequence of Recognised
        At three numbers that rise by equal steps.
    times : int
        The steps from the first of them to the one that is meant.

    Raises
    ------
    Unrecognised
        Where it isn't what rises by equal steps too.
    """
    near = found[0]
    sizes: list[int | None] = []
    for own in zip(*((x.context.chunk, x.context.left, x.context.right) for x in found)):
        first, second, third = own
        if None in own:
            risen = own == (None, None, None)
            sizes.append(None)
        else:
            risen = second - first == third - second
            sizes.append(first + times * (second - first))
        if not risen:
            raise Unrecognised("it changes unevenly with a number that is too great to be tried")
    if any((x.first, x.linear) != (near.first, near.linear) or not _goes_on_so(near.bias, x.bias) for x in found):
        raise Unrecognised("what is added to scores changes with a number that is too great to be tried")
    return replace(near, context=replace(near.context, chunk=sizes[0], left=sizes[1], right=sizes[2]))


def _goes_on_so(near: Array | None, far: Array | None) -> bool:
    """Whether a longer table is a shorter one, and its last value from there on."""
    if near is None or far is None:
        return near is far
    n = near.shape[1]
    return np.array_equal(near, far[:, :n]) and bool((far[:, n:] == near[:, -1:]).all())


def _seen(at: Array) -> Array:
    if at.dtype != bool and np.isnan(at).any():
        raise Unrecognised("it has entries that are NaN")
    out: Array = at if at.dtype == bool else at > MASKED
    return out


def _by_distance(seen: Array, n: int) -> Array | None:
    """Return what each head sees by distance, from 1 - n to n - 1, or None: every query its own frame."""
    near = np.concatenate([seen[:, 0, :0:-1], seen[:, :, 0]], 1)
    distances = np.subtract.outer(np.arange(n), np.arange(n))
    own = near[:, n - 1].all() and not near.all()
    return near if own and np.array_equal(near[:, distances + n - 1], seen) else None


def _around(near: Array, n: int) -> Context | None:
    """Return the context that has all distances that any head sees; None where their pattern never ends."""
    seen = np.flatnonzero(near.any(0)) + 1 - n
    ends: list[int | None] = []
    for side, last in ((near[:, n - 1 :], int(seen[-1])), (near[:, n - 1 :: -1], -int(seen[0]))):
        for head in side:
            changes = np.flatnonzero(head[1:] != head[:-1])
            if len(changes) and changes[-1] > n // 2:
                return None
        ends.append(None if side[:, -1].any() else last)
    return Context(1, *ends)


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
    if not np.array_equal(seen, expected(context, n)):
        raise Unrecognised(_strange(seen))
    return context


def _period(low: Array) -> int:
    steps = np.diff(np.flatnonzero(np.diff(low) > 0))
    return int(steps[0]) if len(steps) else 1


def _strange(seen: Array) -> str:
    rows = ", ".join("".join("x" if s else "." for s in row[:12]) for row in seen[:4])
    return f"its rows begin as {rows}: no blocks of one size that see as many keys before and behind them"


def expected(context: Context, n: int) -> Array:
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


def _with_bias(context: Context, at: Array, n: int) -> Recognised:
    """Return the function of the distance that is added to what is seen, up to one of the query alone.

    What is hidden is -inf.
    """
    own = at[:, np.arange(n), np.arange(n)].astype(np.float64)
    if np.isinf(own).any():
        raise Unrecognised("queries don't see their own frame")
    values = at - own[..., None]
    rows, columns = np.nonzero(expected(context, n))
    distances, first = np.unique(rows - columns, return_index=True)
    low = int(distances[0])
    if len(distances) != distances[-1] - low + 1:
        raise Unrecognised("distances are left out")
    cells = rows[first], columns[first]
    table = values[:, cells[0], cells[1]]
    hidden = np.isinf(table)
    exact = 1e-6 * max(1.0, float(np.abs(table[~hidden]).max()))
    wide = np.where(hidden, _HIDDEN, table)
    found = np.maximum(values[:, rows, columns], _HIDDEN)
    if not np.all(np.abs(wide[:, rows - columns - low] - found) <= exact):
        raise Unrecognised("what is added to scores is no function of the distance")
    steps = np.diff(wide, axis=1)
    moves = np.flatnonzero(np.abs(steps).max(0, initial=0) > exact)
    if not len(moves):
        return Recognised(context)
    straight = not hidden.any()
    linear = straight and table.shape[1] > 2 and bool(np.abs(steps - steps[:, :1]).max() <= exact)
    start = min(max(-low, 0), table.shape[1] - 2)
    part = slice(start, start + 2) if linear else slice(None)
    if not linear and (context.left is None or context.right is None):
        linear = _goes_on(moves, context, n)
        if linear and not straight:
            raise Unrecognised("what is added to scores goes on to change with the distance, with some hidden")
        part = _between_straight_ends(table, exact, context, n) if linear else slice(moves[0], moves[-1] + 2)
    cells = cells[0][part], cells[1][part]
    return Recognised(context, table[:, part], low + part.indices(table.shape[1])[0], linear, cells)


def _goes_on(at: Array, context: Context, n: int) -> bool:
    """Whether what happens at these places of a table may go on beyond an end that is none."""
    return bool(at[-1] > 3 * n // 4 or (context.right is None and at[0] < n // 4))


def _between_straight_ends(table: Array, exact: float, context: Context, n: int) -> slice:
    """Return the part of a table on both sides of which it is a straight line, as ``abs(i - j)`` is."""
    bends = np.flatnonzero(np.abs(np.diff(table, 2, axis=1)).max(0, initial=0) > exact)
    if len(bends) and not _goes_on(bends, context, n):
        part = slice(int(bends[0]), int(bends[-1]) + 3)
        ends = table[:, part.stop - 2 :], table[:, part.start + 1 :: -1]
        lines = (y[:, :1] + (y[:, 1:2] - y[:, :1]) * np.arange(y.shape[1]) for y in ends)
        if all(np.abs(y - line).max() <= exact for y, line in zip(ends, lines)):
            return part
    raise Unrecognised("what is added to scores goes on to change with the distance")
