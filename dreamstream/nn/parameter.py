"""Tensors that a module learns."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..array import Tensor, as_tensor
from ..array.versions import kept, lent
from ..errors import DTypeError

__all__ = ["Parameter"]


class Parameter(Tensor):
    """A tensor that becomes a module's parameter when it is assigned to one of its attributes.

    Parameters
    ----------
    data : Tensor or array
        The values, ``(*, any shape) float32 | float64``; shared, not copied.
    requires_grad : bool
        Whether gradients of it are recorded.

    Raises
    ------
    DTypeError
        For a stream, and for integers that shall have a gradient.

    Notes
    -----
    Source: torch.nn.Parameter.
    """

    __slots__ = ("_own",)
    _own: NDArray[Any]

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        if getattr(data, "is_stream", False):
            raise DTypeError("a parameter is a constant; a stream can't be one")
        values = np.empty(0, np.float32) if data is None else as_tensor(data).numpy()
        super().__init__(values)
        self.requires_grad_(requires_grad)

    @property
    def _array(self) -> NDArray[Any]:
        return lent(self._own)

    @_array.setter
    def _array(self, array: NDArray[Any]) -> None:
        self._own = kept(array)

    dtype = property(attrgetter("_own.dtype"), doc="The element type, `ds.float32` or `ds.float64`.")
    shape = property(attrgetter("_own.shape"), doc="Sizes of all dimensions.")

    @property
    def data(self) -> Tensor:
        """The values as a plain tensor that shares memory; assigning replaces them."""
        return self.detach()

    @data.setter
    def data(self, values: Any) -> None:
        self._array = as_tensor(values).numpy()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_array": self._own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._array = state.pop("_array")
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
