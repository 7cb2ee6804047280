"""Between the padded tensor that is seen and the ragged frames ``[frames of all rows][features...]``.

Which frames there are is computed on the host, from the lengths; the device only gathers. Where no row is
padded, the way back is a view, and the way there one if the frames lie row after row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..stream.metadata import StreamMetadata
from ..stream.rules import BATCH, LENGTH
from .info import JOINED, Info, layout_of

__all__ = ["cleaned", "mask_of", "pad", "to_device", "unpad"]

Tensor = torch.Tensor
Index = npt.NDArray[np.int64]


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Return an array of the host on a device."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device, non_blocking=True)


class _Places:
    """Where the frames of a batch lie in a padded tensor of a width."""

    def __init__(self, lengths: npt.NDArray[np.int64], width: int) -> None:
        self.valid = np.arange(width) < lengths[:, None]
        self.rows, self.frames = (np.ascontiguousarray(a) for a in np.nonzero(self.valid))
        n = len(self.rows)
        self.sources = np.full(self.valid.size, n)  # of the padded tensor: frames, and n for padding
        self.sources[np.flatnonzero(self.valid)] = np.arange(n)


@lru_cache(maxsize=64)
def _places(meta: StreamMetadata, width: int) -> _Places:
    return _Places(meta.lengths, width)


def _grid(padded: Tensor, info: Info, width: int) -> Tensor:
    """Return a padded tensor seen as ``(rows, width, *features)``."""
    layout = layout_of(info.names)
    x = padded.permute(layout.order)
    rank = len(layout.order) - len(layout.features)
    return x.reshape(len(info.meta), width, *x.shape[rank:]) if rank != 2 else x


def unpad(padded: Tensor, info: Info) -> Tensor:
    """Return the frames ``[frames of all rows][features...]``, features as they are seen; differentiable."""
    width = info.width_of(padded.shape)
    grid = _grid(padded, info, width)
    if info.is_full(width):
        return grid.reshape(grid.shape[0] * width, *grid.shape[2:])
    if grid.requires_grad and torch.is_grad_enabled():
        return _Unpad.apply(grid, info.meta)
    return _gather(grid, info.meta)


def pad(value: Tensor, info: Info, width: int | None = None) -> Tensor:
    """Return the padded tensor of frames ``[frames][features...]``, features as they are seen; differentiable.

    Zeros stand behind each row's frames. Where there is no L, rows without a frame are NaN (0 for integers).
    """
    layout = layout_of(info.names)
    framed = layout.length is not None or layout.joined is not None
    if width is None:
        width = info.meta.max_length if framed else 1
    fill = 0.0 if framed or not value.is_floating_point() else torch.nan
    n = len(info.meta)
    if info.is_full(width):
        grid = value.reshape(n, width, *value.shape[1:])
    elif value.requires_grad and torch.is_grad_enabled():
        grid = _Pad.apply(value, info.meta, width, fill)
    else:
        grid = _spread(value, info.meta, width, fill)
    rank = len(layout.order) - len(layout.features)
    if rank != 2:
        grid = grid.reshape((n * width,) * rank + value.shape[1:])
    return grid if layout.back == list(range(grid.dim())) else grid.permute(layout.back)


def _gather(grid: Tensor, meta: StreamMetadata) -> Tensor:
    places = _places(meta, grid.shape[1])
    return grid[to_device(places.rows, grid.device), to_device(places.frames, grid.device)]


def _spread(value: Tensor, meta: StreamMetadata, width: int, fill: float) -> Tensor:
    places = _places(meta, width)
    last = value.new_full((1, *value.shape[1:]), fill)
    flat = torch.cat([value, last]).index_select(0, to_device(places.sources, value.device))
    return flat.view(len(meta), width, *value.shape[1:])


class _Unpad(torch.autograd.Function):
    """Frames of a padded tensor; its gradient is padded with zeros."""

    @staticmethod
    def forward(ctx: Any, grid: Tensor, meta: StreamMetadata) -> Tensor:
        ctx.meta, ctx.width = meta, grid.shape[1]
        return _gather(grid, meta)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Pad.apply(gradient, ctx.meta, ctx.width, 0.0), None


class _Pad(torch.autograd.Function):
    """The padded tensor of frames; its gradient is that of the frames alone."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, meta: StreamMetadata, width: int, fill: float) -> Tensor:
        ctx.meta = meta
        return _spread(value, meta, width, fill)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Unpad.apply(gradient, ctx.meta), None, None, None


def mask_of(info: Info, shape: Sequence[int], device: torch.device) -> Tensor:
    """Return which elements of a padded tensor are valid, a bool tensor that broadcasts to its shape."""
    width = info.width_of(shape)
    valid = _places(info.meta, width).valid
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
