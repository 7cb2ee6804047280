"""Comparisons of lengths: true or false for every stream, or checked when each stream ends.

A comparison that depends on the stream has no truth while it is open. The private copy of a forward goes on with
the comparison itself (`branches`). An answer may be required: an operator then refuses streams of other lengths at
their ends. The sizes of a tensor are one value, which is compared as one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

from ..where import why_no_copy
from .condition import Condition, is_length, needed
from .for_every_stream import OPPOSITE, holds
from .sizes import Token
from .sums import fact, index_of, key_of_length

__all__ = ["MIRRORED", "Comparison", "Shape", "compared", "open_branch"]

#: What a comparison is with its operands the other way round.
MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def compared(length: Any, difference: Any, relation: str) -> Any:
    """Return whether a `difference` of lengths compares with 0 so: a bool where that holds of every stream."""
    if isinstance(difference, int):
        return getattr(operator, relation)(difference, 0)
    found = difference.fact(relation, lambda formula: holds(formula, relation))
    return Comparison([(difference, relation)]) if found is None else found


def open_branch(entry: Any) -> Any:
    """Return the innermost if or loop that runs now and that only some streams enter; None: all are meant.

    Where an exception has left it, which the forward has caught, that is refused: other streams have none.
    """
    branch = entry.guard
    if branch is not None and not branch.is_running():
        raise branch.left()
    return branch


class Comparison(Token):
    """Lengths that compare with 0 in some streams only.

    All parts must hold; if it is `negated`, not all of them.
    """

    __slots__ = ("negated", "parts")

    _what = "the length of a stream"
    _serves = (
        "What every stream answers alike is that truth; in an assert, or an if whose body only raises, a "
        "comparison is checked when each stream ends; an if may pad or crop by what is nothing where it doesn't "
        "hold (if T % 4: x = F.pad(x, (0, 4 - T % 4))); it is a number, as in int(T % 2 == 1); max and min may "
        "differ for short streams, an if for those of a few frames; "
        "anything else is for the outside of the forward."
    )

    def __init__(self, parts: Sequence[tuple[Any, str]], negated: bool = False) -> None:
        super().__init__(parts[0][0].edge)
        self.parts = tuple(parts)
        self.negated = negated

    def __bool__(self) -> bool:
        self.refuse()

    def refuse(self, more: str = "") -> NoReturn:
        """Raise the error that streams answer a comparison differently."""
        self._misuse("compared where streams answer differently", more or why_no_copy())

    def refuse_for_all(self, what: str, line: int) -> NoReturn:
        """Refuse what lasts, in a branch that only some streams enter."""
        self.refuse(f" `{what}` in line {line} would be done for all of them.")

    def single(self) -> tuple[Any, str]:
        """Return the one length that compares with 0, and how; None, "" where it is several."""
        if len(self.parts) > 1:
            return None, ""
        ((length, relation),) = self.parts
        return length, OPPOSITE[relation] if self.negated else relation

    def opposite(self) -> Comparison:
        """Return the comparison that holds in all other streams."""
        length, relation = self.single()
        if length is not None:
            return Comparison([(length, OPPOSITE[relation])])
        return Comparison(self.parts, not self.negated)

    def either(self, other: Comparison) -> Comparison:
        """Return a comparison that holds where one of two does."""
        return self.opposite().both(other.opposite()).opposite()

    def both(self, other: Comparison) -> Comparison:
        """Return a comparison that holds where this one and another do."""
        ways = [c.opposite().opposite() for c in (self, other)]  # one part alone is not negated
        if any(c.negated for c in ways):
            self.refuse()
        return Comparison([part for c in ways for part in c.parts])

    def holds_from(self, frames: int, length: Any) -> bool:
        """Whether it holds of every stream in which `length`, that it compares, is `frames` or more."""
        compared, relation = self.single()
        more = None if compared is None else compared - length
        if not isinstance(more, int):
            return False
        return frames + more > 0 if relation in ("gt", "ne") else relation == "ge" and frames + more >= 0

    def require(self, answer: bool = True, also_empty: bool = True) -> None:
        """Let streams that don't answer so be refused at their ends; those of which a length is 0, only if asked.

        Not where one of several lengths may differ, nor in a branch that some streams enter.
        """
        branch = open_branch(self.edge.entry)
        meant = branch is None or branch.meant()
        if meant is None or (answer == self.negated and len(self.parts) > 1):
            self.refuse()
        if not meant:  # no stream keeps what this branch makes
            return
        for length, relation in self.parts:
            _require(length, relation if answer != self.negated else OPPOSITE[relation], also_empty)

    # ------------------------------------------------------------------ as a number: 1 where it holds, else 0
    def __mul__(self, other: object) -> Any:
        if type(other) is not int and not is_length(other):
            self._misuse(f"multiplied by {type(other).__name__}")
        ((length, relation), *more) = self.parts
        if not more and length.fact("known", bool):
            where = Condition((length, OPPOSITE[relation] if self.negated else relation))
            if (found := where.settled(other)) is not None:
                return found
        self._misuse(
            f"multiplied by {other!r}: no length was found that is so long where it holds and 0 elsewhere"
        )

    def __trunc__(self) -> Any:
        return self * 1

    def __neg__(self) -> Any:
        return self * -1

    def __add__(self, other: Any) -> Any:
        return self * 1 + other

    def __sub__(self, other: Any) -> Any:
        return self * 1 - other

    def __rsub__(self, other: Any) -> Any:
        return other - self * 1

    __rmul__, __radd__ = __mul__, __add__

    def __repr__(self) -> str:
        text = " and ".join(f"{length!r} {relation} 0" for length, relation in self.parts)
        return f"<{'not ' if self.negated else ''}{text}>"


def _require(length: Any, relation: str, also_empty: bool) -> None:
    """Check a comparison when each stream ends, and refuse streams for which it does not hold.

    The operator that checks it leaves lengths of 0 alone; streams in which it would not hold of one are too short.
    """
    edges: list[Any] = []
    key = "require", relation, also_empty, key_of_length(length, edges)
    frames, check = fact(edges[0].line, key, lambda: _checks(length, relation, also_empty, edges))
    if frames is not None:
        length.edge.entry.known_input(frames[0]).require_frames(frames[1])
    if check is not None:
        one, other, attributes = check
        edges[one].require(edges[other], attributes)


def _checks(length: Any, relation: str, also_empty: bool, edges: list[Any]) -> tuple[Any, Any]:
    """Return how many frames of which input are needed, and what an operator checks of which edges; or None."""
    least = length.fact(("needed", relation), lambda formula: needed(formula, relation)) if also_empty else None
    of_two = sum(c > 0 for c, _ in length.terms) < 2 and sum(c < 0 for c, _ in length.terms) < 2
    of_two = of_two and all(len(length._of([t], 0).of_one().terms) == 1 for t in length.terms)
    found = None
    if least is not None:
        frames = least.frames if of_two else least.all_frames
        if frames is None:
            length._misuse("checked at the end of streams: those of any length answer differently")
        found = (least.input, frames) if frames > 1 else None
        if frames == least.all_frames:
            return found, None
    if not of_two:
        length._misuse("checked at the end of streams: it is made of more than two")
    more = [(c, a) for c, a in length.terms if c > 0]
    less = [(-c, a) for c, a in length.terms if c < 0]
    plus = -length.plus  # more compares with less + plus
    if not more:
        more, less, plus, relation = less, more, -plus, MIRRORED[relation]
    one = length._of(more, 0)
    other = length._of(less, plus) if less else one
    attributes = {
        "length": tuple(one.steps()),
        "other": tuple(other.steps()) if less else (),
        "plus": 0 if less else plus,
        "against": "length" if less else "number",
        "relation": relation,
    }
    return found, (index_of(one.of, edges), index_of(other.of, edges), attributes)


class Shape(tuple[Any, ...]):
    """A tuple of sizes, whose comparison with another is true, false, or a `Comparison` of all lengths in it."""

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, (tuple, list)):
            return NotImplemented
        if len(self) != len(other):
            return False
        parts: list[Any] = []
        for a, b in zip(self, other):
            same = a == b
            if isinstance(same, Comparison):
                parts += same.parts
            elif not same:
                return False
        return Comparison(parts) if parts else True

    def __ne__(self, other: object) -> Any:
        same = self.__eq__(other)
        if isinstance(same, Comparison):
            return Comparison(same.parts, negated=True)
        return same if same is NotImplemented else not same

    __hash__ = tuple.__hash__

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Shape(found) if isinstance(index, slice) else found

    def numel(self) -> Any:
        """Return the product of all sizes."""
        out: Any = 1
        for size in self:
            out = size * out
        return out
