"""Windows reduced to their largest or mean element, along the stream and along the first feature axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .positions import extent, seeing, spread, there
from .registry import Seen, Step, Window, windowed


def _read(step: Step, dilation: int) -> tuple[Any, int]:
    """Return from where on how many frames the windows see."""
    a = step.attributes
    return step.first[0] * a["stride"] - a["left"], (step.n[0] - 1) * a["stride"] + dilation * (
        a["kernel"] - 1
    ) + 1


def _planes(step: Step, frames: Tensor, inner_dilation: int, fill: float) -> Tensor:
    """Return frames as ``(B, channels, frames, positions)``, with `fill` for padding of positions."""
    a = step.attributes
    if not _inner(step):
        return frames.reshape(*frames.shape[:2], -1).transpose(1, 2).unsqueeze(-1)
    planes = frames.reshape(*frames.shape[:3], -1).permute(0, 3, 1, 2)
    seen = (step.features[0][0] - 1) * a["inner_stride"] + inner_dilation * (a["inner_kernel"] - 1) + 1
    before = a["inner_padding"]
    return F.pad(planes, (before, seen - before - planes.shape[3]), value=fill)


def _inner(step: Step) -> bool:
    a = step.attributes
    return (a["inner_kernel"], a["inner_stride"], a["inner_padding"]) != (1, 1, 0)


def _frames(step: Step, planes: Tensor) -> Tensor:
    """Bring planes back to frames ``(B, n, *features)``."""
    return planes.permute(0, 2, 3, 1).reshape(planes.shape[0], planes.shape[2], *step.features[0])


def _both(step: Step, name: str) -> tuple[int, int]:
    return step.attributes[name], step.attributes[f"inner_{name}"]


@seeing("max_pool", repeats=1)
def max_pool(step: Step, weights: Sequence[Any]) -> Seen:
    """Take each window's largest element."""
    dilation, inner_dilation = _both(step, "dilation")
    return *_read(step, dilation), -torch.inf, lambda frames: _largest(step, frames, inner_dilation, 1)


def max_pool_across(step: Step, x: Window) -> Tensor:
    """Return them, and of equal elements give the gradient to the first position's, not to the first frame's."""
    dilation, inner_dilation = _both(step, "dilation")
    return _largest(step, x.run(*_read(step, dilation), -torch.inf), inner_dilation, -1)


def _largest(step: Step, frames: Tensor, inner_dilation: int, order: int) -> Tensor:
    kernel, stride, dilation = (_both(step, name)[::order] for name in ("kernel", "stride", "dilation"))
    planes = _planes(step, frames, inner_dilation, -torch.inf)
    y = F.max_pool2d(planes if order > 0 else planes.transpose(2, 3), kernel, stride, 0, dilation)
    return _frames(step, y if order > 0 else y.transpose(2, 3))


def _divides_alike(step: Step) -> bool:
    """Return whether every window's sum is divided by the same number."""
    a = step.attributes
    padded = a["left"] or a["right"] or a["inner_padding"]
    return bool(a["divisor"]) or not (a["ceil"] or (padded and not a["count_include_pad"]))


@windowed("avg_pool", repeats=lambda step, weights: int(_divides_alike(step)))
def avg_pool(step: Step, x: Window) -> Tensor:
    """Return each window's sum by its number of elements, or by the divisor."""
    a = step.attributes
    planes = _planes(step, x.run(*_read(step, 1)), 1, 0.0)
    kernel, stride = _both(step, "kernel"), _both(step, "stride")
    if _divides_alike(step):
        divisor = a["divisor"] or kernel[0] * kernel[1]
        return _frames(step, F.avg_pool2d(planes, kernel, stride, divisor_override=divisor))
    sums = F.avg_pool2d(planes, kernel, stride, divisor_override=1)
    m = step.first[0][:, None] + torch.arange(step.n[0], device=step.first[0].device)
    sizes = _sizes(step, m * stride[0] - a["left"], kernel[0], x.known[:, None], a["right"])[..., None]
    if _inner(step):
        g = torch.arange(sums.shape[3], device=sizes.device)
        n_inner = x.new()[0].shape[2]
        sizes = sizes * _sizes(step, g * stride[1] - a["inner_padding"], kernel[1], n_inner, a["inner_padding"])
    return _frames(step, sums / there(sizes.clamp(min=1), sums)[:, None])


def _sizes(step: Step, first: Tensor, kernel: int, size: Any, right: int) -> Tensor:
    """Return how many elements windows count that begin at `first` on an axis of `size`."""
    if step.attributes["count_include_pad"]:
        return (size + right - first).clamp(max=kernel)
    end = torch.minimum(first + kernel, torch.as_tensor(size, device=first.device))
    return end - first.clamp(min=0)


@windowed("adaptive_pool", repeats=lambda step, weights: int(not step.attributes["frames"]))
def adaptive_pool(step: Step, x: Window) -> Tensor:
    """Return the mean or the largest element of a given number of parts."""
    a = step.attributes
    if a["frames"]:
        y = _parts_of_streams(step, x)
    else:
        y = x.run(step.first[0], step.n[0])
    if a["inner"]:
        n, size = a["inner"], extent(y, 2)
        parts = [y[:, :, k * size // n : -(-(k + 1) * size // n)] for k in range(n)]
        y = torch.stack([p.max(2).values if a["kind"] == "max" else p.mean(2) for p in parts], 2)
    return y.reshape(-1, step.n[0], *step.features[0])


def _parts_of_streams(step: Step, x: Window) -> Tensor:
    """Return each part of every stream reduced; parts of the shorter ones have fewer frames."""
    n_parts, total = step.attributes["frames"], x.total[:, None]
    parts = torch.arange(n_parts, device=total.device)
    first = parts * total // n_parts
    size = -(-(parts + 1) * total // n_parts) - first  # (B, parts)
    within = torch.arange(int(size.max()), device=total.device)
    frames = x.take((first[..., None] + within).flatten(1)).unflatten(1, (n_parts, -1))
    valid = spread(within < size[..., None], frames)
    if step.attributes["kind"] == "max":
        return torch.where(valid, frames, -torch.inf).max(2).values
    sums = torch.where(valid, frames, 0).sum(2)
    return sums / (valid.sum(2).clamp(min=1) * spread(total > 0, sums))  # of none: NaN
