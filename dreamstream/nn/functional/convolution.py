"""Convolutions along the stream, along one axis within each frame, and over two axes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...array import Tensor
from ...dispatch import apply
from ...errors import ShapeError
from .arguments import Ints, channels_first, checked, for_each_stream, same_types, several, single, within_frames
from .texts import described

__all__ = ["conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"]

Pads = list[tuple[int, int]]

FRAMES = (
    "``(B, C_in, L)`` or ``(C_in, L)``; of a stream also ``(B_L, C_in, T)``, frames whose last axis is no "
    "stream, each of which is convolved by itself."
)
PLANES = (
    "``(B, C_in, H, W)`` or ``(C_in, H, W)``. Of a stream H or W is the stream axis L, or the dimensions are "
    "``(B_L, C_in, H, W)``, where each frame is an image of its own."
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
    """Return the frames of padding before and after a stream, of what layers and `conv1d` take.

    Other words, "same" with a stride, and negative numbers raise ShapeError.
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


def plane_padding(
    padding: Any, kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the padding before and after, for each of two axes, of what layers and `conv2d` take.

    That is per axis a number, (left, right), "valid", "same" or "causal". Other words and forms, "same" with a
    stride, and negative numbers raise ShapeError.
    """
    if padding == "causal":
        raise ShapeError("padding='causal' is for one axis: say which, as in padding=('causal', 'same')")
    if isinstance(padding, (tuple, list)) and len(padding) == 1:
        padding = padding[0]
    if not isinstance(padding, (tuple, list)):
        padding = (padding, padding)
    if len(padding) != 2:
        raise ShapeError(f"padding must be one for each of two axes, got {tuple(padding)}")
    return [window_padding(*each) for each in zip(padding, kernel, dilation, stride)]


def _sizes(n: int, **given: Ints) -> dict[str, tuple[int, ...]]:
    """Return a size of each kind for each of n axes."""
    return {name: several(value, n, name) for name, value in given.items()}


def _plane(name: str, x: Tensor, outputs: Callable[[int, int], int]) -> tuple[int, tuple[Any, ...]] | None:
    """Return which of the last two axes is the plane's first, and what the dimensions are.

    Of a stream that is the stream axis; where there is none among them, each frame is an image of its own.
    Plain tensors may be either: an axis too short for any output, as a stream may be, is taken for one.
    `outputs` tells how many a size along axis 0 or 1 gives. None: both are too short.
    """
    if x.ndim not in (3, 4):
        raise ShapeError(f"{name}: expected (B, C, H, W) or (C, H, W), got {x.ndim} dimensions")
    if not x.is_stream:
        lead = ("B",) if x.ndim == 4 else ()
        if outputs(1, x.shape[-1]) >= 1:
            return 0, (*lead, 1, "L", 0)
        return (1, (*lead, 1, 0, "L")) if outputs(0, x.shape[-2]) >= 1 else None
    dims: tuple[Any, ...] = x.dims  # type: ignore[attr-defined]
    lead = dims[:-3]
    kinds = tuple("F" if isinstance(d, int) else d for d in dims[-3:])
    if all(isinstance(d, str) for d in lead):
        if kinds == ("F", "L", "F"):
            return 0, (*lead, 1, "L", 0)
        if kinds == ("F", "F", "L"):
            return 1, (*lead, 1, 0, "L")
        if kinds == ("F", "F", "F"):
            return 0, (*lead, 2, 0, 1)
    raise ShapeError.here(
        f"{name}: expected dimensions (B, C, L, F), (B, C, F, L) or (B_L, C, H, W), got a stream with {x.roles}"  # type: ignore[attr-defined]
    )


def _nothing(x: Tensor, n_out: int) -> Tensor:
    """The outputs where both axes are too short."""
    return Tensor._plain(np.zeros((*x.shape[:-3], n_out, 0, 0), x.dtype), True)


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
    attributes: dict[str, Any] = {"stride": step, "dilation": spread, "groups": groups}
    if within_frames(x):
        attributes |= {"stride": [1, step], "dilation": [1, spread], "padding": [0, 0, left, right]}
        attributes["inner_mode"] = padding_mode
        return apply("conv2d", attributes, (x,), (weight, bias), (x.dims[0], 1, 0))[0]  # type: ignore[attr-defined]
    attributes |= {"left": left, "right": right, "mode": padding_mode}
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
    numbers = _sizes(1, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation)
    if within_frames(x):
        first = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1}
        attributes: dict[str, Any] = {k: [first[k], v] for k, (v,) in numbers.items()}
        name, dims = "conv_transpose2d", (x.dims[0], 1, 0)  # type: ignore[attr-defined]
    else:
        attributes = {k: v for k, (v,) in numbers.items()}
        name, dims = "conv_transpose1d", channels_first("conv_transpose1d", x)
    attributes["groups"] = groups
    return apply(name, attributes, (x,), (weight, bias), dims)[0]


@described(
    "``(B, C_out, H_out, W_out)``, where H_out = (H + left + right - dilation * (kernel_h - 1) - 1) // stride + 1 "
    "and W_out likewise; none where the input is too short.",
    **WINDOWS,
    input=PLANES,
    weight="``(C_out, C_in / groups, kernel_h, kernel_w)``.",
    padding=PLANE_PADDING,
)
@for_each_stream
def conv2d(
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
    """Return the convolution of planes with windows of weights.

    Raises
    ------
    ShapeError
        For arguments that don't fit, and where no window fits the features of a stream's frame.
    """
    x = checked("conv2d", input)
    same_types("conv2d", x, weight, bias)
    if weight.ndim != 4:
        raise ShapeError(f"conv2d: expected a weight (out, in / groups, kernel_h, kernel_w), got {weight.shape}")
    steps, spread = several(stride, 2, "stride"), several(dilation, 2, "dilation")
    pads = plane_padding(padding, weight.shape[2:], spread, steps)

    def outputs(i: int, n: int) -> int:
        least = {"reflect": max(pads[i]) + 1, "circular": max(pads[i])}.get(padding_mode, 1)
        room = n + sum(pads[i]) - spread[i] * (weight.shape[2 + i] - 1) - 1
        return 0 if n < max(least, 1) else room // max(steps[i], 1) + 1

    found = _plane("conv2d", x, outputs)
    if found is None:
        return _nothing(x, weight.shape[0])
    axis, dims = found
    attributes: dict[str, Any] = {
        "axis": axis,
        "stride": [steps[axis], steps[1 - axis]],
        "dilation": [spread[axis], spread[1 - axis]],
        "groups": groups,
        "padding": [*pads[axis], *pads[1 - axis]],
        "mode": padding_mode,
        "inner_mode": padding_mode,
    }
    return apply("conv2d", attributes, (x,), (weight, bias), dims)[0]


@described(
    "``(B, C_out, H_out, W_out)``, where H_out = (H - 1) * stride - 2 * padding + dilation * (kernel_h - 1) + "
    "output_padding + 1 and W_out likewise; none where that is less.",
    **SPREAD,
    input=PLANES,
    weight="``(C_in, C_out / groups, kernel_h, kernel_w)``.",
)
@for_each_stream
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Return the transposed convolution: each position adds a window of weights, `stride` apart.

    Raises
    ------
    ShapeError
        For arguments that don't fit, and where nothing is left of a stream's frame.
    """
    x = checked("conv_transpose2d", input)
    same_types("conv_transpose2d", x, weight, bias)
    if weight.ndim != 4:
        raise ShapeError(
            f"conv_transpose2d: expected a weight (in, out / groups, kernel_h, kernel_w), got {weight.shape}"
        )
    numbers = _sizes(2, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation)

    def outputs(i: int, n: int) -> int:
        step, cut, more, spread = (v[i] for v in numbers.values())
        return n and (n - 1) * step - 2 * cut + spread * (weight.shape[2 + i] - 1) + more + 1

    found = _plane("conv_transpose2d", x, outputs)
    if found is None:
        return _nothing(x, weight.shape[1] * groups)
    axis, dims = found
    attributes: dict[str, Any] = {k: [v[axis], v[1 - axis]] for k, v in numbers.items()}
    attributes |= {"axis": axis, "groups": groups}
    return apply("conv_transpose2d", attributes, (x,), (weight, bias), dims)[0]
