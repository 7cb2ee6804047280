"""Random cases of convolutions over planes, and of padding within frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import Case, Input, Rng, normal, pick
from ..reference import Array, Arrays, no_frames, padded
from .drawing import WAITS, along, any_type, make, maybe, shape
from .products import channels


# ---------------------------------------------------------------- what they compute
def along_stream(weight: Array, axis: int) -> Array:
    """The weight with the kernel axis of the plane's first axis in front of the other, which may be alone."""
    if weight.ndim == 3:
        return weight[:, :, None]
    return weight.swapaxes(2, 3) if axis else weight


def each_image(f: Callable[[Array], Array], x: Array) -> Array:
    """A function of one plane, for every frame."""
    return np.stack([f(image) for image in x])


def conv2d(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    weight = along_stream(w[0], a["axis"])
    n_out, per_group, *kernel = weight.shape
    stride, dilation = a["stride"] or [1, 1], a["dilation"] or [1, 1]
    left, right, first, last = a["padding"] or [0] * 4
    span = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    per_out = n_out // a["groups"]

    def plane(x: Array) -> Array | None:
        """(rows, positions, channels) to the same; None where there are too few rows."""
        inner = padded(x.swapaxes(0, 1), first, last, a["inner_mode"])
        assert inner is not None
        n_positions = (len(inner) - span[1]) // stride[1] + 1
        wide = padded(inner.swapaxes(0, 1), left, right, a["mode"])
        if wide is None or len(wide) < span[0]:
            return no_frames(n_positions, n_out)
        n_rows = (len(wide) - span[0]) // stride[0] + 1
        y = np.zeros((n_rows, n_positions, n_out))
        for group in range(a["groups"]):
            part = wide[..., group * per_group : (group + 1) * per_group]
            out = slice(group * per_out, (group + 1) * per_out)
            for m in range(n_rows):
                for j in range(n_positions):
                    at, on = m * stride[0], j * stride[1]
                    window = part[at : at + span[0] : dilation[0], on : on + span[1] : dilation[1]]
                    y[m, j, out] = np.einsum("tic,ncti->n", window, weight[out])
        return y if w[1] is None else y + w[1]

    return [plane(x) if x.ndim == 3 else each_image(plane, x)]


def conv_transpose2d(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    weight = along_stream(w[0], a["axis"])
    n_in, per_out, *kernel = weight.shape
    stride, dilation = a["stride"] or [1, 1], a["dilation"] or [1, 1]
    padding, more = a["padding"] or [0, 0], a["output_padding"] or [0, 0]
    per_in = n_in // a["groups"]

    def plane(x: Array) -> Array:
        size = [
            (n - 1) * s - 2 * p + d * (k - 1) + o + 1
            for n, s, p, d, k, o in zip(x.shape, stride, padding, dilation, kernel, more)
        ]
        if size[0] <= 0:
            return no_frames(size[1], per_out * a["groups"])
        y = np.zeros((size[0] + 2 * padding[0], size[1] + 2 * padding[1], per_out * a["groups"]))
        for group in range(a["groups"]):
            own = slice(group * per_in, (group + 1) * per_in)
            out = slice(group * per_out, (group + 1) * per_out)
            for i, t in np.ndindex(len(x), kernel[0]):
                for p, u in np.ndindex(x.shape[1], kernel[1]):
                    at, on = i * stride[0] + t * dilation[0], p * stride[1] + u * dilation[1]
                    y[at, on, out] += x[i, p, own] @ weight[own, :, t, u]
        y = y[padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]
        return y if w[1] is None else y + w[1]

    return [plane(x) if x.ndim == 3 else each_image(plane, x)]


def pad_features(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    axis = a["axis"] + 1
    y = padded(np.moveaxis(x, axis, 0), a["left"], max(a["right"], 0), a["mode"], a["value"])
    assert y is not None
    y = y[: len(y) + min(a["right"], 0)]
    return [np.moveaxis(y, 0, axis)]


# ---------------------------------------------------------------- random cases
GAPS = "there are outputs between the taps that no frame reaches, or no later one, which counts don't see"


def plain(rng: Rng, numbers: list[int], usual: int) -> list[int]:
    """The numbers, or none where they are what stands without them."""
    return [] if all(n == usual for n in numbers) and rng.random() < 0.5 else numbers


def inner_pads(rng: Rng, n: int, mode: str) -> list[int]:
    """Padding that n positions allow."""
    most = {"reflect": n - 1, "circular": n}.get(mode, 4)
    return [int(pick(rng, 0, rng.integers(0, most + 1))) for _ in range(2)]


def touched(n_in: int, n_out: int, spread: list[int], shift: int) -> bool:
    """Whether windows at i * stride - shift, i < n_in, meet any of n_out positions."""
    stride, kernel, dilation = spread
    return any(0 <= i * stride + t * dilation - shift < n_out for i in range(n_in) for t in range(kernel))


def kernel_within(rng: Rng, padded: int, most: int) -> tuple[int, int]:
    """Kernel and dilation of windows that fit."""
    dilation = int(pick(rng, 1, 1, 2))
    return int(rng.integers(1, min(most, (padded - 1) // dilation + 1) + 1)), dilation


@along
def _conv2d(rng: Rng, dtype: str) -> Case:
    n_in, n_out, groups = channels(rng)
    n_out = groups * min(n_out // groups, 6)
    modes = ["zeros", "replicate", "reflect", "circular"]
    mode, inner_mode = str(pick(rng, *modes[:3] * 3, "circular")), str(pick(rng, *modes))
    images = rng.random() < 0.2
    positions, rows = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    pads = [int(pick(rng, 0, *rng.integers(0, 5, 2))) for _ in range(2)]
    pads = inner_pads(rng, rows, mode) if images else pads
    inner = inner_pads(rng, positions, inner_mode)
    kernel, dilation = int(rng.integers(1, 5)), int(pick(rng, 1, 1, 2, 3))
    if images:
        kernel, dilation = kernel_within(rng, rows + sum(pads), 3)
    inner_kernel, inner_dilation = kernel_within(rng, positions + sum(inner), 4)
    kind = rng.random()
    if kind < 0.15:  # whole frames, which lie side by side
        inner_kernel, inner_dilation, inner, dilation, groups = positions, 1, [0, 0], 1, 1
    elif kind < 0.3 and not images:  # within a frame only
        kernel, pads = 1, [0, 0]
    stride = [int(pick(rng, 1, 1, 2, 3, 6)), int(pick(rng, 1, 1, 2, 3))]
    axis = int(rng.integers(2))
    a: dict[str, Any] = {
        "axis": axis,
        "stride": plain(rng, stride, 1),
        "dilation": plain(rng, [dilation, inner_dilation], 1),
        "groups": groups,
        "padding": plain(rng, [*pads, *inner], 0),
        "mode": mode,
        "inner_mode": inner_mode,
    }
    whole = mode == "circular" and any(pads) and not images
    size = (positions + sum(inner) - inner_dilation * (inner_kernel - 1) - 1) // stride[1] + 1
    blind = inner_mode == "zeros" and not touched(
        size, positions, [stride[1], inner_kernel, inner_dilation], inner[0]
    )
    sizes: tuple[int, ...] = (inner_kernel, kernel) if axis else (kernel, inner_kernel)
    if kernel == 1 and rng.random() < 0.5:
        sizes = (inner_kernel,)
    return make(
        rng,
        "conv2d",
        [Input((rows, positions, n_in) if images else (positions, n_in), dtype)],
        a,
        weights=[normal(rng, (n_out, n_in // groups, *sizes), dtype), maybe(rng, normal(rng, (n_out,), dtype))],
        whole=whole,
        late=WAITS if whole else GAPS if blind else "",
        reach=4 if images else dilation * (kernel - 1) + stride[0] + sum(pads) + 2,
    )


@along
def _conv_transpose2d(rng: Rng, dtype: str) -> Case:
    n_in, n_out, groups = channels(rng)
    n_out = groups * min(n_out // groups, 5)
    images = rng.random() < 0.2
    positions, rows = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    numbers: dict[str, list[int]] = {"stride": [], "padding": [], "output_padding": [], "dilation": []}
    kernels = []
    for size in (rows if images else 0, positions):  # 0: the stream, which has any
        stride, dilation = int(pick(rng, 1, 2, 3, 5)), int(pick(rng, 1, 1, 2, 3))
        kernel, more = int(rng.integers(1, 5)), int(pick(rng, 0, rng.integers(0, max(stride, dilation))))
        whole = (size - 1) * stride + dilation * (kernel - 1) + more + 1
        most = min((whole - 1) // 2, 3) if size else 3
        padding = int(pick(rng, 0, rng.integers(0, most + 1)))
        kernels.append(kernel)
        for name, n in zip(numbers, (stride, padding, more, dilation)):
            numbers[name].append(n)
    axis = int(rng.integers(2))
    a: dict[str, Any] = {
        "axis": axis,
        **{k: plain(rng, v, int(k in ("stride", "dilation"))) for k, v in numbers.items()},
        "groups": groups,
    }
    sizes = kernels[::-1] if axis else kernels
    if kernels[0] == 1 and rng.random() < 0.5:
        sizes = kernels[1:]
    span = numbers["dilation"][0] * (kernels[0] - 1) + 1
    stride, padding, more, dilation = (n[1] for n in numbers.values())
    size = (positions - 1) * stride - 2 * padding + dilation * (kernels[1] - 1) + more + 1
    gaps = not touched(positions, size, [stride, kernels[1], dilation], padding)
    gaps |= numbers["stride"][0] > 1 and numbers["dilation"][0] > 1
    return make(
        rng,
        "conv_transpose2d",
        [Input((rows, positions, n_in) if images else (positions, n_in), dtype)],
        a,
        weights=[normal(rng, (n_in, n_out // groups, *sizes), dtype), maybe(rng, normal(rng, (n_out,), dtype))],
        late=GAPS if gaps and not images else "",
        reach=4 if images else (span + 2 * numbers["padding"][0]) // numbers["stride"][0] + 3,
    )


def _pad_features(rng: Rng, dtype: str) -> Case:
    kind = any_type(rng, dtype)
    features = shape(rng, 1)
    axis = int(rng.integers(len(features)))
    mode = str(pick(rng, "constant", "replicate", "reflect", "circular"))
    left, right = inner_pads(rng, features[axis], mode)
    if mode == "constant" and rng.random() < 0.3:
        right = -int(rng.integers(features[axis]))
    a = {
        "axis": axis,
        "left": left,
        "right": right,
        "mode": mode,
        "value": float(pick(rng, 0, 1, 0 if kind == "bool" else -3)),
    }
    return make(rng, "pad_features", [Input(features, kind)], a, exact=True)
