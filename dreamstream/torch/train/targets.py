"""Targets beside what a model returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

__all__ = ["targets_like"]

Tensor = torch.Tensor


def targets_like(y: Any, rows: Sequence[Any], dims: Sequence[Any]) -> Any:
    """Return frames ``(L, ...)``, one array per row of `y`, as a stream tensor with its rows and positions."""
    device = y.tensor().device
    frames = [(r if isinstance(r, Tensor) else torch.as_tensor(np.asarray(r))).to(device) for r in rows]
    value = torch.cat(frames) if frames else torch.zeros(0, device=device)
    return type(y).from_frames(value, dims, y.meta, y.starts, y.rate)
