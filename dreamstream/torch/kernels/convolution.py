"""Convolutions along the stream, and over planes one axis of which is the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .frames import extent, padded_run
from .registry import Step, Window, windowed
from .shape import pad_axis

__all__ = ["as_images", "plane_weight"]

Tensor = torch.Tensor


@windowed("conv1d", numbers=True)
def conv1d(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the windows' products; the frames stand where the first output's window begins."""
    a, (x,), (weight, bias) = step.attributes, windows, weights
    span = a["dilation"] * (extent(weight, 2) - 1) + 1
    first = step.first[0] * a["stride"] - a["left"]
    n = (step.n[0] - 1) * a["stride"] + span
    frames = padded_run(x, first, n, a["mode"])
    stride, dilation, groups = a["stride"], a["dilation"], a["groups"]
    if as_product(step, frames, weight):
        if span > 1:
            frames = frames.unfold(1, span, 1)[..., ::dilation].flatten(2)
        return (F.linear(frames[:, ::stride] if stride > 1 else frames, weight.flatten(1), bias),), state
    columns = frames.transpose(1, 2)
    if as_images(step, frames, weight):
        images, kernel = columns.unsqueeze(2), weight.unsqueeze(2)
        y = F.conv2d(images, kernel, bias, (1, stride), 0, (1, dilation), groups).squeeze(2)
    else:
        y = F.conv1d(columns, weight, bias, stride, 0, dilation, groups)
    return (y.transpose(1, 2),), state


def as_product(step: Step, frames: Tensor, weight: Tensor) -> bool:
    """Return whether frames ``(B, n, channels)`` go faster as the rows of one product.

    On the CPU they do where a row is one frame, and where rows are few.
    """
    if not step.live or step.attributes["groups"] > 1 or frames.device.type != "cpu":
        return False
    return weight.shape[2] == 1 or (not step.training and frames.shape[0] * step.n[0] <= 32)


def as_images(step: Step, frames: Tensor, weight: Tensor) -> bool:
    """Return whether frames ``(B, n, channels)`` go faster as images of one row.

    On the CPU torch then takes them as they lie, several times faster, and turns the weight instead; for
    gradients it is slower.
    """
    small = weight.numel() <= frames.numel()
    return step.live and small and not step.training and frames.device.type == "cpu"


@windowed("conv2d", numbers=True)
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
        span = dilation[0] * (extent(weight, 2) - 1) + 1
        first = step.first[0] * stride[0] - before
        plane = padded_run(x, first, (step.n[0] - 1) * stride[0] + span, a["mode"])
    plane = _channels_first(pad_axis(plane, -2, left, right, a["inner_mode"]))
    y = F.conv2d(plane, weight, bias, stride, 0, dilation, a["groups"]).permute(0, 2, 3, 1)
    return (y.reshape(*images.shape[:2], *y.shape[1:]) if step.ranks[0] == 3 else y,), state


def _channels_first(plane: Tensor) -> Tensor:
    """Return ``(B, n, F, C)`` as ``(B, C, n, F)``.

    A single channel is put in front anew: where its stride is 1, F.conv2d of torch 2.13 on a CPU gives wrong sums.
    """
    return plane.squeeze(3).unsqueeze(1) if plane.shape[3] == 1 else plane.permute(0, 3, 1, 2)


def plane_weight(weight: Tensor, axis: int) -> Tensor:
    """Return a weight whose last two axes are those of the plane; without the first it has one tap there."""
    if weight.dim() == 3:
        return weight.unsqueeze(2)
    return weight.transpose(2, 3) if axis else weight
