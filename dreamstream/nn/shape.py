"""Layers that move or regroup frames and features."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ..array import Tensor
from ..dispatch import apply
from ..errors import ShapeError
from .functional.arguments import checked, frame_dims
from .functional.texts import described
from .module import Module

__all__ = [
    "Delay",
    "Flatten",
    "Unflatten",
]


@described(n="Frames.", dim="The axis of frames of plain tensors; streams know theirs.")
class Delay(Module):
    """The stream n frames late: zeros first, its last n frames never seen.

    Notes
    -----
    Input and output of equal shape. **Streaming.** Delay 0 (frame m of the output is frame m - n of the
    input), state n frames. Source: a causal convolution with one tap; continual-inference's Delay.
    """

    def __init__(self, n: int, dim: int = -1) -> None:
        super().__init__()
        self.n = operator.index(n)
        self.dim = dim
        if self.n < 0:
            raise ShapeError(f"Delay: expected a number of frames, got {n}; a look-ahead is x[..., n:]")

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, `n` frames late."""
        _, dims = frame_dims("Delay", checked("Delay", input), self.dim)
        return apply("delay", {"frames": self.n}, (input,), (), dims)[0]

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"{self.n}" if self.dim == -1 else f"{self.n}, dim={self.dim}"


@described(start_dim="The first of them.", end_dim="The last one.")
class Flatten(Module):
    """Dimensions joined into one.

    Notes
    -----
    **Streaming.** Delay 0, no state; dimensions of features, or B and L together. Source:
    torch.nn.Flatten.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with dimensions joined."""
        return checked("Flatten", input).flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


@described(dim="The dimension.", unflattened_size="sequence of int: What it becomes; one of them may be -1.")
class Unflatten(Module):
    """One dimension split into several.

    Notes
    -----
    **Streaming.** Delay 0, no state; a dimension of features. Source: torch.nn.Unflatten.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[Any]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with the dimension split."""
        return checked("Unflatten", input).unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
