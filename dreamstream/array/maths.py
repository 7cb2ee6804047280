"""Elementwise maths of tensors: torch's methods and Python's operators.

Each is written once, for plain tensors and streams alike (see `elementwise`): arguments ``(*, any
shape) float32 | float64``, results of the broadcast shape and the same type; comparisons give bool.
Integers are taken where torch takes them. Errors are those of `elementwise.binary`. Source: the
method of `torch.Tensor` of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ..errors import DTypeError
from . import dtypes
from .base import Base, Number, is_number
from .elementwise import along, as_flags, binary, binary_or_not, bits, negated, rounded, unary, where

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = ["Maths"]

Flag = bool
Operand = Any
"""A tensor, a NumPy array or a Python number."""


class Maths(Base):
    """Elementwise methods and operators."""

    # ------------------------------------------------------------------ two operands

    def add(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """Return self + alpha * other."""
        return binary("add", self, _scaled(other, alpha))

    def sub(self, other: Operand, *, alpha: Number = 1) -> Tensor:
        """Return self - alpha * other."""
        return binary("sub", self, _scaled(other, alpha))

    def mul(self, other: Operand) -> Tensor:
        """Return self * other."""
        return binary("mul", self, other)

    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
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
        return _method(f"{rounding_mode}_divide", rounded, self, other)

    def floor_divide(self, other: Operand) -> Tensor:
        """Return self / other, rounded down."""
        return _method("floor_divide", rounded, self, other)

    def remainder(self, other: Operand) -> Tensor:
        """Return self - other * (self / other rounded down): the sign is that of `other`."""
        return _method("remainder", rounded, self, other)

    def pow(self, exponent: Operand) -> Tensor:
        """Return self ** exponent."""
        return binary("pow", self, exponent)

    def minimum(self, other: Operand) -> Tensor:
        """Return the smaller of each two elements; NaN where one is."""
        return binary("minimum", self, other)

    def maximum(self, other: Operand) -> Tensor:
        """Return the larger of each two elements; NaN where one is."""
        return binary("maximum", self, other)

    def eq(self, other: Operand) -> Tensor:
        """Return whether elements are equal."""
        return binary("eq", self, other)

    def ne(self, other: Operand) -> Tensor:
        """Return whether elements differ."""
        return binary("ne", self, other)

    def lt(self, other: Operand) -> Tensor:
        """Return self < other."""
        return binary("lt", self, other)

    def le(self, other: Operand) -> Tensor:
        """Return self <= other."""
        return binary("le", self, other)

    def gt(self, other: Operand) -> Tensor:
        """Return self > other."""
        return binary("gt", self, other)

    def ge(self, other: Operand) -> Tensor:
        """Return self >= other."""
        return binary("ge", self, other)

    def where(self, condition: Operand, other: Operand) -> Tensor:
        """Return self where `condition` holds (bool), `other` elsewhere."""
        return where(condition, self, other)

    def masked_fill(self, mask: Operand, value: Operand) -> Tensor:
        """Return `value` (a number or a tensor of one element) where `mask` (bool) holds, self elsewhere."""
        if isinstance(value, Base):
            value = value.item()
        if self.dtype != dtypes.common("masked_fill", [self.dtype], [value]):
            raise DTypeError(f"masked_fill: a tensor of {self.dtype} has no value {value!r}")
        return where(mask, value, self)

    def logical_and(self, other: Operand) -> Tensor:
        """Return whether both elements are not zero."""
        return binary("logical_and", self, other)

    def logical_or(self, other: Operand) -> Tensor:
        """Return whether one of the elements is not zero."""
        return binary("logical_or", self, other)

    def logical_xor(self, other: Operand) -> Tensor:
        """Return whether exactly one of the elements is not zero."""
        return binary("ne", as_flags(self), as_flags(other))

    def logical_not(self) -> Tensor:
        """Return whether elements are zero."""
        return negated(as_flags(self))

    # ------------------------------------------------------------------ one operand

    def relu(self) -> Tensor:
        """Return max(x, 0)."""
        return unary("relu", self)

    def sigmoid(self) -> Tensor:
        """Return 1 / (1 + e ** -x)."""
        return unary("sigmoid", self)

    def tanh(self) -> Tensor:
        """Return the hyperbolic tangent."""
        return unary("tanh", self)

    def exp(self) -> Tensor:
        """Return e ** x."""
        return unary("exp", self)

    def expm1(self) -> Tensor:
        """Return e ** x - 1, exact near zero."""
        return unary("expm1", self)

    def log(self) -> Tensor:
        """Return the natural logarithm."""
        return unary("log", self)

    def log1p(self) -> Tensor:
        """Return log(1 + x), exact near zero."""
        return unary("log1p", self)

    def log2(self) -> Tensor:
        """Return the logarithm to base 2."""
        return unary("log2", self)

    def log10(self) -> Tensor:
        """Return the logarithm to base 10."""
        return unary("log10", self)

    def sqrt(self) -> Tensor:
        """Return the square root."""
        return unary("sqrt", self)

    def rsqrt(self) -> Tensor:
        """Return 1 / sqrt(x)."""
        return unary("rsqrt", self)

    def reciprocal(self) -> Tensor:
        """Return 1 / x."""
        return unary("reciprocal", self)

    def square(self) -> Tensor:
        """Return x * x."""
        return unary("square", self)

    def abs(self) -> Tensor:
        """Return the absolute value."""
        return unary("abs", self)

    def neg(self) -> Tensor:
        """Return -x."""
        return unary("neg", self)

    def sign(self) -> Tensor:
        """Return -1, 0 or 1; 0 for NaN."""
        return unary("sign", self)

    def sin(self) -> Tensor:
        """Return the sine."""
        return unary("sin", self)

    def cos(self) -> Tensor:
        """Return the cosine."""
        return unary("cos", self)

    def erf(self) -> Tensor:
        """Return the error function."""
        return unary("erf", self)

    def floor(self) -> Tensor:
        """Return the largest integer that is not larger."""
        return unary("floor", self)

    def ceil(self) -> Tensor:
        """Return the smallest integer that is not smaller."""
        return unary("ceil", self)

    def round(self) -> Tensor:
        """Return the nearest integer, the even one of two."""
        return unary("round", self)

    def clamp(self, min: Operand = None, max: Operand = None) -> Tensor:
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
        out = cast("Tensor", self) if min is None else binary("maximum", self, min)
        return out if max is None else binary("minimum", out, max)

    def clamp_min(self, min: Operand) -> Tensor:
        """Return elements that are at least `min`."""
        return self.clamp(min=min)

    def clamp_max(self, max: Operand) -> Tensor:
        """Return elements that are at most `max`."""
        return self.clamp(max=max)

    clip = clamp

    def isnan(self) -> Tensor:
        """Return whether elements are NaN."""
        return binary("ne", self, self)

    def isinf(self) -> Tensor:
        """Return whether elements are infinite."""
        return binary("eq", self._real().abs(), math.inf)

    def isfinite(self) -> Tensor:
        """Return whether elements are neither infinite nor NaN."""
        return binary("lt", self._real().abs(), math.inf)

    def _real(self) -> Tensor:
        """Return the tensor, integers as float32."""
        return self.to(self.dtype if dtypes.is_float(self.dtype) else dtypes.float32)

    # ------------------------------------------------------------------ along a dimension

    def softmax(self, dim: int, dtype: Any = None) -> Tensor:
        """Return e ** x / sum(e ** x) along `dim`; zeros where all of it is -inf."""
        return along("softmax", self._as(dtype), dim)

    def log_softmax(self, dim: int, dtype: Any = None) -> Tensor:
        """Return log(softmax(x)) along `dim`."""
        return along("log_softmax", self._as(dtype), dim)

    def _as(self, dtype: Any) -> Tensor:
        """Return the tensor itself, or as `dtype` where one is given."""
        return cast("Tensor", self) if dtype is None else self.to(dtype)

    # ------------------------------------------------------------------ operators

    def __add__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("add", self, other))

    def __radd__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("add", other, self))

    def __sub__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("sub", self, other))

    def __rsub__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("sub", other, self))

    def __mul__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("mul", self, other))

    def __rmul__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("mul", other, self))

    def __truediv__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("div", self, other))

    def __rtruediv__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("div", other, self))

    def __pow__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("pow", self, other))

    def __rpow__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("pow", other, self))

    def __floordiv__(self, other: Operand) -> Tensor:
        return cast("Tensor", rounded("floor_divide", self, other))

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return cast("Tensor", rounded("floor_divide", other, self))

    def __mod__(self, other: Operand) -> Tensor:
        return cast("Tensor", rounded("remainder", self, other))

    def __rmod__(self, other: Operand) -> Tensor:
        return cast("Tensor", rounded("remainder", other, self))

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return cast("Tensor", binary_or_not("eq", self, other))

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return cast("Tensor", binary_or_not("ne", self, other))

    __hash__ = Base.__hash__

    def __lt__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("lt", self, other))

    def __le__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("le", self, other))

    def __gt__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("gt", self, other))

    def __ge__(self, other: Operand) -> Tensor:
        return cast("Tensor", binary_or_not("ge", self, other))

    def __and__(self, other: Operand) -> Tensor:
        return cast("Tensor", bits("and", self, other))

    def __rand__(self, other: Operand) -> Tensor:
        return cast("Tensor", bits("and", other, self))

    def __or__(self, other: Operand) -> Tensor:
        return cast("Tensor", bits("or", self, other))

    def __ror__(self, other: Operand) -> Tensor:
        return cast("Tensor", bits("or", other, self))

    def __xor__(self, other: Operand) -> Tensor:
        return cast("Tensor", bits("xor", self, other))

    def __rxor__(self, other: Operand) -> Tensor:
        return cast("Tensor", bits("xor", other, self))

    def __invert__(self) -> Tensor:
        return negated(self) if self.dtype == dtypes.bool else cast("Tensor", bits("xor", self, -1))

    def __neg__(self) -> Tensor:
        return self.neg()

    def __pos__(self) -> Tensor:
        return cast("Tensor", self)

    def __abs__(self) -> Tensor:
        return self.abs()


def _scaled(other: Operand, alpha: Number) -> Operand:
    """Return alpha * other."""
    return (
        other
        if alpha == 1
        else binary("mul", other, alpha)
        if isinstance(other, Base)
        else other * alpha
    )


def _bound(value: Operand) -> Flag:
    return value is None or is_number(value)


def _method(name: str, fn: Callable[[str, Any, Any], Any], a: Operand, b: Operand) -> Tensor:
    """Return fn(name, a, b), where a foreign operand is an error."""
    out = fn(name, a, b)
    if out is NotImplemented:
        raise DTypeError(f"{name}: expected a tensor or a number, got {type(b).__name__}")
    return cast("Tensor", out)
