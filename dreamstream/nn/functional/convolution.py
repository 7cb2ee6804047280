"""Convolutions along the stream, and along one axis within each frame."""

from __future__ import annotations

import operator
from typing import Any

from ...array import Tensor
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import Ints, channels_first, checked, for_each_stream, same_types, single, within_frames
from .texts import described

__all__ = ["conv1d", "conv_transpose1d"]

FRAMES = (
    "``(B, C_in, L)`` or ``(C_in, L)``; of a stream also ``(B_L, C_in, T)``, frames whose last axis is no "
    "stream, each of which is convolved by itself."
)
PADDING = (
    'int, (left, right), "valid", "same" or "causal": Frames added at both ends. Beyond torch a pair, and '
    '"causal", dilation * (kernel_size - 1) frames on the left.'
)
PLANE_PADDING = (
    'int, "valid", "same" or (h, w): Positions added at both ends; h and w are int or, beyond torch, '
    '(left, right), "valid", "same" or "causal", dilation * (kernel_size - 1) positions on the left.'
)
#: What parameters of convolutions are, of functions and layers.
WINDOWS = {
    "bias": "``(C_out,)``.",
    "kernel_size": "int: Frames or positions of a window; of two axes int or (int, int), like all sizes.",
    "stride": "int: From window to window; of two axes int or (int, int), like all sizes.",
    "dilation": "int: From one to the next within a window.",
    "groups": "Groups of channels that don't see each other.",
    "padding_mode": '{"zeros", "reflect", "replicate", "circular"}: What the padding holds; "circular" along L '
    "needs the whole stream.",
}
SPREAD = {
    "bias": "``(C_out,)``.",
    "kernel_size": "int: Outputs that an input adds to; of two axes int or (int, int), like all sizes.",
    "stride": "int: From one input's outputs to the next one's; of two axes int or (int, int), like all sizes.",
    "dilation": "int: From one to the next within them.",
    "groups": "Groups of channels that don't see each other.",
    "padding": "int: Outputs dropped at both ends.",
    "output_padding": "int: Outputs added at the end, less than stride or dilation.",
    "padding_mode": '{"zeros"}: For torch\'s sake.',
}


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
            raise ShapeError("padding='same' is not supported for strided convolutions; give the numbers")
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


@described(
    "``(B, C_out, L_out)`` or ``(C_out, L_out)``, where L_out = (L + left + right - dilation * (kernel_size - 1) "
    "- 1) // stride + 1; no frames where the input is too short.",
    **WINDOWS,
    input=FRAMES,
    weight="``(C_out, C_in / groups, kernel_size)``.",
    padding=PADDING,
)
@for_each_stream
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


@described(
    "``(B, C_out, L_out)`` or ``(C_out, L_out)``, where L_out = (L - 1) * stride - 2 * padding + dilation * "
    "(kernel_size - 1) + output_padding + 1.",
    **SPREAD,
    input=FRAMES,
    weight="``(C_in, C_out / groups, kernel_size)``.",
)
@for_each_stream
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
    """Return the transposed convolution: each frame adds a window of weights, `stride` apart."""
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
