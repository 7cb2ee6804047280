"""More elementwise maths of tensors: what networks use less often.

As in `maths`, each method is written once, for plain tensors and streams alike: arguments
``(*, any shape) float32 | float64``, integers as float32, results of the broadcast shape. Errors are those
of `elementwise.binary`. Source: the method of `torch.Tensor` of the same name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np

from . import dtypes
from .base import Base, Number, is_number
from .elementwise import binary, unary, where
from .maths import Maths, Operand

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = ["Pointwise"]


class Pointwise(Maths):
    """Elementwise methods beyond arithmetic."""

    # ------------------------------------------------------------------ one operand

    def tan(self) -> Tensor:
        """Return the tangent."""
        x = self._real()
        return binary("div", unary("sin", x), unary("cos", x))

    def asin(self) -> Tensor:
        """Return the angle whose sine this is; NaN beyond [-1, 1]."""
        return unary("asin", self)

    def acos(self) -> Tensor:
        """Return the angle whose cosine this is; NaN beyond [-1, 1]."""
        return unary("acos", self)

    def atan(self) -> Tensor:
        """Return the angle whose tangent this is."""
        return unary("atan", self)

    def sinh(self) -> Tensor:
        """Return the hyperbolic sine."""
        return unary("sinh", self)

    def cosh(self) -> Tensor:
        """Return the hyperbolic cosine."""
        return unary("cosh", self)

    def asinh(self) -> Tensor:
        """Return what has this as its hyperbolic sine."""
        return unary("asinh", self)

    def acosh(self) -> Tensor:
        """Return what has this as its hyperbolic cosine; NaN below 1."""
        return unary("acosh", self)

    def atanh(self) -> Tensor:
        """Return what has this as its hyperbolic tangent; NaN beyond [-1, 1]."""
        return unary("atanh", self)

    def exp2(self) -> Tensor:
        """Return 2 ** x."""
        return binary("pow", 2, self._real())

    def erfc(self) -> Tensor:
        """Return 1 - erf(x), exact for small results."""
        return unary("erfc", self)

    def trunc(self) -> Tensor:
        """Return the nearest integer that is not larger in size."""
        return unary("trunc", self)

    def frac(self) -> Tensor:
        """Return what trunc takes away."""
        return binary("sub", self, self.trunc())

    def sinc(self) -> Tensor:
        """Return sin(pi x) / (pi x), and 1 at 0."""
        x = binary("mul", self._real(), math.pi)
        return where(x == 0, 1.0, binary("div", unary("sin", x), x))

    def logit(self, eps: float | None = None) -> Tensor:
        """Return log(x / (1 - x)), x moved into [eps, 1 - eps] first where `eps` is given."""
        x = self._real()
        x = x if eps is None else x.clamp(eps, 1 - eps)
        return unary("log", binary("div", x, binary("sub", 1, x)))

    def nan_to_num(
        self, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
    ) -> Tensor:
        """Return the values, with numbers in the place of those that are none.

        Parameters
        ----------
        nan, posinf, neginf : float, optional
            What stands for NaN, inf and -inf: 0, the type's largest and its least number where None.
        """
        if not dtypes.is_float(self.dtype):
            return cast("Tensor", self)
        most = float(np.finfo(self.dtype).max)
        x = where(self.isnan(), 0.0 if nan is None else float(nan), self)
        x = where(self == math.inf, most if posinf is None else float(posinf), x)
        return where(self == -math.inf, -most if neginf is None else float(neginf), x)

    def isposinf(self) -> Tensor:
        """Return whether elements are inf."""
        return binary("eq", self._real(), math.inf)

    def isneginf(self) -> Tensor:
        """Return whether elements are -inf."""
        return binary("eq", self._real(), -math.inf)

    def signbit(self) -> Tensor:
        """Return whether elements are negative, -0.0 included."""
        return binary("lt", binary("copysign", 1.0, self._real()), 0)

    def deg2rad(self) -> Tensor:
        """Return degrees as radians."""
        return binary("mul", self._real(), math.pi / 180)

    def rad2deg(self) -> Tensor:
        """Return radians as degrees."""
        return binary("mul", self._real(), 180 / math.pi)

    # ------------------------------------------------------------------ several operands

    def atan2(self, other: Operand) -> Tensor:
        """Return the angle of the point (other, self), from -pi to pi."""
        return binary("atan2", self._real(), _real(other))

    def hypot(self, other: Operand) -> Tensor:
        """Return sqrt(self ** 2 + other ** 2), without overflow on the way."""
        return binary("hypot", self, other)

    def fmod(self, other: Operand) -> Tensor:
        """Return what self / other leaves, exactly; the sign is that of self."""
        return binary("fmod", self, other)

    def copysign(self, other: Operand) -> Tensor:
        """Return the sizes of self with the signs of `other`."""
        return binary("copysign", self._real(), _real(other))

    def fmax(self, other: Operand) -> Tensor:
        """Return the larger of each two elements, the other one where one is NaN."""
        return self._unless_nan("maximum", other)

    def fmin(self, other: Operand) -> Tensor:
        """Return the smaller of each two elements, the other one where one is NaN."""
        return self._unless_nan("minimum", other)

    def _unless_nan(self, name: str, other: Operand) -> Tensor:
        other = self._operand(other)
        out = where(binary("ne", self, self), other, binary(name, self, other))
        return where(binary("ne", other, other), self, out)

    def logaddexp(self, other: Operand) -> Tensor:
        """Return log(e ** self + e ** other), without overflow on the way."""
        x, y = self._real(), _real(self._operand(other))
        apart = unary("log1p", unary("exp", unary("neg", unary("abs", binary("sub", x, y)))))
        return where(x == y, binary("add", x, math.log(2)), binary("add", binary("maximum", x, y), apart))

    def xlogy(self, other: Operand) -> Tensor:
        """Return self * log(other), 0 where self is 0."""
        x, y = self._real(), _real(self._operand(other))
        product = binary("mul", x, unary("log", y))
        return where(binary("logical_and", x == 0, y == y), 0.0, product)

    def heaviside(self, values: Operand) -> Tensor:
        """Return 0 below zero, `values` at zero, 1 above it."""
        return where(self == 0, values, binary("gt", self, 0).to(self.dtype))

    def lerp(self, end: Operand, weight: Operand) -> Tensor:
        """Return the point at `weight` on the way from self (0) to `end` (1)."""
        way = binary("sub", end, self)
        near = binary("add", self, binary("mul", way, weight))
        if is_number(weight) and abs(weight) < 0.5:
            return near
        far = binary("sub", end, binary("mul", way, 1 - weight))  # at a weight of 1 exactly the end
        return far if is_number(weight) else where(unary("abs", weight) < 0.5, near, far)

    def addcmul(self, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Tensor:
        """Return self + value * tensor1 * tensor2."""
        scaled = tensor1 if value == 1 else binary("mul", tensor1, value)
        return binary("add", self, binary("mul", scaled, tensor2))

    def addcdiv(self, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Tensor:
        """Return self + value * tensor1 / tensor2."""
        scaled = tensor1 if value == 1 else binary("mul", tensor1, value)
        return binary("add", self, binary("div", scaled, tensor2))

    def _operand(self, other: Operand) -> Operand:
        """Return a number as a tensor of this one's type, so that it can meet itself."""
        return Base._plain(np.array(other, self.dtype)) if is_number(other) else other


def _real(other: Operand) -> Operand:
    return other._real() if isinstance(other, Pointwise) else other
