"""Products of every frame with constant weights."""

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F

from .registry import Step, framewise

Tensor = torch.Tensor


@framewise("linear")
def linear(step: Step, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x W^T + b`` over the last feature axis."""
    return F.linear(x, weight, bias)


@framewise("matmul")
def matmul(step: Step, x: Tensor, weight: Tensor) -> Tensor:
    """Return the products with a matrix ``(n, k)`` for each place along the leading feature axes."""
    lead = x.shape[: x.dim() - step.ranks[0]]
    n_places = weight.dim() - 2
    *axes, _ = step.features[0]
    vectors = x.reshape(*lead, *axes[:n_places], prod(axes[n_places:]), x.shape[-1])
    return (vectors @ weight.transpose(-1, -2)).reshape(*lead, *step.features[0])
