"""Activations that have weights, bounds or dimensions of their own, as layers.

Inputs and outputs have the same shape, ``(*, any) float32 | float64``. **Streaming.** Delay 0, no state.
Source: torch.nn, the class of the same name.
"""

from __future__ import annotations

from typing import Any

from ..array import Tensor
from ..errors import ShapeError
from . import functional as F, init
from .activation import Hardtanh
from .functional.texts import described
from .linear import new_parameter
from .module import Module

__all__ = ["PReLU", "ReLU6", "Softmax2d"]


@described(
    num_parameters="1, or the size of dimension 1, which must be one of features.",
    init="The first value of the weights.",
)
class PReLU(Module):
    """x above zero, weight * x below.

    Attributes
    ----------
    weight : Parameter
        ``(num_parameters,)``.
    """

    _shown = "num_parameters={num_parameters}"

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = new_parameter(num_parameters, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all weights to `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Return x above zero, weight * x below."""
        return F.prelu(input, self.weight)


class ReLU6(Hardtanh):
    """x moved into [0, 6]."""

    _shown = ""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Softmax2d(Module):
    """Softmax over the channels of images ``(B, C, H, W)`` or ``(C, H, W)``, which must be features."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax along dimension -3."""
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: expected (B, C, H, W) or (C, H, W), got {input.ndim} dimensions")
        return F.softmax(input, -3)
