"""Sums, means and extremes of all frames so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .positions import there
from .registry import Step, Window, windowed

Tensor = torch.Tensor

START = {"max": -torch.inf, "min": torch.inf}


def _nothing(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> tuple[Tensor]:
    """Return what there is before the first frame, of one row, in double."""
    start = START.get(step.attributes["kind"], 0.0)
    features = step.features[0]
    return (torch.full((1, *features), start, dtype=torch.float64, device=like.device),)


def _of_rows(numbers: Tensor, like: Tensor) -> Tensor:
    """Return numbers of rows, or of their frames, where they meet values."""
    numbers = there(numbers, like)
    return numbers.reshape(*numbers.shape, *(1,) * (like.dim() - numbers.dim()))


@windowed("cumulative", carries=_nothing)
def cumulative(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the running sums or means."""
    frames, _ = windows[0].new()
    wide = frames.double()
    sums = state[0][:, None] + wide.cumsum(1)
    y = sums
    if step.attributes["kind"] == "mean":
        first = step.first[0]
        so_far = first[:, None] + torch.arange(1, frames.shape[1] + 1, device=first.device)
        y = sums / _of_rows(so_far, sums)
    return (y.to(frames.dtype),), (state[0] + wide.sum(1),)  # zeros stand behind each row's frames


@windowed("reduce_frames", carries=_nothing)
def reduce_frames(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the sum, mean, maximum or minimum of whole streams, where they end."""
    kind, (so_far,) = step.attributes["kind"], state
    frames, n = windows[0].new()
    wide = frames.double()
    if kind in START:
        places = torch.arange(frames.shape[1], device=frames.device)
        valid = _of_rows(places < there(n, frames)[:, None], wide)
        wide = torch.where(valid, wide, START[kind])
        wide = torch.cat([so_far[:, None], wide], 1)
        so_far = wide.amax(1) if kind == "max" else wide.amin(1)
    else:
        so_far = so_far + wide.sum(1)
    y = so_far
    if kind == "mean":
        y = y / _of_rows(windows[0].known.clamp(min=1), y)
    return (y.to(frames.dtype)[:, None][:, : step.n[0]],), (so_far,)
