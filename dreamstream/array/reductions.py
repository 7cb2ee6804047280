"""Sums, extremes, products of matrices: torch's methods on plain tensors.

Reductions are those within a stream's frames: the same operator, with its derivative. `dim` is one dimension,
several or all of them (None); `keepdim` keeps each as size 1. Each public function here is the method of tensors
of its name. Source: the method of `torch.Tensor` of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import DTypeError, ModeError, ShapeError
from . import derivatives as d, dtypes
from .derivatives import derived
from .dimension_arguments import axes_of
from .elementwise import binary, plain_array
from .feature_reductions import attributes_of, of_axes
from .hook import CHOICE, made, one
from .tensor import Tensor, each, take

Dims = int | Sequence[int] | None


class Extreme(NamedTuple):
    """The largest or smallest elements along a dimension, and where they were."""

    values: Tensor
    indices: Tensor


# ------------------------------------------------------------------ the operator
#: Reductions that are refused for integers and bools.
OF_FLOATS = ("mean", "var", "std", "norm", "logsumexp")
_OF_NOTHING = {
    "sum": 0, "prod": 1, "mean": math.nan, "var": math.nan, "std": math.nan, "norm": 0, "logsumexp": -math.inf,
    "any": False, "all": True,
}  # fmt: skip
_MOST_AXES = 6  # of an operator's frames


def _reduced(name: str, x: Tensor, dim: Dims = None, keepdim: bool = False, /, **options: Any) -> Tensor:
    """Return a reduction of a plain tensor, by the operator that reduces a frame's features.

    `name` is torch's method, of one output, and `options` are its other arguments. `dim` is one dimension, several
    or, for None, all of them.
    """
    if name in OF_FLOATS:
        dtypes.require_float(name, x.dtype)
    p = attributes_of(name, options).get("p", 0)
    some = name not in _OF_NOTHING or math.isinf(p)
    axes = _axes_of_extreme(name, x, dim) if some else axes_of(name, dim, x.ndim)
    if not x.ndim:
        return _reduced(name, x.reshape(1), 0, **options)
    first = min(axes)
    if 0 in x.shape[first:]:
        sizes = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
        whole = name.startswith("arg") or (name in ("sum", "prod") and not dtypes.is_float(x.dtype))
        to = dtypes.int64 if whole else dtypes.bool if name in ("any", "all") else x.dtype
        value = math.inf if p < 0 else _OF_NOTHING.get(name, 0)
        return made("of_nothing", x, shape=sizes, fill_value=value, dtype=to)
    if x.ndim - first > _MOST_AXES:
        left = [i for i in range(x.ndim) if i not in axes]
        out = _reduced(name, x.permute(*left, *axes).reshape(*(x.shape[i] for i in left), -1), -1, **options)
        return out.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdim else out
    own = tuple(range(x.ndim - first))
    out = of_axes(x, name, [a - first for a in axes], keepdim, options, (..., *own))
    if x._missing and dtypes.is_float(out.dtype):
        out._array = np.full_like(out._array, np.nan)
    return out


# ------------------------------------------------------------------ sums
@derived(d.prod)
def _multiplied(x: Tensor, axes: Sequence[int], keepdim: bool) -> Tensor:
    return _reduced("prod", x, axes, keepdim)


@each(sum="sum", prod="product")
def _total(name: str) -> Any:
    def total(self: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        """Return the {}; int64 for integers and bools."""
        to = _summed(self, dtype)
        x = _summand(self, to)
        if name == "prod":
            return _multiplied(x, axes_of(name, dim, self.ndim), keepdim).to(to)
        return _reduced(name, x, dim, keepdim).to(to)

    return total


def mean(self: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Return the mean; NaN of no elements.

    Raises
    ------
    DTypeError
        Where the elements are integers or bools.
    """
    return _reduced("mean", self if dtype is None else self.to(dtype), dim, keepdim)


@each(
    var="mean square about the mean, divided by n - correction (1 unless `unbiased` is False)",
    std="square root of `var`",
)
def _spread(name: str) -> Any:
    def spread(
        self: Tensor,
        dim: Dims = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Tensor:
        """Return the {}."""
        if isinstance(dim, bool):  # torch's var(unbiased)
            unbiased, dim = dim, None
        return _reduced(name, self, dim, keepdim, unbiased=unbiased, correction=correction)

    return spread


def norm(self: Tensor, p: float | str = "fro", dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the p-norm of the elements; "fro" is 2, ``inf`` and ``-inf`` give the extremes."""
    return _reduced("norm", self, dim, keepdim, p=p)


def logsumexp(self: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """Return the logarithm of the sum of e ** x; -inf where all of it is -inf."""
    return _reduced("logsumexp", self, dim, keepdim)


def _so_far(name: str, kind: str, x: Tensor, dim: int) -> Tensor:
    """Return a cumulative sum, product or extreme along `dim`, by the operator that streams have along L."""
    if not x.ndim or not x.numel():
        return x.to(x.dtype, copy=True)
    axis, shape = x._axis(name, dim), x.shape
    rows = x.reshape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    return one("cumulative", {"kind": kind}, (rows,), (), ("B", "L", 0)).reshape(shape)


@each(cumsum="sum", cumprod="product")
def _running(name: str) -> Any:
    kind = "sum" if name == "cumsum" else "prod"

    def running(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
        """Return the running {} along `dim`."""
        to = _summed(self, dtype)
        return _so_far(name, kind, _summand(self, to), dim).to(to)

    return running


def logcumsumexp(self: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the running sum of e ** x along `dim`."""
    dtypes.require_float("logcumsumexp", self.dtype)
    return _so_far("logcumsumexp", "logsumexp", self, dim)


def count_nonzero(self: Tensor, dim: Dims = None) -> Tensor:
    """Return how many elements are not zero (int64)."""
    return self.ne(0).sum(dim)


def nansum(self: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Return the sum of the elements that are no NaN."""
    x = self.masked_fill(self.isnan(), 0) if dtypes.is_float(self.dtype) else self
    return x.sum(dim, keepdim, dtype)


def nanmean(self: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """Return the mean of the elements that are no NaN."""
    x = self if dtype is None else self.to(dtype)
    return x.nansum(dim, keepdim) / x.isnan().logical_not().to(x.dtype).sum(dim, keepdim)


# ------------------------------------------------------------------ extremes
@each(max="largest", min="smallest")
def _extreme(name: str) -> Any:
    def extreme(self: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        """Return the {} element, or ``(values, indices)`` along `dim`; of each two beside a tensor."""
        if isinstance(dim, Tensor):
            return binary(f"{name}imum", self, dim)
        if dim is None:
            return self.amax() if name == "max" else self.amin()
        where = _position(name, f"arg{name}", self, dim, True)
        if self.ndim == 0:
            return Extreme(self.clone(), where)
        axis = self._axis(name, dim)
        values = made("gather", self, index=where.numpy(), axis=axis)
        return Extreme(values, where) if keepdim else Extreme(values.squeeze(axis), where.squeeze(axis))

    return extreme


@each(
    amax="the largest elements; NaN where there is one",
    amin="the smallest elements; NaN where there is one",
    all="whether all elements are not zero (bool)",
    any="whether one of the elements is not zero (bool)",
)
def _over(name: str) -> Any:
    def over(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        """Return {}."""
        return _reduced(name, self, dim, keepdim)

    return over


@each(argmax="largest", argmin="smallest")
def _place(name: str) -> Any:
    def place(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Return where the {} element is (int64): along `dim`, or in the flattened tensor."""
        return _position(name, name, self, dim, keepdim)

    return place


@each(cummax="largest", cummin="smallest")
def _extreme_so_far(name: str) -> Any:
    def so_far(self: Tensor, dim: int) -> Extreme:
        """Return the {} elements so far along `dim`, and where the last of them is; NaN stays."""
        x = self.to(dtypes.int64) if self.dtype == dtypes.bool else self
        values = _so_far(name, name[3:], x, dim).to(self.dtype)
        if not self.ndim or not self.numel():
            return Extreme(values, values.to(dtypes.int64).mul(0))
        return Extreme(values, _so_far(name, f"arg{name[3:]}", x, dim))

    return so_far


def _axes_of_extreme(name: str, x: Tensor, dim: Dims) -> tuple[int, ...]:
    """Return `dim` as axes counted from the front; ShapeError where there is no element to choose."""
    axes = axes_of(name, dim, x.ndim)
    if not all(x.shape[a] for a in axes):
        raise ShapeError(f"{name}: no elements to choose from in a tensor of shape {x.shape}")
    return axes


def _position(name: str, kind: str, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """Return argmax or argmin, as `kind` says; messages call it `name`."""
    if dim is None:
        _axes_of_extreme(name, x, None)
        return _reduced(kind, x, None, keepdim)
    (axis,) = axes_of(name, dim, max(x.ndim, 1))
    if x.ndim == 0:
        return Tensor._plain(np.asarray(0))
    _axes_of_extreme(name, x, axis)
    choice = None if x.is_stream else CHOICE.get()
    order = None if choice is None else choice.order(np.moveaxis(x.numpy(), axis, -1), kind == "argmax")
    if order is not None:
        return Tensor._plain(np.expand_dims(order[..., 0], axis) if keepdim else order[..., 0])
    return _reduced(kind, x, axis, keepdim)


# ------------------------------------------------------------------ as a whole
def equal(self: Tensor, other: Tensor) -> bool:
    """Return whether `other` has the same shape and elements."""
    theirs = plain_array("equal", other)
    dtypes.common("equal", [self.dtype, theirs.dtype])
    return bool(np.array_equal(self._array, theirs))


def allclose(self: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return whether `abs(self - other) <= atol + rtol * abs(other)` everywhere."""
    theirs = plain_array("allclose", other)
    dtypes.common("allclose", [self.dtype, theirs.dtype])
    return bool(np.allclose(self._array, theirs, rtol, atol, equal_nan))


# ------------------------------------------------------------------ matrices
def matmul(self: Tensor, other: Tensor) -> Tensor:
    """Return the matrix product, over all leading dimensions.

    Parameters
    ----------
    other : Tensor
        ``(..., k, n)`` or ``(k,)``, for a tensor of ``(..., m, k)`` or ``(k,)``.
    """
    if not isinstance(other, Tensor):
        raise DTypeError(f"matmul: expected a tensor, got {type(other).__name__}")
    return other.__rmatmul__(self) if other.is_stream else _product("matmul", self, other)


def __matmul__(self: Tensor, other: Any) -> Tensor:
    if getattr(other, "is_stream", False) or not isinstance(other, (Tensor, np.ndarray)):
        return NotImplemented
    return _product("@", self, other)


def __rmatmul__(self: Tensor, other: Any) -> Tensor:
    if not isinstance(other, (Tensor, np.ndarray)):
        return NotImplemented
    return _product("@", other, self)


def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """Return the product of two matrices."""
    _require_ndim("mm", 2, self, mat2)
    return self.matmul(mat2)


def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """Return the products of two batches of matrices."""
    _require_ndim("bmm", 3, self, mat2)
    if self.shape[0] != mat2.shape[0]:
        raise ShapeError(f"bmm: batches of {self.shape[0]} and {mat2.shape[0]} matrices")
    return self.matmul(mat2)


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * self + alpha * (mat1 @ mat2)."""
    _require_ndim("addmm", 2, mat1, mat2)
    product = _product("addmm", mat1, mat2)
    return (self.mul(beta) if beta != 1 else self).add(product, alpha=alpha)


def _summed(x: Tensor, dtype: Any) -> dtypes.DType:
    """Return the element type of a sum."""
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    return x.dtype if dtypes.is_float(x.dtype) else dtypes.int64


def _summand(x: Tensor, to: dtypes.DType) -> Tensor:
    """Return `x` in the type to sum in, for a sum of type `to`: no element is rounded to float32 first."""
    if dtypes.is_float(to):
        return x if x.dtype == to else x.to(dtypes.float64)
    return x.to(dtypes.int64)


def _require_ndim(name: str, ndim: int, *tensors: Tensor) -> None:
    shapes = [t.shape for t in tensors]
    if any(len(s) != ndim for s in shapes):
        raise ShapeError(f"{name}: expected {ndim} dimensions, got shapes {' and '.join(map(str, shapes))}")


def _product(name: str, a: Any, b: Any) -> Tensor:
    if getattr(a, "is_stream", False) or getattr(b, "is_stream", False):
        raise ModeError(f"{name}: expected plain tensors; for a stream and a matrix use F.linear(x, weight)")
    left, right = (x if isinstance(x, Tensor) else Tensor._plain(plain_array(name, x)) for x in (a, b))
    dtypes.common(name, [left.dtype, right.dtype])
    if left.dtype != right.dtype:
        raise DTypeError(f"{name}: {left.dtype} and {right.dtype} are mixed; convert one of them")
    try:
        return made("matmul", left, right)
    except ValueError:
        raise ShapeError(f"{name}: shapes {left.shape} and {right.shape} don't fit") from None


take(Tensor, globals(), **_total, **_spread, **_running, **_extreme, **_over, **_place, **_extreme_so_far)
