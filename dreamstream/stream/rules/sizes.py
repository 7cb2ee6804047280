"""Sizes that are no numbers while streams are open, and refuse to be used as such."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from typing import Any, NoReturn, Protocol

from ...operations import BINARY

__all__ = ["Edge", "Rows", "Slots", "Token"]


class Edge(Protocol):
    """The tensor that a token came from, as far as a token needs it."""

    @property
    def cid(self) -> Hashable:
        """The edge's lineage."""

    @property
    def rate(self) -> Fraction:
        """The edge's frames per frame of the reference input."""

    @property
    def entry(self) -> Any:
        """What runs the forward; its `sizes` are the classes of tokens."""

    def misuse(self, message: str, rest: str | None = None) -> Exception:
        """Return the exception to raise for a wrong use; the arguments are those of `DreamStreamError.here`."""

    def measure(self, attributes: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """Return what the operator `length` gives at the end of streams."""

    def require(self, other: Any, attributes: Mapping[str, Any]) -> None:
        """Refuse streams at whose end the lengths of both don't compare as the operator `require` says."""


#: NumPy's functions that round, by name.
_ROUNDED: dict[str, Callable[[Any], Any]] = {"ceil": math.ceil, "floor": math.floor, "trunc": math.trunc}


#: Python's operators, by NumPy's functions.
_OPERATORS = {row.reference: row.python for row in BINARY if row.python}


def _refuse(use: str) -> Callable[..., Any]:
    """Make a method that refuses one kind of use."""

    def method(self: Token, *_: object, **__: object) -> NoReturn:
        self._misuse(use)

    return method


class Token:
    """A size that is no number: every use raises, but for those that a subclass allows."""

    __slots__ = ("edge",)
    edge: Edge

    _what = "a size"
    _serves = ""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge

    def _misuse(self, use: str, more: str = "") -> NoReturn:
        raise self.edge.misuse(
            f"{self._what} is not a number while streams are open: it can't be {use},", f". {self._serves}{more}"
        )

    def __array_ufunc__(self, ufunc: Any, _method: str, *inputs: Any, **_: Any) -> Any:
        """Leave NumPy numbers' operators to the token; other functions of NumPy's have no number to work on."""
        if ufunc.__name__ in _ROUNDED:
            return _ROUNDED[ufunc.__name__](inputs[0])
        if ufunc.__name__ == "sqrt":
            return inputs[0] ** 0.5
        if ufunc not in _OPERATORS:
            self._misuse(f"given to np.{ufunc.__name__} (use Python's own, as in math.ceil(x.size(L) / 4))")
        if any(getattr(x, "shape", ()) for x in inputs):
            self._misuse("combined with an array of several numbers")
        plain = (x.item() if hasattr(x, "item") and not isinstance(x, Token) else x for x in inputs)
        return getattr(operator, _OPERATORS[ufunc])(*plain)

    def __hash__(self) -> int:
        self._misuse("hashed (put into a set or dict)")

    def __copy__(self) -> Token:
        return self

    def __deepcopy__(self, memo: object) -> Token:
        return self

    def __format__(self, spec: str) -> str:
        if spec:
            self._misuse(f"formatted with {spec!r}")
        return repr(self)

    __lt__ = __le__ = __gt__ = __ge__ = _refuse("compared")
    __eq__ = _refuse("compared")
    __ne__ = _refuse("compared")
    __bool__ = _refuse("tested for truth")

    def __int__(self) -> NoReturn:
        self._misuse("made an integer (leave int() out: a size is one; so are its math.ceil, math.floor, //)")

    def __float__(self) -> NoReturn:
        self._misuse("converted to a number")

    __complex__ = __float__
    __trunc__ = __floor__ = __ceil__ = __round__ = _refuse("converted to a number")
    __reduce_ex__ = _refuse("pickled")
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


class Rows(Token):
    """A number of rows of a batch: it serves in shapes, and no value depends on it."""

    __slots__ = ()

    def __trunc__(self) -> Rows:
        return self


class Uncounted(Rows):
    """A sum with the number of frames of all streams, which seeds are made of: it serves nowhere."""

    __slots__ = ()
    _what, _serves = "a sum with the number of frames of all streams", "It depends on the other streams."


class Slots:
    """``[None] * x.size(L)``: places for what a loop over frames gives, of which some have been assigned."""

    __slots__ = ("items", "length")

    def __init__(self, items: list[Any], length: Any) -> None:
        self.items, self.length = items, length

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(index) is not int or index != len(self.items):
            self._refuse()
        self.items.append(value)

    def _refuse(self, *_: Any) -> Any:
        return self.length._misuse("the length of a list, but of one that a loop fills frame by frame, ys[t] = h")

    __getitem__ = __iter__ = __len__ = __contains__ = __add__ = __mul__ = __delitem__ = _refuse
