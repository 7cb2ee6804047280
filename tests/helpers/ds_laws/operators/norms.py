"""Normalisations: what they compute, and random cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick, sizes
from ..reference import Arrays
from .drawing import WAITS, cases, innermost, make, maybe, shape


# ---------------------------------------------------------------- what comes out
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


# ---------------------------------------------------------------- random cases
#: Where torch's own float32 loses digits there, by sums and scales of another form; float64 shows the rest.
CANCELS = {"batch_norm", "group_norm"}


def far(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Far from zero, differing by little."""
    return (1e3 + rng.standard_normal(shape) / 4).astype(dtype)


def _rms_norm(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 2), int(rng.integers(1, 40)))
    axes = int(rng.integers(1, len(features) + 1))
    return make(
        rng,
        "rms_norm",
        [Input(features, dtype, draw=pick(rng, normal, normal, far))],
        {"axes": axes, "eps": float(pick(rng, 1e-6, 1e-3, 0.5))},
        weights=[maybe(rng, normal(rng, features[len(features) - axes :], dtype))],
        **innermost(rng, features, axes),
    )


def _batch_norm(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 2), int(rng.integers(1, 40)))
    n = features[-1:]
    offset = float(pick(rng, 0, 0, 1e3))
    weights = [
        (offset + rng.standard_normal(n)).astype(dtype),
        sizes(rng, n, 1.5).astype(dtype),
        maybe(rng, normal(rng, n, dtype)),
        maybe(rng, normal(rng, n, dtype)),
    ]
    draw = far if offset else normal
    a = {"eps": float(pick(rng, 1e-5, 1e-3, 0.5))}
    return make(rng, "batch_norm", [Input(features, dtype, draw=draw)], a, weights=weights)


@cases(9)
def _group_norm(rng: Rng, dtype: str) -> Case:
    groups = int(pick(rng, 1, 2, 3, 5))
    features = (*shape(rng, 0, 2), groups * int(pick(rng, 1, 1, 2, 3, 7)))
    over = str(pick(rng, "frame", "stream"))
    whole = over == "stream"
    if whole and rng.random() < 0.3:  # one value per frame and group
        features = (groups,)
    n = features[-1:]
    return make(
        rng,
        "group_norm",
        [Input(features, dtype, draw=pick(rng, normal, normal, far))],
        {"groups": groups, "eps": float(pick(rng, 1e-5, 1e-3, 0.5)), "over": over},
        weights=[maybe(rng, normal(rng, n, dtype)), maybe(rng, normal(rng, n, dtype))],
        whole=whole,
        late=WAITS if whole else "",
    )
