"""Convolutions along the stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..array import Tensor
from ..errors import NotStreamableError, ShapeError
from . import functional as F
from . import init
from .functional.arguments import single
from .functional.convolution import window_padding
from .linear import new_parameter
from .module import Module

__all__ = ["Conv1d", "ConvTranspose1d"]

Ints = int | Sequence[int]


class _Convolution(Module):
    """What both directions share; sizes are kept as tuples, as in torch."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints,
        dilation: Ints,
        groups: int,
        padding_mode: str,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"groups must divide {in_channels} input and {out_channels} output channels, got {groups}"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = (single(kernel_size, "kernel_size"),)
        self.stride = (single(stride, "stride"),)
        self.dilation = (single(dilation, "dilation"),)
        for name in ("kernel_size", "stride", "dilation"):
            if getattr(self, name)[0] < 1:
                raise ShapeError(f"{name} must be at least 1, got {getattr(self, name)[0]}")
        self.padding: Any = (0,)
        self.output_padding = (0,)
        self.groups = groups
        self.padding_mode = padding_mode

    def _make_parameters(self, n_rows: int, n_columns: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = new_parameter(n_rows, n_columns, *self.kernel_size, device=device, dtype=dtype)
        self.register_parameter(
            "bias", new_parameter(self.out_channels, device=device, dtype=dtype) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: evenly over ± 1 / sqrt(weights of one output)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Return the constructor's arguments that are not the usual ones."""
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        ]
        usual = {"padding": (0,), "dilation": (1,), "output_padding": (0,), "groups": 1}
        parts += [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        parts += ["bias=False"] if self.bias is None else []
        parts += [f"padding_mode={self.padding_mode}"] if self.padding_mode != "zeros" else []
        return ", ".join(parts)


class Conv1d(_Convolution):
    """Convolution along the stream.

    Parameters
    ----------
    in_channels, out_channels : int
        Features of a frame.
    kernel_size, stride, dilation : int
        Frames of a window, from window to window, and from one to the next within a window.
    padding : int, (left, right), "valid", "same" or "causal"
        Frames added at both ends. Beyond torch: a pair, and "causal", dilation * (kernel_size - 1)
        frames on the left.
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
        ``(out_channels, in_channels / groups, kernel_size)``.
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
    Input ``(B, in_channels, L)`` or ``(in_channels, L)``, output the same with `out_channels` and L_out
    = (L + left + right - dilation * (kernel_size - 1) - 1) // stride + 1 frames, none where the input
    is too short.

    **Streaming.** Delay dilation * (kernel_size - 1) - left frames (0 where that is negative; reflect
    padding waits for `left` frames at the start); state the last dilation * (kernel_size - 1) frames at
    most, 4 * in_channels bytes each, and with replicate or reflect padding what the right end copies.
    Circular padding needs the whole stream.

    Source: torch.nn.Conv1d.
    """

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
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ShapeError(
                f"padding_mode is zeros, reflect, replicate or circular, got {padding_mode!r}"
            )
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, padding_mode)
        left, right = window_padding(padding, self.kernel_size[0], self.dilation[0], self.stride[0])
        if isinstance(padding, str):
            self.padding = padding
        else:
            self.padding = (left,) if left == right else (left, right)
        self._make_parameters(out_channels, in_channels // groups, bias, device, dtype)

    def unstreamable(self) -> tuple[str, str] | None:
        """Return why circular padding can't stream, and what would work."""
        if self.padding_mode != "circular":
            return None
        return (
            "circular padding lays the stream's end before its start",
            'use padding_mode="zeros", "replicate" or "reflect"',
        )

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, out_channels, L_out)`` for an input ``(B, in_channels, L)``."""
        return F.conv1d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            padding_mode=self.padding_mode,
        )


class ConvTranspose1d(_Convolution):
    """Transposed convolution along the stream: upsampling by the stride.

    Parameters
    ----------
    in_channels, out_channels : int
        Features of a frame.
    kernel_size, stride, dilation : int
        Output frames that an input frame adds to, from one input frame's to the next one's, and from
        one to the next within them.
    padding : int
        Output frames dropped at both ends.
    output_padding : int
        Output frames added at the end, less than stride or dilation.
    groups, bias, padding_mode, device, dtype
        As in `Conv1d`; `padding_mode` is "zeros".

    Attributes
    ----------
    weight : Parameter
        ``(in_channels, out_channels / groups, kernel_size)``.
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
    Input ``(B, in_channels, L)`` or ``(in_channels, L)``, output the same with `out_channels` and L_out
    = (L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1 frames.

    **Streaming.** Delay ⌈padding / stride⌉ input frames; state ⌈dilation * (kernel_size - 1) / stride⌉
    frames at most, 4 * in_channels bytes each.

    Source: torch.nn.ConvTranspose1d.
    """

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
        if padding_mode != "zeros":
            raise ShapeError(f"ConvTranspose1d takes padding_mode 'zeros' only, got {padding_mode!r}")
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, padding_mode)
        self.padding = (single(padding, "padding"),)
        self.output_padding = (single(output_padding, "output_padding"),)
        if self.padding[0] < 0 or self.output_padding[0] < 0:
            raise ShapeError("padding and output_padding must not be negative")
        self._make_parameters(in_channels, out_channels // groups, bias, device, dtype)

    def forward(self, input: Tensor, output_size: Ints | None = None) -> Tensor:
        """Return ``(B, out_channels, L_out)`` for an input ``(B, in_channels, L)``.

        Parameters
        ----------
        input : Tensor
            The frames.
        output_size : int or sequence of int, optional
            L_out, in place of `output_padding`; for plain tensors.
        """
        extra = self.output_padding[0]
        if output_size is not None:
            extra = self._extra(input, output_size)
        return F.conv_transpose1d(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _extra(self, input: Tensor, output_size: Ints) -> int:
        """Return the output padding that gives `output_size` frames."""
        if input.is_stream:
            raise NotStreamableError("a stream's length is not known: output_size can't be asked for")
        wanted = int(output_size[-1] if isinstance(output_size, (tuple, list)) else output_size)  # type: ignore[arg-type]
        span = self.dilation[0] * (self.kernel_size[0] - 1) + 1
        least = (input.shape[-1] - 1) * self.stride[0] - 2 * self.padding[0] + span
        if not least <= wanted < least + self.stride[0]:
            raise ShapeError(
                f"output_size must be {least} to {least + self.stride[0] - 1} here, got {wanted}"
            )
        return wanted - least
