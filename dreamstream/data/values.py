"""Outputs of models as numbers that text files hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def in_frames(array: Array, axis: int) -> Array:
    """Return an output frame by frame."""
    return np.moveaxis(array, axis, 0)


def in_pairs(array: Array) -> Array:
    """Return complex numbers as real and imaginary part, along one axis more; all others as they are."""
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def in_lists(array: Array) -> Any:
    """Return nested lists; what is no finite number becomes None, which JSON can hold."""
    array = in_pairs(array)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    out = array.astype(object)
    out[~np.isfinite(array)] = None
    return out.tolist()
