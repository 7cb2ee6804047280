"""What sizes are inside a forward: tokens instead of numbers.

While a stream is open its length is not known, so ``x.size(L)`` is a `Length`: an edge with a
function of its length. It serves where the answer can wait (reshape, expand, slices, indexing a
table) and refuses everything that would need the number now. ``x.size(B)`` is a `BatchSize`, whose
only use is its product with a `Length`, a `BatchLength`.

Each refusal raises what the edge's `misuse` returns, with the line of the user's source.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from ...errors import CaptureError, DTypeError
from ..where import user_line
from ._ints import as_int

__all__ = ["BatchLength", "BatchSize", "Edge", "Length", "Sizes", "Step"]

#: One step of a Length's function: ("+", c), ("*", c) or ("//", c).
Step = tuple[str, int]

_CODES = {"+": 0, "*": 1, "//": 2}
_INT64 = 2**63


class Edge(Protocol):
    """What a token must know of the tensor that it came from."""

    @property
    def cid(self) -> Hashable:
        """The edge's lineage."""

    @property
    def rate(self) -> Fraction:
        """The edge's frames per frame of the reference input."""

    def misuse(self, message: str) -> Exception:
        """Return the exception to raise for a wrong use."""


class _Unhashable(CaptureError, TypeError):
    """What a capture says of a size that is hashed: a TypeError, as of everything that can't be hashed."""


def _refuse(use: str) -> Callable[..., Any]:
    """Make a method that refuses one kind of use."""

    def method(self: _Token, *_: object, **__: object) -> NoReturn:
        self._misuse(use)

    return method


class _Token:
    """A size that is no number: every use raises, but for those that a subclass allows."""

    __slots__ = ("edge",)
    __array_ufunc__ = None  # NumPy numbers leave their operators to the token
    edge: Edge

    _what = "a size"
    _serves = ""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge

    def _misuse(self, use: str) -> NoReturn:
        raise self.edge.misuse(
            f"{self._what} is not a number while streams are open: it can't be {use}, at "
            f"{user_line()}. {self._serves}"
        )

    def __hash__(self) -> int:
        """Raise the token's own error, which is a TypeError too."""
        try:
            self._misuse("hashed (put into a set or dict)")
        except CaptureError as error:
            raise _Unhashable(str(error)) from None

    def __format__(self, spec: str) -> str:
        if spec:
            self._misuse(f"formatted with {spec!r}")
        return repr(self)

    __lt__ = __le__ = __gt__ = __ge__ = _refuse("compared")
    __eq__ = _refuse("compared")
    __ne__ = _refuse("compared")
    __bool__ = _refuse("tested for truth")
    __int__ = __float__ = __complex__ = _refuse("converted to a number")
    __trunc__ = __floor__ = __ceil__ = __round__ = _refuse("converted to a number")
    __index__ = _refuse("used as an integer (range, index, array size)")
    __array__ = _refuse("made an array")
    __len__ = __iter__ = __getitem__ = __contains__ = _refuse("used as a sequence")
    __add__ = __radd__ = _refuse("added to this")
    __sub__ = __rsub__ = _refuse("subtracted like this")
    __mul__ = __rmul__ = _refuse("multiplied by this")
    __truediv__ = __rtruediv__ = _refuse("divided with / (use //)")
    __floordiv__ = __rfloordiv__ = _refuse("divided like this")
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _refuse("taken modulo")
    __pow__ = __rpow__ = _refuse("raised to a power")
    __matmul__ = __rmatmul__ = _refuse("multiplied by this")
    __neg__ = __pos__ = __abs__ = __invert__ = _refuse("negated or made absolute")
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse("combined bit by bit")
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _refuse("shifted")


class Length(_Token):
    """A stream's length inside a forward: an edge, and a function of its number of frames.

    Parameters
    ----------
    edge : Edge
        The tensor whose frames are counted.
    fn : tuple of (str, int), optional
        Steps ``("+", c)``, ``("*", c)`` and ``("//", c)``, in order; `c` is 1 or more except in "+".
        Steps that change nothing are dropped and neighbouring sums are folded.

    Notes
    -----
    ``+``, ``-``, ``*`` and ``//`` with integers give new lengths; ``*`` with the batch size gives a
    `BatchLength`. ``==`` is True for the same function of the same lineage. Everything else raises.
    """

    __slots__ = ("fn",)
    fn: tuple[Step, ...]
    _joined: ClassVar[type[BatchLength]]  # its product with the number of streams

    _what = "the length of a stream"
    _serves = "It serves in reshape, view, expand, slices and to index a table, with +, -, * and // by integers."

    def __init__(self, edge: Edge, fn: tuple[Step, ...] = ()) -> None:
        super().__init__(edge)
        folded: list[Step] = []
        for op, c in fn:
            if op not in _CODES:
                raise ValueError(f"a length has no step {op!r}")
            if op == "+" and folded and folded[-1][0] == "+":
                c += folded.pop()[1]
            if not -_INT64 <= c < _INT64 or (op != "+" and c < 1):
                self._misuse(f"changed by {op} {c} (* and // take integers of 1 or more)")
            if c != (0 if op == "+" else 1):
                folded.append((op, int(c)))
        self.fn = tuple(folded)

    def _with(self, op: str, value: object, sign: int = 1) -> Length:
        if isinstance(value, _Token):
            self._misuse(f"combined by {op} with another size")
        try:
            c = as_int(value, "the other operand")
        except DTypeError:
            self._misuse(f"combined by {op} with {type(value).__name__} (only with integers)")
        return type(self)(self.edge, (*self.fn, (op, sign * c)))

    def __add__(self, other: object) -> Length:
        return self._with("+", other)

    __radd__ = __add__

    def __sub__(self, other: object) -> Length:
        return self._with("+", other, -1)

    def __mul__(self, other: object) -> Length | BatchLength:
        if isinstance(other, BatchSize):
            return self._joined(self)
        return self._with("*", other)

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Length:
        return self._with("//", other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Length):
            self._misuse(f"compared with {type(other).__name__}")
        if other is self or (other.edge.cid == self.edge.cid and other.fn == self.fn):
            return True
        self._misuse("compared with another length")

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = _Token.__hash__

    @property
    def rate(self) -> Fraction:
        """Rate of an edge of this length, which is the edge's own, carried through ``*`` and ``//``."""
        rate = Fraction(self.edge.rate)
        for op, c in self.fn:
            rate = rate * c if op == "*" else rate / c if op == "//" else rate
        return rate

    def steps(self) -> list[int]:
        """Return the function as pairs of integers: 0 for `+`, 1 for `*`, 2 for `//`, then the operand."""
        return [n for op, c in self.fn for n in (_CODES[op], c)]

    def apply(self, n_frames: int) -> int:
        """Return the function's value for an edge of `n_frames` frames."""
        for op, c in self.fn:
            n_frames = n_frames + c if op == "+" else n_frames * c if op == "*" else n_frames // c
        return n_frames

    def __repr__(self) -> str:
        text = "L"
        for i, (op, c) in enumerate(self.fn):
            if op == "+":
                text = f"{text} {'-' if c < 0 else '+'} {abs(c)}"
            else:
                text = f"({text}) {op} {c}" if i and self.fn[i - 1][0] == "+" else f"{text} {op} {c}"
        return f"<length {text} of {self.edge.cid}>"


class BatchSize(_Token):
    """The number of streams inside a forward; its one use is its product with a `Length`."""

    __slots__ = ()

    _what = "the number of streams"
    _serves = "It serves in reshape, expand and zeros; its product with a length serves in reshape."

    def __mul__(self, other: object) -> BatchLength | BatchSize:
        if type(other) is int and other == 1:
            return self
        if not isinstance(other, Length):
            self._misuse(f"multiplied by {type(other).__name__}")
        return other._joined(other)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BatchSize):
            self._misuse(f"compared with {type(other).__name__}")
        return True  # one forward has one batch

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = _Token.__hash__

    def __repr__(self) -> str:
        return "<number of streams>"


class BatchLength(_Token):
    """The number of frames of all streams, ``x.size(B) * x.size(L)``: serves in reshape only.

    Parameters
    ----------
    length : Length
        The factor that is not the batch size.
    """

    __slots__ = ("length",)
    length: Length

    _what = "the number of frames of all streams"
    _serves = "It serves in reshape; divided by the number of streams it is a length."

    def __init__(self, length: Length) -> None:
        super().__init__(length.edge)
        self.length = length

    def __floordiv__(self, other: object) -> Length:
        if not isinstance(other, BatchSize):
            self._misuse(f"divided by {type(other).__name__}")
        return self.length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BatchLength):
            self._misuse(f"compared with {type(other).__name__}")
        return self.length == other.length

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = _Token.__hash__

    def __repr__(self) -> str:
        return f"<number of streams * {self.length!r}>"


Length._joined = BatchLength


class Sizes(NamedTuple):
    """The classes of the sizes that an entry hands out: those of B, of L, and of both joined."""

    batch: type[BatchSize] = BatchSize
    length: type[Length] = Length
    joined: type[BatchLength] = BatchLength
