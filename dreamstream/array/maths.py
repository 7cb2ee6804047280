"""Elementwise maths of tensors: torch's methods and Python's operators.

Each is written once, for plain tensors and streams alike (see `elementwise`): arguments ``(*, any
shape) float32 | float64``, results of the broadcast shape and the same type; comparisons give bool.
Integers are taken where torch takes them. Errors are those of `elementwise.binary`. Methods that are one
kernel each are a row of `dreamstream.operations`; each public function here is the method of its name. What
writes is made of what doesn't: ``x.relu_()`` is ``x.copy_(x.relu())``. Source: the method of `torch.Tensor` of
the same name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import signature
from typing import Any, cast

import numpy as np

from ..errors import DTypeError
from ..operations import ARITHMETIC, BITWISE, ELEMENTWISE, RELATIONS, Elementwise
from . import derivatives as d, dtypes
from .base import Number, is_number
from .derivatives import derived
from .elementwise import (
    DIVIDE,
    along,
    as_flags,
    binary,
    binary_or_not,
    bits,
    filling,
    quotient,
    rounded,
    shifted,
    unary,
    where as choose,
)
from .in_place import apart
from .tensor import Tensor, each, take

Operand = Any
"""A tensor, a NumPy array or a Python number."""


# ------------------------------------------------------------------ two operands
@each(add="+", sub="-")
def _sum(name: str) -> Any:
    def summed(self: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
        """Return self {} alpha * other."""
        return binary(name, self, _scaled(other, alpha))

    return summed


def div(self: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """Return self / other; integers are divided as float32.

    Parameters
    ----------
    other : Tensor or number
        The divisor.
    rounding_mode : {None, "floor", "trunc"}
        Whether and how the quotient is rounded to an integer.
    """
    if rounding_mode is None:
        return binary("div", self, other)
    if rounding_mode not in ("floor", "trunc"):
        raise ValueError(f"div: rounding_mode is None, 'floor' or 'trunc', got {rounding_mode!r}")
    return quotient(f"{rounding_mode}_divide", self, other)


def _pow(self: Tensor, exponent: Operand) -> Tensor:
    """Return self ** exponent."""
    if isinstance(exponent, int) and exponent < 0 and not dtypes.is_float(self.dtype):
        raise DTypeError(f"pow: a tensor of {self.dtype} has no power {exponent}; convert it with .float()")
    return binary("pow", self, exponent)


def where(self: Tensor, condition: Operand, other: Operand) -> Tensor:
    """Return self where `condition` holds (bool), `other` elsewhere."""
    return choose(condition, self, other)


def masked_fill(self: Tensor, mask: Operand, value: Operand) -> Tensor:
    """Return `value` (a number or a tensor of one element) where `mask` (bool) holds, self elsewhere."""
    value = filling(self, value)
    if not isinstance(value, Tensor) and self.dtype != dtypes.common("masked_fill", [self.dtype], [value]):
        raise DTypeError(f"masked_fill: a tensor of {self.dtype} has no value {value!r}")
    return choose(mask, value, self)


# ------------------------------------------------------------------ one operand
def clamp(self: Tensor, min: Operand = None, max: Operand = None) -> Tensor:
    """Return elements moved into [min, max]; `max` wins where min > max.

    Parameters
    ----------
    min, max : number or Tensor, optional
        The bounds; at least one of them.
    """
    if min is None and max is None:
        raise ValueError("clamp: give min, max or both")
    if _bound(min) and _bound(max) and dtypes.is_float(self.dtype):
        bounds = {"min": min, "max": max}
        return unary("clamp", self, {k: float(v) for k, v in bounds.items() if v is not None})
    out = self if min is None else binary("maximum", self, min)
    return out if max is None else binary("minimum", out, max)


@derived(d.logit)
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """Return log(x / (1 - x)), x moved into [eps, 1 - eps] first where `eps` is given."""
    x = _real(self)
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return unary("log", binary("div", x, binary("sub", 1, x)))


def _round(self: Tensor, *, decimals: int = 0) -> Tensor:
    """Return the nearest integers, the even one of two; or the nearest numbers of so many decimals."""
    if decimals == 0:
        return unary("round", self)
    x, scale = _real(self), 10.0 ** abs(decimals)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return binary(back, unary("round", binary(there, x, scale)), scale)


def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Return the values, with numbers in the place of those that are none.

    Parameters
    ----------
    nan, posinf, neginf : float, optional
        What stands for NaN, inf and -inf: 0, the type's largest and its least number where None.
    """
    if not dtypes.is_float(self.dtype):
        return self
    most = float(np.finfo(self.dtype).max)
    numbers = (
        0.0 if nan is None else nan,
        most if posinf is None else posinf,
        -most if neginf is None else neginf,
    )
    return unary("nan_to_num", self, dict(zip(("nan", "posinf", "neginf"), map(float, numbers))))


def _unless_nan(self: Tensor, name: str, other: Operand) -> Tensor:
    other = _like(self, other)
    out = choose(binary("ne", self, self), other, binary(name, self, other))
    return choose(binary("ne", other, other), self, out)


@derived(lambda g, a, b: g / (1 + np.exp(b - a)), lambda g, a, b: g / (1 + np.exp(a - b)))
def logaddexp(self: Tensor, other: Operand) -> Tensor:
    """Return log(e ** self + e ** other), without overflow on the way."""
    x, y = _real(self), _real(_like(self, other))
    apart = binary("sub", x, y).abs().neg().exp().log1p()
    return choose(x == y, binary("add", x, math.log(2)), binary("add", binary("maximum", x, y), apart))


@derived(
    lambda g, a, b: np.where((a == 0) & (b <= 0), 0, np.where((g == 0) & (b == b), 0, g * np.log(b))),
    lambda g, a, b: g * a / b,
)
def xlogy(self: Tensor, other: Operand) -> Tensor:
    """Return self * log(other), 0 where self is 0."""
    x, y = _real(self), _real(_like(self, other))
    return choose((x == 0) & (y == y), 0.0, binary("mul", x, unary("log", y)))


@derived(lambda g, c: g * (1 - c), lambda g, c: g * c, lambda g, a, b: g * (b - a))
def lerp(self: Tensor, end: Operand, weight: Operand) -> Tensor:
    """Return the point at `weight` on the way from self (0) to `end` (1)."""
    way = binary("sub", end, self)
    near = binary("add", self, binary("mul", way, weight))
    if is_number(weight) and abs(weight) < 0.5:
        return near
    far = binary("sub", end, binary("mul", way, 1 - weight))  # at a weight of 1 exactly the end
    return far if is_number(weight) else choose(unary("abs", weight) < 0.5, near, far)


@each(addcmul="*", addcdiv="/")
def _added(name: str) -> Any:
    def added(self: Tensor, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Tensor:
        """Return self + value * tensor1 {} tensor2."""
        return binary("add", self, binary(name[-3:], _scaled(tensor1, value), tensor2))

    return added


def _like(self: Tensor, other: Operand) -> Operand:
    """Return a number as a tensor of the type in which it meets this one, so that it can meet itself."""
    if not is_number(other):
        return other
    return Tensor._plain(np.array(other, dtypes.common("", [self.dtype], [other])))


# ------------------------------------------------------------------ along a dimension
@each(
    softmax="e ** x / sum(e ** x) along `dim`; zeros where all of it is -inf",
    log_softmax="log(softmax(x)) along `dim`",
)
def _shares(name: str) -> Any:
    def shares(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
        """Return {}."""
        return along(name, self if dtype is None else self.to(dtype), dim)

    return shares


def _scaled(other: Operand, alpha: Number) -> Operand:
    """Return alpha * other."""
    return other if alpha == 1 else binary("mul", other, alpha) if isinstance(other, Tensor) else other * alpha


def _bound(value: Operand) -> bool:
    return value is None or is_number(value)


def _real(x: Operand) -> Operand:
    """Return the tensor, integers as float32; a number as it is."""
    return x.to(dtypes.float32) if isinstance(x, Tensor) and not dtypes.is_float(x.dtype) else x


# ------------------------------------------------------------------ made of others, each in one line
@derived(d.sinc)
def _sinc(x: Tensor) -> Tensor:
    x = binary("mul", _real(x), math.pi)
    return choose(x == 0, 1.0, binary("div", unary("sin", x), x))


def _of_two(name: str, first: Callable[..., Any]) -> Callable[..., Any]:
    """Return the larger or the smaller of two elements, the other one where one is NaN."""

    @derived(
        lambda g, a, b: np.where(first(a, b) | np.isnan(b), g, 0),
        lambda g, a, b: np.where(first(a, b) | np.isnan(b), 0, g),
    )
    def made(self: Tensor, other: Operand) -> Tensor:
        return _unless_nan(self, name, other)

    return made


#: By method: what it returns of the tensor, or of it and another operand, and how.
COMPOSED: dict[str, tuple[str, Callable[..., Any]]] = {
    "logical_xor": (
        "whether exactly one of the elements is not zero",
        lambda self, other: binary("ne", as_flags(self), as_flags(other)),
    ),
    "isnan": ("whether elements are NaN", lambda self: binary("ne", self, self)),
    "isinf": ("whether elements are infinite", lambda self: binary("eq", _real(self).abs(), math.inf)),
    "isfinite": (
        "whether elements are neither infinite nor NaN", lambda self: binary("lt", _real(self).abs(), math.inf),
    ),
    "isposinf": ("whether elements are inf", lambda self: binary("eq", _real(self), math.inf)),
    "isneginf": ("whether elements are -inf", lambda self: binary("eq", _real(self), -math.inf)),
    "signbit": (
        "whether elements are negative, -0.0 included",
        lambda self: Tensor.copysign(cast(Any, 1.0), _real(self)) < 0,
    ),
    "tan": ("the tangent", lambda self: binary("div", unary("sin", x := _real(self)), unary("cos", x))),
    "clamp_min": ("elements that are at least `min`", lambda self, min: self.clamp(min=min)),
    "clamp_max": ("elements that are at most `max`", lambda self, max: self.clamp(max=max)),
    "heaviside": (
        "0 below zero, `values` at zero, 1 above it",
        lambda self, values: choose(self == 0, values, binary("gt", self, 0).to(self.dtype)),
    ),
    "sinc": ("sin(pi x) / (pi x), and 1 at 0", lambda self: _sinc(self)),
    "deg2rad": ("degrees as radians", lambda self: binary("mul", _real(self), math.pi / 180)),
    "rad2deg": ("radians as degrees", lambda self: binary("mul", _real(self), 180 / math.pi)),
    "fmax": (
        "the larger of each two elements, the other one where one is NaN",
        _of_two("maximum", np.greater_equal),
    ),
    "fmin": (
        "the smaller of each two elements, the other one where one is NaN",
        _of_two("minimum", np.less_equal),
    ),
    "bitwise_not": ("``~self``", lambda self: ~self),
    "__invert__": ("", lambda self: self.logical_not() if self.dtype == dtypes.bool else bits("xor", self, -1)),
    "__neg__": ("", lambda self: self.neg()),
    "__pos__": ("", lambda self: self),
    "__abs__": ("", lambda self: self.abs()),
}  # fmt: skip


def _composed(doc: str, method: Any) -> Callable[..., Tensor]:
    """Return a row's method, as editors and the stub see it."""
    operands = [*signature(method).parameters][1:]
    method.__annotations__ = {"self": "Tensor", **dict.fromkeys(operands, "Operand"), "return": "Tensor"}
    method.__doc__ = f"Return {doc}." if doc else None
    return method


# ------------------------------------------------------------------ rows of operations, operators, what writes
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
        if out is NotImplemented or (
            self._ends is None and (self.edge is None if self.is_stream else out.is_stream)
        ):
            return out
        return self._write(called, out)

    return writes


#: Those that don't write, and the names of other methods that do.
_KEPT = ("minimum", "maximum", *RELATIONS)
_OTHERS = (
    *ARITHMETIC.values(), "lerp", "addcmul", "addcdiv", "clamp", "clip", "clamp_min", "clamp_max", "masked_fill",
    "nan_to_num", "tril", "triu", "cumsum", "cumprod", "logical_xor", "tan",
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
take(
    Tensor,
    globals(),
    pow=_pow,
    round=_round,
    clip=clamp,
    **_sum,
    **_added,
    **_shares,
    **{name: _composed(*how) for name, how in COMPOSED.items()},
)
