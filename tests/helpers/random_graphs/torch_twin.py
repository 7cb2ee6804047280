"""What random models mean in PyTorch: their source is torch's, but for what torch lacks.

That is the native function or layer, which the laws hold to a reference.

`PLAIN` is torch with these layers. Padding makes frames out of none in torch, never here: `NAMESPACE` says what a
whole sequence must give.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import dreamstream
from dreamstream import Context
from dreamstream.torch import StreamTensor, functional
from dreamstream.torch.nn import FMoETransformerMLP


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


def _ours(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what torch lacks: of streams as `dreamstream.torch.functional` has it, else natively."""
    streaming = functional.of_streams(function)

    def run(*args: Any, **options: Any) -> Any:
        if any(isinstance(a, StreamTensor) for a in args):
            return streaming(*args, **options)
        given = [dreamstream.from_numpy(a.detach().numpy()) if isinstance(a, torch.Tensor) else a for a in args]
        return torch.from_numpy(function(*given, **options).numpy())

    return run


class _OurLayer(nn.Module):
    """A layer without parameters that torch lacks."""

    def __init__(self, layer: type, *args: Any, **options: Any) -> None:
        super().__init__()
        self.layer = layer(*args, **options)
        self.run = _ours(self.layer)

    def forward(self, x: torch.Tensor) -> Any:
        self.layer.to(str(x.dtype).removeprefix("torch."))
        return self.run(x)


class _Plain(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return getattr(F, name) if hasattr(F, name) else _ours(getattr(dreamstream.nn.functional, name))


class _Layers(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return getattr(nn, name) if hasattr(nn, name) else partial(_OurLayer, getattr(dreamstream.nn, name))


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


_layers = {"MultiheadAttention": _MultiheadAttention, "FMoETransformerMLP": FMoETransformerMLP, "Conv1d": _Conv1d}
_kept = {
    name: _kept_empty(_layers.get(name) or getattr(nn, name))
    for name in ("Conv1d", "ConvTranspose1d", "ConstantPad1d")
}
PLAIN: dict[str, Any] = {"ds": _Torch(), "nn": _Layers(**_layers | {"Conv1d": _conv1d}), "F": _Plain()}
NAMESPACE: dict[str, Any] = {"ds": _Torch(), "nn": _Layers(**_layers | _kept), "F": _Functions()}
