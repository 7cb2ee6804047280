"""Frames laid over each other, summed up, repeated: what works along the stream alone."""

from __future__ import annotations

import operator

from ...array import Tensor
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import checked, frame_dims
from .texts import described

__all__ = ["cumulative_mean", "cumulative_sum", "overlap_add", "running_mean"]


@described(
    "``(B, L_out)``, ``(L_out,)`` or ``(B, C, L_out)``, where L_out = (L - 1) * step + size; no samples of no "
    "windows.",
    {"ShapeError": "Where the last two dimensions are not the stream axis and the window."},
    input="``(B, L, size)``, ``(L, size)`` or, as `unfold` gives it, ``(B, C, L, size)``.",
    step="Samples from window to window; where it is above their size, zeros stand between.",
)
def overlap_add(input: Tensor, step: int) -> Tensor:
    """Return windows of samples laid over each other, `step` apart, and added.

    The inverse of ``x.unfold(L, size, step)`` for windows that add up to one.
    """
    x = checked("overlap_add", input)
    if operator.index(step) < 1:
        raise ShapeError(f"overlap_add: step must be at least 1, got {step}")
    if x.ndim < 2 or (not x.is_stream and x.ndim > 4):
        raise ShapeError(
            f"overlap_add: expected (L, size), (B, L, size) or (B, C, L, size), got {x.ndim} dimensions"
        )
    roles = x.dims if x.is_stream else (*("B", 0)[: x.ndim - 2], "L", 0)  # type: ignore[attr-defined]
    if roles[-2] != "L" or isinstance(roles[-1], str):
        raise ShapeError(f"overlap_add: expected windows (.., L, size), got a stream with {roles}")
    features = iter(range(1, x.ndim))
    dims = (*(r if isinstance(r, str) else next(features) for r in roles[:-1]), 0)
    y = apply("overlap_add", {"step": operator.index(step)}, (x,), (), dims)[0]
    made = [r for r in dims if isinstance(r, str)] + list(range(1, x.ndim - 2))
    return y.permute(*(made.index(r) for r in dims[:-1]))


_along_frames = described(
    "As `input`; summed in float64, each frame rounded once, so that nothing drifts.",
    size="Frames.",
    dim="The axis of frames of plain tensors; streams know theirs.",
)


@_along_frames
def cumulative_sum(input: Tensor, dim: int = -1) -> Tensor:
    """Return the sum of all frames so far."""
    return _cumulative("cumulative_sum", "sum", input, dim)


@_along_frames
def cumulative_mean(input: Tensor, dim: int = -1) -> Tensor:
    """Return the mean of all frames so far."""
    return _cumulative("cumulative_mean", "mean", input, dim)


def _cumulative(name: str, kind: str, input: Tensor, dim: int) -> Tensor:
    _, dims = frame_dims(name, checked(name, input), dim)
    return apply("cumulative", {"kind": kind}, (input,), (), dims)[0]


@_along_frames
def running_mean(input: Tensor, size: int, dim: int = -1) -> Tensor:
    """Return the mean of the last `size` frames, or of all so far where there are fewer."""
    if operator.index(size) < 1:
        raise ShapeError(f"running_mean: size must be at least 1, got {size}")
    _, dims = frame_dims("running_mean", checked("running_mean", input), dim)
    window = {"kernel": size, "left": size - 1, "count_include_pad": 0}
    return apply("avg_pool", window, (input,), (), dims)[0]
