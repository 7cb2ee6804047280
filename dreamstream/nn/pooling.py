"""Pooling layers.

Windows of the last one or two dimensions, of which one may be the stream axis. **Streaming.** Along the
stream a window leaves when its last frame is there: delay dilation * (kernel_size - 1) - padding frames,
state as many frames as a window spans beyond its stride; with `ceil_mode` a last window that hangs over
the end leaves there. Along features: delay 0, no state. Source: torch.nn, the class of the same name.
"""

from __future__ import annotations

from typing import Any

from ..array import Tensor
from ..errors import ShapeError
from . import functional as F
from .functional.arguments import Ints, single
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "LPPool1d",
    "MaxPool1d",
    "MaxPool2d",
]


class _MaxPool(Module):
    """The arguments of both."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def _arguments(self) -> tuple[Any, ...]:
        return (
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        return ", ".join(f"{n}={getattr(self, n)}" for n in names)


class MaxPool1d(_MaxPool):
    """The largest element of each window over the last dimension.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int
        Elements of a window, from window to window (`kernel_size` by default), of padding with -inf at
        both ends (at most half of `kernel_size`), and from one to the next within a window.
    return_indices : bool
        Must be False.
    ceil_mode : bool
        Whether a last window may hang over the end.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``, float32 or float64; output L_out = (L + 2 * padding - dilation *
    (kernel_size - 1) - 1) // stride + 1 frames (rounded up with `ceil_mode`, as in torch), none where the
    input is too short.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, L_out)`` for an input ``(B, C, L)``."""
        return F.max_pool1d(input, *self._arguments())


class MaxPool2d(_MaxPool):
    """The largest element of each window over the last two dimensions.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int or (int, int)
        As in `MaxPool1d`, for each of them.
    return_indices, ceil_mode : bool
        As in `MaxPool1d`.

    Notes
    -----
    Input ``(B, C, H, W)`` or ``(C, H, W)``, float32 or float64, H or W the stream axis, or neither.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, H_out, W_out)`` for an input ``(B, C, H, W)``."""
        return F.max_pool2d(input, *self._arguments())


class AvgPool1d(Module):
    """The mean of each window over the last dimension.

    Parameters
    ----------
    kernel_size, stride, padding : int
        As in `MaxPool1d`; padding holds zeros.
    ceil_mode : bool
        Whether a last window may hang over the end; what hangs over is not counted.
    count_include_pad : bool
        Whether padding counts as elements of a window.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``, float32 or float64; output as in `MaxPool1d`. Sums run in float64
    and are rounded once.
    """

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = (single(kernel_size, "kernel_size"),)
        self.stride = self.kernel_size if stride is None else (single(stride, "stride"),)
        self.padding = (single(padding, "padding"),)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, L_out)`` for an input ``(B, C, L)``."""
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window over the last two dimensions.

    Parameters
    ----------
    kernel_size, stride, padding : int or (int, int)
        As in `AvgPool1d`, for each of them.
    ceil_mode, count_include_pad : bool
        As in `AvgPool1d`.
    divisor_override : int, optional
        What sums are divided by, whatever a window holds.

    Notes
    -----
    Input ``(B, C, H, W)`` or ``(C, H, W)``, float32 or float64, H or W the stream axis, or neither.
    """

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, H_out, W_out)`` for an input ``(B, C, H, W)``."""
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class LPPool1d(Module):
    """(sum x ** p) ** (1 / p) of each window over the last dimension.

    Parameters
    ----------
    norm_type : float
        The power p; infinity is the largest absolute value.
    kernel_size, stride : int
        As in `AvgPool1d`.
    ceil_mode : bool
        Whether a last window may hang over the end; it counts as a full one.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``, float32 or float64; output as in `MaxPool1d`.
    """

    def __init__(
        self,
        norm_type: float,
        kernel_size: Ints,
        stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, L_out)`` for an input ``(B, C, L)``."""
        return F.lp_pool1d(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        names = ("norm_type", "kernel_size", "stride", "ceil_mode")
        return ", ".join(f"{n}={getattr(self, n)}" for n in names)


# ---------------------------------------------------------------------- parts
class _Adaptive(Module):
    """The argument of all four."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        if output_size is None:
            raise ShapeError(f"{type(self).__name__}: output_size must be given")
        self.output_size = output_size

    def extra_repr(self) -> str:
        """Return the constructor's argument."""
        return f"output_size={self.output_size}"


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveAvgPool1d(_Adaptive):
    """The means of a given number of parts of the last dimension.

    Parameters
    ----------
    output_size : int
        The number of parts.

    Raises
    ------
    NotStreamableError
        Along a stream, at its first call: every part depends on the length.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``. **Streaming.** Along features as any layer; along the stream only with
    ``unstreamable="buffer"``, at the end. ``x.mean(dim)`` gives one vector per stream without that.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, output_size)`` for an input ``(B, C, L)``."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """The means of a given number of parts of each of the last two dimensions.

    Parameters
    ----------
    output_size : int or (int, int)
        The numbers of parts; None keeps a dimension as it is.

    Notes
    -----
    Input ``(B, C, H, W)`` or ``(C, H, W)``. **Streaming.** As `AdaptiveAvgPool1d`.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, *output_size)`` for an input ``(B, C, H, W)``."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest elements of a given number of parts of the last dimension.

    Parameters
    ----------
    output_size : int
        The number of parts.
    return_indices : bool
        Must be False.

    Notes
    -----
    Input ``(B, C, L)`` or ``(C, L)``. **Streaming.** As `AdaptiveAvgPool1d`.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, output_size)`` for an input ``(B, C, L)``."""
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The largest elements of a given number of parts of each of the last two dimensions.

    Parameters
    ----------
    output_size : int or (int, int)
        The numbers of parts; None keeps a dimension as it is.
    return_indices : bool
        Must be False.

    Notes
    -----
    Input ``(B, C, H, W)`` or ``(C, H, W)``. **Streaming.** As `AdaptiveAvgPool1d`.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, *output_size)`` for an input ``(B, C, H, W)``."""
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)
