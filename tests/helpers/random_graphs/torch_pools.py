"""Running sums and overlapping windows in torch, which has no layers for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["LAYERS"]


class _Along(nn.Module):
    """A layer of one axis."""

    def __init__(self, *args: Any, dim: int) -> None:
        super().__init__()
        self.args, self.dim = args, dim

    def shaped(self, x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Values per frame, to meet x."""
        return values.to(x.dtype).reshape([-1 if d == self.dim else 1 for d in range(x.ndim)])


class _CumulativeSum(_Along):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(self.dim)


class _CumulativeMean(_Along):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(self.dim) / self.shaped(x, torch.arange(1, x.size(self.dim) + 1))


class _RunningMean(_Along):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (size,) = self.args
        padded = F.pad(x.movedim(self.dim, -1), (size - 1, 0)).movedim(-1, self.dim)
        count = torch.arange(1, x.size(self.dim) + 1).clamp(max=size)
        return padded.unfold(self.dim, size, 1).sum(-1) / self.shaped(x, count)


class _OverlapAdd(nn.Module):
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, channels, length, size = x.shape
        total = (length - 1) * self.step + size if length else 0
        y = x.new_zeros(n, channels, total)
        for i in range(length):
            y[..., i * self.step : i * self.step + size] += x[..., i, :]
        return y


LAYERS = {
    "CumulativeMean": _CumulativeMean,
    "CumulativeSum": _CumulativeSum,
    "OverlapAdd": _OverlapAdd,
    "RunningMean": _RunningMean,
}
