"""Powers of lengths, such as roots: real numbers that are known at the ends of streams."""

from __future__ import annotations

from typing import Any

from .tokens import Token

__all__ = ["Power"]


class Power(Token):
    """A length to a power, times a number.

    Parameters
    ----------
    over : Length
    exponent, factor : float
    """

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
