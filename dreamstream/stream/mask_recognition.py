"""Reading a mask's values: what each query sees, and what is added to scores by distance.

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
    """Why a mask or term can't be recognised."""


class NoNumbers(Unrecognised):
    """It has entries that are NaN."""


@dataclass(frozen=True)
class Recognised:
    """What was recognised of masks and terms."""

    context: Context
    #: ``(1 or heads, n)``: what is added to scores, by distance of the query from the key, from `first` on.
    bias: Array | None = None
    first: int = 0
    linear: bool = False  #: Whether it goes on by its last step beyond its ends, not by its last value.
    #: A query and a key for each distance of the bias, and the key whose score is taken off.
    cells: tuple[Array, Array, Array] | None = None
    blank: int | None = None  #: A query that sees no key, where there are any.

    @property
    def hides(self) -> bool:
        """Whether heads don't see all of the context."""
        return self.bias is not None and bool(np.isinf(self.bias).any())

    def holds(self, other: Recognised) -> bool:
        """Whether another says the same, but for the numbers that are added."""
        mine, theirs = self.shows(), other.shows()
        alike = (self.first, self.linear, self.blank) == (other.first, other.linear, other.blank)
        return mine == theirs and alike and _shape(self.bias) == _shape(other.bias)

    def shows(self) -> Any:
        """Return a key that is equal where the same keys are seen."""
        hidden = np.isinf(self.bias) if self.bias is not None and self.hides else None
        return self.context, None if hidden is None else (self.first, hidden.tolist())


def _shape(bias: Array | None) -> tuple[int, ...] | None:
    return None if bias is None else bias.shape


def long_enough(constants: set[int]) -> int:
    """Return the frames at which all shows that these integers of a program say, or raise Unrecognised."""
    n = 4 * int(np.prod([c + 1 for c in constants], dtype=object))
    if n > LONGEST and constants:
        n = max(LONGEST // 4, 2 * (max(constants) + 1))
    if n > LONGEST:
        raise Unrecognised(f"it looks at {max(constants)} frames, more than can be tried")
    return max(n, 64)


def recognised(values: Callable[[int], Array], n: int, most: int = LONGEST, table: int = 0) -> Recognised:
    """Recognise a mask or term by its values, or raise Unrecognised.

    ``values(n)`` gives for n frames ``(heads or 1, n, n)``: whether query i sees key j, or what is added to their
    score. They are looked at for `n` frames, and for `most` at the most. The tables that they are made of end at
    `table` frames: what stands there no integer of the program tells.
    """
    at = values(n)
    seen = _seen(at)
    context, near = _pattern(seen, n)
    blank = _blank(at, seen)
    last = max(n, min(most, LONGEST // 4), table)
    for other in _others(context, n, last, near is not None):
        theirs = values(other)
        shown = _seen(theirs)
        if not (shown == _shown(context, near, other)).all():
            raise Unrecognised(f"at {other} frames it says something else than at {n}")
        blank = _blank(theirs, shown) if blank is None else blank
    if at.dtype == bool and near is None:
        return Recognised(context)
    found = replace(_with_bias(context, np.where(seen, at, -np.inf), n), blank=blank)
    if table > n:
        confirm(found, (lambda _: theirs) if table == last else values, table)
    return found


def _blank(at: Array, seen: Array) -> int | None:
    """Return a query that sees no key, where there is one."""
    empty = ~seen.any(2)
    if not empty.any():
        return None
    blank = int(empty.any(0).argmax())
    if at.dtype != bool and not np.isneginf(at[empty]).all():
        raise Unrecognised(
            f"query {blank} of {at.shape[1]} frames sees no key: a number hides all alike, so that it sees all"
        )
    return blank


def _shown(context: Context, near: Array | None, n: int) -> Array:
    """Return the mask of a context for n frames and each head; `near` says by distance what a head sees of it."""
    shown = expected(context, n)[None]
    if near is None:
        return shown
    middle = near.shape[1] // 2
    distances = np.subtract.outer(np.arange(n), np.arange(n))
    return shown & near[:, np.clip(distances, -middle, middle) + middle]


def _others(context: Context, n: int, last: int, holes: bool) -> list[int]:
    """Return other lengths that decide: one of each remainder by the chunk, some that show all that is seen."""
    chunk = context.chunk or 1
    few = max(chunk, 2)
    reach = (context.left or 0) + (context.right or 0) + 3 * chunk + context.keep
    low = min(max(64, 2 * chunk), n - few)
    high = n - few if holes else min(max(reach, low), n - few)
    out = {*range(low, low + few), *(high + k for k in (0, 1, chunk // 2, few - 1)), last}
    return sorted(out - {n})


def confirm(found: Recognised, values: Callable[[int], Array], n: int) -> None:
    """Raise Unrecognised unless pairs are, at n frames, what was recognised without them."""
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
    """Recognise pairs with a number too great to be tried, from what was recognised with smaller ones.

    What was found is for three numbers that rise by equal steps, of which there are `times` from the first to the
    one that is meant. Unrecognised is raised where what was found does not rise by equal steps too.
    """
    near = found[0]
    sizes: list[int | None] = []
    for own in zip(*((x.context.chunk, x.context.left, x.context.right, x.context.keep) for x in found)):
        first, second, third = own
        if None in own:
            risen = own == (None, None, None)
            sizes.append(None)
        else:
            risen = second - first == third - second
            sizes.append(first + times * (second - first))
        if not risen:
            raise Unrecognised("it changes unevenly with a number that is too great to be tried")
    if any(
        (x.first, x.linear, x.blank) != (near.first, near.linear, near.blank) or not _goes_on_so(near.bias, x.bias)
        for x in found
    ):
        raise Unrecognised("what is added to scores changes with a number that is too great to be tried")
    return replace(near, context=Context(sizes[0], sizes[1], sizes[2], sizes[3] or 0))


def _goes_on_so(near: Array | None, far: Array | None) -> bool:
    """Whether a longer table is a shorter one, and its last value from there on."""
    if near is None or far is None:
        return near is far
    n = near.shape[1]
    return np.array_equal(near, far[:, :n]) and bool((far[:, n:] == near[:, -1:]).all())


def _seen(at: Array) -> Array:
    if at.dtype != bool and np.isnan(at).any():
        raise NoNumbers("it has entries that are NaN")
    return at if at.dtype == bool else at > MASKED


def _pattern(seen: Array, n: int) -> tuple[Context, Array | None]:
    """Return what queries see at most, and what each head sees of that by distance, None where that is all.

    The distances are 1 - n to n - 1.
    """
    if seen.all():
        return Context(chunk=None), None
    union: Array = np.logical_or.reduce(seen)
    late: Array = np.logical_and.reduce(union[3 * n // 4 :])
    keep = (
        int(late.argmin()) if late[: n // 2].argmin() or not late[0] else 0
    )  # else there is no bound to the left
    chunk = next((c for c in range(1, n // 3 + 1) if _repeats(seen, c, keep)), None)
    i, j = np.nonzero(union[:, keep:])
    if chunk is None or not len(i):
        raise Unrecognised(_strange(union))
    begin, j = i // chunk * chunk, j + keep
    sides = [max(int(x.max()), 0) for x in (begin - j, j - begin - chunk + 1)]
    left, right = (None if x > n // 2 else x for x in sides)
    context = Context(chunk, left, right, keep)
    if (seen == expected(context, n)).all():
        return context, None
    near = np.zeros((len(seen), 2 * n - 1), bool)
    for row in range(chunk):
        near[:, row : n - 1] |= seen[:, row, :row:-1]
        near[:, n - 1 : 2 * n - 1 - row] |= seen[:, n - 1 - row, n - 1 - row :: -1]
    ends = [
        np.flatnonzero((side[:, 1:] != side[:, :-1]).any(0)) for side in (near[:, n - 1 :], near[:, n - 1 :: -1])
    ]
    endless = any(len(x) and x[-1] > n // 2 for x in ends)
    if keep or endless or not (seen == _shown(context, near, n)).all():
        raise Unrecognised(_strange(union))
    return context, near


def _repeats(seen: Array, chunk: int, keep: int) -> bool:
    """Whether what is seen is the same again a chunk later, but for the first frames."""
    before, behind = seen[:, :-chunk, keep:-chunk], seen[:, chunk:, keep + chunk :]
    few = slice(-1, None)
    return np.array_equal(before[:, few], behind[:, few]) and np.array_equal(before, behind)


def _strange(seen: Array) -> str:
    rows = ", ".join("".join("x" if s else "." for s in row[:12]) for row in seen[:4])
    return f"its rows begin as {rows}: no blocks of one size that see as many keys before and behind them"


def expected(context: Context, n: int) -> Array:
    """Return the mask of a context for n frames."""
    out: Array = sees(context, np.arange(n)[:, None], np.arange(n))
    return out


def sees(context: Context, i: Any, j: Any) -> Any:
    """Return whether queries at positions see keys at others, of any library's integers."""
    seen = (i >= 0) & (j >= 0)
    if context.chunk is None:
        return seen
    begin = i // context.chunk * context.chunk
    if context.left is not None:
        seen = (j >= begin - context.left) | (seen & (j < context.keep))
    if context.right is not None:
        seen = seen & (j < begin + context.chunk + context.right)
    return seen


def _with_bias(context: Context, at: Array, n: int) -> Recognised:
    """Return the function of the distance that is added to what is seen, up to one of the query alone.

    What is hidden is -inf.
    """
    own, keys = _own(at, n)
    values = at - own[..., None]
    rows, columns = np.nonzero(expected(context, n))
    distances, first = np.unique(rows - columns, return_index=True)
    low = int(distances[0])
    if len(distances) != distances[-1] - low + 1:
        raise Unrecognised("distances are left out")
    cells = rows[first], columns[first], keys[rows[first]]
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
    if not linear and (context.behind is None or context.right is None):
        linear = _goes_on(moves, context, n)
        if linear and not straight:
            raise Unrecognised("what is added to scores goes on to change with the distance, with some hidden")
        part = _between_straight_ends(table, exact, context, n) if linear else slice(moves[0], moves[-1] + 2)
    cells = cells[0][part], cells[1][part], cells[2][part]
    return Recognised(context, table[:, part], low + part.indices(table.shape[1])[0], linear, cells)


def _own(at: Array, n: int) -> tuple[Array, Array]:
    """Return what is added to scores of queries' own frames, or the nearest before that all see; and which."""
    queries = np.arange(n)
    shown = at[~np.isinf(at)]
    if not len(shown) or (shown == shown[0]).all():
        return np.full(at.shape[:2], shown[0] if len(shown) else 0.0, np.float64), queries
    for distance in range(n // 2):
        own = at[:, np.arange(distance, n), np.arange(n - distance)].astype(np.float64)
        if not np.isinf(own).any():
            break
    out = np.concatenate([np.zeros((len(at), distance)), own], 1)
    if np.isinf(own).any() or not np.isinf(at[:, :distance]).all():
        raise Unrecognised("queries don't see their own frame")
    return out, np.maximum(queries - distance, 0)


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
