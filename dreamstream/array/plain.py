"""What NumPy computes of plain tensors: operations by name, as functions of arrays.

The door finds here what has no kernel in C: what moves and chooses elements, reductions, products of matrices,
and the arithmetic of integers and bools, for which NumPy is exact. Sums of float32 run in float64 and are rounded
once. Results share memory with their argument wherever NumPy's do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .. import _core
from ..errors import DTypeError
from ..operations import BINARY, UNARY
from . import dtypes
from .axes import in_c_order

Array = NDArray[Any]
Axes = tuple[int, ...]


def _fold(fn: np.ufunc) -> Callable[..., Any]:
    def fold(a: Array, axes: Axes, keepdim: bool, to: dtypes.DType) -> Any:
        within = dtypes.float64 if to == dtypes.float32 else dtypes.int64 if to == dtypes.bool else to
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(fn.reduce(a, axes, within, keepdims=keepdim)).astype(to)

    return fold


def _running(fn: np.ufunc) -> Callable[..., Array]:
    def running(a: Array, axis: int, to: dtypes.DType) -> Array:
        within = dtypes.float64 if to == dtypes.float32 else to
        with np.errstate(over="ignore", invalid="ignore"):
            out: Array = fn.accumulate(a, axis, within).astype(to)
        return out

    return running


def _last_equal(a: Array, values: Array, axis: int) -> Array:
    """Return where so far along an axis `a` was last equal to `values`, or NaN."""
    places = np.arange(a.shape[axis]).reshape(-1, *(1,) * (a.ndim - axis - 1))
    return np.maximum.accumulate(np.where((a == values) | (a != a), places, 0), axis)


def _mean(a: Array, axes: Axes, keepdim: bool) -> Array:
    total = _quietly(np.add.reduce, a, axes, np.float64, None, keepdim)
    return _quietly(np.divide, total, _count(a, axes)).astype(a.dtype)


def _variance(a: Array, axes: Axes, keepdim: bool, correction: float) -> Array:
    array, n = a.astype(np.float64), _count(a, axes)
    mean = _quietly(np.divide, _quietly(np.add.reduce, array, axes, None, None, True), n)
    with np.errstate(invalid="ignore"):  # inf - inf
        total = np.asarray(np.square(array - mean).sum(axes, keepdims=keepdim))
    return _quietly(np.divide, total, max(n - correction, 0))


def _norm(a: Array, axes: Axes, keepdim: bool, p: float) -> Any:
    size: Array = np.abs(a.astype(np.float64))
    if math.isinf(p):
        out = (np.max if p > 0 else np.min)(size, axis=axes, keepdims=keepdim)
    elif p == 0:
        out = np.count_nonzero(size, axis=axes, keepdims=keepdim)
    else:
        out = np.sum(size**p, axis=axes, keepdims=keepdim) ** (1 / p)
    return np.asarray(out).astype(a.dtype)


def _logsumexp(a: Array, axes: Axes, keepdim: bool) -> Any:
    array = a.astype(np.float64)
    top = np.max(array, axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore", over="ignore"):
        out = np.log(np.sum(np.exp(array - top), axes, keepdims=True)) + top
    return (out if keepdim else out.squeeze(axes)).astype(a.dtype)


def _count(a: Array, axes: Axes) -> int:
    return math.prod(a.shape[i] for i in axes)


def _quietly(fn: Callable[..., Any], *args: Any) -> Array:
    """Return fn(*args) as an array; 0 / 0 is NaN without a warning, as in torch."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(fn(*args))


def _over(fn: Callable[..., Any]) -> Callable[..., Any]:
    def over(a: Array, axes: Axes | int | None, keepdim: bool) -> Any:
        return fn(a, axis=axes, keepdims=keepdim)

    return over


def _cast(a: Array, to: dtypes.DType) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return a.astype(to)


def _einsum(*arrays: Array, equation: str) -> Any:
    to = np.result_type(*arrays)
    given = [a.astype(np.float64) if to == np.float32 else a for a in arrays]
    return np.asarray(np.einsum(equation, *given)).astype(to)


def _windows(a: Array, axis: int, size: int, step: int) -> Array:
    if a.shape[axis] < size:
        return np.empty((*a.shape[:axis], 0, *a.shape[axis + 1 :], size), a.dtype)
    return sliding_window_view(a, size, axis)[(slice(None),) * axis + (slice(None, None, step),)]


def _masked(a: Array, mask: Array) -> Array:
    values, flags = np.broadcast_arrays(a, mask)
    out: Array = values[flags]
    return out


def _padded(a: Array, lengths: Array, width: int, fill: float, order: Axes) -> Array:
    """Return rows of frames, laid end to end, as (rows, width, *features), then in another order of dimensions."""
    shape = (len(lengths), width, *a.shape[1:])
    if len(a) == len(lengths) * width:
        return _core.joined((a.reshape(shape).transpose(order),))
    out = np.full(shape, fill, a.dtype)
    out[np.arange(width) < lengths[:, None]] = a
    return in_c_order(out.transpose(order))


ARRAYS: dict[str, Callable[..., Any]] = {
    # sizes and order
    "reshape": lambda a, shape: a.reshape(shape),
    "expand": lambda a, shape: np.broadcast_to(a, shape),
    "repeat": lambda a, repeats: np.tile(a, repeats),
    "permute": lambda a, order: a.transpose(order),
    "repeat_interleave": lambda a, repeats, axis: np.repeat(a, repeats, axis),
    "flip": lambda a, axes: np.flip(a, axes).copy(),
    "roll": lambda a, shifts, axes: np.roll(a, shifts, axes),
    "tril": np.tril,
    "triu": np.triu,
    "einsum": _einsum,
    "clone": lambda a: a.copy(),
    "contiguous": np.ascontiguousarray,
    "cast": _cast,
    # parts
    "index": lambda a, index: a[index],
    "frames": lambda a, start, stop, order: a[start:stop].transpose(order),
    "padded": _padded,
    "unfold": _windows,
    "gather": lambda a, index, axis: np.take_along_axis(a, index, axis),
    "index_select": lambda a, index, axis: np.take(a, index, axis),
    "masked_select": _masked,
    "cat": lambda *arrays, axis: np.concatenate(arrays, axis),
    # reductions
    "sum": _fold(np.add),
    "prod": _fold(np.multiply),
    "cumsum": _running(np.add),
    "cumprod": _running(np.multiply),
    "logcumsumexp": lambda a, axis: _quietly(np.logaddexp.accumulate, a, axis, np.float64).astype(a.dtype),
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
    "last_equal": _last_equal,
    "mean": _mean,
    "var": lambda a, **options: _variance(a, **options).astype(a.dtype),
    "std": lambda a, **options: np.sqrt(_variance(a, **options)).astype(a.dtype),
    "norm": _norm,
    "logsumexp": _logsumexp,
    "amax": _over(np.max),
    "amin": _over(np.min),
    "argmax": _over(np.argmax),
    "argmin": _over(np.argmin),
    "all": _over(np.all),
    "any": _over(np.any),
    # matrices
    "matmul": np.matmul,
}
"""Of all element types; attributes are the functions' named arguments."""

INTEGERS: dict[str, Callable[..., Any]] = {
    **{row.name: row.integers for row in (*UNARY, *BINARY) if row.integers is not None},
    "trunc_divide": lambda a, b: np.floor_divide(np.abs(a), np.abs(b)) * np.sign(a) * np.sign(b),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "where": np.where,
}
"""Of integers and bools; truth has kernels."""


def of_integers(name: str, arrays: Sequence[Array]) -> Array:
    """Return an operation's result, with NumPy's refusals (of a bool's negative, …) as ours."""
    try:
        return dtypes.adopt(np.asarray(INTEGERS[name](*arrays)))
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{name}: {error}") from None
