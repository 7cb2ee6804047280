"""Lengths divided by a number, which wait to be rounded."""

from __future__ import annotations

import math
from functools import partialmethod
from typing import Any

from ...operations import RELATIONS
from .condition import is_length
from .sizes import Token

__all__: list[str] = []


class Quotient(Token):
    """A length divided by a number, before it is rounded."""

    __slots__ = ("by", "over")

    _what = "a length divided with /"
    _serves = "math.ceil, math.floor and // make it a length again."

    def __init__(self, over: Any, by: int) -> None:
        super().__init__(over.edge)
        self.over, self.by = over, by

    def _as(self, over: Any) -> Any:
        return Quotient(over, self.by) if is_length(over) else over / self.by

    def _beside(self, value: Any) -> tuple[Quotient, Any]:
        """Return it and the numerator of a number, length or quotient, over the same denominator."""
        if isinstance(value, Quotient):
            if value.by != self.by:
                self._misuse("combined with a quotient by another number")
            return self, value.over
        if isinstance(value, float):
            c, by = self.over._parts("/", value)
            wider = Quotient(self.over * by, self.by * by) if self.by % by else self
            return wider, c * (wider.by // by)
        return self, value * self.by if is_length(value) else self.over._integer("/", value) * self.by

    def __add__(self, other: object) -> Any:
        own, more = self._beside(other)
        return own._as(own.over + more)

    __radd__ = __add__

    def __neg__(self) -> Quotient:
        return Quotient(-self.over, self.by)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: object) -> Any:
        return -self + other

    def __mul__(self, other: object) -> Any:
        c, by = self.over._parts("*", other) if isinstance(other, float) else (self.over._integer("*", other), 1)
        common = math.gcd(c, self.by)
        if common & (common - 1):  # a product of what was rounded may be below a whole number
            self._misuse(f"multiplied by {c} after a division by {self.by} (multiply first)")
        return Quotient(self.over * c, self.by * by)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Any:
        return Quotient(self.over, self.by * (self.over / other).by)

    def __floordiv__(self, other: object) -> Any:
        return self.over // (self.by * self.over._divisor("//", other))

    def __floor__(self) -> Any:
        return self.over // self.by

    def __ceil__(self) -> Any:
        return -(-self.over // self.by)

    def __trunc__(self) -> Any:
        positive = self.over.compare(0, "ge")
        if not isinstance(positive, bool):
            positive.require()
        return self.__floor__() if positive is not False else self.__ceil__()

    def __round__(self, digits: int | None = None) -> Any:
        if digits:
            self._misuse("rounded to decimal places")
        n, by = self.over, self.by
        if by % 2:
            return (n + by // 2) // by
        one_less = 2 * by - 1  # a half goes to the even one: up every by - 1 and by + 1 frames, in turns
        return (one_less * (n + 1) // (2 * by) * 2 + by - 2) // one_less

    def is_integer(self) -> Any:
        """Return whether it is one, or a `Comparison`."""
        return self.over % self.by == 0

    def compare(self, other: object, relation: str) -> Any:
        """Return the truth of a comparison where it is the same for every stream, else a `Comparison`."""
        own, more = self._beside(other)
        return own.over.compare(more, relation)

    def __repr__(self) -> str:
        return f"<{self.over!r} / {self.by}>"


for _name in RELATIONS:
    setattr(Quotient, f"__{_name}__", partialmethod(Quotient.compare, relation=_name))
Quotient.__hash__ = Token.__hash__  # type: ignore[method-assign]
