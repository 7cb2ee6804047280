"""Dropout: in training elements, or whole channels, become zero, and the others larger."""

from __future__ import annotations

from typing import Any

from ...array import Tensor, draws
from ...array.scores import Scores
from ...errors import ShapeError
from .arguments import checked
from .texts import described

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


_described = described(
    input="Of any shape.",
    p="Probability with which something is dropped in training.",
    training="Whether it is asked to train.",
)


def _dropped(name: str, input: Any, p: float, training: bool, channels: bool = False, alpha: bool = False) -> Any:
    """Return the input, in training without what is dropped; refused where an engine would have to draw."""
    scores = isinstance(input, Scores)
    if not scores:
        input = checked(name, input)
    if not 0 <= p <= 1:
        raise ShapeError(f"{name}: a probability lies in [0, 1], got {p}")
    if not training or p == 0:
        return input
    return input.dropout(p) if scores else draws.dropped(name, input, p, channels, alpha)


@_described
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input; in training elements are dropped, and the others divided by 1 - p."""
    return _dropped("dropout", input, p, training)


@_described
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input; in training channels ``(B, C, L)`` are dropped, and the others divided by 1 - p."""
    return _dropped("dropout1d", input, p, training, True)


@_described
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input; in training channels ``(B, C, H, W)`` are dropped, and the others divided by 1 - p."""
    return _dropped("dropout2d", input, p, training, True)


@_described
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input; in training channels ``(B, C, D, H, W)`` are dropped, and the others divided by 1 - p."""
    return _dropped("dropout3d", input, p, training, True)


@_described
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Return the input; in training elements are dropped so that a SELU's mean and variance stay."""
    return _dropped("alpha_dropout", input, p, training, False, True)


@_described
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Return the input; in training channels are dropped so that a SELU's mean and variance stay."""
    return _dropped("feature_alpha_dropout", input, p, training, True, True)
