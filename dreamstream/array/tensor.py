"""The plain tensor: an array with torch's methods.

Values that are real numbers are computed by the C kernels, through a door that `dreamstream.dispatch`
opens with `set_apply`; everything else is NumPy.
"""

from __future__ import annotations

import copy as copying
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dtypes
from .base import Base
from .batch_constant import BatchTensor
from .functions import NAMES
from .hook import set_apply, set_table
from .making import array_of, end_to_end, filled
from .reductions import Extreme, Reductions

__all__ = ["METHODS", "Extreme", "Tensor", "set_apply", "set_table"]

METHODS: tuple[str, ...] = (
    # elementwise
    *NAMES,
    "add", "sub", "div", "floor_divide", "remainder", "pow", "where", "masked_fill", "logical_and",
    "logical_or", "logical_xor", "logical_not", "clamp", "clamp_min", "clamp_max", "clip", "isnan",
    "isinf", "isfinite", "tan", "exp2", "frac", "sinc", "logit", "nan_to_num", "isposinf", "isneginf",
    "signbit", "deg2rad", "rad2deg", "atan2", "copysign", "fmax", "fmin", "logaddexp", "xlogy",
    "heaviside", "lerp", "addcmul", "addcdiv",
    # along a dimension
    "softmax", "log_softmax", "cumsum",
    # sizes and order
    "reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze",
    "expand", "expand_as", "repeat", "transpose", "swapaxes", "permute", "movedim", "t", "T", "mT",
    "repeat_interleave", "flip", "roll", "contiguous", "clone",
    # parts
    "narrow", "select", "unbind", "split", "chunk", "unfold", "gather", "index_select", "masked_select",
    # reductions
    "sum", "prod", "mean", "var", "std", "norm", "logsumexp", "max", "min", "amax", "amin", "argmax",
    "argmin", "all", "any", "equal", "allclose",
    # matrices
    "matmul", "mm", "bmm", "addmm",
    # what it holds, conversions
    "dim", "size", "numel", "item", "tolist", "numpy", "is_floating_point", "is_contiguous",
    "to", "float", "double", "long", "bool", "type_as", "cpu", "detach", "requires_grad_",
    "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor",
    # in place
    "add_", "sub_", "mul_", "div_", "zero_", "fill_", "copy_",
)  # fmt: skip
"""Names of torch's methods and properties that tensors have."""


class Tensor(Reductions):
    """An array of float32, float64, int64 or bool with torch's methods.

    Parameters
    ----------
    data : numpy.ndarray
        The values, shared, not copied; `dreamstream.tensor` copies and takes lists and numbers.
    requires_grad : bool
        For torch's sake: True raises ModeError, for no gradients are recorded without torch.

    Attributes
    ----------
    grad : Tensor or None
        The gradient; None until a backward pass has filled it.
    grad_fn : object or None
        The node of the tape that made the tensor; None without a tape.

    Raises
    ------
    DTypeError
        For element types that a tensor doesn't hold.
    ModeError
        Where a gradient is wanted.

    Notes
    -----
    Methods take torch's arguments. float32 and float64 never mix; Python numbers adopt the tensor's
    type. ``np.asarray(t)`` and ``t.numpy()`` share the tensor's memory. ``x += y`` computes a new
    tensor: only the methods whose names end in ``_`` write in place.

    Examples
    --------
    >>> import numpy as np
    >>> x = Tensor(np.array([[1, 2, 3], [4, 5, 6]]))
    >>> x.sum(dim=1)
    tensor([ 6, 15])
    >>> x[:, 1:].T.tolist()
    [[2, 5], [3, 6]]
    """

    # ------------------------------------------------------------------ new ones of the same type

    def new_tensor(self, data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
        """Return a tensor of `data`, of this one's element type unless `dtype` says otherwise."""
        return Tensor(array_of(data, dtype or self.dtype, copy=True), requires_grad)

    def new_zeros(self, *size: Any, **options: Any) -> Any:
        """Return `dreamstream.zeros` of this element type."""
        return self.new_full(size[0] if len(size) == 1 else size, 0, **options)

    def new_ones(self, *size: Any, **options: Any) -> Any:
        """Return `dreamstream.ones` of this element type."""
        return self.new_full(size[0] if len(size) == 1 else size, 1, **options)

    def new_empty(self, *size: Any, **options: Any) -> Any:
        """Return zeros: memory without values is never handed out."""
        return self.new_zeros(*size, **options)

    def new_full(
        self,
        size: Any,
        fill_value: Any,
        dtype: Any = None,
        *,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Any:
        """Return `dreamstream.full` of this element type."""
        dtypes.check_device(device)
        array, batch = filled(size, fill_value, dtype or self.dtype)
        out = Tensor(array, requires_grad)
        return BatchTensor(out, batch) if batch else out

    # ------------------------------------------------------------------ several into one

    @classmethod
    def _cat(cls, tensors: list[Any], dim: int) -> Tensor:
        """Join plain tensors; a class of streams overrides it and gets lists that hold one of its own."""
        return Tensor(end_to_end([t.numpy() for t in tensors], dim))

    @classmethod
    def _stack(cls, tensors: list[Any], dim: int) -> Tensor:
        """Stack plain tensors; a class of streams may override it."""
        return cls._cat([t.unsqueeze(dim) for t in tensors], dim)

    # ------------------------------------------------------------------ Python

    def __repr__(self) -> str:
        return _text(self.numpy(), self.requires_grad)

    def __copy__(self) -> Tensor:
        return self._again(self._array)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        out = self._again(self._array.copy())
        memo[id(self)] = out
        out.grad = copying.deepcopy(self.grad, memo)
        return out

    def _again(self, array: NDArray[Any]) -> Tensor:
        """Return a tensor like this one, its own attributes included, around another array."""
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        out._array = array
        out.grad_fn = None
        return out


Base._plain_class = Tensor


def _text(array: NDArray[Any], requires_grad: bool) -> str:
    """Return values as torch prints them, with what can't be seen from them behind."""
    body = np.array2string(array, precision=4, separator=", ", prefix="tensor(", threshold=1000)
    notes = []
    if array.size == 0 and array.shape != (0,):
        notes.append(f"size={array.shape}")
    if array.dtype == dtypes.float64 or (array.size == 0 and array.dtype != dtypes.float32):
        notes.append(f"dtype={array.dtype}")
    if requires_grad:
        notes.append("requires_grad=True")
    return f"tensor({', '.join([body, *notes])})"
