"""What lengths are where a comparison of lengths holds, and 0 elsewhere, as lengths of all streams.

``(4 - T % 4) * (T % 4 != 0)`` and what an if adds are such: another length is looked for that counts show to be
the same wherever the condition holds, and nothing in all other streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...errors import StreamLimitError
from .for_every_stream import OPPOSITE, Formula
from .sums import key_of_length, recalled

__all__ = ["Condition", "is_length", "needed"]

#: Of a difference g, by relation with 0: the counts that are all above 0 where it holds, in each way it may hold.
_HOLDS: dict[str, Callable[[Formula], list[list[Formula | None]]]] = {
    "gt": lambda g: [[g]],
    "ge": lambda g: [[g.plus(1)]],
    "lt": lambda g: [[g.times(-1)]],
    "le": lambda g: [[_not_above(g)]],
    "ne": lambda g: [[g], [g.times(-1)]],
    "eq": lambda g: [[g.plus(1), _not_above(g)]],
}


def _not_above(g: Formula) -> Formula | None:
    negative = g.times(-1)
    return None if negative is None else negative.plus(1)


class Needed(NamedTuple):
    """How many frames of an input a stream needs so that lengths compare as they must."""

    input: int  #: Its number.
    frames: int | None  #: Needed since one of the lengths is 0 in shorter streams; 1 for none.
    all_frames: int | None  #: Needed at all. None: there is no such number.


def needed(formula: Formula, relation: str) -> Needed | None:
    """Return how many frames a formula needs that compares with 0 so; None where it isn't of an input."""
    if formula.root[0] != "in":
        return None
    wrong = _HOLDS[OPPOSITE[relation]](formula)
    try:
        found = formula.last([[*way, none] for way in wrong for none in formula.nothing()]), formula.last(wrong)
    except StreamLimitError:
        return None
    return Needed(formula.root[1], *[None if last is None else last + 1 for last in found])


def is_length(x: object) -> bool:
    """Whether it is a stream's length, or computed of some."""
    return hasattr(x, "formula")


class Condition:
    """Where lengths compare with 0 by relations, all of them, as they do in some streams only."""

    def __init__(self, *asked: tuple[Any, str]) -> None:
        self._asked = asked

    def key(self, edges: list[Any]) -> Any:
        """Return a key, equal where the same is asked of the same lines; edges that it counts are appended."""
        return tuple([(relation, key_of_length(length, edges)) for length, relation in self._asked])

    def within(self, other: Condition) -> Condition:
        """Return where both hold."""
        return Condition(*self._asked, *other._asked)

    def settled(self, amount: Any, whole: Any = 0, sign: int = 1) -> Any:
        """Return what is the amount wherever the condition holds, and 0 elsewhere; None where that isn't found.

        What is made of it in the end, `whole` plus or minus it, should be a function of one length.
        """
        return self.recalled(sign, [amount, whole], lambda: self._settled(amount, whole, sign))

    def recalled(self, what: Any, given: Sequence[Any], find: Callable[[], Any]) -> Any:
        """Return what was found of lengths and numbers where this held, a length, a number or None; or find it."""
        lengths, relations = zip(*self._asked)
        return recalled((what, relations), [*given, *lengths], find)

    def _settled(self, amount: Any, whole: Any, sign: int) -> Any:
        self._find()
        tried: list[Any] = [amount] if is_length(amount) else []
        if tried and (most := _most(amount)):
            tried.append(amount % most)
        if is_length(amount):
            tried += [amount.at_least(0), -(-amount).at_least(0)]
        if type(amount) is int:
            ones = [_number(*asked) for asked in self._asked]
            tried += [one * amount for one in ones if one is not None]
        tried.sort(key=lambda t: is_length(made := whole + sign * t) and len(made.of_one().terms) > 1)
        try:
            return next((t for t in tried if self._fits(t, amount)), None)
        except StreamLimitError:
            return None

    def empties(self, length: Any) -> bool:
        """Whether a length is 0 wherever the condition holds."""

        def found() -> bool:
            self._find()
            try:
                return self._vanishes(length, self._inside)
            except StreamLimitError:
                return False

        return bool(self.recalled("empties", [length], found))

    def _find(self) -> None:
        """Find the counts that are all above 0 where the condition holds, and elsewhere, in each way it may."""
        (length, relation), *more = self._asked
        self._of = of = length.formula()
        self._inside, self._outside = _HOLDS[relation](of), _HOLDS[OPPOSITE[relation]](of)
        for length, relation in more:
            other = length.formula()
            inside, known = _HOLDS[relation](other), of.root == other.root
            self._inside = [[*a, *b] for a in self._inside for b in inside] if known else [[None]]
            self._outside = [*self._outside, *_HOLDS[OPPOSITE[relation]](other)]
            self._of = self._of.beside(other)

    def _fits(self, settled: Any, amount: Any) -> bool:
        return self._vanishes(settled - amount, self._inside) and self._vanishes(settled, self._outside)

    def _vanishes(self, length: Any, ways: Sequence[Sequence[Formula | None]]) -> bool:
        """Whether a length is 0 wherever the counts of one of these ways are all above 0."""
        if type(length) is int:
            return not length
        formula = length.formula()
        if formula is None or formula.root != self._of.root:
            return False
        for way in ways:
            where = [w.count for w in way if w is not None]
            for sign in (1, -1):
                differs = formula.times(sign)
                if len(where) < len(way) or differs is None:
                    return False
                if differs.count.first_positive((*differs.beside(self._of).where, *where)) is not None:
                    return False
        return True


def _number(length: Any, relation: str) -> Any:
    """Return 1 where a length compares with 0 so, and 0 elsewhere; None where it has no bounds."""
    most, least = length.most(), (-length).most()
    if most is None or least is None:
        return None
    far = max(most, least) + 2
    positive, whole = (length + (far - 1)) // far, (length + far) // far  # > 0, >= 0
    by_relation = {"gt": positive, "ge": whole, "eq": whole - positive}
    if relation in by_relation:
        return by_relation[relation]
    return 1 - by_relation[OPPOSITE[relation]]


def _most(length: Any) -> int | None:
    """Return the number that a length never exceeds, but reaches; None where there is none that is small."""

    def bound(formula: Formula) -> int | None:
        most: int | None = length.most()
        while most and not formula.exceeds(most - 1):
            below = most // 2
            most = below if not formula.exceeds(below) else most - 1
        return most

    return length.fact("reached", bound)
