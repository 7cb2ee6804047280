"""Tensors: NumPy arrays with torch's methods, whose maths runs on the C kernels."""

from . import creation
from .batch_constant import BatchTensor
from .creation import *  # noqa: F403
from .dtypes import bool, float32, float64, int64
from .tensor import Tensor

__all__ = ["BatchTensor", "Tensor", "bool", "float32", "float64", "int64"]
__all__ += creation.__all__
