"""What sizes are inside a forward: tokens instead of numbers.

While a stream is open its length is not known, so ``x.size(L)`` is a `Length`, which knows how it came about: a
sum of multiples of edges' lengths and of their quotients. It serves where the answer can wait (reshape, expand,
slices, padding, indexing a table), says what the counts say for every stream (a difference that is always the
same is that number, a comparison that always holds is True), and refuses everything that would need the number
now. ``x.size(B)`` is a `BatchSize`, which serves in shapes, as do its products with integers and a `Length`.

Each refusal raises what the edge's `misuse` returns, with the line of the user's source.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partialmethod
from typing import Any

from ...errors import DTypeError
from ...operations import RELATIONS
from ...operations.refusals import LOOPS
from ...source_line import user_line
from ..where import why_no_copy
from ._ints import as_int
from .bits import Bits
from .compare import Comparison, compared
from .for_every_stream import Formula, constant, holds, rising, stairs, total
from .quotients import Quotient
from .sizes import Edge, Rows, Token, Uncounted
from .sums import Made, edges_of, fact, of_positions, origin_of, remembered, text_of

__all__ = ["BatchLength", "BatchSize", "Length", "Quotient", "Sizes", "Step"]

#: One step of a Length's function: ("+", c), ("*", c), ("//", c) or ("max", c).
Step = tuple[str, int]

_CODES = {"+": 0, "*": 1, "//": 2, "max": 5}
_INT64 = 2**63
#: How many integers an operator takes in one attribute (`DS_MAX_INTS` of the engine).
_MOST_STEPS = 16
#: What a length counts: an edge's frames, or what was made of a length.
Atom = Any


class Length(Bits):
    """A stream's length inside a forward, or what was computed of lengths.

    It is a sum of multiples of edges' lengths, of lengths that were divided or are a number at least, and a
    number. It begins as that of the edge's frames; `fn` are steps from there, ``("+", c)``, ``("*", c)``,
    ``("//", c)`` and ``("max", c)``, of "*" and "//" by 1 or more.

    ``+`` and ``-`` with lengths and integers, ``*``, ``//`` and ``%`` with integers give new lengths, or the
    number that it is for every stream; ``*`` with the batch size gives a `BatchLength`, ``/`` what can be
    rounded. A comparison gives the truth where that is the same for every stream, else a `Comparison`. All else
    raises.
    """

    __slots__ = ("_cancels", "_keyed", "plus", "terms")
    terms: tuple[tuple[int, Atom], ...]
    plus: int
    _keyed: tuple[Any, ...]  # set when it is first asked for, as is whether lengths in it may cancel out
    _cancels: bool

    _what = "the length of a stream"
    _serves = "It serves in reshape, view, expand, slices and to index a table, with +, -, * and // by integers."

    def __init__(self, edge: Edge, fn: tuple[Step, ...] = ()) -> None:
        self.edge, self.terms, self.plus = edge, ((1, edge),), 0
        if not fn:
            return
        out: Any = self
        for op, c in fn:
            if op not in _CODES:
                raise ValueError(f"a length has no step {op!r}")
            out = _STEPS[op](out, c)
        self.terms, self.plus = out.terms, out.plus

    def _of(self, terms: Iterable[tuple[int, Atom]], plus: int) -> Any:
        """Return a sum as a length; where all lengths cancel out, or always differ by the same, as a number."""
        merged: dict[Any, list[Any]] = {}
        for coefficient, atom in terms:
            merged.setdefault(_key(atom), [0, atom])[0] += coefficient
        out = self._changed(tuple([(c, a) for c, a in merged.values() if c]), plus)
        if not out.terms:
            return plus
        if out.may_cancel():
            number = out.fact("constant", constant)
            if number is not None:
                return number
        return out

    def _changed(self, terms: tuple[tuple[int, Atom], ...], plus: int) -> Any:
        """Return a sum of as many different lengths, that is as little a number as this one."""
        if not -_INT64 < plus < _INT64 or not all(-_INT64 < c < _INT64 for c, _ in terms):
            self._misuse("changed by so much")
        out = object.__new__(type(self))
        out.edge, out.terms, out.plus = self.edge, terms, plus
        return out

    # ------------------------------------------------------------------ arithmetic
    def _integer(self, op: str, value: object) -> int:
        try:
            return as_int(value, "the other operand")
        except DTypeError:
            self._misuse(f"combined by {op} with {type(value).__name__} (only with integers)")

    @remembered
    def _with(self, other: Length) -> Any:
        return self._of([*self.terms, *other.terms], self.plus + other.plus)

    def _sum(self, other: object, sign: int, op: str) -> Any:
        if type(other) is int:
            return self._changed(self.terms, self.plus + sign * other)
        if isinstance(other, Length):
            return self._with(other if sign > 0 else -other)
        if isinstance(other, (Comparison, Quotient)) or of_positions(other) or self._is_number_beside(other):
            return NotImplemented
        if isinstance(other, Token):
            self._misuse(f"combined by {op} with another size")
        return self._of(self.terms, self.plus + sign * self._integer(op, other))

    def __add__(self, other: object) -> Any:
        return self._sum(other, 1, "+")

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        return self._sum(other, -1, "-")

    def __neg__(self) -> Any:
        return self._times(-1)

    def __pos__(self) -> Length:
        return self

    def __abs__(self) -> Any:
        for relation, absolute in (("ge", self), ("le", -self)):
            if self.compare(0, relation) is True:
                return absolute
        return super().__abs__()

    def __rsub__(self, other: object) -> Any:
        return (-self)._sum(other, 1, "-")

    def _times(self, c: int) -> Any:
        if not c:
            return 0
        return self if c == 1 else self._changed(tuple([(k * c, a) for k, a in self.terms]), self.plus * c)

    def __mul__(self, other: object) -> Any:
        if type(other) is int:
            return self._times(other)
        if isinstance(other, BatchSize):
            return self.edge.entry.library.joined(self, other.times)
        if isinstance(other, Comparison) or of_positions(other) or self._is_number_beside(other):
            return NotImplemented
        if type(other) is list and other == [None]:
            return other * self
        if isinstance(other, Token):
            self._misuse("combined by * with another size")
        if isinstance(other, float):
            return self._times(int(other)) if other.is_integer() else Quotient(self, 1) * other
        return self._times(self._integer("*", other))

    def _divisor(self, op: str, value: object) -> int:
        if isinstance(value, Token):
            self._misuse(f"combined by {op} with another size")
        c = self._integer(op, value)
        if not 1 <= c < _INT64:
            self._misuse(f"changed by {op} {c} ({op} takes integers of 1 or more)")
        return c

    @remembered
    def __floordiv__(self, other: object) -> Any:
        c = self._divisor("//", other)
        if all(k % c == 0 for k, _ in self.terms):
            return self._changed(tuple([(k // c, a) for k, a in self.terms]), self.plus // c)
        if all(k < 0 for k, _ in self.terms):  # -(x // c) = (-x + c - 1) // c
            return -((-self + (c - 1)) // c)
        (k, inner), *more = self.terms
        if not more and k == 1 and isinstance(inner, Made) and inner.op == "//" and inner.by > 1:
            return (inner.length + inner.by * self.plus) // self._divisor("//", inner.by * c)  # (x // a + b) // c
        return self._of([(1, Made(self, c))], 0)

    @remembered
    def at_least(self, least: int) -> Any:
        """Return the greater of it and a number."""
        for relation, greater in (("ge", self), ("le", least)):
            if self.compare(least, relation) is True:
                return greater
        base, least = self - self.plus, least - self.plus
        (k, inner), *more = base.terms
        if k < 0:  # max(-x, c) = max(x, -c) + c - x
            return (-base).at_least(-least) + (least + self)
        if not more and k == 1 and isinstance(inner, Made) and inner.op == "max":
            return inner.length.at_least(max(inner.by, least)) + self.plus
        return self._of([(1, Made(base, least, "max"))], self.plus)

    @remembered
    def __mod__(self, other: object) -> Any:
        c = self._divisor("%", other)
        rest = self._of([(k, a) for k, a in self.terms if k % c], self.plus % c)
        return rest % c if isinstance(rest, int) else rest - rest // c * c

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __truediv__(self, other: object) -> Quotient:
        if isinstance(other, float) and other.is_integer():
            other = int(other)
        if (number := self.settled()) is not self:
            return number / other
        return Quotient(self, self._divisor("/", other))

    def __rtruediv__(self, other: Any) -> Any:
        return super().__rtruediv__(other) if (number := self.settled()) is self else other / number

    def __floor__(self) -> Length:
        return self

    __ceil__ = __trunc__ = __floor__

    def __round__(self, digits: int | None = None) -> Length:
        return self

    # ------------------------------------------------------------------ comparisons
    def compare(self, other: object, relation: str) -> Any:
        """Return the truth of a comparison where it is the same for every stream, else a `Comparison`."""
        if type(other) is not int and (hasattr(other, "loop") or of_positions(other)):
            return NotImplemented  # these know what they are compared with
        if isinstance(other, Quotient):
            return (self * other.by).compare(other.over, relation)
        kind = type(other).__name__
        if not isinstance(other, (Token, int)) and hasattr(other, "item"):
            other = other.item()  # a tensor's only number
        if not isinstance(other, Length) and type(other) is not int:
            try:
                other = None if isinstance(other, Token) else as_int(other, "what a length is compared with")
            except DTypeError:
                other = None
            if other is None:
                self._misuse(f"compared with {kind}")
        return compared(self, self - other, relation)

    def require(self, relation: str, other: object) -> None:
        """Refuse streams at their ends whose length does not compare so; one that no stream has is left alone."""
        if isinstance(asked := self.compare(other, relation), Comparison):
            asked.require()

    def __index__(self) -> int:
        if isinstance(number := self.soon(), int):
            return number
        more = f" {LOOPS.text}." if "range(" in user_line() else ""
        self._misuse("used as an integer (range, index, array size)", why_no_copy() or more)

    def soon(self) -> Any:
        """Return what it is in all but short streams, which are refused at their ends: without ``max``."""
        out: Any = self
        for coefficient, atom in self.terms:
            if not isinstance(atom, Made):
                continue
            inner = atom.length.soon()
            if atom.op == "max":
                longer = (atom.length - atom.by).fact(("soon", "ge"), lambda f: holds(f.soon(), "ge"))
                if longer is None:
                    return self
                atom.length.compare(atom.by, "ge").require(longer)
                inner = inner if longer else atom.by
            elif inner is atom.length:
                continue
            else:
                inner //= atom.by
            out = out + coefficient * (inner - self._of([(1, atom)], 0))
        return out._of_one_soon() if isinstance(out, Length) else out

    def _of_one_soon(self) -> Any:
        """Return the number, or the function of one length, that it is, and refuse other streams at their ends."""
        one: Any = number if (number := self.in_most()) is not None else self
        if one is self and (len(self.of_one().terms) == 1 or (one := self.of_one(soon=True)) is self):
            return self
        (self - one).compare(0, "eq").require()
        return one

    def __bool__(self) -> bool:
        differs = self.compare(0, "ne")
        return bool(differs)

    def counting(self) -> Length:
        """Return it as the length of something, which has no frames where the sum is below 0."""
        return self._of([(1, Made(self, 1))], 0)

    def formula(self) -> Formula | None:
        """Return the length as a function of the frames of a forward's input; None where none is known."""
        parts: list[Formula | int | None] = [self.plus]
        for coefficient, atom in self.terms:
            if isinstance(atom, Made):
                inner = atom.length.formula()
                if inner is None or atom.op == "max":
                    part = inner and inner.at_least(atom.by)
                else:
                    part = inner.at_least(0) if atom.by == 1 else inner.over(atom.by)
            else:
                line = getattr(atom, "line", None)
                part = None if line is None else Formula.of(line)
            parts.append(part if part is None or coefficient == 1 else part.times(coefficient))
        return total(parts)

    def fact(self, what: Any, find: Callable[[Formula], Any]) -> Any:
        """Return what is found out of the formula, once; None where there is none."""
        line = getattr(self.edge, "line", None)
        if line is None:
            return None

        def found() -> Any:
            formula = self.formula()
            return None if formula is None else find(formula)

        return fact(line, (what, self.key()), found)

    def compares(self, relation: str, frames: Length) -> bool | None:
        """Return whether it compares with 0 so in every stream that has these frames; None where that depends."""
        of = frames.formula()

        def found(formula: Formula) -> bool | None:
            return None if of is None or of.root != formula.root else holds(formula.beside(of), relation)

        return self.fact((relation, frames.key()), found)

    def of_one(self, soon: bool = False) -> Length:
        """Return it as a function of the length of one of its edges, where counts show that it is one.

        `soon`: but for short streams.
        """
        if len(self.terms) == 1:
            return self
        edges = {id(e): e for _, a in self.terms for e in edges_of(a)}.values()
        found = self.fact(("stairs", soon), lambda _: stairs(self, edges, soon))
        return self if found is None else found.of(edges)

    def in_most(self) -> int | None:
        """Return the number that it is in all but short streams; None where it is none."""
        return self.fact("in most", lambda formula: constant(formula.soon()))

    def filled(self) -> Any:
        """Return the number that it is in all streams of which each of its edges has frames; else itself."""
        return self if (n := self.fact("filled", lambda f: constant(f.filled()))) is None else n

    def settled(self) -> Any:
        """Return the number that it is in all but short streams, which are refused at their ends; else itself."""
        return operator.index(self) if self.in_most() else self

    def _is_number_beside(self, other: Any) -> bool:
        """Whether it meets frames, which take it as the number that it is in all but short streams."""
        return bool(getattr(other, "ndim", 0)) and bool(self.in_most())

    def at_most(self, most: Any) -> Any:
        """Return the smaller of it and another length or a number."""
        rest = most - self
        return most - (rest.at_least(0) if isinstance(rest, Length) else max(rest, 0))

    def most(self) -> int | None:
        """Return a number that it never exceeds; None where none below 2**20 was found."""

        def bound(formula: Formula) -> int | None:
            return next((n for n in (0, *(1 << i for i in range(21))) if not formula.exceeds(n)), None)

        return self.fact("most", bound)

    # ------------------------------------------------------------------ as a function of one length
    @property
    def fn(self) -> tuple[Step, ...]:
        """Steps, as the class takes them, from the edge's frames to this length."""
        one = self.of_one()
        coefficient, atom = one.terms[0]
        if len(one.terms) > 1 or coefficient < 1:
            more = "as the next multiple is, x.size(L) + -x.size(L) % 4"
            self._misuse(f"used as a length here: it is more than one of a stream with +, * and //, {more}")
        steps = (*atom.length.fn, (atom.op, atom.by)) if isinstance(atom, Made) else ()
        own = (("*", coefficient), ("+", one.plus))
        return (*steps, *((op, c) for op, c in own if c != (0 if op == "+" else 1)))

    @property
    def of(self) -> Edge:
        """The edge whose frames are counted, where it is a function of one length."""
        _, atom = self.of_one().terms[0]
        return atom.length.of if isinstance(atom, Made) else atom

    @property
    def rate(self) -> Fraction:
        """Rate of an edge of this length, which is the edge's own, carried through ``*`` and ``//``."""
        rate = Fraction(self.of.rate)
        for op, c in self.fn:
            rate = rate * c if op == "*" else rate / c if op == "//" else rate
        return rate

    def steps(self, rises: bool = False) -> list[int]:
        """Return the function as pairs of integers: 0 `+`, 1 `*`, 2 `//`, 5 `max`, then the operand.

        Of more than an operator takes those of all but short streams, which are refused at their ends. One that
        falls as frames come is refused where `rises` says so.
        """
        if rises:
            self.fact("rises", rising)
        steps = [n for op, c in self.fn for n in (_CODES[op], c)]
        longer = self.soon() if len(steps) > _MOST_STEPS else self
        return steps if longer is self or isinstance(longer, int) else longer.steps()

    def measured(self) -> tuple[Any, Any]:
        """Return the length at the end of streams, as an operator's value and edge."""
        (out,) = self.of.measure({"length": tuple(self.steps())})
        return out

    def apply(self, n_frames: int) -> int:
        """Return the function's value for an edge of `n_frames` frames."""
        for op, c in self.fn:
            n_frames = _STEPS[op](n_frames, c)
        return n_frames

    def key(self) -> tuple[Any, ...]:
        """Return a key that is equal for equal sums."""
        if not hasattr(self, "_keyed"):
            parts = [(c, *_key(a)) for c, a in self.terms]
            self._keyed = (self.plus, *(sorted(parts, key=repr) if len(parts) > 1 else parts))
        return self._keyed

    def may_cancel(self) -> bool:
        """Return whether lengths are subtracted from each other, in a sum or in a quotient of it."""
        if not hasattr(self, "_cancels"):
            self._cancels = False
            for c, atom in self.terms:
                if (c < 0 and len(self.terms) > 1) or (isinstance(atom, Made) and atom.length.may_cancel()):
                    self._cancels = True
        return self._cancels

    def __repr__(self) -> str:
        cids = list(dict.fromkeys(e.cid for _, a in self.terms for e in edges_of(a)))
        names = {cid: "L" if len(cids) == 1 else f"L{i + 1}" for i, cid in enumerate(cids)}
        return f"<length {text_of(self, names)} of {' and '.join(map(origin_of, cids))}>"


def _key(atom: Atom) -> tuple[Any, ...]:
    return (atom.op, atom.by, atom.length.key()) if isinstance(atom, Made) else ("L", atom.cid)


_STEPS: dict[str, Callable[[Any, int], Any]] = {
    "+": operator.add, "*": operator.mul, "//": operator.floordiv,
    "max": lambda n, least: n.at_least(least) if isinstance(n, Length) else max(n, least),
}  # fmt: skip


for _name in RELATIONS:
    setattr(Length, f"__{_name}__", lambda self, other, relation=_name: self.compare(other, relation))
Length.__hash__ = Token.__hash__  # type: ignore[method-assign]


class BatchSize(Rows):
    """The number of streams inside a forward, or so many `times` as many."""

    __slots__ = ("times",)
    times: int

    _what = "the number of streams"
    _serves = "It serves in reshape, expand and zeros; so do its products with integers and a length."

    def __init__(self, edge: Edge, times: int = 1) -> None:
        self.edge, self.times = edge, times

    def __mul__(self, other: object) -> Any:
        if isinstance(other, Length):
            return other * self
        if type(other) is not int or other < 1:
            self._misuse(f"multiplied by {type(other).__name__}")
        return self if other == 1 else type(self)(self.edge, self.times * other)

    __rmul__ = __mul__

    def _part(self, by: object) -> int:
        """Return how often these are a number, or as many of the streams."""
        times = by.times if isinstance(by, BatchSize) else by
        if type(times) is not int or times < 1 or self.times % times:
            self._misuse(f"divided by {type(by).__name__}")
        return self.times // times

    def __floordiv__(self, other: object) -> BatchSize | int:
        part = self._part(other)
        return part if isinstance(other, BatchSize) else type(self)(self.edge, part)

    def __mod__(self, other: object) -> int:
        self._part(other)
        return 0

    def _compare(self, relation: str, other: object) -> bool:
        if type(other) is not int and not isinstance(other, BatchSize):
            self._misuse(f"compared with {type(other).__name__}")
        times = other.times if isinstance(other, BatchSize) else other  # one forward has one batch
        return bool(getattr(operator, relation)(self.times, times))  # each stream is by itself

    __eq__: Any = partialmethod(_compare, "eq")
    __ne__: Any = partialmethod(_compare, "ne")
    __lt__, __le__ = partialmethod(_compare, "lt"), partialmethod(_compare, "le")
    __gt__, __ge__ = partialmethod(_compare, "gt"), partialmethod(_compare, "ge")

    __hash__ = Token.__hash__

    def __repr__(self) -> str:
        return "<number of streams>" if self.times == 1 else f"<number of streams * {self.times}>"


class BatchLength(Rows):
    """The frames of all streams, ``x.size(B) * x.size(L)``, or so many `times` as many: serves in reshape only."""

    __slots__ = ("length", "times")
    length: Length
    times: int

    _what = "the number of frames of all streams"
    _serves = "It serves in reshape; divided by the number of streams it is a length."

    def __init__(self, length: Length, times: int = 1) -> None:
        super().__init__(length.edge)
        self.length, self.times = length, times

    def __mul__(self, other: object) -> BatchLength:
        if type(other) is not int or other < 1:
            self._misuse(f"multiplied by {type(other).__name__}")
        return type(self)(self.length, self.times * other)

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Any:
        batch = self.edge.entry.library.batch if isinstance(other, Length) else BatchSize
        rows = batch(self.edge, self.times)
        if isinstance(other, Length) and other == self.length:
            return rows
        part = rows._part(other)
        return self.length * part if isinstance(other, BatchSize) else type(self)(self.length, part)

    def __add__(self, other: object) -> Uncounted:
        if type(other) is not int and not isinstance(other, Token):
            self._misuse(f"added to {type(other).__name__}")
        return Uncounted(self.edge)

    __radd__ = __sub__ = __rsub__ = __add__

    def _frames(self, other: object) -> Any:
        if type(other) is int and other == 0:
            return 0
        if not isinstance(other, BatchLength):
            self._misuse(f"compared with {type(other).__name__}")
        return other.length * other.times

    def __eq__(self, other: object) -> Any:
        return self.length * self.times == self._frames(other)

    def __ne__(self, other: object) -> Any:
        return self.length * self.times != self._frames(other)

    __hash__ = Token.__hash__

    def __repr__(self) -> str:
        return f"<number of streams * {self.length * self.times!r}>"


class Sizes:
    """The classes of the sizes of a library's tensors: those of B, of L, and of both joined."""

    batch: type[BatchSize] = BatchSize
    length: type[Length] = Length
    joined: type[BatchLength] = BatchLength
