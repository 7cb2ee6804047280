"""Constants with a dimension that stands for the streams of a batch.

Inside an online forward ``x.size(B)`` is a token, not a number: which streams share a call is not the
model's business. ``zeros(n, x.size(0), H)`` and ``parameter.expand(-1, x.size(0), -1)`` therefore give
a `BatchTensor`: one value that every stream has alike. It serves as the initial state of an RNN, and meets
positions and frames. ``kernel.repeat(x.size(0), 1, 1)`` gives one of several elements for each stream, a weight of
a convolution whose groups are the streams.

What a function gives of such a constant is found by running it on as many rows as there might be (`lifted`): where
these are alike again, the result is such a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial, partialmethod
from typing import Any, NoReturn

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..operations import ARITHMETIC, RELATIONS
from ..stream.rules import BatchSize, Length
from ..stream.tree import leaves, map_leaves
from .deferred import Deferred
from .dimension_arguments import Unnamed, axis_of
from .protocol import refuse_the_rest
from .stream_tensor import StreamTensor
from .symbolic import Symbolic
from .tensor import Tensor

#: Integers up to which float32 has all.
_EXACT = 1 << 24


class BatchTensor(Unnamed):
    """One value for each stream of a batch, the same for all.

    Parameters
    ----------
    each : Tensor
        What each stream has, along the batch dimension: mostly one element.
    batch_axis : int or sequence of one int
        The batch dimension.
    rows : BatchSize, optional
        The number of streams, where it is known of what it was made.
    fresh : bool
        Whether nothing shares its memory.

    Raises
    ------
    ShapeError
        Where there is not exactly one batch dimension.
    """

    is_stream = False

    def __init__(
        self, each: Tensor, batch_axis: int | Sequence[int], rows: Any = None, fresh: bool = False
    ) -> None:
        axes = (batch_axis,) if isinstance(batch_axis, int) else tuple(batch_axis)
        if len(axes) != 1:
            raise ShapeError(f"the number of streams can be one size, not {len(axes)}")
        self.each = each
        self.rows, self.fresh = rows, fresh
        self.batch_axis = axis_of("the number of streams", axes[0], each.ndim)

    def as_output(self) -> NoReturn:
        """Refuse to leave the forward."""
        raise NotStreamableError.here(
            "an output that is a constant for every stream of a batch,",
            ": no frame of an input is in it; make it outside the forward",
        )

    @property
    def value(self) -> Tensor:
        """The value, with size 1 along the batch dimension."""
        if self.each.shape[self.batch_axis] != 1:
            self._refuse("one element for each stream")
        return self.each

    def of_stream(self) -> Tensor:
        """Return the elements that one stream has along the batch dimension."""
        times = getattr(self.rows, "times", 1)
        if self.batch_axis:
            self._refuse("a weight of another order")
        one: Tensor = self.each
        return one if one.shape[0] == times else one.repeat(times // self.each.shape[0], *(1,) * (self.ndim - 1))

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
        return self.each.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes; that of the streams is a token."""
        sizes: list[Any] = list(self.each.shape)
        if self.rows is None:
            self._refuse("shape")
        sizes[self.batch_axis] = self.rows
        return tuple(sizes)

    @property
    def names(self) -> tuple[str | None, ...]:
        """One name per dimension: that of the streams has one."""
        return tuple("B" if i == self.batch_axis else None for i in range(self.ndim))

    @property
    def ndim(self) -> int:
        """Number of dimensions, that of the streams included."""
        return self.each.ndim

    def contiguous(self) -> BatchTensor:
        """Return the constant itself."""
        return self

    def detach(self) -> BatchTensor:
        """Return the constant without its gradient."""
        return BatchTensor(self.each.detach(), self.batch_axis, self.rows)

    def requires_grad_(self, requires_grad: bool = True) -> BatchTensor:
        """Say that no gradient is wanted, and return the constant itself; see `Tensor.requires_grad_`."""
        self.each.requires_grad_(requires_grad)
        return self

    def meeting(self, other: Any) -> Any:
        """Return it as what meets positions: one number, if it holds that, or its value."""
        length = other.length if isinstance(other, Symbolic) else next(iter(other.lengths()))
        numbers = np.unique(self.value.numpy())
        if len(numbers) != 1 or "complex" in str(numbers.dtype) or getattr(self.value, "_learned", False):
            return self.value
        roles = ["B" if i == self.batch_axis else n for i, n in enumerate(self.each.shape)]
        return Symbolic(numbers[0].item(), roles, length).to(str(self.dtype))

    def __mul__(self, other: Any) -> Any:
        """Return one number per stream times a length: what relative lengths are in frames."""
        if not isinstance(other, Length) or self.ndim != 1:
            return self._method("__mul__", other)
        number = float(np.asarray(self.value.numpy()).reshape(()))
        if number != math.floor(number) or number < 1:
            self._refuse(f"* by {number}")
        return Symbolic(other * math.floor(number), ("B",), other)

    def _method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return what a method makes of it, and of frames, positions, numbers or tensors."""
        for x in args:
            if isinstance(x, (Symbolic, Deferred)):
                return getattr(self.meeting(x), name)(*args, **kwargs)
            if getattr(x, "is_stream", False) and hasattr(x, "dims"):
                return getattr(self.value, name)(*args, **kwargs)
            if isinstance(x, Length):
                self._refuse(name)
        return lifted(getattr(Tensor, name), (self, *args), kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("_") or not callable(getattr(Tensor, name, None)):
            self._refuse(name)
        return partial(self._method, name)

    def _refuse(self, name: str) -> NoReturn:
        raise NotStreamableError.here(
            f"{name.strip('_')} of a constant for every stream of a batch,",
            ": it serves as the initial state of an RNN (hx), beside frames and positions, as a weight of grouped "
            "convolutions, and is written into where B and L are joined. A constant that all streams share needs "
            "no batch dimension: it broadcasts",
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        self._refuse("an assignment to a part")

    def __repr__(self) -> str:
        shape = ["B" if i == self.batch_axis else str(n) for i, n in enumerate(self.each.shape)]
        return f"BatchTensor(shape=({', '.join(shape)}), dtype={self.dtype})"


for _name in (*ARITHMETIC, *(f"r{name}" for name in ARITHMETIC), *RELATIONS, "getitem", "neg", "abs"):
    if _name != "mul":
        setattr(BatchTensor, f"__{_name}__", partialmethod(BatchTensor._method, f"__{_name}__"))
BatchTensor.__hash__ = object.__hash__  # type: ignore[method-assign]
refuse_the_rest(BatchTensor, BatchTensor._refuse, copies=True)


def plain_beside(args: Any, kwargs: Any) -> Any:
    """Return arguments in which constants of the batch have one row, as deferred values take them."""
    given = (tuple(args), dict(kwargs))
    return map_leaves(given, lambda x: x.value if isinstance(x, BatchTensor) else x)


def lifted(
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    bare: Callable[[Any], Any] = lambda x: x,
    made: Callable[[Any], Any] = lambda x: x,
) -> Any:
    """Return what a function gives of constants of the batch.

    Parameters
    ----------
    bare, made : callable
        What the library's function takes in place of a tensor of ours, and a tensor of ours for what it gives.

    Raises
    ------
    NotStreamableError
        Where it gives the streams of a batch different values.
    """
    given = [x for x in leaves((args, kwargs)) if isinstance(x, BatchTensor)]
    for x in given:
        x.fresh = False  # what is taken of it may be written into
    rows = next((x.rows for x in given if x.rows is not None), None)

    def of(n: int) -> Any:
        def laid(x: Any) -> Any:
            if isinstance(x, BatchTensor):
                times = getattr(x.rows, "times", 1) // x.each.shape[x.batch_axis]
                return bare(x.each).repeat(*[n * times if i == x.batch_axis else 1 for i in range(x.ndim)])
            return n * x.times if isinstance(x, BatchSize) else bare(x)

        own, named = map_leaves((args, kwargs), laid)
        return func(*own, **named)

    try:
        two, three = of(2), of(3)
    except ShapeError as error:
        raise _unlike(func.__name__) from error
    others = iter(leaves(three))
    one = rows if rows is None or rows.times == 1 else type(rows)(rows.edge)
    return map_leaves(two, lambda x: _of_each(func.__name__, x, next(others), one, made))


def _of_each(name: str, x: Any, other: Any, one: Any, made: Callable[[Any], Any]) -> Any:
    """Return one value of both that a function gave, of two and three rows."""
    if type(x) is int and x != other and one is not None and 2 * other == 3 * x:
        return one * (x // 2)
    if not hasattr(x, "narrow"):
        if x != other:
            raise _unlike(name)
        return x
    axes = [i for i, (n, m) in enumerate(zip(x.shape, other.shape)) if n != m]
    if not axes:
        if not _same(x, other):
            raise _unlike(name)
        return made(x)
    axis, *more = axes
    n = other.shape[axis] - x.shape[axis]
    if more or x.shape[axis] != 2 * n:
        raise _unlike(name)
    first = next((x.narrow(axis, 0, m) for m in (1, n) if _repeats(x, m, axis) and _repeats(other, m, axis)), None)
    if first is None or not _same(first, other.narrow(axis, 0, first.shape[axis])):
        raise _unlike(name)
    return BatchTensor(made(first), axis, None if one is None else one * n)


def _same(a: Any, b: Any) -> bool:
    """Whether the elements of two tensors are the same, NaN included."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _repeats(x: Any, n: int, axis: int) -> bool:
    """Whether a tensor is its first n elements along an axis over and over."""
    times = x.shape[axis] // n
    return _same(x, x.narrow(axis, 0, n).repeat(*[times if i == axis else 1 for i in range(len(x.shape))]))


def lifts(tree: Any) -> bool:
    """Whether arguments are constants of the batch, and nothing that runs over streams."""
    found = leaves(tree)
    return any(isinstance(x, BatchTensor) for x in found) and all(
        isinstance(x, (BatchTensor, BatchSize)) or not hasattr(x, "edge") for x in found
    )


def writes_into_all(name: str) -> NotStreamableError:
    """Return why such a constant is not written into."""
    return NotStreamableError.here(
        name,
        " writes into a constant that all streams have alike; compute a new tensor instead (torch.cat, "
        "torch.stack, torch.where), or write into torch.zeros_like of a stream",
    )


def _unlike(name: str) -> NotStreamableError:
    return NotStreamableError.here(name, " of a constant that all streams have alike: each would have another")


def repeats(t: Any, like: StreamTensor) -> bool:
    """Whether it is a stream, or a constant that every frame of a loop has alike."""
    return t.is_stream or (isinstance(t, BatchTensor) and t.batch_axis == 0 and t.ndim == like.ndim > 1)
