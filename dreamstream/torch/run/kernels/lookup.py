"""Rows of a table, by the stream's values or by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .positions import there
from .registry import Step, Window, framewise, windowed

Tensor = torch.Tensor


@framewise("embedding")
def embedding(step: Step, x: Tensor, weight: Tensor) -> Tensor:
    """Return the rows that the elements name."""
    return F.embedding(x, weight)


@windowed("table")
def table(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the rows at the frames' absolute positions."""
    (weight,), first = weights, step.first[0]
    at = first[:, None] + torch.arange(step.n[0], device=first.device)
    return (weight[there(at.clamp(max=weight.shape[0] - 1), weight)],), state
