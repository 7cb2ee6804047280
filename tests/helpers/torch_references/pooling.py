"""Pooling, repetition, overlap-add and running sums by torch: functions that are named after operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


# ---------------------------------------------------------------- windows
def _image(x: Tensor, inner: Any) -> Tensor:
    """(frames, F, ...) as torch's (1, channels, frames, F); F = 1 where no axis is pooled but the frames."""
    return x.reshape(len(x), x.shape[1] if inner else 1, -1).permute(2, 0, 1)[None]


def _frames(y: Tensor, x: Tensor, inner: Any) -> Tensor:
    y = y[0].permute(1, 2, 0)
    return y.reshape(len(y), *((y.shape[1], *x.shape[2:]) if inner else x.shape[1:]))


def _pool(a: dict[str, Any], x: Tensor, windows: Callable[[dict[str, Any], Tensor], Tensor]) -> Tensor:
    inner = (a["inner_kernel"], a["inner_stride"], a["inner_padding"]) != (1, 1, 0)
    return _frames(windows(a, _image(x, inner)), x, inner)


def _geometry(a: dict[str, Any], padded: bool) -> tuple[tuple[int, int], ...]:
    """Kernel, stride and padding along frames and F; `padded`: frames have their padding."""
    padding = (0 if padded else a["left"], a["inner_padding"])
    return (a["kernel"], a["inner_kernel"]), (a["stride"], a["inner_stride"]), padding


def _as_torch_pads(a: dict[str, Any]) -> bool:
    return bool(a["left"] == a["right"] <= a["kernel"] // 2)


def _pad(a: dict[str, Any], x: Tensor, value: float) -> Tensor:
    return F.pad(x, (0, 0, a["left"], a["right"]), value=value)


def _without_last(a: dict[str, Any], x: Tensor, y: Tensor) -> Tensor:
    """A last window that begins in the right padding doesn't count, where windows may hang over."""
    late = a["ceil"] and (y.shape[2] - 1) * a["stride"] >= x.shape[2] + a["left"]
    return y[:, :, :-1] if late else y


def _max_windows(a: dict[str, Any], x: Tensor) -> Tensor:
    dilation = (a["dilation"], a["inner_dilation"])
    if _as_torch_pads(a):
        return F.max_pool2d(x, *_geometry(a, False), dilation, bool(a["ceil"]))
    y = F.max_pool2d(_pad(a, x, -torch.inf), *_geometry(a, True), dilation, bool(a["ceil"]))
    return _without_last(a, x, y)


def _avg_windows(a: dict[str, Any], x: Tensor) -> Tensor:
    ceil, padded = bool(a["ceil"]), bool(a["count_include_pad"])
    if _as_torch_pads(a):
        return F.avg_pool2d(x, *_geometry(a, False), ceil, padded, a["divisor"] or None)
    kernel, stride, padding = _geometry(a, True)
    mine = F.avg_pool2d(_pad(a, x, 0.0), kernel, stride, padding, ceil, divisor_override=1)
    ones = F.pad(torch.ones_like(x), (0, 0, a["left"], a["right"]), value=float(padded))
    if padded:
        padding = (0, 0)
        ones = F.pad(ones, (a["inner_padding"],) * 2, value=1.0)
    count = F.avg_pool2d(ones, kernel, stride, padding, ceil, divisor_override=1)[..., : mine.shape[3]]
    y = mine / (a["divisor"] or count.clamp(min=1))
    return _without_last(a, x, y)


def max_pool(a: dict[str, Any], w: Any, x: Tensor) -> Tensor:
    return _pool(a, x, _max_windows)


def avg_pool(a: dict[str, Any], w: Any, x: Tensor) -> Tensor:
    return _pool(a, x, _avg_windows)


def adaptive_pool(a: dict[str, Any], w: Any, x: Tensor) -> Tensor:
    f = F.adaptive_avg_pool2d if a["kind"] == "avg" else F.adaptive_max_pool2d
    return _frames(f(_image(x, a["inner"]), (a["frames"] or len(x), a["inner"] or 1)), x, a["inner"])


# ---------------------------------------------------------------- frames
def overlap_add(a: dict[str, Any], w: Any, x: Tensor) -> Tensor:
    size, n = x.shape[1], (len(x) - 1) * a["step"] + x.shape[1]
    columns = x.reshape(len(x), size, -1).permute(2, 1, 0)  # (C, size, frames)
    y = F.fold(columns, (1, n), (1, size), stride=(1, a["step"]))[:, 0, 0]
    return y.T.reshape(n, *x.shape[2:])


def cumulative(a: dict[str, Any], w: Any, x: Tensor) -> Tensor:
    y = x.cumsum(0)
    if a["kind"] == "sum":
        return y
    return y / torch.arange(1, len(x) + 1).reshape(-1, *(1,) * (x.ndim - 1))


def nearest(a: dict[str, Any], w: Any, x: Tensor) -> Tensor:
    last = x.movedim(a["axis"] + 1, -1)
    flat = last.reshape(1, -1, last.shape[-1]).double()
    y = torch._C._nn.upsample_nearest1d(flat, (a["size"],), a["scale"] or None)
    return y.reshape(*last.shape[:-1], a["size"]).movedim(-1, a["axis"] + 1).to(x.dtype)


def repeat_frames(a: dict[str, Any], w: Any, x: Tensor) -> Tensor:
    return x.repeat_interleave(a["times"], 0)
