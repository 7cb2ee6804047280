"""Convolutions along the stream, and over planes one axis of which is the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .frames import padded_run
from .registry import Step, Window, windowed
from .shape import pad_axis

__all__ = ["plane_weight"]

Tensor = torch.Tensor


@windowed("conv1d")
def conv1d(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the windows' products; the frames stand where the first output's window begins."""
    a, (x,), (weight, bias) = step.attributes, windows, weights
    span = a["dilation"] * (weight.shape[2] - 1) + 1
    first = step.first[0] * a["stride"] - a["left"]
    n = (step.n[0] - 1) * a["stride"] + span
    frames = padded_run(x, first, n, a["mode"])
    y = F.conv1d(frames.transpose(1, 2), weight, bias, a["stride"], 0, a["dilation"], a["groups"])
    return (y.transpose(1, 2),), state


@windowed("conv2d")
def conv2d(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the products of windows over (stream, positions), or over the images that frames are."""
    a, (x,), bias = step.attributes, windows, weights[1]
    weight = plane_weight(weights[0], a["axis"])
    stride, dilation = a["stride"] or (1, 1), a["dilation"] or (1, 1)
    before, behind, left, right = a["padding"] or (0, 0, 0, 0)
    if step.ranks[0] == 3:
        images = x.run(step.first[0], step.n[0])
        plane = pad_axis(images.flatten(0, 1), -3, before, behind, a["mode"])
    else:
        span = dilation[0] * (weight.shape[2] - 1) + 1
        first = step.first[0] * stride[0] - before
        plane = padded_run(x, first, (step.n[0] - 1) * stride[0] + span, a["mode"])
    plane = pad_axis(plane, -2, left, right, a["inner_mode"]).permute(0, 3, 1, 2)
    y = F.conv2d(plane, weight, bias, stride, 0, dilation, a["groups"]).permute(0, 2, 3, 1)
    return (y.reshape(*images.shape[:2], *y.shape[1:]) if step.ranks[0] == 3 else y,), state


def plane_weight(weight: Tensor, axis: int) -> Tensor:
    """Return a weight whose last two axes are those of the plane; without the first it has one tap there."""
    if weight.dim() == 3:
        return weight.unsqueeze(2)
    return weight.transpose(2, 3) if axis else weight
