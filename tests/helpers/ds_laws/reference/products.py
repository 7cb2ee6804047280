"""Products and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays, by_lane, no_frames

__all__ = ["REFERENCES"]


def linear(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    y = np.einsum("...k,nk->...n", x, w[0])
    return [y if w[1] is None else y + w[1]]


def padded(x: Array, left: int, right: int, mode: str, value: float = 0.0) -> Array | None:
    """Add frames at both ends; None where there are too few to do so."""
    n = len(x)
    needed = {"reflect": max(left, right) + 1, "circular": max(left, right), "replicate": 1}.get(mode, 0)
    if n == 0 or (n < needed and (left or right)):
        return None
    names = {
        "zeros": "constant",
        "constant": "constant",
        "replicate": "edge",
        "reflect": "reflect",
        "circular": "wrap",
    }
    more = {"constant_values": value} if mode in ("zeros", "constant") else {}
    return np.pad(x, [(left, right)] + [(0, 0)] * (x.ndim - 1), mode=names[mode], **more)


def conv1d(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    weight, bias = w
    n_out, per_group, kernel = weight.shape
    groups, stride, dilation = a["groups"], a["stride"], a["dilation"]
    span = dilation * (kernel - 1) + 1
    x = padded(x, a["left"], a["right"], a["mode"])
    if x is None or len(x) < span:
        return [no_frames(n_out)]
    n = (len(x) - span) // stride + 1
    y = np.zeros((n, n_out))
    per_out = n_out // groups
    for g in range(groups):
        part = x[:, g * per_group : (g + 1) * per_group]
        for tap in range(kernel):
            rows = part[tap * dilation :][: (n - 1) * stride + 1 : stride]
            y[:, g * per_out : (g + 1) * per_out] += rows @ weight[g * per_out : (g + 1) * per_out, :, tap].T
    return [y if bias is None else y + bias]


def conv_transpose1d(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    weight, bias = w
    n_in, per_out, kernel = weight.shape
    groups, stride, dilation, padding = a["groups"], a["stride"], a["dilation"], a["padding"]
    n_out = per_out * groups
    n = (len(x) - 1) * stride - 2 * padding + dilation * (kernel - 1) + a["output_padding"] + 1
    if len(x) == 0 or n <= 0:
        return [no_frames(n_out)]
    y = np.zeros((n + 2 * padding, n_out))
    per_in = n_in // groups
    for g in range(groups):
        part = x[:, g * per_in : (g + 1) * per_in]
        for i in range(len(x)):
            for tap in range(kernel):
                at = i * stride + tap * dilation
                y[at, g * per_out : (g + 1) * per_out] += part[i] @ weight[g * per_in : (g + 1) * per_in, :, tap]
    y = y[padding : padding + n]
    return [y if bias is None else y + bias]


def layer_norm(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    axes = tuple(range(-a["axes"], 0))
    centred = x - x.mean(axes, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + a["eps"])
    y = y if w[0] is None else y * w[0]
    return [y if w[1] is None else y + w[1]]


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "conv1d": by_lane(conv1d),
    "conv_transpose1d": by_lane(conv_transpose1d),
}
