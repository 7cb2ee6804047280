"""Constants with a dimension that stands for the streams of a batch.

Inside an online forward ``x.size(B)`` is a token, not a number: which streams share a call is not the
model's business. ``zeros(n, x.size(0), H)`` and ``parameter.expand(-1, x.size(0), -1)`` therefore give
a `BatchTensor`: one value that every stream has alike. It serves as the initial state of an RNN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partialmethod
from typing import Any

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..stream.rules import Length
from .dimension_arguments import HasShape, axis_of, sizes_of
from .protocol import refuse_the_rest
from .stream_tensor import StreamTensor
from .symbolic import Symbolic
from .tensor import Tensor

#: Integers up to which float32 has all.
_EXACT = 1 << 24


class BatchTensor(HasShape):
    """One value for each stream of a batch, the same for all.

    Parameters
    ----------
    value : Tensor
        The value, with size 1 along the batch dimension.
    batch_axis : int or sequence of one int
        The batch dimension.
    rows : BatchSize, optional
        The number of streams, where it is known of what it was made.
    fresh : bool
        Whether nothing shares its memory.

    Raises
    ------
    ShapeError
        Where there is not exactly one batch dimension, or it has more than one element.
    """

    is_stream = False

    def __init__(
        self, value: Tensor, batch_axis: int | Sequence[int], rows: Any = None, fresh: bool = False
    ) -> None:
        axes = (batch_axis,) if isinstance(batch_axis, int) else tuple(batch_axis)
        if len(axes) != 1:
            raise ShapeError(f"the number of streams can be one size, not {len(axes)}")
        self.value = value
        self.rows, self.fresh = rows, fresh
        self.batch_axis = axis_of("the number of streams", axes[0], value.ndim)
        if value.shape[self.batch_axis] != 1:
            raise ShapeError(
                f"only a dimension of size 1 can be repeated for every stream, not one of "
                f"{value.shape[self.batch_axis]}"
            )

    @property
    def constant(self) -> Tensor:
        """The value of one stream, without the batch dimension."""
        return self.value.select(self.batch_axis, 0)

    def as_frames(self, others: Iterable[Any]) -> Any:
        """Return the stream of it that has a frame for each of another's, where B and L are joined; else None."""
        exact = self.dtype.kind == "f" or not (np.abs(self.value.numpy()) > _EXACT).any()
        for x in others if exact else ():
            if not (isinstance(x, StreamTensor) and x.edge and x.dims[0] == "B_L" and self.batch_axis == 0):
                continue
            first = (slice(None), *[slice(0, 1)] * (x.ndim - 1))
            one = x[first]
            real = self.dtype if self.dtype.kind == "f" else np.float32
            nothing = ((one > 0) if one.dtype != np.bool_ else one).to(real) * 0
            frames = nothing.reshape(nothing.size(0), *[1] * (self.ndim - 1)) + self.value.to(real)
            return frames.to(self.dtype)
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.value.dtype

    @property
    def names(self) -> tuple[str | None, ...]:
        """One name per dimension: that of the streams has one."""
        return tuple("B" if i == self.batch_axis else None for i in range(self.ndim))

    @property
    def ndim(self) -> int:
        """Number of dimensions, that of the streams included."""
        return self.value.ndim

    def permute(self, *given: Any, dims: Any = ()) -> BatchTensor:
        """Return the constant with its dimensions in the order `dims`."""
        order = [axis_of("permute", d, self.ndim) for d in sizes_of(given, dims)]
        return BatchTensor(self.value.permute(*order), order.index(self.batch_axis), self.rows)

    def to(self, *args: Any, **kwargs: Any) -> BatchTensor:
        """Return the constant with another element type, as `Tensor.to`."""
        return BatchTensor(self.value.to(*args, **kwargs), self.batch_axis, self.rows)

    def contiguous(self) -> BatchTensor:
        """Return the constant itself."""
        return self

    def detach(self) -> BatchTensor:
        """Return the constant without its gradient."""
        return BatchTensor(self.value.detach(), self.batch_axis, self.rows)

    def requires_grad_(self, requires_grad: bool = True) -> BatchTensor:
        """Say that no gradient is wanted, and return the constant itself; see `Tensor.requires_grad_`."""
        self.value.requires_grad_(requires_grad)
        return self

    def _combined(self, name: str, other: Any) -> Any:
        """Return what an operator makes of it and a stream that has frames, or a number."""
        if getattr(other, "is_stream", False) and hasattr(other, "dims"):
            return getattr(self.value, name)(other)
        if not isinstance(other, (int, float)):
            return self.__getattr__(name.strip("_"))
        return BatchTensor(getattr(self.value, name)(other), self.batch_axis, self.rows)

    def __mul__(self, other: Any) -> Any:
        """Return one number per stream times a length: what relative lengths are in frames."""
        if not isinstance(other, Length) or self.ndim != 1:
            return self._combined("__mul__", other)
        number = float(np.asarray(self.value.numpy()).reshape(()))
        if number != math.floor(number) or number < 1:
            return self.__getattr__(f"* by {number}")
        return Symbolic(other * math.floor(number), ("B",), other)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotStreamableError.here(
            f"{name.strip('_')} of a constant for every stream of a batch,",
            ": it serves as the initial state of an RNN (hx), and is written into where B and L are joined. A "
            "constant that all streams share needs no batch dimension: it broadcasts",
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        self.__getattr__("an assignment to a part")

    def __repr__(self) -> str:
        shape = ["B" if i == self.batch_axis else str(n) for i, n in enumerate(self.value.shape)]
        return f"BatchTensor(shape=({', '.join(shape)}), dtype={self.dtype})"


for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__rmul__", "__truediv__"):
    setattr(BatchTensor, _name, partialmethod(BatchTensor._combined, _name))
refuse_the_rest(BatchTensor, lambda constant, name: constant.__getattr__(name), copies=True)
