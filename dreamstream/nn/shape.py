"""Layers that move or regroup frames and features."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

from ..array import Tensor
from ..dispatch import apply
from ..errors import ShapeError
from . import functional as F, init
from .functional.arguments import checked, frame_dims
from .functional.texts import described
from .linear import new_parameter
from .module import Module

__all__ = ["Delay", "Flatten", "LookAhead", "Unflatten"]


@described(n="Frames.", dim="The axis of frames of plain tensors; streams know theirs.")
class Delay(Module):
    """The stream n frames late: zeros first, its last n frames never seen.

    Notes
    -----
    Input and output of equal shape. **Streaming.** Delay 0 (frame m of the output is frame m - n of the
    input), state n frames. Source: a causal convolution with one tap; continual-inference's Delay.
    """

    _shown = "{n}"
    _usual: ClassVar = {"dim": -1}

    def __init__(self, n: int, dim: int = -1) -> None:
        super().__init__()
        self.n = operator.index(n)
        self.dim = dim
        if self.n < 0:
            raise ShapeError(f"Delay: expected a number of frames, got {n}; see LookAhead")

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, `n` frames late."""
        _, dims = frame_dims("Delay", checked("Delay", input), self.dim)
        return apply("delay", {"frames": self.n}, (input,), (), dims)[0]


@described(
    right="Frames that are looked at behind a frame.",
    features="Those of a frame, to weigh each of them; without it, nothing is learned.",
    dim="The axis of frames: the last one, or 1 of ``(B, L, features)``.",
)
class LookAhead(Module):
    """The stream `right` frames early, zeros behind its end; or, with `features`, a weighted sum up to there.

    With `features` it is ``y[t, f] = sum over j of weight[f, 0, j] * x[t + j, f]``, j from 0 to `right`: some
    future for a recurrent network without a backward direction.

    Attributes
    ----------
    weight : Parameter or None
        ``(features, 1, right + 1)``.

    Notes
    -----
    Input and output of equal shape; with `features` ``(B, features, L)``, or ``(B, L, features)`` with
    ``dim=1``. **Streaming.** Delay `right` frames; state as many. Source: the row convolution of Deep Speech 2;
    without features the inverse of `Delay`, up to the first frames.
    """

    _shown = "{right}"
    _usual: ClassVar = {"features": None, "dim": -1}

    def __init__(
        self, right: int, features: int | None = None, dim: int = -1, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.right, self.features, self.dim = operator.index(right), features, dim
        if self.right < 0:
            raise ShapeError(f"LookAhead: expected a number of frames, got {right}; see Delay")
        like = {"device": device, "dtype": dtype}
        self.register_parameter(
            "weight", None if features is None else new_parameter(features, 1, self.right + 1, **like)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights: evenly over ± 1 / sqrt(right + 1)."""
        if self.weight is not None:
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, input: Tensor) -> Tensor:
        """Return the input early, or the weighted sums."""
        x = checked("LookAhead", input)
        if self.weight is not None:
            turned = x if self.dim in (-1, x.ndim - 1) else x.transpose(self.dim, -1)
            out = F.conv1d(turned, self.weight, None, padding=(0, self.right), groups=len(self.weight))
            return out if turned is x else out.transpose(self.dim, -1)
        _, dims = frame_dims("LookAhead", x, self.dim)
        behind = {"left": 0, "right": self.right, "mode": "constant", "value": 0.0}
        (x,) = apply("pad", behind, (x,), (), dims)
        return apply("slice", {"start": self.right, "crop": 0}, (x,), (), dims)[0]


@described(start_dim="The first of them.", end_dim="The last one.")
class Flatten(Module):
    """Dimensions joined into one.

    Notes
    -----
    **Streaming.** Delay 0, no state; dimensions of features, or B and L together. Source:
    torch.nn.Flatten.
    """

    _shown = "start_dim={start_dim}, end_dim={end_dim}"

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with dimensions joined."""
        return checked("Flatten", input).flatten(self.start_dim, self.end_dim)


@described(dim="The dimension.", unflattened_size="sequence of int: What it becomes; one of them may be -1.")
class Unflatten(Module):
    """One dimension split into several.

    Notes
    -----
    **Streaming.** Delay 0, no state; a dimension of features. Source: torch.nn.Unflatten.
    """

    _shown = "dim={dim}, unflattened_size={unflattened_size}"

    def __init__(self, dim: int, unflattened_size: Sequence[Any]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with the dimension split."""
        return checked("Unflatten", input).unflatten(self.dim, self.unflattened_size)
