"""Layers that overlap, sum up and repeat frames."""

from __future__ import annotations

import operator
from typing import Any

from ..array import Tensor
from ..errors import ShapeError
from . import functional as F
from .module import Module

__all__ = ["CumulativeMean", "CumulativeSum", "OverlapAdd", "RunningMean", "Upsample"]


class OverlapAdd(Module):
    """Windows of samples laid over each other and added: the inverse of ``x.unfold(L, size, step)``.

    Parameters
    ----------
    step : int
        Samples from window to window; where it is above the windows' size, zeros stand between.

    Notes
    -----
    Input ``(B, L, size)`` or ``(B, C, L, size)``, float32 or float64, output ``(B, L_out)`` or
    ``(B, C, L_out)`` with L_out = (L - 1) * step + size; no samples of no windows. Sums run in float64, in
    order, and are rounded once.

    **Streaming.** A sample leaves when all windows that touch it are there, a zero between windows with the
    next one: delay 0 windows (1 where `step` is above their size), `step` samples per window, and at the end
    what is left; state ⌈size / step⌉ - 1 windows.
    """

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = operator.index(step)
        if self.step < 1:
            raise ShapeError(f"OverlapAdd: step must be at least 1, got {step}")

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, L_out)`` for an input ``(B, L, size)``."""
        return F.overlap_add(input, self.step)

    def extra_repr(self) -> str:
        """Return the constructor's argument."""
        return f"{self.step}"


class _Cumulative(Module):
    """The argument of both."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """Return the constructor's argument where it is not the usual one."""
        return "" if self.dim == -1 else f"dim={self.dim}"


class CumulativeSum(_Cumulative):
    """The sum of all frames so far.

    Parameters
    ----------
    dim : int
        The axis of frames of plain tensors; streams know theirs.

    Notes
    -----
    Input and output of equal shape, float32 or float64. **Streaming.** Delay 0; state one frame of float64
    sums, in which nothing drifts. Source: torch.cumsum.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the running sum, of the input's shape."""
        return F.cumulative_sum(input, self.dim)


class CumulativeMean(_Cumulative):
    """The mean of all frames so far.

    Parameters
    ----------
    dim : int
        The axis of frames of plain tensors; streams know theirs.

    Notes
    -----
    Input and output of equal shape, float32 or float64. **Streaming.** Delay 0; state one frame of float64
    sums. Source: a running sum divided by the number of frames.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the running mean, of the input's shape."""
        return F.cumulative_mean(input, self.dim)


class RunningMean(Module):
    """The mean of the last frames.

    Parameters
    ----------
    size : int
        Their number; at the start, the mean of as many as there are.
    dim : int
        The axis of frames of plain tensors; streams know theirs.

    Notes
    -----
    Input and output of equal shape, float32 or float64. Each mean is computed anew, in float64: nothing
    drifts, and a frame costs `size` additions. **Streaming.** Delay 0; state size - 1 frames. Source:
    `AvgPool1d` with its padding on the left alone, not counted.
    """

    def __init__(self, size: int, dim: int = -1) -> None:
        super().__init__()
        self.size = operator.index(size)
        self.dim = dim
        if self.size < 1:
            raise ShapeError(f"RunningMean: size must be at least 1, got {size}")

    def forward(self, input: Tensor) -> Tensor:
        """Return the means, of the input's shape."""
        return F.running_mean(input, self.size, self.dim)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"{self.size}" if self.dim == -1 else f"{self.size}, dim={self.dim}"


class Upsample(Module):
    """The last one or two dimensions in another size, by the nearest elements.

    Parameters
    ----------
    size : int or (int, int), optional
        The new sizes; along features, and of plain tensors.
    scale_factor : float or (float, float), optional
        New elements per old one; along a stream a whole number n, which repeats every frame n times, or
        1 / k, which keeps every k-th.
    mode : {"nearest"}
        How elements are found.
    align_corners, recompute_scale_factor : bool, optional
        For torch's sake.

    Raises
    ------
    NotStreamableError
        For sizes and other factors along a stream, at the first call.
    ShapeError
        For other modes, and arguments that don't fit.

    Notes
    -----
    Input ``(B, C, L)`` or ``(B, C, H, W)``, of any type. **Streaming.** Delay 0, no state; the rate is
    multiplied by the factor; with 1 / k, k - 1 frames of delay and state. Source: torch.nn.Upsample.
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        if isinstance(scale_factor, (tuple, list)):
            self.scale_factor: Any = tuple(map(float, scale_factor))
        else:
            self.scale_factor = None if scale_factor is None else float(scale_factor)
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor
        if mode != "nearest":
            raise ShapeError(f"Upsample: mode 'nearest' is supported, got {mode!r}")

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(B, C, L_out)`` for an input ``(B, C, L)``."""
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        given = "size" if self.scale_factor is None else "scale_factor"
        return f"{given}={getattr(self, given)}, mode={self.mode!r}"
