"""What random models mean in PyTorch: their source is torch's, but for a few layers that torch lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from . import torch_pools

__all__ = ["NAMESPACE"]


class _Conv1d(nn.Conv1d):
    """Conv1d with frames of padding as a pair, or "causal"."""

    def __init__(self, n_in: int, n_out: int, kernel: int, padding: Any = 0, **options: Any) -> None:
        super().__init__(
            n_in, n_out, kernel, padding=0 if self._is_ours(padding) else padding, **options
        )
        if padding == "causal":
            padding = (self.dilation[0] * (kernel - 1), 0)
        self.pair = padding if self._is_ours(padding) else None

    @staticmethod
    def _is_ours(padding: Any) -> bool:
        return isinstance(padding, tuple) or padding == "causal"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.pair is not None and any(self.pair):
            x = F.pad(
                x, self.pair, mode="constant" if self.padding_mode == "zeros" else self.padding_mode
            )
        if self.pair is not None:
            return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
        return super().forward(x)


class _Delay(nn.Module):
    def __init__(self, n: int, dim: int) -> None:
        super().__init__()
        self.n, self.dim = n, dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros = x.narrow(self.dim, 0, min(self.n, x.size(self.dim))) * 0
        return torch.cat([zeros, x], self.dim).narrow(self.dim, 0, x.size(self.dim))


_layers = {name: getattr(nn, name) for name in dir(nn)}
_layers |= torch_pools.LAYERS
NAMESPACE: dict[str, Any] = {
    "ds": torch,
    "nn": SimpleNamespace(**(_layers | {"Conv1d": _Conv1d, "Delay": _Delay})),
    "F": F,
}
