"""Products of every frame with constant weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .registry import Step, framewise

Tensor = torch.Tensor


@framewise("linear")
def linear(step: Step, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x W^T + b`` over the last feature axis."""
    return F.linear(x, weight, bias)
