"""Constants with a dimension that stands for the streams of a batch: deferred values in which no length is.

Inside an online forward ``x.size(B)`` is a token, not a number: which streams share a call is not the
model's business. ``zeros(n, x.size(0), H)`` and ``parameter.expand(-1, x.size(0), -1)`` are therefore deferred
values that lay one value out for so many streams. Every stream has it alike. It serves as the initial state of an
RNN, and meets positions and frames. ``kernel.repeat(x.size(0), 1, 1)`` gives one of several elements for each
stream, a weight of a convolution whose groups are the streams.

What a function gives of such a constant is found by running it on as many rows as there might be
(`Library.of_every_stream`): where these are alike again, the result is such a constant.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeGuard

import numpy as np

from ..errors import NotStreamableError
from ..stream.rules import BatchSize, Length
from ..stream.tree import leaves, map_leaves
from .stream_tensor import StreamTensor
from .tensor import Tensor

#: Integers up to which float32 has all.
_EXACT = 1 << 24


def laid_out(each: Any, axis: int, rows: int) -> Any:
    """Return a tensor repeated along a dimension to so many rows: what a constant of the batch is made by."""
    times = rows // each.shape[axis]
    return each.repeat(*[times if i == axis else 1 for i in range(len(each.shape))])


class OfBatch:
    """The part of `Deferred` for constants that every stream of a batch has alike, made by `laid_out`."""

    func: Any
    args: tuple[Any, ...]
    library: Any
    fresh = False  #: Whether nothing shares the memory of a constant.

    #: Whether it is such a constant.
    is_constant = property(lambda self: self.func is laid_out)
    #: The dimension of a constant that stands for the streams, and its size, a token.
    batch_axis, rows = property(lambda self: self.args[1]), property(lambda self: self.args[2])

    @property
    def value(self) -> Tensor:
        """A constant as operators take it, with size 1 along the batch dimension."""
        if not self.is_constant:
            raise AttributeError("value")
        if self.args[0].shape[self.batch_axis] != 1:
            self._refuse("one element for each stream")
        value: Tensor = self.library.constant(self.args[0])
        return value

    def of_stream(self) -> Tensor:
        """Return the elements that one stream has along the batch dimension of a constant."""
        if self.batch_axis:
            self._refuse("a weight of another order")
        one: Tensor = self.library.constant(self.args[0])
        times = getattr(self.rows, "times", 1)
        return one if one.shape[0] == times else laid_out(one, 0, times)

    @property
    def constant(self) -> Tensor:
        """What one stream has of a constant, without the batch dimension."""
        return self.value.select(self.batch_axis, 0)

    def first(self) -> tuple[Any, str, tuple[int, ...]]:
        """Return what one stream has of a constant as operators take weights, its type, and its shape."""
        each, axis, _ = self.args
        if each.shape[axis] != 1:
            self._refuse("one element for each stream")
        first: tuple[Any, str, tuple[int, ...]] = self.library.constant(each)._first_weight(axis)
        return first

    def as_frames(self, others: Iterable[Any]) -> Any:
        """Return the stream of it that has a frame for each of another's, where B and L are joined; else None."""
        value = self.value
        exact = value.dtype.kind == "f" or not (np.abs(value.numpy()) > _EXACT).any()
        for x in others if exact else ():
            if not (isinstance(x, StreamTensor) and x.edge and x.dims[0] == "B_L" and self.batch_axis == 0):
                continue
            first = (slice(None), *[slice(0, 1)] * (x.ndim - 1))
            one = x[first]
            real = value.dtype if value.dtype.kind == "f" else np.float32
            nothing = ((one > 0) if one.dtype != np.bool_ else one).to(real) * 0
            frames = nothing.reshape(nothing.size(0), *[1] * (value.ndim - 1)) + value.to(real)
            return frames.to(value.dtype)
        return None

    def meeting(self, other: Any) -> Any:
        """Return it as what meets positions: a constant as one number, if it holds that, or as its value."""
        if not self.is_constant:
            return self
        value = self.value
        numbers = np.unique(value.numpy())
        if len(numbers) != 1 or "complex" in str(numbers.dtype) or getattr(value, "_learned", False):
            return value
        filled = self.library.filled(numbers[0].item(), self._roles(), next(other.lengths()))
        return filled.to(str(value.dtype))

    def _roles(self) -> list[Any]:
        """Return the sizes of its dimensions, "B" for that of the streams."""
        return ["B" if i == self.batch_axis else n for i, n in enumerate(self.args[0].shape)]

    def _beside(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return what a method makes of a constant beside frames, positions or lengths; None beside none."""
        for x in args:
            if isinstance(x, OfBatch) and not x.is_constant:
                met = getattr(self.meeting(x), name)(*args, **kwargs)
                return None if met is NotImplemented else met
            if getattr(x, "is_stream", False) and hasattr(x, "dims"):
                # The operator leaves streams to the stream's own, which is not asked here.
                return getattr(self.value, "matmul" if name == "__matmul__" else name)(*args, **kwargs)
            if isinstance(x, Length):
                number = self.value.item() if name == "__mul__" and math.prod(self.args[0].shape) == 1 else 0
                if number != math.floor(number) or number < 1:
                    self._refuse(f"* by {number}" if number else name)
                frames = x * math.floor(number)  # what relative lengths are in frames
                return self.library.filled(frames, self._roles(), x)
        return None

    def _refuse(self, name: str) -> NoReturn:
        raise NotStreamableError.here(
            f"{name.strip('_')} of a constant for every stream of a batch,",
            ": it serves as the initial state of an RNN (hx), beside frames and positions, as a weight of grouped "
            "convolutions, and is written into where B and L are joined. A constant that all streams share needs "
            "no batch dimension: it broadcasts",
        )

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Say that no gradient is wanted, and return the constant itself; see `Tensor.requires_grad_`."""
        if not self.is_constant:
            self._refuse("requires_grad_")
        self.args[0].requires_grad_(requires_grad)
        return self

    def __copy__(self) -> Any:
        return self if self.is_constant else self._refuse("reduce_ex")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        each, *rest = self.args if self.is_constant else self._refuse("reduce_ex")
        return self.library.of_batch(copy.deepcopy(each, memo), *rest)


def is_constant(x: Any) -> TypeGuard[Any]:
    """Whether something is a constant that every stream of a batch has alike."""
    return isinstance(x, OfBatch) and x.func is laid_out


def value_of(x: Any) -> Any:
    """Return a constant of the batch as a plain tensor, in a batch of 1; return everything else unchanged."""
    return x.value if is_constant(x) else x


def plain_beside(args: Any, kwargs: Any) -> Any:
    """Return arguments in which constants of the batch have one row, as deferred values take them."""
    return map_leaves((tuple(args), dict(kwargs)), value_of)


def lifts(tree: Any) -> bool:
    """Whether arguments are constants of the batch, and nothing that runs over streams."""
    found = leaves(tree)
    return any(map(is_constant, found)) and all(
        isinstance(x, BatchSize) or (x.is_constant if isinstance(x, OfBatch) else not hasattr(x, "edge"))
        for x in found
    )


def same(a: Any, b: Any) -> bool:
    """Whether the elements of two tensors are the same, NaN included."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def repeats_itself(x: Any, n: int, axis: int) -> bool:
    """Whether a tensor is its first n elements along an axis over and over."""
    return same(x, laid_out(x.narrow(axis, 0, n), axis, x.shape[axis]))


def writes_into_all(name: str) -> NotStreamableError:
    """Return why such a constant is not written into."""
    return NotStreamableError.here(
        name,
        " writes into a constant that all streams have alike; compute a new tensor instead (torch.cat, "
        "torch.stack, torch.where), or write into torch.zeros_like of a stream",
    )


def unlike(name: str) -> NotStreamableError:
    """Return why a function of such a constant is none."""
    return NotStreamableError.here(name, " of a constant that all streams have alike: each would have another")


def repeats(t: Any, like: StreamTensor) -> bool:
    """Whether it is a stream, or a constant that every frame of a loop has alike."""
    return t.is_stream or (is_constant(t) and t.batch_axis == 0 and t.ndim == like.ndim > 1)
