"""Change of the sample rate."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...array import Tensor
from ...array.dtypes import require_same
from ...dispatch import apply
from ...errors import NotStreamableError, ShapeError
from .arguments import frame_dims, real
from .texts import described, torch_lacks

__all__ = ["resample"]

LARGEST = 1 << 24  # elements of a kernel
KAISER_BETA = 14.769656459379492  # torchaudio's

#: What the parameters are, of function and layer.
RATES = {
    "orig_freq": "The rate that comes in.",
    "new_freq": "The rate that goes out; only their ratio counts.",
    "lowpass_filter_width": "Zero crossings of the kernel on either side; more make the filter sharper.",
    "rolloff": "Where the low pass ends, as a part of half the lower rate.",
    "resampling_method": '{"sinc_interp_hann", "sinc_interp_kaiser"}: The window over the sinc.',
    "beta": "Of the Kaiser window.",
}


class Resampling:
    """A sinc kernel under a window, for every phase of a change of rate.

    Output m lies at t = m / new seconds, input i at i / orig; the kernel is a low pass of frequency `rolloff`
    times the lower rate, and ends `lowpass_filter_width` of its zero crossings away from the output.

    Parameters
    ----------
    As of `nn.Resample`.

    Attributes
    ----------
    orig, new : int
        The rates without their common divisor.
    width : int
        Taps before the first frame of a block of `orig` frames.
    half : int
        How far a frame may lie from an output that uses it, in steps of 1 / (orig * new) seconds.
    """

    def __init__(
        self,
        orig_freq: float,
        new_freq: float,
        lowpass_filter_width: int = 6,
        rolloff: float = 0.99,
        resampling_method: str = "sinc_interp_hann",
        beta: float | None = None,
    ) -> None:
        for what, value in (("orig_freq", orig_freq), ("new_freq", new_freq)):
            if not (math.isfinite(value) and int(value) == value and value > 0):
                raise ShapeError(
                    f"resample: {what} must be a whole number above 0, got {value}; two rates in the same "
                    "ratio will do"
                )
        if not 0 < lowpass_filter_width < math.inf:
            raise ShapeError(f"resample: lowpass_filter_width must be above 0, got {lowpass_filter_width}")
        if not 0 < rolloff < math.inf:
            raise ShapeError(f"resample: rolloff must be above 0, got {rolloff}")
        if resampling_method not in ("sinc_interp_hann", "sinc_interp_kaiser"):
            raise ShapeError(
                "resample: resampling_method is 'sinc_interp_hann' or 'sinc_interp_kaiser', got "
                f"{resampling_method!r}"
            )
        common = math.gcd(int(orig_freq), int(new_freq))
        self.orig, self.new = int(orig_freq) // common, int(new_freq) // common
        self.lowpass_filter_width, self.method = lowpass_filter_width, resampling_method
        self.beta = KAISER_BETA if beta is None else float(beta)
        self.base = min(self.orig, self.new) * rolloff
        self.width = math.ceil(lowpass_filter_width * self.orig / self.base)
        self.half = min(
            math.ceil(lowpass_filter_width * self.orig * self.new / self.base) - 1, self.width * self.new
        )
        if self.new * (2 * self.width + self.orig) > LARGEST:
            raise ShapeError(
                f"resample: from {orig_freq:g} to {new_freq:g}, {self.orig} to {self.new} in lowest terms, "
                f"needs a kernel of {self.new} times {2 * self.width + self.orig} taps, and at most "
                f"{LARGEST} are supported; choose rates with a larger common divisor"
            )

    @property
    def same(self) -> bool:
        """Whether nothing changes."""
        return self.orig == self.new

    def kernel(self) -> npt.NDArray[np.float64]:
        """Return the taps ``(new, 1, 2 * width + orig)``; those farther than `half` are 0."""
        taps = np.arange(-self.width, self.width + self.orig)
        steps = taps * self.new - np.arange(self.new)[:, None] * self.orig  # exact, of 1 / (orig * new) s
        crossings = steps * (self.base / (self.orig * self.new))
        place = np.clip(crossings / self.lowpass_filter_width, -1, 1)
        if self.method == "sinc_interp_hann":
            window = np.cos(place * (np.pi / 2)) ** 2
        else:
            window = np.i0(self.beta * np.sqrt(1 - place**2)) / np.i0(self.beta)
        values = np.sinc(crossings) * window * (self.base / self.orig)
        return np.where(np.abs(steps) <= self.half, values, 0.0)[:, None]

    def apply(self, x: Tensor, kernel: Tensor | None) -> Tensor:
        """Return the tensor at the new rate."""
        require_same("resample", waveform=x.dtype, kernel=None if kernel is None else kernel.dtype)
        at, dims = frame_dims("resample", x, -1)
        if at != x.ndim - 1:
            raise NotStreamableError(
                "resample: the stream axis must be the last dimension, as the time of plain tensors is"
            )
        if self.same:
            return x
        attributes = {"orig": self.orig, "new": self.new, "width": self.width, "half": self.half}
        return apply("resample", attributes, (x,), (kernel,), dims)[0]


@lru_cache(maxsize=32)
def _prepared(dtype: str, *arguments: Any) -> tuple[Resampling, Tensor | None]:
    resampling = Resampling(*arguments)
    return resampling, None if resampling.same else Tensor(resampling.kernel().astype(dtype))


@torch_lacks
@described(
    "As `waveform`, with ⌈L * new_freq / orig_freq⌉ frames.",
    **RATES,
    waveform="``(L,)``, ``(B, L)`` or ``(B, C, L)``; every channel is resampled by itself.",
)
def resample(
    waveform: Tensor,
    orig_freq: int,
    new_freq: int,
    lowpass_filter_width: int = 6,
    rolloff: float = 0.99,
    resampling_method: str = "sinc_interp_hann",
    beta: float | None = None,
) -> Tensor:
    """Return the signal at another sample rate, by bandlimited interpolation.

    Raises
    ------
    ShapeError
        For rates that are no whole numbers above 0, and other arguments that don't fit.
    """
    x = real("resample", waveform)
    arguments = (orig_freq, new_freq, lowpass_filter_width, rolloff, resampling_method, beta)
    resampling, kernel = _prepared(np.dtype(x.dtype).name, *arguments)
    return resampling.apply(x, kernel)
