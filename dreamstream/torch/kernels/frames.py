"""Frames beyond a stream's ends, as the modes of padding see them."""

from __future__ import annotations

import torch

from .registry import Window

__all__ = ["padded_run"]

Tensor = torch.Tensor


def padded_run(x: Window, first: Tensor, n: int, mode: str = "constant", value: float = 0.0) -> Tensor:
    """Return n frames from absolute position `first` on, where the stream is padded at both ends.

    Parameters
    ----------
    mode : {"zeros", "constant", "replicate", "reflect"}
        What stands before 0 and from total on.
    """
    if mode in ("zeros", "constant"):
        return x.run(first, n, value)
    positions = first[:, None] + torch.arange(n)
    last = x.total[:, None] - 1
    if mode == "replicate":
        return x.take(positions.clamp(min=0).minimum(last))
    positions = positions.abs()
    return x.take(torch.where(positions > last, 2 * last - positions, positions))
