"""Sums, extremes, products of matrices: torch's methods on plain tensors, by NumPy.

Sums of float32 run in float64 and are rounded once. `dim` is one dimension, several or all of them
(None); `keepdim` keeps each as size 1. Source: the method of `torch.Tensor` of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, ModeError, ShapeError
from . import dtypes
from .axes import axes_of
from .base import Base
from .elementwise import binary
from .views import Views, plain_array

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = ["Extreme", "Reductions"]

Flag = bool
Dims = int | Sequence[int] | None


class Extreme(NamedTuple):
    """The largest or smallest elements along a dimension, and where they were."""

    values: Tensor
    indices: Tensor


class Reductions(Views):
    """Reductions, running sums and matrix products."""

    # ------------------------------------------------------------------ sums

    def sum(self, dim: Dims = None, keepdim: Flag = False, dtype: Any = None) -> Tensor:
        """Return the sum; int64 for integers and bools."""
        return self._reduced(np.add, dim, keepdim, dtype)

    def prod(self, dim: int | None = None, keepdim: Flag = False, dtype: Any = None) -> Tensor:
        """Return the product; int64 for integers and bools."""
        return self._reduced(np.multiply, dim, keepdim, dtype)

    def _reduced(self, fn: np.ufunc, dim: Dims, keepdim: Flag, dtype: Any) -> Tensor:
        array, axes = self._array, axes_of("sum", dim, self.ndim)
        to = dtypes.as_dtype(dtype) if dtype is not None else _summed(self.dtype)
        within = dtypes.float64 if to == dtypes.float32 else dtypes.int64 if to == dtypes.bool else to
        with np.errstate(over="ignore", invalid="ignore"):
            return self._plain(np.asarray(fn.reduce(array, axes, within, keepdims=keepdim)).astype(to))

    def mean(self, dim: Dims = None, keepdim: Flag = False, dtype: Any = None) -> Tensor:
        """Return the mean; NaN of no elements.

        Raises
        ------
        DTypeError
            Where the elements are integers or bools.
        """
        x = self if dtype is None else self.to(dtype)
        dtypes.require_float("mean", x.dtype)
        axes = axes_of("mean", dim, self.ndim)
        total = _quietly(np.add.reduce, x._array, axes, np.float64, None, keepdim)
        return self._plain(_quietly(np.divide, total, _count(self.shape, axes)).astype(x.dtype))

    def var(
        self,
        dim: Dims = None,
        unbiased: Flag = True,
        keepdim: Flag = False,
        *,
        correction: float | None = None,
    ) -> Tensor:
        """Return the mean square about the mean, divided by n - correction (1 unless `unbiased` is False)."""
        return self._plain(self._variance("var", dim, unbiased, keepdim, correction).astype(self.dtype))

    def std(
        self,
        dim: Dims = None,
        unbiased: Flag = True,
        keepdim: Flag = False,
        *,
        correction: float | None = None,
    ) -> Tensor:
        """Return the square root of `var`."""
        variance = self._variance("std", dim, unbiased, keepdim, correction)
        return self._plain(np.sqrt(variance).astype(self.dtype))

    def _variance(
        self, name: str, dim: Dims, unbiased: Flag, keepdim: Flag, correction: float | None
    ) -> NDArray[Any]:
        dtypes.require_float(name, self.dtype)
        if isinstance(dim, bool):  # torch's var(unbiased)
            unbiased, dim = dim, None
        axes = axes_of(name, dim, self.ndim)
        array, n = self._array.astype(np.float64), _count(self.shape, axes)
        mean = _quietly(np.divide, _quietly(np.add.reduce, array, axes, None, None, True), n)
        with np.errstate(invalid="ignore"):  # inf - inf
            total = np.asarray(np.square(array - mean).sum(axes, keepdims=keepdim))
        return _quietly(np.divide, total, max(n - (int(unbiased) if correction is None else correction), 0))

    def norm(self, p: float | str = "fro", dim: Dims = None, keepdim: Flag = False) -> Tensor:
        """Return the p-norm of the elements; "fro" is 2, ``inf`` and ``-inf`` give the extremes."""
        dtypes.require_float("norm", self.dtype)
        order = 2.0 if p == "fro" else float(p)
        axes = axes_of("norm", dim, self.ndim)
        size: NDArray[Any] = np.abs(self._array.astype(np.float64))
        if math.isinf(order):
            out = (np.max if order > 0 else np.min)(size, axis=axes, keepdims=keepdim)
        elif order == 0:
            out = np.count_nonzero(size, axis=axes, keepdims=keepdim)
        else:
            out = np.sum(size**order, axis=axes, keepdims=keepdim) ** (1 / order)
        return self._plain(np.asarray(out).astype(self.dtype))

    def logsumexp(self, dim: Dims, keepdim: Flag = False) -> Tensor:
        """Return the logarithm of the sum of e ** x; -inf where all of it is -inf."""
        dtypes.require_float("logsumexp", self.dtype)
        axes, array = axes_of("logsumexp", dim, self.ndim), self._array.astype(np.float64)
        top = np.max(array, axes, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0)
        with np.errstate(divide="ignore", over="ignore"):
            out = np.log(np.sum(np.exp(array - top), axes, keepdims=True)) + top
        return self._plain((out if keepdim else out.squeeze(axes)).astype(self.dtype))

    def cumsum(self, dim: int, dtype: Any = None) -> Tensor:
        """Return the running sum along `dim`."""
        to = dtypes.as_dtype(dtype) if dtype is not None else _summed(self.dtype)
        if self.ndim == 0:
            return self.to(to, copy=True)
        within = dtypes.float64 if to == dtypes.float32 else to
        with np.errstate(over="ignore", invalid="ignore"):
            return self._plain(np.cumsum(self._array, self._axis("cumsum", dim), within).astype(to))

    # ------------------------------------------------------------------ extremes

    def max(self, dim: Any = None, keepdim: Flag = False) -> Any:
        """Return the largest element, or ``(values, indices)`` along `dim`; `maximum` for a tensor."""
        if isinstance(dim, Base):
            return binary("maximum", self, dim)
        return self.amax() if dim is None else self._extreme("max", np.argmax, dim, keepdim)

    def min(self, dim: Any = None, keepdim: Flag = False) -> Any:
        """Return the smallest element, or ``(values, indices)`` along `dim`; `minimum` for a tensor."""
        if isinstance(dim, Base):
            return binary("minimum", self, dim)
        return self.amin() if dim is None else self._extreme("min", np.argmin, dim, keepdim)

    def amax(self, dim: Dims = None, keepdim: Flag = False) -> Tensor:
        """Return the largest elements; NaN where there is one."""
        return self._plain(self._full("amax", np.max, dim, keepdim))

    def amin(self, dim: Dims = None, keepdim: Flag = False) -> Tensor:
        """Return the smallest elements; NaN where there is one."""
        return self._plain(self._full("amin", np.min, dim, keepdim))

    def argmax(self, dim: int | None = None, keepdim: Flag = False) -> Tensor:
        """Return where the largest element is (int64): along `dim`, or in the flattened tensor."""
        return self._position("argmax", np.argmax, dim, keepdim)

    def argmin(self, dim: int | None = None, keepdim: Flag = False) -> Tensor:
        """Return where the smallest element is (int64): along `dim`, or in the flattened tensor."""
        return self._position("argmin", np.argmin, dim, keepdim)

    def _full(self, name: str, fn: Callable[..., Any], dim: Dims, keepdim: Flag) -> NDArray[Any]:
        axes = axes_of(name, dim, self.ndim)
        if _count(self.shape, axes) == 0:
            raise ShapeError(f"{name}: no elements to choose from in a tensor of shape {self.shape}")
        return np.asarray(fn(self._array, axis=axes, keepdims=keepdim))

    def _position(self, name: str, fn: Callable[..., Any], dim: int | None, keepdim: Flag) -> Tensor:
        if dim is None:
            self._full(name, np.max, None, False)
            out = np.asarray(fn(self._array))
            return self._plain(out.reshape((1,) * self.ndim) if keepdim else out)
        (axis,) = axes_of(name, dim, max(self.ndim, 1))
        if self.ndim == 0:
            return self._plain(np.asarray(0))
        self._full(name, np.max, axis, False)
        return self._plain(np.asarray(fn(self._array, axis=axis, keepdims=keepdim)))

    def _extreme(self, name: str, fn: Callable[..., Any], dim: int, keepdim: Flag) -> Extreme:
        where = self._position(name, fn, dim, True)
        if self.ndim == 0:
            return Extreme(self.clone(), where)
        axis = self._axis(name, dim)
        values = self._plain(np.take_along_axis(self._array, where._array, axis))
        return Extreme(values, where) if keepdim else Extreme(values.squeeze(axis), where.squeeze(axis))

    # ------------------------------------------------------------------ truth

    def all(self, dim: Dims = None, keepdim: Flag = False) -> Tensor:
        """Return whether all elements are not zero (bool)."""
        return self._plain(np.all(self._array, axis=axes_of("all", dim, self.ndim), keepdims=keepdim))

    def any(self, dim: Dims = None, keepdim: Flag = False) -> Tensor:
        """Return whether one of the elements is not zero (bool)."""
        return self._plain(np.any(self._array, axis=axes_of("any", dim, self.ndim), keepdims=keepdim))

    def equal(self, other: Base) -> Flag:
        """Return whether `other` has the same shape and elements."""
        theirs = plain_array("equal", other)
        dtypes.common("equal", [self.dtype, theirs.dtype])
        return bool(np.array_equal(self._array, theirs))

    def allclose(self, other: Base, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: Flag = False) -> Flag:
        """Return whether `|self - other| <= atol + rtol * |other|` everywhere."""
        theirs = plain_array("allclose", other)
        dtypes.common("allclose", [self.dtype, theirs.dtype])
        return bool(np.allclose(self._array, theirs, rtol, atol, equal_nan))

    # ------------------------------------------------------------------ matrices

    def matmul(self, other: Base) -> Tensor:
        """Return the matrix product, over all leading dimensions.

        Parameters
        ----------
        other : Tensor
            ``(..., k, n)`` or ``(k,)``, for a tensor of ``(..., m, k)`` or ``(k,)``.
        """
        if not isinstance(other, Base):
            raise DTypeError(f"matmul: expected a tensor, got {type(other).__name__}")
        return cast("Tensor", other).__rmatmul__(self) if other.is_stream else _product("matmul", self, other)

    def __matmul__(self, other: Any) -> Tensor:
        if getattr(other, "is_stream", False) or not isinstance(other, (Base, np.ndarray)):
            return NotImplemented
        return _product("@", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        if not isinstance(other, (Base, np.ndarray)):
            return NotImplemented
        return _product("@", other, self)

    def mm(self, mat2: Base) -> Tensor:
        """Return the product of two matrices."""
        _require_ndim("mm", 2, self, mat2)
        return self.matmul(mat2)

    def bmm(self, mat2: Base) -> Tensor:
        """Return the products of two batches of matrices."""
        _require_ndim("bmm", 3, self, mat2)
        if self.shape[0] != mat2.shape[0]:
            raise ShapeError(f"bmm: batches of {self.shape[0]} and {mat2.shape[0]} matrices")
        return self.matmul(mat2)

    def addmm(self, mat1: Base, mat2: Base, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """Return beta * self + alpha * (mat1 @ mat2)."""
        _require_ndim("addmm", 2, mat1, mat2)
        product = _product("addmm", mat1, mat2)
        return (self.mul(beta) if beta != 1 else self).add(product, alpha=alpha)


def _summed(dtype: dtypes.DType) -> dtypes.DType:
    return dtype if dtypes.is_float(dtype) else dtypes.int64


def _count(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    return math.prod(shape[a] for a in axes)


def _quietly(fn: Callable[..., Any], *args: Any) -> NDArray[Any]:
    """Return fn(*args) as an array; 0 / 0 is NaN without a warning, as in torch."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(fn(*args))


def _require_ndim(name: str, ndim: int, *tensors: Base) -> None:
    shapes = [t.shape for t in tensors]
    if any(len(s) != ndim for s in shapes):
        raise ShapeError(f"{name}: expected {ndim} dimensions, got shapes {' and '.join(map(str, shapes))}")


def _product(name: str, a: Any, b: Any) -> Tensor:
    if getattr(a, "is_stream", False) or getattr(b, "is_stream", False):
        raise ModeError(f"{name}: expected plain tensors; for a stream and a matrix use F.linear(x, weight)")
    left, right = plain_array(name, a), plain_array(name, b)
    dtypes.common(name, [left.dtype, right.dtype])
    if left.dtype != right.dtype:
        raise DTypeError(f"{name}: {left.dtype} and {right.dtype} are mixed; convert one of them")
    try:
        return Base._plain(np.matmul(left, right))
    except ValueError:
        raise ShapeError(f"{name}: shapes {left.shape} and {right.shape} don't fit") from None
