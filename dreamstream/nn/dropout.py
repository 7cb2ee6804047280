"""Dropout layers: the identity in evaluation.

Inputs and outputs have the same shape, any. **Streaming.** Delay 0, no state. Source: torch.nn, the class
of the same name.
"""

from __future__ import annotations

from ..array import Tensor
from ..errors import ShapeError
from . import functional as F
from .activation import InPlace

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class Dropout(InPlace):
    """The identity in evaluation.

    Parameters
    ----------
    p : float
        Probability with which an element is dropped in training.
    inplace : bool
        Changes nothing.

    Raises
    ------
    ModeError
        In training with p > 0, which is not supported.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__(inplace)
        if not 0 <= p <= 1:
            raise ShapeError(f"{type(self).__name__}: a probability lies in [0, 1], got {p}")
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """The identity in evaluation; in training it would drop channels ``(B, C, L)``. See `Dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return F.dropout1d(input, self.p, self.training)


class Dropout2d(Dropout):
    """The identity in evaluation; in training it would drop channels ``(B, C, H, W)``. See `Dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return F.dropout2d(input, self.p, self.training)


class Dropout3d(Dropout):
    """The identity in evaluation; in training it would drop channels ``(B, C, D, H, W)``. See `Dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return F.dropout3d(input, self.p, self.training)


class AlphaDropout(Dropout):
    """The identity in evaluation; in training it would keep mean and variance. See `Dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(Dropout):
    """The identity in evaluation; in training `AlphaDropout` of whole channels. See `Dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return F.feature_alpha_dropout(input, self.p, self.training)
