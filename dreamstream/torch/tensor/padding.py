"""Between the padded tensor that is seen and the ragged frames ``[frames of all rows][features...]``.

Which frames there are is computed on the host, from the lengths; the device only gathers. Where no row is
padded, the way back is a view, and the way there one if the frames lie row after row. The size along L of streams
of different lengths is a number that warns where a tensor is divided by it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...errors import StreamWarning
from ...source_line import user_line
from ...stream.rules import BATCH, LENGTH
from ...stream.tensor_info import JOINED, Info, layout_of
from ...stream.tree import map_leaves
from ..private import without_subclass

Ints = npt.NDArray[np.int64]


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return an array of the host on a device."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device, non_blocking=True)


def same(numbers: npt.NDArray[Any]) -> bool:
    """Whether all numbers are equal."""
    raw, size = numbers.tobytes(), numbers.itemsize
    return raw[size:] == raw[:-size]


# ---------------------------------------------------------------------- rows, by their lengths
def runs(begins: Ints, lengths: Ints) -> Ints:
    """Return the positions of runs, one behind the other; each goes on from where it begins."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - ends + lengths, lengths)


def flat(padded: Tensor, lengths: Ints) -> Tensor:
    """Return the valid frames ``(frames of all rows, *features)`` of ``(B, n, *features)``; differentiable."""
    rows, n = padded.shape[:2]
    if same(lengths) and (not rows or lengths[0] == n):
        return padded.reshape(rows * n, *padded.shape[2:])
    if padded.requires_grad and torch.is_grad_enabled():
        return _Flat.apply(padded, lengths)
    return _gathered(padded, lengths)


def as_rows(frames: Tensor, lengths: Ints, width: int | None = None, fill: float | None = 0.0) -> Tensor:
    """Return ragged frames as ``(B, width, *features)``, `fill` behind each row's; differentiable.

    Without `width` they are as wide as the longest row; without `fill` a frame that is there stands behind them.
    """
    if same(lengths) and (width is None or not len(lengths) or lengths[0] == width):
        rows = len(lengths)
        return frames.reshape(rows, frames.shape[0] // max(rows, 1) if width is None else width, *frames.shape[1:])
    n = max(lengths.tolist()) if width is None else width
    if frames.requires_grad and torch.is_grad_enabled():
        return _AsRows.apply(frames, lengths, n, fill)
    return _spread(frames, lengths, n, fill)


class _Indices:
    """Where ragged frames stand in rows of a width.

    `rows`, `within` and `flat` are of each frame its row, its place in that, and its place where the rows stand
    end to end; `present` is of each place in the rows the frame there, or any frame where there is none.
    """

    def __init__(self, lengths: Ints, width: int, device: torch.device) -> None:
        rows, within = np.repeat(np.arange(len(lengths)), lengths), runs(np.zeros_like(lengths), lengths)
        flat = rows * width + within
        present = np.full(len(lengths) * width, len(flat) - 1)
        present[flat] = np.arange(len(flat))
        indices = (to_device(x, device) for x in (rows, within, flat, present))
        self.rows, self.within, self.flat, self.present = indices


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _indices(lengths: bytes, width: int, device: torch.device) -> _Indices:
    return _Indices(np.frombuffer(lengths, np.int64), width, device)


def _gathered(padded: Tensor, lengths: Ints) -> Tensor:
    indices = _indices(lengths.tobytes(), padded.shape[1], padded.device)
    if padded.is_contiguous():
        return padded.flatten(0, 1).index_select(0, indices.flat)
    return padded[indices.rows, indices.within]


def _spread(frames: Tensor, lengths: Ints, width: int, fill: float | None) -> Tensor:
    indices, size = _indices(lengths.tobytes(), width, frames.device), frames.shape[1:]
    if fill is None and len(frames):
        whole = frames.index_select(0, indices.present)
    else:
        whole = frames.new_full((len(lengths) * width, *size), fill or 0.0)
        whole.index_copy_(0, indices.flat, frames)
    return whole.reshape(len(lengths), width, *size)


class _Flat(torch.autograd.Function):
    """Frames of rows; like `_AsRows` it saves no tensor: a backward that is refused further on would free it."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, lengths: Ints) -> Tensor:
        ctx.lengths, ctx.width = lengths, padded.shape[1]
        return _gathered(padded, lengths)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return as_rows(gradient, ctx.lengths, ctx.width), None


class _AsRows(torch.autograd.Function):
    """Rows of frames; their gradient is that of the frames alone."""

    @staticmethod
    def forward(ctx: Any, frames: Tensor, lengths: Ints, width: int, fill: float | None) -> Tensor:
        ctx.lengths = lengths
        return _spread(frames, lengths, width, fill)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return flat(gradient, ctx.lengths), None, None, None


# ---------------------------------------------------------------------- dimensions, by their names
def unpad(padded: Tensor, info: Info) -> Tensor:
    """Return the frames ``[frames of all rows][features...]``, features as they are seen; differentiable."""
    with without_subclass():
        return unpadding(info, padded.shape)(padded)


def unpadding(info: Info, shape: Sequence[int], plain: bool = False) -> Callable[[Tensor], Tensor]:
    """Return what gives the frames of padded tensors of this shape, of which the same is known, as torch's own.

    It is called where torch asks no subclass. With `plain` nothing but the values counts: no gradient, and no mode
    that sees how they are taken.
    """
    layout, width, n = layout_of(info.names), info.width_of(shape), len(info.meta)
    lengths = None if info.is_full(width) else info.meta.lengths
    if plain and n == 1 and lengths is None and layout.n_roles:
        axes = (layout.order or range(len(shape)))[layout.n_roles - 1 :]  # the last of B and L, and features
        pick = picking(axes)
        sizes = pick(tuple(shape))
        return lambda padded: padded.as_strided(sizes, pick(padded.stride()))

    def frames(padded: Tensor) -> Tensor:
        grid = padded.as_subclass(Tensor) if layout.order is None else torch.permute(padded, layout.order)
        if layout.n_roles != 2:
            grid = grid.reshape(n, width, *grid.shape[layout.n_roles :])
        return grid.flatten(0, 1) if lengths is None else flat(grid, lengths)

    return frames


def picking(places: Sequence[int]) -> Callable[[Any], Any]:
    """Return what picks the items at some places of a sequence, as a sequence."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


def pad(value: Tensor, info: Info, width: int | None = None) -> Tensor:
    """Return the padded tensor of frames ``[frames][features...]``, features as they are seen; differentiable.

    Zeros stand behind each row's frames. Where there is no L, rows without a frame are NaN (0 for integers).
    """
    return padding(info, value.shape[1:], width)(value)


def padding(
    info: Info, features: Sequence[int], width: int | None = None, plain: bool = False
) -> Callable[[Tensor], Tensor]:
    """Return what gives the padded tensors, as `pad` does; `plain`: see `unpadding`."""
    layout, n, meta, framed = layout_of(info.names), len(info.meta), info.meta, info.has_frames
    if width is None:
        width = meta.max_length if framed else 1
    full = info.is_full(width)

    def fill(value: Tensor) -> float:
        return 0.0 if framed or not value.is_floating_point() else torch.nan

    if plain and layout.n_roles and (full or not meta.max_length):
        roles = (n, width) if layout.n_roles == 2 else (n * width,)
        order = layout.back or range(layout.n_roles + len(features))
        pick = picking(order)
        sizes = pick((*roles, *features))
        if not full:  # no row has a frame
            return lambda value: value.new_full(sizes, fill(value))

        def view(value: Tensor) -> Tensor:
            strides = value.stride()
            own = (width * strides[0], *strides) if layout.n_roles == 2 else strides
            return value.as_strided(sizes, pick(own))

        return view

    def padded(value: Tensor) -> Tensor:
        if full:
            grid = value.unsqueeze(0) if n == 1 else value.reshape(n, width, *features)
        else:
            grid = as_rows(value, meta.lengths, width, fill(value))
        if layout.n_roles != 2:
            grid = grid.reshape((n * width,) * layout.n_roles + tuple(features))
        return grid if layout.back is None else grid.permute(layout.back)

    return padded


def mask_of(info: Info, shape: Sequence[int], device: torch.device) -> Tensor:
    """Return which elements of a padded tensor are valid, a bool tensor that broadcasts to its shape."""
    width = info.width_of(shape)
    valid = np.arange(width) < info.meta.lengths[:, None]
    sizes = [1] * len(info.names)
    for role, size in ((BATCH, len(info.meta)), (LENGTH, width), (JOINED, valid.size)):
        axis = info.axis(role)
        if axis is not None:
            sizes[axis] = size
    batch, length = info.axis(BATCH), info.axis(LENGTH)
    if batch is not None and length is not None and length < batch:
        valid = np.ascontiguousarray(valid.T)
    return to_device(valid.reshape(sizes), device)


def cleaned(padded: Tensor, info: Info, fill: Any = 0) -> Tensor:
    """Return a padded tensor with `fill` behind each row's frames, through which no gradient passes there."""
    if info.is_full(info.width_of(padded.shape)):
        return padded
    mask = mask_of(info, padded.shape, padded.device)
    return torch.where(mask, padded, bool(fill) if padded.dtype is torch.bool else fill)


_DIVISIONS = frozenset(("div", "divide", "true_divide", "__truediv__", "__itruediv__", "div_", "divide_"))


class PaddedSize(int):
    """A size that counts padding, and products with it."""

    def __mul__(self, other: Any) -> Any:
        product = int.__mul__(self, other)
        return product if product is NotImplemented else PaddedSize(product)

    __rmul__ = __mul__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*without_padded_sizes(func, args), **map_leaves(kwargs or {}, _number))


def without_padded_sizes(func: Any, args: Any) -> Any:
    """Return arguments with plain numbers; warn where a tensor is divided by a size that counts padding."""
    if func.__name__ in _DIVISIONS and type(args[-1]) is PaddedSize:
        warnings.warn(
            f"a tensor is divided at {user_line()} by a size of streams, padding included; y.numel() and "
            'y.lengths leave it out, as y.mean("L") does',
            StreamWarning,
            stacklevel=2,
        )
    return map_leaves(args, _number)


def _number(x: Any) -> Any:
    return int(x) if type(x) is PaddedSize else x


class PaddedShape(tuple):  # type: ignore[type-arg]
    """A `torch.Size`, which allows no subclasses, whose products count padding and warn as its sizes do."""

    __class__ = property(lambda self: torch.Size)

    def numel(self) -> int:
        """Return how many elements the padded tensor has."""
        return self.prod()

    def prod(self, *_: Any, **__: Any) -> int:  # `np.prod(x.shape)` asks for it
        """Return how many elements the padded tensor has."""
        return PaddedSize(math.prod(self))

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return torch.Size(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Any:
        return torch.Size(self) + torch.Size(other)

    def __repr__(self) -> str:
        return repr(torch.Size(map(int, self)))

    def __reduce__(self) -> Any:
        return torch.Size, (tuple(map(int, self)),)


def padded_sizes(shape: torch.Size, length: int | None) -> torch.Size:
    """Return sizes of which that of dimension `length` counts padding."""
    sizes = (PaddedSize(n) if i == length else n for i, n in enumerate(shape))
    return cast(torch.Size, PaddedShape(sizes))
