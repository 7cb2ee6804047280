"""Convolutions along the stream, and along one axis within each frame."""

from __future__ import annotations

import operator
from typing import Any

from ...array import Tensor
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import Ints, channels_first, checked, same_types, single, within_frames

__all__ = ["conv1d", "conv_transpose1d"]


def window_padding(padding: Any, kernel: int, dilation: int, stride: int) -> tuple[int, int]:
    """Return the frames of padding before and after a stream.

    Parameters
    ----------
    padding : int, (int, int), "valid", "same" or "causal"
        As layers and `conv1d` take it.
    kernel, dilation, stride : int
        The windows.

    Raises
    ------
    ShapeError
        For other words, "same" with a stride, and negative numbers.
    """
    around = dilation * (kernel - 1)
    if padding == "valid":
        return 0, 0
    if padding == "same":
        if stride != 1:
            raise ShapeError(
                "padding='same' is not supported for strided convolutions; give the numbers"
            )
        return around // 2, around - around // 2
    if padding == "causal":
        return around, 0
    if isinstance(padding, str):
        raise ShapeError(f"padding is numbers, 'valid', 'same' or 'causal', got {padding!r}")
    if isinstance(padding, (tuple, list)) and len(padding) == 2:
        left, right = map(operator.index, padding)
    else:
        left = right = single(padding, "padding")
    if left < 0 or right < 0:
        raise ShapeError(f"padding must not be negative, got {padding}")
    return left, right


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Any = 0,
    dilation: Ints = 1,
    groups: int = 1,
    *,
    padding_mode: str = "zeros",
) -> Tensor:
    """Return the convolution of frames with windows of weights.

    Parameters
    ----------
    input : Tensor
        ``(B, C_in, L)`` or ``(C_in, L)``; of a stream also ``(B_L, C_in, T)``, frames whose last axis is no
        stream: each is convolved by itself.
    weight : Tensor
        ``(C_out, C_in / groups, kernel_size)``.
    bias : Tensor, optional
        ``(C_out,)``.
    stride, dilation, groups : int
        As in torch.
    padding : int, (left, right), "valid", "same" or "causal"
        Frames added at both ends; beyond torch a pair, and "causal": all of it on the left.
    padding_mode : {"zeros", "replicate", "reflect", "circular"}
        What they hold. "circular" needs the whole stream.

    Returns
    -------
    Tensor
        ``(B, C_out, L_out)`` or ``(C_out, L_out)``, where L_out = (L + left + right - dilation *
        (kernel_size - 1) - 1) // stride + 1; no frames where the input is too short.

    Raises
    ------
    ShapeError
        For arguments that don't fit, and where no window fits T.
    """
    x = checked("conv1d", input)
    same_types("conv1d", x, weight, bias)
    shape = weight.shape
    if len(shape) != 3:
        raise ShapeError(f"conv1d: expected a weight (out, in / groups, kernel), got {shape}")
    step, spread = single(stride, "stride"), single(dilation, "dilation")
    left, right = window_padding(padding, shape[2], spread, step)
    if within_frames(x):
        attributes: dict[str, Any] = {
            "stride": [1, step],
            "dilation": [1, spread],
            "groups": groups,
            "padding": [0, 0, left, right],
            "inner_mode": padding_mode,
        }
        return apply("conv2d", attributes, (x,), (weight, bias), (x.dims[0], 1, 0))[0]  # type: ignore[attr-defined]
    attributes = {
        "stride": step,
        "dilation": spread,
        "groups": groups,
        "left": left,
        "right": right,
        "mode": padding_mode,
    }
    return apply("conv1d", attributes, (x,), (weight, bias), channels_first("conv1d", x))[0]


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Return the transposed convolution: each frame adds a window of weights, `stride` apart.

    Parameters
    ----------
    input : Tensor
        As in `conv1d`.
    weight : Tensor
        ``(C_in, C_out / groups, kernel_size)``.
    bias : Tensor, optional
        ``(C_out,)``.
    stride, padding, output_padding, groups, dilation : int
        As in torch: `padding` frames are dropped at both ends, `output_padding` added at the end.

    Returns
    -------
    Tensor
        ``(B, C_out, L_out)`` or ``(C_out, L_out)``, where L_out = (L - 1) * stride - 2 * padding +
        dilation * (kernel_size - 1) + output_padding + 1.
    """
    x = checked("conv_transpose1d", input)
    same_types("conv_transpose1d", x, weight, bias)
    numbers = {
        "stride": single(stride, "stride"),
        "padding": single(padding, "padding"),
        "output_padding": single(output_padding, "output_padding"),
        "dilation": single(dilation, "dilation"),
    }
    if within_frames(x):
        first = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1}
        attributes: dict[str, Any] = {k: [first[k], v] for k, v in numbers.items()}
        name, dims = "conv_transpose2d", (x.dims[0], 1, 0)  # type: ignore[attr-defined]
    else:
        attributes = dict(numbers)
        name, dims = "conv_transpose1d", channels_first("conv_transpose1d", x)
    attributes["groups"] = groups
    return apply(name, attributes, (x,), (weight, bias), dims)[0]
