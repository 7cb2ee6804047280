"""Normalisation of every frame by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..array import Tensor
from . import functional as F
from .functional.statistics import LAST
from .functional.texts import described
from .linear import AFFINE, Affine

__all__ = ["LayerNorm", "RMSNorm"]

_ERRORS = {
    "ShapeError": "Where an input's last dimensions are not `normalized_shape`.",
    "DTypeError": "Where its type is not the weight's.",
}
_described = described("", _ERRORS, **{**LAST, **AFFINE})


@_described
class LayerNorm(Affine):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last dimensions.

    Attributes
    ----------
    weight, bias : Parameter or None
        Of `normalized_shape`.

    Notes
    -----
    Input and output ``(*, *normalized_shape)``. **Streaming.** Delay 0, no state; the last dimensions
    of a stream must be features. Source: torch.nn.LayerNorm.
    """

    _shown = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}, bias={bias}"

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        wanted = {"weight": elementwise_affine, "bias": elementwise_affine and bias}
        self._make_affine(shape, wanted, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(*, *normalized_shape)`` for an input of that shape."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


@_described
class RMSNorm(Affine):
    """``x / sqrt(mean of x * x + eps) * weight`` over the last dimensions.

    Attributes
    ----------
    weight : Parameter or None
        Of `normalized_shape`.

    Notes
    -----
    Input and output ``(*, *normalized_shape)``. **Streaming.** Delay 0, no state; the last dimensions
    of a stream must be features. Source: torch.nn.RMSNorm.
    """

    _shown = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}"

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        self._make_affine(shape, {"weight": elementwise_affine}, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(*, *normalized_shape)`` for an input of that shape."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)
