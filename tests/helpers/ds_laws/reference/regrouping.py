"""Frames repeated, laid over each other, summed up; features of another size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays

__all__ = ["REFERENCES"]


def repeat_frames(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [np.repeat(x, a["times"], 0)]


def overlap_add(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n, size = len(x), x.shape[1]
    y = np.zeros(((n - 1) * a["step"] + size if n else 0, *x.shape[2:]))
    for i in range(n):
        y[i * a["step"] : i * a["step"] + size] += x[i]
    return [y]


def cumulative(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    y = np.cumsum(x, 0)
    if a["kind"] == "mean":
        y /= np.arange(1, len(x) + 1).reshape(-1, *(1,) * (x.ndim - 1))
    return [y]


def nearest(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n, size = x.shape[a["axis"] + 1], a["size"]
    if size in (n, 2 * n):
        places = np.arange(size) // (size // n)
    else:
        step = np.float32(1 / a["scale"]) if a["scale"] else np.float32(n) / np.float32(size)
        places = np.minimum(np.floor(np.arange(size, dtype=np.float32) * step).astype(int), n - 1)
    return [np.take(x, places, a["axis"] + 1)]


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "repeat_frames": repeat_frames,
    "overlap_add": overlap_add,
    "cumulative": cumulative,
    "nearest": nearest,
}
