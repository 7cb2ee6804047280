"""Convolutions over two axes, one of which may be the stream."""

from __future__ import annotations

from typing import Any, ClassVar

from ..array import Tensor
from . import functional as F
from .conv import Convolution, Ints, Transposed
from .functional.convolution2d import plane_padding

__all__ = ["Conv2d", "ConvTranspose2d"]


class Conv2d(Convolution):
    """Convolution over two axes, one of which may be the stream.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of a position.
    kernel_size, stride, dilation : int or (int, int)
        Positions of a window, from window to window, and from one to the next within a window.
    padding : int, "valid", "same" or (h, w)
        Positions added at both ends; h and w are int or, beyond torch, (left, right), "valid", "same" or
        "causal", dilation * (kernel_size - 1) positions on the left.
    groups : int
        Groups of channels that don't see each other.
    bias : bool
        Whether there is a bias.
    padding_mode : {"zeros", "reflect", "replicate", "circular"}
        What the padding holds.
    device : None or "cpu"
        For torch's sake.
    dtype : dtype or str, optional
        float32 or float64.

    Attributes
    ----------
    weight : Parameter
        ``(out_channels, in_channels / groups, kernel_h, kernel_w)``.
    bias : Parameter or None
        ``(out_channels,)``.

    Raises
    ------
    ShapeError
        For arguments or an input that don't fit; "same" goes with stride 1.
    DTypeError
        Where an input's type is not the weight's.

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

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Any = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, padding_mode)
        self._pads = plane_padding(padding, self.kernel_size, self.dilation, self.stride)
        if isinstance(padding, str):
            self.padding = padding
        else:
            self.padding = tuple(left if left == right else (left, right) for left, right in self._pads)
        self._make_parameters(out_channels, in_channels // groups, bias, device, dtype)

    def unstreamable(self) -> tuple[str, str] | None:
        """Return why circular padding along both axes can't stream, and what would work."""
        if self.padding_mode != "circular" or not all(map(any, self._pads)):
            return None
        return (
            "circular padding lays the stream's end before its start",
            'use padding_mode="zeros", "replicate" or "reflect", or circular padding of the other axis only',
        )

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, out_channels, H_out, W_out)`` for an input ``(B, in_channels, H, W)``."""
        return F.conv2d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            padding_mode=self.padding_mode,
        )


class ConvTranspose2d(Transposed):
    """Transposed convolution over two axes, one of which may be the stream: upsampling by the stride.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of a position.
    kernel_size, stride, dilation : int or (int, int)
        Output positions that an input position adds to, from one input position's to the next one's, and
        from one to the next within them.
    padding : int or (int, int)
        Output positions dropped at both ends.
    output_padding : int or (int, int)
        Output positions added at the end, less than stride or dilation.
    groups, bias, padding_mode, device, dtype
        As in `Conv2d`; `padding_mode` is "zeros".

    Attributes
    ----------
    weight : Parameter
        ``(in_channels, out_channels / groups, kernel_h, kernel_w)``.
    bias : Parameter or None
        ``(out_channels,)``.

    Raises
    ------
    ShapeError
        For arguments or an input that don't fit.
    DTypeError
        Where an input's type is not the weight's.

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

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, padding_mode)
        self._set_padding(padding, output_padding)
        self._make_parameters(in_channels, out_channels // groups, bias, device, dtype)

    def forward(self, input: Tensor, output_size: Ints | None = None) -> Tensor:
        """Return ``(B, out_channels, H_out, W_out)`` for an input ``(B, in_channels, H, W)``.

        Parameters
        ----------
        input : Tensor
            The planes.
        output_size : int or sequence of int, optional
            H_out and W_out, in place of `output_padding`; for plain tensors and images.
        """
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        return F.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )
