"""The methods of tensors that are a row of `dreamstream.operations`: one kernel each, without arguments.

Editors and type checkers read ``functions.pyi``, which ``python tests/source/test_stubs.py`` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..operations import ELEMENTWISE, Elementwise
from .base import Base
from .elementwise import binary, unary

__all__ = ["NAMES", "Functions"]


class Functions(Base):
    """Functions of single elements."""


def _method(row: Elementwise) -> Callable[..., Any]:
    name = row.name

    def of_one(self: Functions) -> Any:
        return unary(name, self)

    def of_two(self: Functions, other: Any) -> Any:
        return binary(name, self, other)

    method = of_one if row.operands == 1 else of_two
    method.__name__ = name
    method.__qualname__ = f"Functions.{name}"
    method.__doc__ = f"Return {row.doc}."
    return method


#: The names of these methods.
NAMES = tuple(row.name for row in ELEMENTWISE.values() if row.doc)

for _name in NAMES:
    setattr(Functions, _name, _method(ELEMENTWISE[_name]))
