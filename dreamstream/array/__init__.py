"""Tensors: NumPy arrays with torch's methods, whose maths runs on the C kernels."""

from .batch_constant import BatchTensor
from .creation import (
    arange,
    as_tensor,
    cat,
    empty,
    from_numpy,
    full,
    full_like,
    manual_seed,
    ones,
    ones_like,
    rand,
    randn,
    stack,
    tensor,
    where,
    zeros,
    zeros_like,
)
from .dtypes import bool, float32, float64, int64
from .tensor import Tensor

__all__ = [
    "BatchTensor",
    "Tensor",
    "arange",
    "as_tensor",
    "bool",
    "cat",
    "empty",
    "float32",
    "float64",
    "from_numpy",
    "full",
    "full_like",
    "int64",
    "manual_seed",
    "ones",
    "ones_like",
    "rand",
    "randn",
    "stack",
    "tensor",
    "where",
    "zeros",
    "zeros_like",
]
