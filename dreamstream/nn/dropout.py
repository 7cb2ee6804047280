"""Dropout layers, made from the functions: the identity in evaluation."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import ShapeError
from . import functional as F
from .derived import layer

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]

_NOTES = """Notes
-----
Input and output have the same shape, any. **Streaming.** Delay 0, no state; in training what is dropped of a
stream follows from the seed, its name, the place in the forward and the frame's position, however it is cut and
whatever streams are beside it. Source: torch.nn, the class of the same name."""


def _check(self: Any) -> None:
    if not 0 <= self.p <= 1:
        raise ShapeError(f"{type(self).__name__}: a probability lies in [0, 1], got {self.p}")


_dropout = partial(layer, __name__, _NOTES, shown="p={p}, inplace={inplace}", prepare=_check)

Dropout = _dropout("Dropout", F.dropout)
_kind = partial(_dropout, base=Dropout)
Dropout1d = _kind("Dropout1d", F.dropout1d)
Dropout2d = _kind("Dropout2d", F.dropout2d)
Dropout3d = _kind("Dropout3d", F.dropout3d)
AlphaDropout = _kind("AlphaDropout", F.alpha_dropout)
FeatureAlphaDropout = _kind("FeatureAlphaDropout", F.feature_alpha_dropout)
