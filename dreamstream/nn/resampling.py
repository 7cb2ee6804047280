"""Change of the sample rate."""

from __future__ import annotations

from typing import Any

from ..array import Tensor
from ..array.dtypes import as_dtype, float32, require_float
from .functional.arguments import checked
from .functional.resampling import RATES, Resampling
from .functional.texts import described
from .module import Module

__all__ = ["Resample"]


@described(**RATES, dtype="dtype or str, optional: float32 or float64, of the kernel (computed in float64).")
class Resample(Module):
    """The signal at another sample rate, by bandlimited interpolation.

    Attributes
    ----------
    kernel : Tensor
        A buffer ``(new, 1, 2 * width + orig)``, where new and orig are the rates without their common
        divisor; there is none where both are equal.

    Raises
    ------
    ShapeError
        For rates that are no whole numbers above 0, and other arguments that don't fit.
    DTypeError
        Where an input's type is not the kernel's.

    Notes
    -----
    Input ``(B, L)``, ``(B, C, L)`` or ``(L,)``, output the same with ⌈L * new_freq / orig_freq⌉ frames, at a
    rate that is exactly new_freq / orig_freq times the input's.

    **Streaming.** Every frame leaves as soon as the last input frame arrives that it depends on; with w =
    lowpass_filter_width / rolloff * max(1, orig_freq / new_freq) that is a delay of ⌈w⌉ frames at most. State
    2 * w frames, 4 bytes for each channel.

    Source: torchaudio.transforms.Resample (there `resampling_method` is the third argument).
    """

    _shown = "orig_freq={orig_freq}, new_freq={new_freq}"

    kernel: Tensor

    def __init__(
        self,
        orig_freq: int = 16000,
        new_freq: int = 16000,
        lowpass_filter_width: int = 6,
        rolloff: float = 0.99,
        resampling_method: str = "sinc_interp_hann",
        beta: float | None = None,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.orig_freq, self.new_freq, self.lowpass_filter_width = orig_freq, new_freq, lowpass_filter_width
        self.rolloff, self.resampling_method, self.beta = rolloff, resampling_method, beta
        self._resampling = Resampling(orig_freq, new_freq, lowpass_filter_width, rolloff, resampling_method, beta)
        to = float32 if dtype is None else as_dtype(dtype)
        require_float("Resample", to)
        if not self._resampling.same:
            self.register_buffer("kernel", Tensor(self._resampling.kernel().astype(to)))

    def forward(self, waveform: Tensor) -> Tensor:
        """Return the signal at the rate `new_freq`."""
        x = checked("Resample", waveform)
        return self._resampling.apply(x, None if self._resampling.same else self.kernel)
