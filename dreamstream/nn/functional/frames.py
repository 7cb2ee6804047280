"""Frames laid over each other, summed up, taken apart: what works along the stream."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ...array import Tensor
from ...array.scatter import added_up
from ...dispatch import apply
from ...errors import NotStreamableError, ShapeError
from ...stream.rules import Length
from .arguments import checked, frame_dims, require_positive
from .padding import pad
from .texts import described, torch_lacks

__all__ = ["cumulative_mean", "cumulative_sum", "fold", "overlap_add", "unfold"]


@torch_lacks
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
    require_positive("overlap_add", step=step)
    if x.ndim < 2 or (not x.is_stream and x.ndim > 4):
        raise ShapeError(
            f"overlap_add: expected (L, size), (B, L, size) or (B, C, L, size), got {x.ndim} dimensions"
        )
    roles = x.dims if x.is_stream else (*("B", 0)[: x.ndim - 2], "L", 0)  # type: ignore[attr-defined]
    if roles[-2] != "L" or isinstance(roles[-1], str):
        raise ShapeError(f"overlap_add: expected windows (.., L, size), got a stream with {roles}")
    return added_up(x, roles, operator.index(step))


_along_frames = described(
    "As `input`; summed in float64, each frame rounded once, so that nothing drifts.",
    dim="The axis of frames of plain tensors; streams know theirs.",
)


@torch_lacks
@_along_frames
def cumulative_sum(input: Tensor, dim: int = -1) -> Tensor:
    """Return the sum of all frames so far."""
    return _cumulative("cumulative_sum", "sum", input, dim)


@torch_lacks
@_along_frames
def cumulative_mean(input: Tensor, dim: int = -1) -> Tensor:
    """Return the mean of all frames so far."""
    return _cumulative("cumulative_mean", "mean", input, dim)


def _cumulative(name: str, kind: str, input: Tensor, dim: int) -> Tensor:
    _, dims = frame_dims(name, checked(name, input), dim)
    return apply("cumulative", {"kind": kind}, (input,), (), dims)[0]


@described(
    "``(B, C * kernel_h * kernel_w, blocks)``, blocks in the order of their places.",
    {
        "NotStreamableError": "For a stream whose blocks don't lie one behind the other along L.",
        "ShapeError": "For arguments that don't fit.",
    },
    input="``(B, C, H, W)``; H or W may be the stream axis. Of a stream's W, H must have one place for blocks.",
    kernel_size="int or (int, int): The sizes of a block.",
    dilation="int or (int, int): Steps from element to element of a block.",
    padding="int or (int, int): Zeros at both ends.",
    stride="int or (int, int): Steps from block to block.",
)
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Return all blocks of planes, a column each.

    Notes
    -----
    **Streaming.** As a convolution of these sizes. Source: torch.nn.functional.unfold.
    """
    x = checked("unfold", input)
    if x.ndim != 4:
        raise ShapeError(f"unfold: expected (B, C, H, W), got {x.ndim} dimensions")
    steps, pads, strides = map(_pair, (dilation, padding, stride))
    sizes = kernel_size if isinstance(kernel_size, (tuple, list)) else (kernel_size, kernel_size)
    x = pad(x, (pads[1], pads[1], pads[0], pads[0]))
    over = [axis for axis in (2, 3) if isinstance(sizes[axis - 2], Length)]
    if over:
        return _as_wide(x, sizes, steps, strides, over[0])
    sizes = _pair(sizes)
    for axis in (2, 3):
        span = steps[axis - 2] * (sizes[axis - 2] - 1) + 1
        x = x.unfold(axis, span, strides[axis - 2])[..., :: steps[axis - 2]]
    x = x.permute(0, 1, 4, 5, 2, 3).flatten(1, 3)
    if x.is_stream and x.dims[3] == "L" and x.shape[2] != 1:  # type: ignore[attr-defined]
        raise NotStreamableError.here(
            "unfold: blocks come row by row, each of which would be the whole stream; transpose H and W, or let a "
            "block be as high as the plane"
        )
    rows, columns = x.shape[2], x.shape[3]
    return (
        x.squeeze(2)
        if x.is_stream and isinstance(rows, int) and rows == 1
        else x.reshape(*x.shape[:2], rows * columns)
    )


def _as_wide(x: Any, sizes: Sequence[Any], steps: Sequence[int], strides: Sequence[int], axis: int) -> Tensor:
    """Return blocks that have all frames of the stream, which is dimension `axis`."""
    other = 5 - axis
    if steps[axis - 2] != 1 or not x.is_stream or x.dims[axis] != "L":
        raise NotStreamableError.here(
            f"unfold: a block of {sizes[axis - 2]!r} elements; give a number, or the stream's own length, without "
            "dilation"
        )
    x.require_length(sizes[axis - 2])
    size, step = operator.index(sizes[other - 2]), steps[other - 2]
    x = x.unfold(other, step * (size - 1) + 1, strides[other - 2])[..., ::step]
    x = x.permute(0, 1, *((4, 3, 2) if axis == 3 else (2, 4, 3)))
    return x.flatten(1, 3)


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Return planes of one row or one column, of blocks that are laid over each other and added.

    Parameters
    ----------
    input : Tensor
        ``(B, C * size, L)``, as `unfold` gives it.
    output_size : (int, int)
        H and W, one of them 1; a stream's length may be one.
    kernel_size, dilation, padding, stride : int or (int, int)
        Of the blocks; no dilation.

    Returns
    -------
    Tensor
        ``(B, C, H, W)``; zeros where there is no block.

    Raises
    ------
    NotStreamableError
        Where the blocks are neither rows nor columns.
    ShapeError
        Where so many blocks don't give this size.

    Notes
    -----
    **Streaming.** As `overlap_add`. Source: torch.nn.functional.fold.
    """
    x = checked("fold", input)
    sizes, steps, pads, strides = map(_pair, (kernel_size, dilation, padding, stride))
    out = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * 2
    ones = [isinstance(n, int) and (n, size, side) == (1, 1, 0) for n, size, side in zip(out, sizes, pads)]
    if x.ndim != 3 or True not in ones or any(d != 1 and n != 1 for d, n in zip(steps, sizes)):
        raise NotStreamableError.here(
            "fold: expected (B, C * size, L), for planes of one row or one column, not dilated"
        )
    axis = 1 if ones[0] else 0
    y = overlap_add(x.unflatten(1, (-1, sizes[axis])).transpose(2, 3), strides[axis])
    side, step = pads[axis], strides[axis]
    behind = out[axis] + 2 * side - y.shape[2]  # elements that no block reaches
    if not (behind >= 0 and behind < step):
        raise ShapeError.here(
            f"fold: the blocks reach over {y.shape[2]}, or up to {step - 1} more, not {out[axis]} and {2 * side} "
            "around them"
        )
    if not isinstance(behind, int) or behind:
        y = pad(y, (0, behind))
    y = y[:, :, side:-side] if side else y
    return y.unsqueeze(2 + (1 - axis))


def _pair(value: Any) -> tuple[int, int]:
    """Return two integers, or one for both."""
    first, second = value if isinstance(value, (tuple, list)) else (value, value)
    return operator.index(first), operator.index(second)
