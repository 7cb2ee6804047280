"""The methods of tensors that are a row of `dreamstream.operations`, and Python's operators of two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..operations import ELEMENTWISE, Elementwise
from .elementwise import binary, binary_or_not, bits, rounded, unary
from .tensor import Tensor, method

__all__ = ["COMPARISONS", "NAMES", "OPERATORS"]


def _function(row: Elementwise) -> None:
    """Give tensors a row's method."""
    name = row.name

    def of_one(self: Tensor) -> Tensor:
        return unary(name, self)

    def of_two(self: Tensor, other: Any) -> Tensor:
        return binary(name, self, other)

    made = of_one if row.operands == 1 else of_two
    made.__doc__ = f"Return {row.doc}."
    method(Tensor, name)(made)


#: The names of these methods.
NAMES = tuple(row.name for row in ELEMENTWISE.values() if row.doc)

for _name in NAMES:
    _function(ELEMENTWISE[_name])

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


def _operator(operator: str, compute: Callable[..., Any], name: str, reflected: bool = False) -> None:
    """Give tensors an operator, which leaves foreign operands to these."""

    def forwards(self: Tensor, other: Any) -> Tensor:
        out: Tensor = compute(name, self, other)
        return out

    def backwards(self: Tensor, other: Any) -> Tensor:
        out: Tensor = compute(name, other, self)
        return out

    method(Tensor, f"__{operator}__")(backwards if reflected else forwards)


for _name, (_compute, _kernel) in OPERATORS.items():
    _operator(_name, _compute, _kernel)
    _operator(f"r{_name}", _compute, _kernel, reflected=True)
for _name in COMPARISONS:
    _operator(_name, binary_or_not, _name)
