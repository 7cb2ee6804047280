"""Functions that torch lacks; tests/source/test_stubs.py writes this."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

def of_streams(function: Callable[..., Any]) -> Callable[..., Any]: ...
def combine(input: Tensor, weights: Tensor) -> Tensor:
    """Return the sums of what `k` experts gave, weighted, added in the order of the choices."""
def cumulative_mean(input: Tensor, dim: int = -1) -> Tensor:
    """Return the mean of all frames so far."""
def cumulative_sum(input: Tensor, dim: int = -1) -> Tensor:
    """Return the sum of all frames so far."""
def expert_linear(input: Tensor, index: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the products of every vector with the matrices of the experts that are chosen for it."""
def linear_recurrence(a: Any, b: Any, h0: Any = None, dim: int = 1) -> Any:
    """Return the frames of h with h[t] = a[t] * h[t - 1] + b[t]."""
def overlap_add(input: Tensor, step: int) -> Tensor:
    """Return windows of samples laid over each other, `step` apart, and added."""
def pad_to_multiple(
        input: Tensor, multiple: int, padding: Sequence[int] = (0, 0), mode: str = 'constant', value: float = 0.0,
        least: int = 0
    ) -> Tensor:
    """Return the stream with frames at both ends, at its end as many more as make it whole blocks."""
def resample(
        waveform: Tensor, orig_freq: int, new_freq: int, lowpass_filter_width: int = 6, rolloff: float = 0.99,
        resampling_method: str = 'sinc_interp_hann', beta: float | None = None
    ) -> Tensor:
    """Return the signal at another sample rate, by bandlimited interpolation."""
def rotary_embedding(
        input: Tensor, dim: int | None = None, base: float = 10000.0, interleaved: bool = False,
        scaling_factor: float = 1.0, inv_freq: Tensor | None = None
    ) -> Tensor:
    """Return pairs of features turned by angles that grow with the frame's absolute position."""
def router(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias, by sums whose order depends on nothing but the weight's shape."""
def running_mean(input: Tensor, size: int, dim: int = -1) -> Tensor:
    """Return the mean of the last `size` frames, or of all so far where there are fewer."""
def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, dim: int = 1) -> tuple[Any, Any]:
    """Return what is carried after the last frame, and what each frame gives."""
