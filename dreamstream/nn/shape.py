"""Layers that add, move or regroup frames and features."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar

from ..array import Tensor
from ..dispatch import apply
from ..errors import ShapeError
from . import functional as F
from .functional.arguments import checked, frame_dims
from .module import Module

__all__ = [
    "ConstantPad1d",
    "Delay",
    "Flatten",
    "ReflectionPad1d",
    "ReplicationPad1d",
    "Unflatten",
    "ZeroPad1d",
]


class _Pad1d(Module):
    """Frames added at both ends.

    Parameters
    ----------
    padding : int or (left, right)
        Frames before the first and behind the last.
    """

    mode: ClassVar[str]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        pair = (padding, padding) if isinstance(padding, int) else tuple(map(operator.index, padding))
        if len(pair) != 2:
            raise ShapeError(f"padding must be one number or two, got {padding}")
        self.padding = pair

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, left + L + right)`` for an input ``(B, C, L)``."""
        if input.ndim not in (2, 3):
            raise ShapeError(
                f"{type(self).__name__}: expected (B, C, L) or (C, L), got {input.ndim} dimensions"
            )
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        """Return the padding."""
        return f"{self.padding}"


class ConstantPad1d(_Pad1d):
    """A number added at both ends of the last dimension.

    Parameters
    ----------
    padding : int or (left, right)
        Frames before the first and behind the last; negative ones take frames away.
    value : float
        What they hold.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``. **Streaming.** Delay: the frames that negative padding takes away,
    else 0; state those taken away at the end. Source: torch.nn.ConstantPad1d.
    """

    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, left + L + right)`` for an input ``(B, C, L)``."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(ConstantPad1d):
    """Zeros added at both ends of the last dimension.

    Parameters
    ----------
    padding : int or (left, right)
        As in `ConstantPad1d`.

    Notes
    -----
    **Streaming.** As `ConstantPad1d`. Source: torch.nn.ZeroPad1d.
    """

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """Return the padding."""
        return f"{self.padding}"


class ReplicationPad1d(_Pad1d):
    """The first and the last frame repeated at both ends of the last dimension.

    Parameters
    ----------
    padding : int or (left, right)
        As in `ConstantPad1d`.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``. **Streaming.** Delay 0, state one frame. Source:
    torch.nn.ReplicationPad1d.
    """

    mode = "replicate"


class ReflectionPad1d(_Pad1d):
    """Frames mirrored at the first and at the last one, at both ends of the last dimension.

    Parameters
    ----------
    padding : int or (left, right)
        As in `ConstantPad1d`; a stream that is no longer than that gives no frames.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``. **Streaming.** Delay `left` frames at the start, state up to
    left + 2 * right frames. Source: torch.nn.ReflectionPad1d.
    """

    mode = "reflect"


class Delay(Module):
    """The stream n frames late: zeros first, its last n frames never seen.

    Parameters
    ----------
    n : int
        Frames.
    dim : int
        The axis of frames of plain tensors; streams know theirs.

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


class Flatten(Module):
    """Dimensions joined into one.

    Parameters
    ----------
    start_dim, end_dim : int
        The first and the last of them.

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


class Unflatten(Module):
    """One dimension split into several.

    Parameters
    ----------
    dim : int
        The dimension.
    unflattened_size : sequence of int
        What it becomes; one of them may be -1.

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
