"""Convolutions over planes of (stream, positions), or of (rows, positions) in each frame; padding of features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays, no_frames
from .products import padded


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
    y = padded(np.moveaxis(x, axis, 0), a["left"], a["right"], a["mode"], a["value"])
    assert y is not None
    return [np.moveaxis(y, 0, axis)]
