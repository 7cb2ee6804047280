"""Normalisation within frames, by constants, and over a whole stream."""

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from .positions import there, traced
from .registry import Step, Window, framewise, windowed


@framewise("layer_norm")
def layer_norm(step: Step, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return frames normalised over their trailing feature axes."""
    shape = step.features[0][-step.attributes["axes"] :]
    return torch.layer_norm(x, shape, weight, bias, step.attributes["eps"], torch.backends.cudnn.enabled)


@framewise("rms_norm")
def rms_norm(step: Step, x: Tensor, weight: Tensor | None) -> Tensor:
    """Return frames divided by their root mean square over the trailing feature axes."""
    shape = step.features[0][-step.attributes["axes"] :]
    return F.rms_norm(x, shape, weight, step.attributes["eps"])


@framewise("batch_norm")
def batch_norm(
    step: Step, x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Return every channel moved and scaled by statistics that are constants."""
    eps = step.attributes["eps"]
    if (
        not step.live and traced()
    ):  # exporters want to know how many channels there are, which the frames don't always say
        scale = (variance + eps).rsqrt()
        y = (x - mean) * (scale if weight is None else scale * weight)
        return y if bias is None else y + bias
    rows = x.reshape(-1, x.shape[-1])
    fast = torch.backends.cudnn.enabled
    return torch.batch_norm(rows, weight, bias, mean, variance, False, 0.0, eps, fast).reshape(x.shape)


@windowed("group_norm", repeats=lambda step, weights: int(step.attributes["over"] != "stream"))
def group_norm(step: Step, x: Window, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return frames normalised over their positions and the channels of each group, or over the stream."""
    a, frames = step.attributes, x.run(step.first[0], step.n[0])
    if a["over"] == "stream":
        y = _over_stream(frames, x.total, a["groups"], a["eps"])
        y = y if weight is None else y * weight
        return y if bias is None else y + bias
    *positions, channels = step.features[0]
    columns = frames.reshape(-1, prod(positions), channels).transpose(1, 2)
    own = None if weight is None else bias  # torch can't differentiate a bias without a weight
    y = torch.group_norm(columns, a["groups"], weight, own, a["eps"])
    y = y.transpose(1, 2).reshape(frames.shape)
    return y if bias is None or own is bias else y + bias


def _over_stream(frames: Tensor, total: Tensor, groups: int, eps: float) -> Tensor:
    """Return frames ``(B, n, ..., C)`` normalised in double over each row's first `total`."""
    n_rows, n = frames.shape[:2]
    # (B, n, positions, groups, channels of a group)
    x = frames.double().reshape(n_rows, n, -1, groups, frames.shape[-1] // groups)
    total = there(total, frames)[:, None, None, None, None]
    valid = torch.arange(n, device=frames.device)[:, None, None, None] < total
    size = total.clamp(min=1) * (x.shape[2] * x.shape[4])

    def mean(values: Tensor) -> Tensor:
        return values.sum((1, 2, 4), keepdim=True) / size

    centred = torch.where(valid, x - mean(torch.where(valid, x, 0)), 0)
    deviation = (mean(centred.square()) + eps).sqrt()
    return torch.where(valid, centred / deviation, 0).reshape(frames.shape).to(frames.dtype)
