"""Bits and shifts of lengths: what they say of multiples of powers of 2."""

from __future__ import annotations

from typing import Any

from .tokens import Token

__all__ = ["Bits"]


class Bits(Token):
    """What a length's bits are, by its quotients and rests."""

    __slots__ = ()

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

    def is_integer(self) -> bool:
        """Return True."""
        return True
