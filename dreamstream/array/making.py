"""Arrays as tensors hold them: of data, of a number, and of several laid end to end."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModeError, ShapeError
from ..stream.rules.length import BatchSize
from . import dtypes
from .axes import axis_of, sizes_of

__all__ = ["array_of", "end_to_end", "filled"]


def array_of(data: Any, dtype: Any, copy: bool) -> NDArray[Any]:
    """Return data as an array of one of our types."""
    if getattr(data, "is_stream", False):
        raise ModeError("tensor: expected plain data, got a stream; its padded values are x.tensor()")
    is_array = hasattr(data, "__array__") and not isinstance(data, np.generic)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"tensor: the lists don't form an array: {error}") from None
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    if wanted is not None and array.dtype.kind in "fiub":
        return np.array(array, wanted) if copy or array.dtype != wanted else array
    if not is_array and array.dtype.kind in "fiu" and array.dtype != dtypes.float32:
        return array.astype(dtypes.float32)
    out = dtypes.adopt(array)
    return out.copy() if copy and out is array else out


def filled(size: Any, fill_value: Any, dtype: Any = None) -> tuple[NDArray[Any], list[int]]:
    """Return an array of equal elements, and its axes of size 1 that stand for the number of streams."""
    sizes = sizes_of(size if isinstance(size, (tuple, list)) else (size,))
    batch = [i for i, s in enumerate(sizes) if isinstance(s, BatchSize)]
    shape = tuple(1 if i in batch else operator.index(s) for i, s in enumerate(sizes))
    if any(n < 0 for n in shape):
        raise ShapeError(f"sizes must not be negative, got {shape}")
    value = fill_value.item() if hasattr(fill_value, "item") else fill_value
    to = dtypes.common("full", [], [value]) if dtype is None else dtypes.as_dtype(dtype)
    return np.full(shape, value, to), batch


def end_to_end(arrays: Sequence[NDArray[Any]], dim: int) -> NDArray[Any]:
    """Return arrays of one number of dimensions laid end to end along one of them."""
    dtype = dtypes.common("cat", [a.dtype for a in arrays])
    if len({a.ndim for a in arrays}) > 1 or arrays[0].ndim == 0:
        raise ShapeError(f"cat: expected equal numbers of dimensions, got {[a.ndim for a in arrays]}")
    axis = axis_of("cat", dim, arrays[0].ndim)
    try:
        return np.concatenate([a.astype(dtype, copy=False) for a in arrays], axis)
    except ValueError:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise ShapeError(f"cat: only sizes of dimension {axis} may differ, got shapes {shapes}") from None
