"""Losses."""

from __future__ import annotations

from ...array import Tensor
from ...errors import ShapeError
from .arguments import checked

__all__ = ["l1_loss", "mse_loss"]


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the square of the difference: its mean, its "sum", or all of it ("none")."""
    return _reduced("mse_loss", (checked("mse_loss", input) - target).square(), reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the absolute difference: its mean, its "sum", or all of it ("none")."""
    return _reduced("l1_loss", (checked("l1_loss", input) - target).abs(), reduction)


def _reduced(name: str, loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ShapeError(f"{name}: reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    return loss.mean() if reduction == "mean" else loss.sum()
