"""What the counts say of lengths, whatever the stream: functions of how many frames of an input come.

A line knows the operation that it comes from; so its length is a function of the forward's input, made in C by
the operators' own programs, and two lengths are compared for every number of frames at once. 0 is left out, and
numbers of frames that an operator on the way refuses, as a convolution does that is longer than the stream.

Sums of lengths and quotients are one multiple of one quotient where counts show that they are:
``T // 4 * 4 + 4 * (T % 4 != 0)`` is ``(T + 3) // 4 * 4``, for it goes up by as much, every so many frames. Where
and by how much is read off its values at some lengths, and held against the counts of all.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from ... import _core
from ...errors import NotStreamableError, StreamLimitError

__all__ = ["OPPOSITE", "Formula", "Stairs", "constant", "holds", "rising", "stairs", "total"]

#: Frames of the input from which on what holds of all streams is how a forward is taken to be meant.
SOON = 1 << 14

#: Frames up to which a stream may be an exception in any if: where a model is stepped frame by frame, for one.
FEW = 8

#: Frames of the input up to which a stream may be too short for a comparison to hold.
_FAR = 1 << 20

OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}

#: Frames of an edge that are looked at, one by one.
_STEPS = 1 << 10

_ADD, _SUB, _MUL, _FLOORDIV, _MAX = 4, 5, 6, 7, 10
_ONE_ROOT = "sync"

Count = _core.Count


class Formula:
    """An integer as a function of the frames of one input, by its lineage.

    It is meant where the counts `where` are all above 0; `lengths` are those of the edges that it is made of.
    """

    def __init__(self, root: Any, count: Count, lengths: tuple[Count, ...], where: tuple[Count, ...]) -> None:
        self.root = root
        self.count = count
        self.lengths = lengths
        self.where = where

    @classmethod
    def of(cls, line: Any) -> Formula | None:
        """Return a line's length; None where it isn't a function of one input's."""
        found = _total(line)
        return None if found is None else cls(found.root, found.frames, (found.frames,), found.where)

    def _with(self, code: int, other: Formula | int) -> Formula | None:
        if isinstance(other, int):
            return Formula(self.root, self.count.apply(code, other), self.lengths, self.where)
        if other.root != self.root:
            return None
        made = self.beside(other)
        made.count = self.count.apply(code, other.count)
        return made

    def beside(self, other: Formula) -> Formula:
        """Return it where the other is meant, too."""
        lengths, where = _joined(self.lengths, other.lengths), _joined(self.where, other.where)
        return Formula(self.root, self.count, lengths, where)

    def _if(self, *more: Count) -> Formula:
        return Formula(self.root, self.count, self.lengths, (*self.where, *more))

    def plus(self, other: Formula | int) -> Formula | None:
        """Return the sum."""
        return self._with(_ADD, other)

    def times(self, k: int) -> Formula | None:
        """Return the product."""
        return self._with(_MUL, k)

    def over(self, k: int) -> Formula | None:
        """Return the quotient, rounded down."""
        return self._with(_FLOORDIV, k)

    def at_least(self, k: int) -> Formula | None:
        """Return the greater of it and a number."""
        return self._with(_MAX, k)

    def soon(self) -> Formula:
        """Return it where so many frames of the input come that no exception for short streams is meant."""
        return self._if(Count().apply(_SUB, SOON - 1))

    def filled(self) -> Formula:
        """Return it where each of its lengths has frames."""
        return self._if(*self.lengths)

    def beyond_few(self) -> Formula:
        """Return it where each of its lengths has more than a few frames."""
        return self._if(*(n.apply(_SUB, FEW) for n in self.lengths))

    def nothing(self) -> list[Formula]:
        """Return formulas that are above 0 where one of its lengths is 0, each for one."""
        return [Formula(self.root, n.apply(_MUL, -1).apply(_ADD, 1), (n,), self.where) for n in self.lengths]

    def last(self, ways: Iterable[Sequence[Any]]) -> int | None:
        """Return the most frames of the input with which all counts of one of these ways are above 0, or 0.

        None where there is no bound to them that is looked for.
        """

        def is_behind(frames: int) -> bool:
            more = Count().apply(_SUB, frames)
            found = (more.first_positive((*self.where, *[g.count for g in way])) for way in ways)
            return all(at is None for at in found)

        return bisect_left(range(_FAR), True, key=is_behind) if is_behind(_FAR) else None

    def exceeds(self, k: int) -> bool:
        """Whether it is above k for some stream."""
        return self.count.apply(_SUB, k).first_positive(self.where) is not None

    def falls_below(self, k: int) -> bool:
        """Whether it is below k for some stream."""
        return self.count.apply(_MUL, -1).apply(_ADD, k).first_positive(self.where) is not None


def _joined(first: tuple[Count, ...], second: tuple[Count, ...]) -> tuple[Count, ...]:
    return (*first, *(n for n in second if n not in first))


class _Total(NamedTuple):
    """A line's length as a function of the frames of an input."""

    root: Any  #: The input's lineage.
    frames: Count
    where: tuple[Count, ...]  #: They are above 0 where no operator refuses.


def _total(line: Any) -> _Total | None:
    """Return a line's length; None where it isn't a function of one input's."""
    waiting = [line]
    while waiting:
        at = waiting[-1]
        if "total" in at.facts:
            waiting.pop()
            continue
        if at.source is None:
            frames = Count()
            at.facts["total"] = _Total(at.cid, frames, (frames,))
            continue
        op, inputs, output = at.source
        if op.same_counts and op.outputs[output][2:] == op.outputs[0][2:]:
            inputs = inputs[:1]
        missing = [i for i in inputs if "total" not in i.facts]
        if missing:
            waiting += missing
            continue
        at.facts["total"] = _made(op, [i.facts["total"] for i in inputs], output)
    return line.facts["total"]


def _made(op: Any, inputs: Sequence[_Total | None], output: int) -> _Total | None:
    known = [i for i in inputs if i is not None]
    if len(known) < len(inputs):
        return None
    root = known[0].root
    if len(known) == 1 and op.same_counts:
        return known[0]
    if any(k.root != root for k in known):
        return known[0] if op.name == _ONE_ROOT else None  # what meets is compared at the end of the stream
    if not hasattr(op, "totals"):
        return None
    try:
        count = op.totals(tuple(k.frames for k in known))[output]
        return _Total(root, count, _accepted(count, known))
    except StreamLimitError:  # it repeats too late to be looked at
        return None


def _accepted(count: Count, inputs: Sequence[_Total]) -> tuple[Count, ...]:
    """Return the counts that are above 0 where neither an operator nor one before it refuses; it makes -1 then."""
    where = functools.reduce(_joined, [i.where for i in inputs])
    if count.apply(_MUL, -1).first_positive(where) is None:
        return where
    accepted = count.apply(_ADD, 1)
    others = [w for w in where if w.apply(_MUL, -1).apply(_ADD, 1).first_positive((accepted,)) is not None]
    return (*others, accepted)  # without those that follow from it


def holds(formula: Formula, relation: str) -> bool | None:
    """Return whether a formula compares with 0 so, for every stream; None where that depends on the stream."""
    if relation in ("ne", "ge", "gt"):
        other = holds(formula, OPPOSITE[relation])
        return None if other is None else not other
    least, most = formula.falls_below, formula.exceeds
    try:
        if relation == "eq":
            always = not least(0) and not most(0)
            never = not always and (not least(1) or not most(-1))
        else:
            end = 0 if relation == "le" else -1
            always, never = not most(end), not least(end + 1)
    except StreamLimitError:
        return None
    return True if always else False if never else None


def constant(formula: Formula) -> int | None:
    """Return the number that a formula is for every stream; None where there is none."""
    try:
        somewhere = Count().first_positive(formula.where)
        value = 0 if somewhere is None else formula.count.at(somewhere)
        return None if formula.exceeds(value) or formula.falls_below(value) else value
    except StreamLimitError:
        return None


def total(parts: Iterable[Formula | int | None]) -> Formula | None:
    """Return a sum of formulas and numbers; None where they aren't functions of one input's frames."""
    out: Formula | None = None
    number = 0
    for part in parts:
        if isinstance(part, int):
            number += part
        elif part is None:
            return None
        else:
            out = part if out is None else out.plus(part)
            if out is None:
                return None
    return None if out is None else out.plus(number)


def rising(formula: Formula) -> None:
    """Refuse a length that falls as frames come: what is there for one more frame would have come before it."""
    if any(more < n for n, more in pairwise(map(formula.count.at, range(_STEPS)))):
        raise NotStreamableError.here(
            "the length of a stream that is cut,",
            ": a stop below 0 counts from the end, so that it falls as frames come; cut by a number, x[:, :-3]",
        )


# ---------------------------------------------------------------------- one quotient
class Stairs(NamedTuple):
    """``(frames + before) // every * by + plus``, of the edge of this lineage."""

    cid: Any
    before: int
    every: int
    by: int
    plus: int

    def of(self, edges: Iterable[Any]) -> Any:
        """Return it as a length, of the one of these edges."""
        edge = next(e for e in edges if e.cid == self.cid)
        return (edge.entry.library.length(edge) + self.before) // self.every * self.by + self.plus


def stairs(length: Any, edges: Iterable[Any], soon: bool = False) -> Stairs | None:
    """Return what a length is of the frames of one of these edges; None where it was not found.

    With `soon` it is that in all but short streams.
    """
    formula = length.formula()
    in_most: list[tuple[int, Stairs]] = []  # and of how many lengths the difference in short streams is made
    for edge in edges:
        frames = edge.entry.library.length(edge).formula()
        if frames is None or frames.root != formula.root:
            continue
        try:
            found = _read(edge.cid, frames.count, formula.count)
        except StreamLimitError:
            continue
        if found is None:
            continue
        more = length - found.of([edge])
        if type(more) is int:
            return found._replace(plus=more)
        number = constant(differs.soon()) if soon and (differs := more.formula()) is not None else None
        if number is not None:
            in_most.append((len(more.terms), found._replace(plus=number)))
    return min(in_most, key=itemgetter(0))[1] if in_most else None


def _read(cid: Any, frames: Any, count: Any) -> Stairs | None:
    """Return what goes up with an edge's frames as a count does; None where nothing does."""
    ups: list[tuple[int, int]] = []  # at how many frames, by how much
    last, at = (frames.at(SOON), count.at(SOON)), SOON
    while at < SOON + _STEPS and len(ups) < 3:
        at += 1
        now = frames.at(at), count.at(at)
        if now[0] == last[0]:
            if now[1] != last[1]:
                return None
            continue
        if now[1] != last[1]:
            ups.append((now[0], now[1] - last[1]))
        last = now
    if len(ups) < 3:
        return None
    (first, by), second, third = ups
    every = second[0] - first
    if by < 1 or second[1] != by or third != (first + 2 * every, by):
        return None
    return Stairs(cid, -first % every, every, by, 0)
