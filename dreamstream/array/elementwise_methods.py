"""The methods of tensors that are a row of `dreamstream.operations`, and Python's operators of two operands.

And what writes what they and others give: ``x.relu_()`` is ``x.copy_(x.relu())``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..operations import ARITHMETIC, BITWISE, ELEMENTWISE, RELATIONS, Elementwise
from .elementwise import DIVIDE, binary, binary_or_not, bits, quotient, rounded, shifted, unary
from .in_place import apart
from .tensor import Tensor, take


def _function(row: Elementwise) -> Callable[..., Tensor]:
    """Return a row's method."""
    name, of_both = row.name, quotient if row.python and row.name in DIVIDE else binary

    def of_one(self: Tensor) -> Tensor:
        return unary(name, self)

    def of_two(self: Tensor, other: Any) -> Tensor:
        return of_both(name, self, other)

    made = of_one if row.operands == 1 else of_two
    made.__doc__ = f"Return {row.doc}."
    return made


#: The names of these methods.
NAMES = tuple(row.name for row in ELEMENTWISE.values() if row.doc)

#: Python's operators, by their methods' names: what computes them, and under which name.
OPERATORS = {
    **{python: (rounded if name in DIVIDE else binary_or_not, name) for python, name in ARITHMETIC.items()},
    **{name: (shifted if name.endswith("shift") else bits, name) for name in BITWISE},
}


def _operator(compute: Callable[..., Any], name: str, reflected: bool = False) -> Callable[..., Tensor]:
    """Return the method of an operator, which leaves foreign operands to these."""

    def forwards(self: Tensor, other: Any) -> Tensor:
        return compute(name, self, other)

    def backwards(self: Tensor, other: Any) -> Tensor:
        return compute(name, other, self)

    return backwards if reflected else forwards


def _in_place(compute: Callable[..., Any], name: str, called: str) -> Callable[..., Any]:
    """Return the method of an operator that writes; of streams outside a forward it makes a new tensor."""

    def writes(self: Any, other: Any) -> Any:
        out = compute(name, apart(self, other), other)
        if out is NotImplemented or (self.edge is None if self.is_stream else out.is_stream):
            return out
        return self._write(called, out)

    return writes


#: Those that don't write, and the names of other methods that do.
_KEPT = ("minimum", "maximum", *RELATIONS)
_OTHERS = (
    *ARITHMETIC.values(), "lerp", "addcmul", "addcdiv", "clamp", "clip", "clamp_min", "clamp_max", "masked_fill",
    "nan_to_num", "tril", "triu", "cumsum", "cumprod", "logical_xor", "tan", "exp2", "frac",
    "index_add", "index_copy", "index_fill", "scatter", "scatter_add",
)  # fmt: skip


def _writing(name: str) -> Callable[..., Tensor]:
    def writes(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = getattr(apart(self, *args, *kwargs.values()), name)(*args, **kwargs)
        return self._write(f"{name}_", out)

    writes.__doc__ = f"Write what `{name}` gives into the tensor, and return it."
    return writes


take(
    Tensor,
    **{f"bitwise_{name}": _operator(*OPERATORS[name]) for name in ("and", "or", "xor")},
    **{name: _function(ELEMENTWISE[name]) for name in NAMES},
    **{f"__{name}__": _operator(binary_or_not, name) for name in RELATIONS},
    **{f"__{name}__": _operator(*how) for name, how in OPERATORS.items()},
    **{f"__i{name}__": _in_place(*how, f"__i{name}__") for name, how in OPERATORS.items()},
    **{f"__r{name}__": _operator(*how, reflected=True) for name, how in OPERATORS.items()},
    **{f"{name}_": _writing(name) for name in (*NAMES, *_OTHERS) if name not in _KEPT},
)
