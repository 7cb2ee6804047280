"""Bits and shifts of lengths, as multiples of powers of 2, powers, and floats as the fractions that they are."""

from __future__ import annotations

import math
from typing import Any

from .sizes import Slots, Token

__all__ = ["Bits", "Power"]

_EXACT = 2**16  # the denominator of a float that is a fraction


class Power(Token):
    """A length to a power, times a number."""

    __slots__ = ("exponent", "factor", "over")

    _what = "a power of a length"
    _serves = (
        "It serves beside sums over frames and other values of whole streams, and beside frames where "
        'unstreamable="buffer" waits for it.'
    )

    def __init__(self, over: Any, exponent: float, factor: float = 1.0) -> None:
        super().__init__(over.edge)
        self.over, self.exponent, self.factor = over, exponent, factor

    def value(self, length: Any) -> Any:
        """Return what it is of a length as a tensor."""
        return length.pow(self.exponent) * self.factor

    def __mul__(self, other: Any) -> Any:
        return self._times(other, "multiplied", 1)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._times(other, "divided", -1)

    def __rtruediv__(self, other: Any) -> Any:
        return Power(self.over, -self.exponent, 1 / self.factor)._times(other, "divided", 1)

    def __neg__(self) -> Any:
        return self * -1

    def _times(self, other: Any, how: str, power: int) -> Any:
        if not isinstance(other, (int, float)):
            if not isinstance(other, Token):
                return NotImplemented  # frames
            self._misuse(f"{how} by {type(other).__name__}")
        return Power(self.over, self.exponent, self.factor * float(other) ** power)


class Bits(Token):
    """What a length's bits are, by its quotients and rests, and the numbers and lists that it meets."""

    __slots__ = ()

    def __rmul__(self, other: Any) -> Any:
        return Slots([], self) if type(other) is list and other == [None] else self * other

    def _integer(self, op: str, value: object) -> int:
        raise NotImplementedError

    def __and__(self, other: object) -> Any:
        by = (other if type(other) is int and other >= 0 else ~self._integer("&", other)) + 1
        if by & (by - 1):
            self._misuse(f"combined by & with {other} (only with 2**k - 1 and -2**k; use % and //)")
        return self % by if type(other) is int and other >= 0 else self - self % by

    __rand__ = __and__

    def __rshift__(self, other: object) -> Any:
        return self // (1 << self._shift(">>", other))

    def __lshift__(self, other: object) -> Any:
        return self * (1 << self._shift("<<", other))

    def _shift(self, op: str, by: object) -> int:
        n = -1 if isinstance(by, Token) else self._integer(op, by)
        if not 0 <= n < 63:
            self._misuse(f"shifted by {by!r} bits (0 to 62)")
        return n

    def __pow__(self, other: object) -> Power:
        if not isinstance(other, (int, float)):
            self._misuse("raised to a power that is no number")
        if (number := self.settled()) is not self:  # type: ignore[attr-defined]
            return number**other
        return Power(self, other)

    def is_integer(self) -> bool:
        """Return True."""
        return True

    def astype(self, *_: object, **__: object) -> Any:
        """Return it: NumPy's rounding functions give lengths."""
        return self

    def _parts(self, op: str, value: float) -> tuple[int, int]:
        """Return a number as the quotient that it is of small integers, so that no product of it is rounded."""
        if not math.isfinite(value) or value.as_integer_ratio()[1] > _EXACT:
            self._misuse(f"combined by {op} with {value}, which is rounded (divide by integers instead)")
        return value.as_integer_ratio()
