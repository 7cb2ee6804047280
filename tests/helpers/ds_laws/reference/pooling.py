"""Windows and parts of an axis that are reduced to one element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays

__all__ = ["REFERENCES"]


def windows(
    size: int, kernel: int, stride: int, left: int, right: int, dilation: int, ceil: int
) -> list[tuple[list[int], int]]:
    """Per window the elements that it holds, and how many it has with padding."""
    span = dilation * (kernel - 1) + 1
    out = list(range(-left, size + right - span + 1, stride))
    hanging = out[-1] + stride if out else -left
    if ceil and hanging - stride + span < size + right:  # the one before leaves something
        out.append(hanging)
    if ceil and out and out[-1] >= size:
        out.pop()
    return [
        ([p for p in range(s, s + span, dilation) if 0 <= p < size], min(kernel, size + right - s)) for s in out
    ]


def _axes(a: dict[str, Any], x: Array) -> tuple[Array, list[Any], list[Any]]:
    """The frames as [L][F][C], the windows of L and those of F."""
    frames = windows(len(x), a["kernel"], a["stride"], a["left"], a["right"], a.get("dilation", 1), a["ceil"])
    inner = (a["inner_kernel"], a["inner_stride"], a["inner_padding"], a.get("inner_dilation", 1))
    if inner[:3] == (1, 1, 0):
        return x.reshape(len(x), 1, -1), frames, [([0], 1)]
    wide = x.reshape(len(x), x.shape[1], -1)
    return wide, frames, windows(x.shape[1], *inner[:2], inner[2], inner[2], inner[3], a["ceil"])


def _shaped(y: Array, x: Array) -> Array:
    """[L'][F'][C] with the features of x, F pooled."""
    kept = int(np.prod(x.shape[1:])) == y.shape[2]  # the whole frame was C
    return y.reshape(len(y), *(x.shape[1:] if kept else (y.shape[1], *x.shape[2:])))


def max_pool(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    wide, frames, inner = _axes(a, x)
    y = np.full((len(frames), len(inner), wide.shape[2]), -np.inf)
    for m, (t, _) in enumerate(frames):
        for g, (u, _) in enumerate(inner):
            if t and u:
                y[m, g] = wide[np.ix_(t, u)].max((0, 1))
    return [_shaped(y, x)]


def avg_pool(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    wide, frames, inner = _axes(a, x)
    y = np.zeros((len(frames), len(inner), wide.shape[2]))
    for m, (t, n_t) in enumerate(frames):
        for g, (u, n_u) in enumerate(inner):
            n = n_t * n_u if a["count_include_pad"] else len(t) * len(u)
            if t and u:
                y[m, g] = wide[np.ix_(t, u)].sum((0, 1)) / (a["divisor"] or n)
    return [_shaped(y, x)]


def adaptive_pool(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    reduce = np.mean if a["kind"] == "avg" else np.max
    for axis, n in enumerate((a["frames"], a["inner"])):
        if n and len(x):
            size = x.shape[axis]
            parts = [(i * size // n, -(-(i + 1) * size // n)) for i in range(n)]
            x = np.stack([reduce(np.take(x, range(*p), axis), axis) for p in parts], axis)
        elif n:
            x = np.zeros((0, *([n] if axis else []), *x.shape[1 + axis :]))
    return [x]


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_pool": adaptive_pool,
}
