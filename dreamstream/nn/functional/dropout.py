"""Dropout in evaluation, where nothing is dropped."""

from __future__ import annotations

from typing import Any

from ...array import Tensor
from ...array.scores import Scores
from ...errors import ModeError, ShapeError
from .arguments import checked
from .texts import described

__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


_described = described(
    input="Of any shape.",
    p="Probability with which something is dropped in training.",
    training="Whether it is asked to train.",
)


def _kept(name: str, input: Any, p: float, training: bool) -> Tensor:
    """Return the input.

    Raises
    ------
    ModeError
        Where something would be dropped: training with dropout is not supported.
    """
    if not isinstance(input, Scores):
        input = checked(name, input)
    if not 0 <= p <= 1:
        raise ShapeError(f"{name}: a probability lies in [0, 1], got {p}")
    if training and p > 0:
        raise ModeError(f"{name} can't train; call module.eval(), or give training=False or p=0")
    return input  # type: ignore[no-any-return]


@_described
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input; elements would be dropped in training, a ModeError unless p is 0."""
    return _kept("dropout", input, p, training)


@_described
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input; channels ``(B, C, L)`` would be dropped in training, a ModeError unless p is 0."""
    return _kept("dropout1d", input, p, training)


@_described
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input; channels ``(B, C, H, W)`` would be dropped in training, a ModeError unless p is 0."""
    return _kept("dropout2d", input, p, training)


@_described
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input; channels ``(B, C, D, H, W)`` would be dropped in training, a ModeError unless p is 0."""
    return _kept("dropout3d", input, p, training)


@_described
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Return the input; elements would be dropped in training, a ModeError unless p is 0."""
    return _kept("alpha_dropout", input, p, training)


@_described
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Return the input; channels would be dropped in training, a ModeError unless p is 0."""
    return _kept("feature_alpha_dropout", input, p, training)
