"""The methods that are a row of `dreamstream.operations`; tests/source/test_stubs.py writes this."""

from typing import Any

from .base import Base
from .tensor import Tensor

__all__ = ["COMPARISONS", "NAMES", "OPERATORS", "Functions"]

COMPARISONS: tuple[str, ...]
NAMES: tuple[str, ...]
OPERATORS: dict[str, Any]

class Functions(Base):
    def relu(self) -> Tensor:
        """Return max(x, 0)."""
    def sigmoid(self) -> Tensor:
        """Return 1 / (1 + e ** -x)."""
    def tanh(self) -> Tensor:
        """Return the hyperbolic tangent."""
    def exp(self) -> Tensor:
        """Return e ** x."""
    def expm1(self) -> Tensor:
        """Return e ** x - 1, exact near zero."""
    def log(self) -> Tensor:
        """Return the natural logarithm."""
    def log1p(self) -> Tensor:
        """Return log(1 + x), exact near zero."""
    def log2(self) -> Tensor:
        """Return the logarithm to base 2."""
    def log10(self) -> Tensor:
        """Return the logarithm to base 10."""
    def sqrt(self) -> Tensor:
        """Return the square root."""
    def rsqrt(self) -> Tensor:
        """Return 1 / sqrt(x)."""
    def reciprocal(self) -> Tensor:
        """Return 1 / x."""
    def square(self) -> Tensor:
        """Return x * x."""
    def abs(self) -> Tensor:
        """Return the absolute value."""
    def neg(self) -> Tensor:
        """Return -x."""
    def sign(self) -> Tensor:
        """Return -1, 0 or 1; 0 for NaN."""
    def sin(self) -> Tensor:
        """Return the sine."""
    def cos(self) -> Tensor:
        """Return the cosine."""
    def sinh(self) -> Tensor:
        """Return the hyperbolic sine."""
    def cosh(self) -> Tensor:
        """Return the hyperbolic cosine."""
    def asin(self) -> Tensor:
        """Return the angle whose sine this is; NaN beyond [-1, 1]."""
    def acos(self) -> Tensor:
        """Return the angle whose cosine this is; NaN beyond [-1, 1]."""
    def atan(self) -> Tensor:
        """Return the angle whose tangent this is."""
    def asinh(self) -> Tensor:
        """Return what has this as its hyperbolic sine."""
    def acosh(self) -> Tensor:
        """Return what has this as its hyperbolic cosine; NaN below 1."""
    def atanh(self) -> Tensor:
        """Return what has this as its hyperbolic tangent; NaN beyond [-1, 1]."""
    def erf(self) -> Tensor:
        """Return the error function."""
    def erfc(self) -> Tensor:
        """Return 1 - erf(x), exact for small results."""
    def floor(self) -> Tensor:
        """Return the largest integer that is not larger."""
    def ceil(self) -> Tensor:
        """Return the smallest integer that is not smaller."""
    def round(self) -> Tensor:
        """Return the nearest integer, the even one of two."""
    def trunc(self) -> Tensor:
        """Return the nearest integer that is not larger in size."""
    def mul(self, other: Any) -> Tensor:
        """Return self * other."""
    def minimum(self, other: Any) -> Tensor:
        """Return the smaller of each two elements; NaN where one is."""
    def maximum(self, other: Any) -> Tensor:
        """Return the larger of each two elements; NaN where one is."""
    def eq(self, other: Any) -> Tensor:
        """Return whether elements are equal."""
    def ne(self, other: Any) -> Tensor:
        """Return whether elements differ."""
    def lt(self, other: Any) -> Tensor:
        """Return self < other."""
    def le(self, other: Any) -> Tensor:
        """Return self <= other."""
    def gt(self, other: Any) -> Tensor:
        """Return self > other."""
    def ge(self, other: Any) -> Tensor:
        """Return self >= other."""
    def hypot(self, other: Any) -> Tensor:
        """Return sqrt(self ** 2 + other ** 2), without overflow on the way."""
    def fmod(self, other: Any) -> Tensor:
        """Return what self / other leaves, exactly; the sign is that of self."""
    def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]
    def __lt__(self, other: Any) -> Tensor: ...
    def __le__(self, other: Any) -> Tensor: ...
    def __gt__(self, other: Any) -> Tensor: ...
    def __ge__(self, other: Any) -> Tensor: ...
    def __add__(self, other: Any) -> Tensor: ...
    def __radd__(self, other: Any) -> Tensor: ...
    def __sub__(self, other: Any) -> Tensor: ...
    def __rsub__(self, other: Any) -> Tensor: ...
    def __mul__(self, other: Any) -> Tensor: ...
    def __rmul__(self, other: Any) -> Tensor: ...
    def __truediv__(self, other: Any) -> Tensor: ...
    def __rtruediv__(self, other: Any) -> Tensor: ...
    def __pow__(self, other: Any) -> Tensor: ...
    def __rpow__(self, other: Any) -> Tensor: ...
    def __floordiv__(self, other: Any) -> Tensor: ...
    def __rfloordiv__(self, other: Any) -> Tensor: ...
    def __mod__(self, other: Any) -> Tensor: ...
    def __rmod__(self, other: Any) -> Tensor: ...
    def __and__(self, other: Any) -> Tensor: ...
    def __rand__(self, other: Any) -> Tensor: ...
    def __or__(self, other: Any) -> Tensor: ...
    def __ror__(self, other: Any) -> Tensor: ...
    def __xor__(self, other: Any) -> Tensor: ...
    def __rxor__(self, other: Any) -> Tensor: ...
