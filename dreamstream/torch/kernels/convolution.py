"""Convolutions along the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .frames import padded_run
from .registry import Step, Window, windowed

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
