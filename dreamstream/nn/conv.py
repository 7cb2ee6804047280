"""Convolutions along the stream, along one axis within each frame, and over two axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..array import Tensor
from ..errors import NotStreamableError, ShapeError
from ..operations.refusals import CIRCULAR, CIRCULAR_BOTH
from . import functional as F
from .functional.arguments import several
from .functional.convolution import PADDING, PLANE_PADDING, SPREAD, WINDOWS, plane_padding, window_padding
from .functional.texts import described
from .linear import Linear, add_bias, new_parameter
from .module import Module

__all__ = ["Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d"]

Ints = int | Sequence[int]

ERRORS = {
    "ShapeError": 'For arguments or an input that don\'t fit; "same" goes with stride 1.',
    "DTypeError": "Where an input's type is not the weight's.",
}
CHANNELS = {
    "in_channels": "Features of a frame, or channels of a position.",
    "out_channels": "Those of the output.",
    "bias": "Whether there is a bias.",
}


class Convolution(Module):
    """What all directions share; sizes are kept as tuples, as in torch."""

    _shown = "{in_channels}, {out_channels}, kernel_size={kernel_size}, stride={stride}"

    n_axes: ClassVar[int]

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
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ShapeError(f"padding_mode is zeros, reflect, replicate or circular, got {padding_mode!r}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = self._sizes(kernel_size, "kernel_size", 1)
        self.stride = self._sizes(stride, "stride", 1)
        self.dilation = self._sizes(dilation, "dilation", 1)
        self.padding: Any = (0,) * self.n_axes
        self.output_padding = (0,) * self.n_axes
        self.groups, self.padding_mode = groups, padding_mode

    def _sizes(self, value: Ints, name: str, least: int) -> tuple[int, ...]:
        """Return one size per axis."""
        sizes = several(value, self.n_axes, name)
        if min(sizes) < least:
            raise ShapeError(f"{name} must be at least {least}, got {min(sizes)}")
        return sizes

    def _make_parameters(self, n_rows: int, n_columns: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = new_parameter(n_rows, n_columns, *self.kernel_size, device=device, dtype=dtype)
        add_bias(self, bias, self.out_channels, device, dtype)
        self.reset_parameters()

    reset_parameters = Linear.reset_parameters

    @property
    def _usual(self) -> dict[str, Any]:  # type: ignore[override]
        none, one = (0,) * self.n_axes, (1,) * self.n_axes
        usual = {"padding": none, "dilation": one, "output_padding": none, "groups": 1}
        return {**usual, "bias": True, "padding_mode": "zeros"}


class Windowed(Convolution):
    """What convolutions share whose outputs see windows of the input."""

    _function: ClassVar[Callable[..., Tensor]]

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
        self._set_padding(padding)
        self._make_parameters(out_channels, in_channels // groups, bias, device, dtype)

    def _set_padding(self, padding: Any) -> None:
        """Keep the padding as torch does."""
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, out_channels, *)`` for an input ``(B, in_channels, *)``, sizes as in the notes above."""
        return self._function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            padding_mode=self.padding_mode,
        )


class Transposed(Convolution):
    """What transposed convolutions share."""

    _function: ClassVar[Callable[..., Tensor]]

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
        if padding_mode != "zeros":
            raise ShapeError(f"{type(self).__name__} takes padding_mode 'zeros' only, got {padding_mode!r}")
        self.padding = self._sizes(padding, "padding", 0)
        self.output_padding = self._sizes(output_padding, "output_padding", 0)
        self._make_parameters(in_channels, out_channels // groups, bias, device, dtype)

    def forward(self, input: Tensor, output_size: Ints | None = None) -> Tensor:
        """Return ``(B, out_channels, *)`` for an input ``(B, in_channels, *)``, sizes as in the notes above.

        Parameters
        ----------
        input : Tensor
            The frames, or planes.
        output_size : int or sequence of int, optional
            The sizes, in place of `output_padding`; for plain tensors and images.
        """
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        return self._function(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _extra(self, input: Tensor, output_size: Ints) -> tuple[int, ...]:
        """Return the output padding that gives `output_size`."""
        sizes = input.shape[-self.n_axes :]
        if input.is_stream and any(isinstance(d, str) for d in input.dims[-self.n_axes :]):  # type: ignore[attr-defined]
            raise NotStreamableError("a stream's length is not known: output_size can't be asked for")
        if isinstance(output_size, (tuple, list)):  # which may hold all dimensions
            output_size = output_size[-self.n_axes :]
        extra = []
        for i, (n, wanted) in enumerate(zip(sizes, several(output_size, self.n_axes, "output_size"))):
            span = self.dilation[i] * (self.kernel_size[i] - 1) + 1
            least = (n - 1) * self.stride[i] - 2 * self.padding[i] + span
            if not least <= wanted < least + self.stride[i]:
                raise ShapeError(f"output_size must be {least} to {least + self.stride[i] - 1} here, got {wanted}")
            extra.append(wanted - least)
        return tuple(extra)


@described("", ERRORS, **{**WINDOWS, **CHANNELS}, padding=PADDING)
class Conv1d(Windowed):
    """Convolution along the stream.

    Attributes
    ----------
    weight : Parameter
        ``(out_channels, in_channels / groups, kernel_size)``.
    bias : Parameter or None
        ``(out_channels,)``.

    Notes
    -----
    Input ``(B, in_channels, L)`` or ``(in_channels, L)``, or frames of a stream that are each convolved by
    themselves, ``(B_L, in_channels, T)``; output the same with `out_channels` and L_out
    = (L + left + right - dilation * (kernel_size - 1) - 1) // stride + 1 frames, none where the input
    is too short.

    **Streaming.** Delay dilation * (kernel_size - 1) - left frames (0 where that is negative; reflect
    padding waits for `left` frames at the start); state the last dilation * (kernel_size - 1) frames at
    most, 4 * in_channels bytes each, and with replicate or reflect padding what the right end copies.
    Circular padding needs the whole stream.

    Source: torch.nn.Conv1d.
    """

    n_axes: ClassVar[int] = 1
    _function = staticmethod(F.conv1d)

    def _set_padding(self, padding: Any) -> None:
        left, right = window_padding(padding, self.kernel_size[0], self.dilation[0], self.stride[0])
        self.padding = padding if isinstance(padding, str) else (left,) if left == right else (left, right)

    def unstreamable(self) -> tuple[str, str] | None:
        """Return why circular padding can't stream, and what would work."""
        return CIRCULAR.words if self.padding_mode == "circular" else None


@described("", ERRORS, **{**SPREAD, **CHANNELS})
class ConvTranspose1d(Transposed):
    """Transposed convolution along the stream: upsampling by the stride.

    Attributes
    ----------
    weight : Parameter
        ``(in_channels, out_channels / groups, kernel_size)``.
    bias : Parameter or None
        ``(out_channels,)``.

    Notes
    -----
    Input as in `Conv1d`, output the same with `out_channels` and L_out
    = (L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1 frames.

    **Streaming.** Delay ⌈padding / stride⌉ input frames; state ⌈dilation * (kernel_size - 1) / stride⌉
    frames at most, 4 * in_channels bytes each.

    Source: torch.nn.ConvTranspose1d.
    """

    n_axes: ClassVar[int] = 1
    _function = staticmethod(F.conv_transpose1d)


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
