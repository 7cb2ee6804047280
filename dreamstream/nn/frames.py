"""Layers that overlap, sum up and repeat frames, made from the functions."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

from ..errors import ShapeError
from . import functional as F
from .derived import layer
from .functional.arguments import require_positive
from .functional.upsampling import MODES

__all__ = ["CumulativeMean", "CumulativeSum", "OverlapAdd", "RunningMean", "Upsample"]

_OVERLAP = """Notes
-----
Input ``(B, L, size)`` or ``(B, C, L, size)``, float32 or float64. Sums run in float64, in order, and are rounded
once.

**Streaming.** A sample leaves when all windows that touch it are there, a zero between windows with the
next one: delay 0 windows (1 where `step` is above their size), `step` samples per window, and at the end
what is left; state ⌈size / step⌉ - 1 windows."""

_CUMULATIVE = """Notes
-----
Input and output of equal shape, float32 or float64. **Streaming.** Delay 0; state one frame of float64
sums, in which nothing drifts. Source: torch.cumsum, for means divided by the number of frames."""

_RUNNING = """Notes
-----
Input and output of equal shape, float32 or float64. A frame costs `size` additions. **Streaming.** Delay 0;
state size - 1 frames. Source: `AvgPool1d` with its padding on the left alone, not counted."""

_UPSAMPLE = """Raises
------
NotStreamableError
    For sizes and other factors along a stream, at the first call.
ShapeError
    For other modes, and arguments that don't fit.

Notes
-----
Input ``(B, C, L)`` or ``(B, C, H, W)``, of any type. **Streaming.** Delay 0, no state; the rate is
multiplied by the factor; with 1 / k, k - 1 frames of delay and state; in mode "linear" one more.
Source: torch.nn.Upsample."""


def _require_frames(name: str, self: Any) -> None:
    """Check a layer's number of frames."""
    require_positive(type(self).__name__, **{name: getattr(self, name)})
    setattr(self, name, operator.index(getattr(self, name)))


_require_step, _require_size = (partial(_require_frames, name) for name in ("step", "size"))


def _require_mode(self: Any) -> None:
    factor = self.scale_factor
    if isinstance(factor, (tuple, list)):
        self.scale_factor = tuple(map(float, factor))
    elif factor is not None:
        self.scale_factor = float(factor)
    if self.mode not in MODES:
        raise ShapeError(f"Upsample: mode is one of {', '.join(MODES)}, got {self.mode!r}")


def _given_size(self: Any) -> str:
    given = "size" if self.scale_factor is None else "scale_factor"
    return f"{given}={getattr(self, given)}, mode={self.mode!r}"


_USUAL = {"dim": -1}
_cumulative = partial(layer, __name__, _CUMULATIVE, usual=_USUAL)

OverlapAdd = layer(__name__, _OVERLAP, "OverlapAdd", F.overlap_add, "{step}", prepare=_require_step)
CumulativeSum = _cumulative("CumulativeSum", F.cumulative_sum)
CumulativeMean = _cumulative("CumulativeMean", F.cumulative_mean)
RunningMean = layer(
    __name__, _RUNNING, "RunningMean", F.running_mean, "{size}", usual=_USUAL, prepare=_require_size
)
Upsample = layer(
    __name__,
    _UPSAMPLE,
    "Upsample",
    F.interpolate,
    _given_size,
    order=("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor"),
    prepare=_require_mode,
)
