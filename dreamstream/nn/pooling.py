"""Pooling layers, made from the functions."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import ShapeError
from . import functional as F
from .derived import layer
from .functional.arguments import single

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d",
    "LPPool1d", "MaxPool1d", "MaxPool2d",
]  # fmt: skip

_WINDOWS = """Notes
-----
Input ``(B, C, L)`` or ``(C, L)``, of two dimensions ``(B, C, H, W)`` or ``(C, H, W)``, float32 or float64; output
L_out = (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 frames (rounded up with `ceil_mode`,
as in torch), none where the input is too short. Sums run in float64 and are rounded once.

**Streaming.** One of the dimensions may be the stream axis. Along the stream a window leaves when its last
frame is there: delay dilation * (kernel_size - 1) - padding frames, state as many frames as a window spans
beyond its stride; with `ceil_mode` a last window that hangs over the end leaves there. Along features: delay
0, no state. Source: torch.nn, the class of the same name."""

_PARTS = """Raises
------
NotStreamableError
    Along a stream, at its first call: every part depends on the length.

Notes
-----
Input ``(B, C, L)`` or ``(C, L)``, of two dimensions ``(B, C, H, W)`` or ``(C, H, W)``. **Streaming.** Along
features delay 0, no state; along the stream only with ``unstreamable="buffer"``, at the end. ``x.mean(dim)``
gives one vector per stream without that. Source: torch.nn, the class of the same name."""


def _stride_or_kernel(self: Any) -> None:
    self.stride = self.kernel_size if self.stride is None else self.stride


def _as_tuples(self: Any) -> None:
    _stride_or_kernel(self)
    for name in ("kernel_size", "stride", "padding"):
        setattr(self, name, (single(getattr(self, name), name),))


def _require_size(self: Any) -> None:
    if self.output_size is None:
        raise ShapeError(f"{type(self).__name__}: output_size must be given")


_mean = "kernel_size={kernel_size}, stride={stride}, padding={padding}"
_largest = f"{_mean}, dilation={{dilation}}, ceil_mode={{ceil_mode}}"
_power = "norm_type={norm_type}, kernel_size={kernel_size}, stride={stride}, ceil_mode={ceil_mode}"
_order = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")

_windows = partial(layer, __name__, _WINDOWS)
_max = partial(_windows, shown=_largest, order=_order, prepare=_stride_or_kernel)
_parts = partial(
    layer, __name__, _PARTS, shown="output_size={output_size}", types={"output_size": "Any"}, prepare=_require_size
)

MaxPool1d = _max("MaxPool1d", F.max_pool1d)
MaxPool2d = _max("MaxPool2d", F.max_pool2d)
AvgPool1d = _windows("AvgPool1d", F.avg_pool1d, _mean, prepare=_as_tuples)
AvgPool2d = _windows("AvgPool2d", F.avg_pool2d, _mean, prepare=_stride_or_kernel)
LPPool1d = _windows("LPPool1d", F.lp_pool1d, _power)
AdaptiveAvgPool1d = _parts("AdaptiveAvgPool1d", F.adaptive_avg_pool1d)
AdaptiveAvgPool2d = _parts("AdaptiveAvgPool2d", F.adaptive_avg_pool2d)
AdaptiveMaxPool1d = _parts("AdaptiveMaxPool1d", F.adaptive_max_pool1d)
AdaptiveMaxPool2d = _parts("AdaptiveMaxPool2d", F.adaptive_max_pool2d)
