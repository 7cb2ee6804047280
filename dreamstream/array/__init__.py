"""Tensors: NumPy arrays with torch's methods, whose maths runs on the C kernels."""

from . import creation, gradients, maths, ordering, reductions, scatter, stream_order, views  # noqa: F401
from .creation import *  # noqa: F403
from .dtypes import bool, finfo, float32, float64, int64
from .einsum import einsum
from .tensor import Tensor

#: Names of torch's methods and properties that tensors have.
METHODS = tuple(
    name
    for name in dir(Tensor)
    if not name.startswith("_")
    and name not in ("constant", "device", "dtype", "half", "is_stream", "ndim", "shape", *gradients.NAMES)
)

__all__ = ["Tensor", "bool", "einsum", "finfo", "float32", "float64", "int64"]
__all__ += creation.__all__
