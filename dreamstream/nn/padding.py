"""Layers that add elements at both ends of the last dimensions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import ClassVar

from ..array import Tensor
from ..errors import ShapeError
from . import functional as F
from .functional.texts import described
from .module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ZeroPad1d",
    "ZeroPad2d",
]

Ints = int | Sequence[int]

_PADDING = {
    1: "int or (left, right): Elements before the first and behind the last; negative ones take away.",
    2: "int or (left, right, top, bottom): Elements before the first and behind the last of the last dimension, "
    "then of the one before; negative ones take elements away.",
}


class _Pad(Module):
    """Elements added at both ends of each of the last `n_axes` dimensions.

    Parameters
    ----------
    padding : int or sequence of int
        Before the first and behind the last element, of the last dimension first.
    """

    _shown = "{padding}"

    mode: ClassVar[str] = "constant"
    n_axes: ClassVar[int]

    def __init_subclass__(cls, axes: int = 0, mode: str = "") -> None:
        super().__init_subclass__()
        if axes:
            cls.n_axes = axes
            cls.mode = mode or cls.mode
            described(padding=_PADDING[axes], value="What they hold.")(cls)

    def __init__(self, padding: Ints) -> None:
        super().__init__()
        n = 2 * self.n_axes
        pads = (padding,) * n if isinstance(padding, int) else tuple(map(operator.index, padding))
        if len(pads) != n:
            raise ShapeError(f"padding must be one number or {n}, got {padding}")
        self.padding = pads

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with its last dimensions padded."""
        shape = ("C", "L") if self.n_axes == 1 else ("C", "H", "W")
        if input.ndim not in (len(shape), len(shape) + 1):
            raise ShapeError(
                f"{type(self).__name__}: expected (B, {', '.join(shape)}) or ({', '.join(shape)}), got "
                f"{input.ndim} dimensions"
            )
        return F.pad(input, self.padding, self.mode)


class _ConstantPad(_Pad):
    _shown = "padding={padding}, value={value}"

    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with its last dimensions padded."""
        return F.pad(input, self.padding, "constant", self.value)


class _ZeroPad(_ConstantPad):
    _shown = "{padding}"

    def __init__(self, padding: Ints) -> None:
        super().__init__(padding, 0.0)


# ---------------------------------------------------------------- one dimension
class ConstantPad1d(_ConstantPad, axes=1):
    """A number added at both ends of the last dimension.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``, or ``(B_L, C, T)``: T is a dimension of features, of which each frame
    of a stream is padded by itself. **Streaming.** Along L delay: the frames that negative padding takes
    away, else 0; state those taken away at the end. Along T none. Source: torch.nn.ConstantPad1d.
    """


class ZeroPad1d(_ZeroPad, axes=1):
    """Zeros added at both ends of the last dimension.

    Notes
    -----
    **Streaming.** As `ConstantPad1d`. Source: torch.nn.ZeroPad1d.
    """


class ReplicationPad1d(_Pad, axes=1, mode="replicate"):
    """The first and the last frame repeated at both ends of the last dimension.

    Notes
    -----
    Inputs as in `ConstantPad1d`. **Streaming.** Along L delay 0, state one frame; along T none. Source:
    torch.nn.ReplicationPad1d.
    """


class ReflectionPad1d(_Pad, axes=1, mode="reflect"):
    """Frames mirrored at the first and at the last one, at both ends of the last dimension.

    Notes
    -----
    Inputs as in `ConstantPad1d`; a stream that is no longer than its padding gives no frames.
    **Streaming.** Along L delay `left` frames at the start, state up to
    left + 2 * right frames; along T none. Source: torch.nn.ReflectionPad1d.
    """


class CircularPad1d(_Pad, axes=1, mode="circular"):
    """The last elements added before the first, and the first behind the last, of the last dimension.

    Notes
    -----
    Inputs as in `ConstantPad1d`. **Streaming.** Along T delay 0, no state; L can't be padded so. Source:
    torch.nn.CircularPad1d.
    """


# ---------------------------------------------------------------- two dimensions
class ConstantPad2d(_ConstantPad, axes=2):
    """A number added at both ends of the last two dimensions.

    Notes
    -----
    Input ``(B, C, H, W)`` or ``(C, H, W)``; of a stream H or W may be the stream axis L. **Streaming.** Along
    L as the layer of one dimension; along a dimension of features delay 0, no state. Source:
    torch.nn.ConstantPad2d.
    """


class ZeroPad2d(_ZeroPad, axes=2):
    """Zeros added at both ends of the last two dimensions.

    Notes
    -----
    **Streaming.** As `ConstantPad2d`. Source: torch.nn.ZeroPad2d.
    """


class ReplicationPad2d(_Pad, axes=2, mode="replicate"):
    """The first and the last element repeated at both ends of the last two dimensions.

    Notes
    -----
    **Streaming.** As `ConstantPad2d`; along L state one frame. Source: torch.nn.ReplicationPad2d.
    """


class ReflectionPad2d(_Pad, axes=2, mode="reflect"):
    """Elements mirrored at the first and at the last one, at both ends of the last two dimensions.

    Notes
    -----
    Dimensions of features must be larger than their padding; a stream that is not gives no frames.
    **Streaming.** As `ReflectionPad1d` along L; along a dimension of features delay 0, no state. Source:
    torch.nn.ReflectionPad2d.
    """


class CircularPad2d(_Pad, axes=2, mode="circular"):
    """The last elements added before the first, and the first behind the last, of the last two dimensions.

    Notes
    -----
    **Streaming.** Along dimensions of features delay 0, no state; L can't be padded so. Source:
    torch.nn.CircularPad2d.
    """
