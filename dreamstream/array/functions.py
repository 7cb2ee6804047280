"""The methods of tensors that are a row of `dreamstream.operations`, and Python's operators of two operands.

Editors and type checkers read ``functions.pyi``, which ``python tests/source/test_stubs.py`` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..operations import ELEMENTWISE, Elementwise
from .base import Base
from .elementwise import binary, binary_or_not, bits, rounded, unary

__all__ = ["COMPARISONS", "NAMES", "OPERATORS", "Functions"]


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

#: Python's operators of numbers, by their methods' names: what computes them, and under which name.
OPERATORS = {
    "add": (binary_or_not, "add"),
    "sub": (binary_or_not, "sub"),
    "mul": (binary_or_not, "mul"),
    "truediv": (binary_or_not, "div"),
    "pow": (binary_or_not, "pow"),
    "floordiv": (rounded, "floor_divide"),
    "mod": (rounded, "remainder"),
    "and": (bits, "and"),
    "or": (bits, "or"),
    "xor": (bits, "xor"),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _operator(method: str, compute: Callable[..., Any], name: str, reflected: bool = False) -> None:
    """Give tensors an operator, which leaves foreign operands to these."""

    def forwards(self: Functions, other: Any) -> Any:
        return compute(name, self, other)

    def backwards(self: Functions, other: Any) -> Any:
        return compute(name, other, self)

    made = backwards if reflected else forwards
    made.__name__ = f"__{method}__"
    made.__qualname__ = f"Functions.{made.__name__}"
    setattr(Functions, made.__name__, made)


for _name, (_compute, _kernel) in OPERATORS.items():
    _operator(_name, _compute, _kernel)
    _operator(f"r{_name}", _compute, _kernel, reflected=True)
for _name in COMPARISONS:
    _operator(_name, binary_or_not, _name)
