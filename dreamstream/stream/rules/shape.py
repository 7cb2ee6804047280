"""The sizes of a tensor inside a forward, as one value that is compared as one."""

from __future__ import annotations

from typing import Any

from .compare import Comparison

__all__ = ["Shape"]


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
