"""What random models mean in PyTorch: their source is torch's, but for a few layers that torch lacks.

`PLAIN` is torch with these layers. Padding makes frames out of none in torch, never here: `NAMESPACE` says what a
whole sequence must give.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from dreamstream import Context
from dreamstream.nn import Resample
from dreamstream.torch import StreamTensor, functional
from dreamstream.torch.nn import FMoETransformerMLP

from . import torch_pools

__all__ = ["NAMESPACE", "PLAIN"]


class _Conv1d(nn.Conv1d):
    """Conv1d with frames of padding as a pair, or "causal"."""

    def __init__(self, n_in: int, n_out: int, kernel: int, padding: Any = 0, **options: Any) -> None:
        super().__init__(n_in, n_out, kernel, padding=0 if self._is_ours(padding) else padding, **options)
        if padding == "causal":
            padding = (self.dilation[0] * (kernel - 1), 0)
        self.pair = padding if self._is_ours(padding) else None

    @staticmethod
    def _is_ours(padding: Any) -> bool:
        return isinstance(padding, tuple) or padding == "causal"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.pair is not None and any(self.pair):
            x = F.pad(x, self.pair, mode="constant" if self.padding_mode == "zeros" else self.padding_mode)
        if self.pair is not None:
            return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
        return super().forward(x)


def _conv1d(*args: Any, padding: Any = 0, **options: Any) -> nn.Conv1d:
    """Return torch's own layer where it has this padding."""
    kind = _Conv1d if _Conv1d._is_ours(padding) else nn.Conv1d
    return kind(*args, padding=padding, **options)


class _Delay(nn.Module):
    def __init__(self, n: int, dim: int) -> None:
        super().__init__()
        self.n, self.dim = n, dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = (0, 0) * (x.ndim - 1 - self.dim) + (self.n, 0)
        return F.pad(x, pairs).narrow(self.dim, 0, x.size(self.dim))


class _Resample(nn.Module):
    """All outputs of a block of frames at once, by one convolution."""

    def __init__(self, orig: int, new: int, width: int, rolloff: float) -> None:
        super().__init__()
        kernel = Resample(orig, new, width, rolloff).kernel.numpy()
        self.register_buffer("kernel", torch.from_numpy(kernel.copy()))
        self.orig, self.new, self.before = orig, new, (kernel.shape[2] - orig) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = F.pad(x.flatten(0, 1).unsqueeze(1), (self.before, self.before + self.orig))
        y = F.conv1d(rows, self.kernel, stride=self.orig).transpose(1, 2).reshape(*x.shape[:2], -1)
        return y[..., : -(-x.size(2) * self.new // self.orig)]


class _MultiheadAttention(nn.MultiheadAttention):
    """With a context, which is said by a mask of positions."""

    def __init__(self, *args: Any, context: Context, **options: Any) -> None:
        super().__init__(*args, **options)
        self.context = context

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:  # type: ignore[override]
        c = self.context
        assert c.chunk is not None and c.left is not None and c.right is not None
        if not isinstance(q, StreamTensor) and not q.size(1):
            return q, None
        i = torch.arange(q.size(1))
        begin = (i // c.chunk * c.chunk)[:, None]
        return super().forward(
            q, k, v, attn_mask=((i < begin - c.left) & (i >= c.keep)) | (i >= begin + c.chunk + c.right)
        )


class _RotaryEmbedding(nn.Module):
    """Pairs of features as complex numbers that are turned."""

    def __init__(self, dim: int, interleaved: bool) -> None:
        super().__init__()
        self.dim, self.interleaved = dim, interleaved

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = self.dim // 2
        speeds = 10000.0 ** (-torch.arange(n, dtype=x.dtype) / n)
        angles = torch.outer(torch.arange(x.size(1), dtype=x.dtype), speeds)
        cos, sin = angles.cos(), angles.sin()
        p, q = (
            (x[..., : self.dim : 2], x[..., 1 : self.dim : 2])
            if self.interleaved
            else (x[..., :n], x[..., n : 2 * n])
        )
        turned = p * cos - q * sin, q * cos + p * sin
        y = torch.stack(turned, -1).flatten(-2) if self.interleaved else torch.cat(turned, -1)
        return torch.cat([y, x[..., self.dim :]], -1) if x.size(-1) > self.dim else y


class _Torch:
    """torch, and what its random models name beside it."""

    Context = Context

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _none_of_none(f: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the function, whose result has no frames where its input has none."""

    def run(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        axis = x.ndim - len(args[0]) // 2 if f is F.pad else 2
        y = f(x, *args, **options)
        return y if x.size(axis) else y.narrow(axis, 0, 0)

    return run


def _pad_to_multiple(
    x: torch.Tensor,
    multiple: int,
    padding: tuple[int, int],
    mode: str = "constant",
    value: float = 0.0,
    least: int = 0,
) -> torch.Tensor:
    if isinstance(x, StreamTensor):
        y: torch.Tensor = functional.pad_to_multiple(x, multiple, padding, mode, value, least)
        return y
    n, (left, right) = x.size(2), padding
    if not n:
        return x
    right += max(n + -n % multiple, least) - n
    if mode != "reflect":
        return F.pad(x, (left, right), mode, value if mode == "constant" else None)
    missing = max(left + 1 - n, right + 1 - n, 0)
    y = F.pad(F.pad(x, (0, missing), value=value), (left, right), mode)
    return y[..., : y.size(2) - missing]


class _Plain(SimpleNamespace):
    pad_to_multiple = staticmethod(_pad_to_multiple)

    def __getattr__(self, name: str) -> Any:
        return getattr(F, name)


class _Functions(_Plain):
    conv1d = staticmethod(_none_of_none(F.conv1d))
    conv_transpose1d = staticmethod(_none_of_none(F.conv_transpose1d))
    pad = staticmethod(_none_of_none(F.pad))


class _EmptyStays:
    """Layers that give no frames for none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = super().forward(x)  # type: ignore[misc]
        return y if x.size(2) else y.narrow(2, 0, 0)


def _kept_empty(cls: type[nn.Module]) -> type[nn.Module]:
    return type(cls.__name__, (_EmptyStays, cls), {})


_layers = {name: getattr(nn, name) for name in dir(nn)}
_layers |= torch_pools.LAYERS | {"Conv1d": _Conv1d, "Delay": _Delay, "Resample": _Resample}
_layers["MultiheadAttention"] = _MultiheadAttention
_layers["RotaryEmbedding"] = _RotaryEmbedding
_layers["FMoETransformerMLP"] = FMoETransformerMLP
_kept = {name: _kept_empty(_layers[name]) for name in ("Conv1d", "ConvTranspose1d", "ConstantPad1d")}
PLAIN: dict[str, Any] = {"ds": _Torch(), "nn": SimpleNamespace(**_layers), "F": _Plain()}
PLAIN["nn"].Conv1d = _conv1d
NAMESPACE: dict[str, Any] = {"ds": _Torch(), "nn": SimpleNamespace(**_layers | _kept), "F": _Functions()}
