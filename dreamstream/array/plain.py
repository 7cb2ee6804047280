"""What NumPy computes of plain tensors: operations by name, as functions of arrays.

The door finds here what has no kernel in C: what moves and chooses elements, products of matrices, and the
arithmetic of integers and bools, for which NumPy is exact. Results share memory with their argument wherever
NumPy's do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .. import _core
from ..errors import DTypeError
from ..operations import BINARY, UNARY
from . import derivatives as d, dtypes
from .dimension_arguments import in_c_order

Array = NDArray[Any]
Axes = tuple[int, ...]


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


def _padded(a: Array, lengths: Array, width: int, fill: float, order: Axes) -> Array:
    """Return rows of frames, laid end to end, as (rows, width, *features), then in another order of dimensions."""
    shape = (len(lengths), width, *a.shape[1:])
    if len(a) == len(lengths) * width:
        return _core.joined((a.reshape(shape).transpose(order),))
    out = np.full(shape, fill, a.dtype)
    out[np.arange(width) < lengths[:, None]] = a
    return in_c_order(out.transpose(order))


class Plain(NamedTuple):
    """An operation on plain tensors."""

    of: Callable[..., Any]  #: Of arrays; attributes are its named arguments.
    #: The derivative of each operand (`derivatives`); none where what comes out is constant to calculus.
    rules: tuple[Callable[..., Any], ...] = ()
    views: bool = False  #: Whether the result may share the first operand's memory.


def _row(of: Callable[..., Any], *rules: Callable[..., Any]) -> Plain:
    return Plain(of, rules)


def _view(of: Callable[..., Any], *rules: Callable[..., Any]) -> Plain:
    return Plain(of, rules, True)


def _scatter(a: Array, b: Array, index: Array, axis: int) -> Array:
    out: Array = a.copy()
    out[d.grid(index, axis)] = b
    return out


def _scatter_add(a: Array, b: Array, index: Array, axis: int) -> Array:
    out: Array = a.copy()
    np.add.at(out, d.grid(index, axis), b)
    return out


ARRAYS: dict[str, Plain] = {
    # sizes and order
    "reshape": _view(lambda a, shape: a.reshape(shape), d.reshape),
    "expand": _view(lambda a, shape: np.broadcast_to(a, shape), lambda g: g),
    "permute": _view(lambda a, order: a.transpose(order), d.permute),
    "einsum": _row(_einsum, d.einsum),
    "clone": _row(lambda a: a.copy(), lambda g: g),
    "contiguous": _row(np.ascontiguousarray, lambda g: g),
    "cast": _row(_cast, lambda g: g),
    # parts
    "index": _view(lambda a, index: a[index], d.index),
    "frames": _view(lambda a, start, stop, order: a[start:stop].transpose(order), d.frames),
    "padded": _row(_padded, d.padded),
    "unfold": _view(_windows, d.unfold),
    "gather": _row(lambda a, index, axis: np.take_along_axis(a, index, axis), d.gather),
    "index_select": _row(lambda a, index, axis: np.take(a, index, axis), d.index_select),
    "rows_by_factors": _row(lambda a, factors: a, lambda g, factors: np.where(factors, g * factors, 0)),
    "scatter": _row(_scatter, d.scatter, d.scattered),
    "scatter_add": _row(_scatter_add, lambda g: g, d.scattered),
    "cat": _row(lambda *arrays, axis: np.concatenate(arrays, axis), d.cat),
    # reductions
    "of_nothing": _row(lambda a, **how: np.full(**how), lambda g, a_shape: np.zeros(a_shape)),
    # matrices
    "matmul": _row(np.matmul, d.left, d.right),
}
"""Of all element types."""

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
