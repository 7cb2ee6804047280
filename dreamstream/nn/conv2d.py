"""Convolutions over two axes, one of which may be the stream."""

from __future__ import annotations

from typing import Any, ClassVar

from ..operations.refusals import CIRCULAR_BOTH
from . import functional as F
from .conv import CHANNELS, ERRORS, Transposed, Windowed
from .functional.convolution import PLANE_PADDING, SPREAD, WINDOWS
from .functional.convolution2d import plane_padding
from .functional.texts import described

__all__ = ["Conv2d", "ConvTranspose2d"]


@described("", ERRORS, **{**WINDOWS, **CHANNELS}, padding=PLANE_PADDING)
class Conv2d(Windowed):
    """Convolution over two axes, one of which may be the stream.

    Attributes
    ----------
    weight : Parameter
        ``(out_channels, in_channels / groups, kernel_h, kernel_w)``.
    bias : Parameter or None
        ``(out_channels,)``.

    Notes
    -----
    Input ``(B, in_channels, H, W)`` or ``(in_channels, H, W)``, output the same with `out_channels`, H_out =
    (H + left + right - dilation * (kernel_h - 1) - 1) // stride + 1 and W_out likewise; none where the
    input is too short.

    **Streaming.** The stream axis L stands in the place of H or of W, as in ``(B, C, L, F)``; every size of
    the other is a feature. Along L all is as in `Conv1d`: delay dilation * (kernel - 1) - left frames (0
    where that is negative), state the last dilation * (kernel - 1) frames at most, 4 * in_channels * F
    bytes each; circular padding needs the whole stream. In ``(B_L, C, H, W)`` each frame is an image of its
    own: delay 0, no state.

    Source: torch.nn.Conv2d.
    """

    n_axes: ClassVar[int] = 2
    _function = staticmethod(F.conv2d)

    def _set_padding(self, padding: Any) -> None:
        self._pads = plane_padding(padding, self.kernel_size, self.dilation, self.stride)
        own = tuple(left if left == right else (left, right) for left, right in self._pads)
        self.padding = padding if isinstance(padding, str) else own

    def unstreamable(self) -> tuple[str, str] | None:
        """Return why circular padding along both axes can't stream, and what would work."""
        both = self.padding_mode == "circular" and all(map(any, self._pads))
        return CIRCULAR_BOTH.words if both else None


@described("", ERRORS, **{**SPREAD, **CHANNELS})
class ConvTranspose2d(Transposed):
    """Transposed convolution over two axes, one of which may be the stream: upsampling by the stride.

    Attributes
    ----------
    weight : Parameter
        ``(in_channels, out_channels / groups, kernel_h, kernel_w)``.
    bias : Parameter or None
        ``(out_channels,)``.

    Notes
    -----
    Input as in `Conv2d`, output the same with `out_channels`, H_out = (H - 1) * stride - 2 * padding +
    dilation * (kernel_h - 1) + output_padding + 1 and W_out likewise.

    **Streaming.** L in the place of H or of W, as in `Conv2d`. Delay ⌈padding / stride⌉ input frames, of the
    numbers along L; state ⌈dilation * (kernel - 1) / stride⌉ frames at most, 4 * in_channels * F bytes
    each. In ``(B_L, C, H, W)`` each frame is an image of its own: delay 0, no state.

    Source: torch.nn.ConvTranspose2d.
    """

    n_axes: ClassVar[int] = 2
    _function = staticmethod(F.conv_transpose2d)
