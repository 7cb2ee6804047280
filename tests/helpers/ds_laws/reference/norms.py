"""Normalisations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays

__all__ = ["REFERENCES"]


def _affine(y: Array, weight: Array | None, bias: Array | None) -> list[Array]:
    y = y if weight is None else y * weight
    return [y if bias is None else y + bias]


def rms_norm(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    axes = tuple(range(-a["axes"], 0))
    return _affine(x / np.sqrt((x**2).mean(axes, keepdims=True) + a["eps"]), w[0], None)


def batch_norm(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return _affine((x - w[0]) / np.sqrt(w[1] + a["eps"]), w[2], w[3])


def group_norm(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    groups = a["groups"]
    split = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    axes = [i for i in range(split.ndim) if i != split.ndim - 2]
    if a["over"] == "frame":
        axes = axes[1:]
    elif split.size == groups:
        return [x[:0]]
    elif not len(x):
        return [x]
    centred = split - split.mean(tuple(axes), keepdims=True)
    y = centred / np.sqrt((centred**2).mean(tuple(axes), keepdims=True) + a["eps"])
    return _affine(y.reshape(x.shape), w[0], w[1])


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "rms_norm": rms_norm,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
}
