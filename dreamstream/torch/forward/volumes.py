"""Layers over three dimensions, one of which is L, as of video: made of those over L and over a frame's image.

A window along L lays its images side by side as channels, so that a convolution is one of single frames; the
greatest and the mean of a box are those of its images'. Values, and the choice among equals, are torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ShapeError
from ...nn import functional
from .names import function


def _three(given: Any) -> list[int]:
    return [given] * 3 if isinstance(given, int) else [*given] * (3 if len(given) == 1 else 1)


def _along(input: Any) -> int:
    """Return which of the three dimensions is L."""
    if input.ndim != 5 or "L" not in input.dims[2:]:
        raise ShapeError(f"three dimensions behind B and channels, one of them L, are expected, got {input.dims}")
    return int(input.dims.index("L")) - 2


def _first(values: list[int], at: int) -> tuple[int, list[int]]:
    """Return what belongs to L, and what to the other two dimensions."""
    return values[at], [v for i, v in enumerate(values) if i != at]


def _of_images(x: Any, run: Callable[..., Any], *more: Any) -> Any:
    """Run a function of ``(frames of all streams, C, H, W)`` on ``(B, C, L, H, W)``."""
    rows, frames = x.shape[0], x.shape[2]
    out = run(x.transpose(1, 2).flatten(0, 1), *more)
    return out.unflatten(0, (rows, frames)).transpose(1, 2)


@function("conv3d")
def _conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Any:  # fmt: skip
    at = _along(input)
    n, image = _first([*weight.shape[2:]], at)
    spread, of_image = _first(_three(dilation), at)
    if isinstance(padding, str):
        same = padding == "same"
        total, pads = spread * (n - 1) * same, [d * (k - 1) * same for d, k in zip(of_image, image)]
        before, behind = total // 2, total - total // 2
        around = (pads[1] // 2, pads[1] - pads[1] // 2, pads[0] // 2, pads[0] - pads[0] // 2)
    else:
        before, pads = _first(_three(padding), at)
        behind, around = before, (pads[1], pads[1], pads[0], pads[0])
    step, strides = _first(_three(stride), at)
    x = functional.pad(input.movedim(at + 2, 2), (*around, before, behind))
    windows = x.unfold(2, spread * (n - 1) + 1, step)[..., ::spread]
    channels = windows.movedim(-1, 2).flatten(1, 2)  # (B, C n, L, H, W)
    kernel = weight.movedim(at + 2, 2).flatten(1, 2)
    out = _of_images(channels, functional.conv2d, kernel, bias, strides, 0, of_image, groups)
    return out.movedim(2, at + 2)


#: The kernel, the stride, the padding and the dilation that leave a dimension as it is.
_AS_IT_IS = (1, 1, 0, 1)


def _pooled(pool: Callable[..., Any], input: Any, numbers: list[Any], *more: Any) -> Any:
    """Pool one dimension after the other, the last one first: of equal elements torch takes the first of a box.

    `pool` is that of planes, `numbers` are the kernel, the stride, the padding and what else there is, of each
    dimension.
    """
    at = _along(input)
    out = input.movedim(at + 2, 2)
    first = next(axis for axis in range(3) if axis != at)
    for axis in reversed(range(3)):
        own = [_three(n)[axis] for n in numbers]
        down = [*zip(own, _AS_IT_IS)]
        if all(n == one for n, one in down):
            continue
        if axis == at:  # a plane of one column
            sizes = out.shape[3:]
            line = pool(out.movedim(2, -1).flatten(1, 3).unsqueeze(-1), *down, *more).squeeze(-1)
            out = line.unflatten(1, (-1, *sizes)).movedim(-1, 2)
        else:
            out = _of_images(out, pool, *(down if axis == first else [(one, n) for n, one in down]), *more)
    return out.movedim(2, at + 2)


@function("max_pool3d")
def _max_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    numbers = [kernel_size, stride or kernel_size, padding, dilation]
    return _pooled(functional.max_pool2d, input, numbers, ceil_mode, return_indices)


@function("avg_pool3d")
def _avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    numbers = [kernel_size, stride or kernel_size, padding]
    if divisor_override is None:
        return _pooled(functional.avg_pool2d, input, numbers, ceil_mode, count_include_pad)
    return _pooled(functional.avg_pool2d, input, numbers, ceil_mode, count_include_pad, 1) / divisor_override
