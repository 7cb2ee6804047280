"""Frames repeated, laid over each other; features of another size: what comes out, and random cases."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Case, Input, Rng, pick
from ..reference import Array, Arrays
from .drawing import along, any_type, make, shape


# ---------------------------------------------------------------- what comes out
def repeat_frames(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [np.repeat(x, a["times"], 0)]


def overlap_add(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n, size = len(x), x.shape[1]
    y = np.zeros(((n - 1) * a["step"] + size if n else 0, *x.shape[2:]))
    for i in range(n):
        y[i * a["step"] : i * a["step"] + size] += x[i]
    return [y]


def nearest(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n, size = x.shape[a["axis"] + 1], a["size"]
    if size in (n, 2 * n):
        places = np.arange(size) // (size // n)
    else:
        step = np.float32(1 / a["scale"]) if a["scale"] else np.float32(n) / np.float32(size)
        places = np.minimum(np.floor(np.arange(size, dtype=np.float32) * step).astype(int), n - 1)
    return [np.take(x, places, a["axis"] + 1)]


# ---------------------------------------------------------------- random cases
@along
def _repeat_frames(rng: Rng, dtype: str) -> Case:
    data = [Input(shape(rng), any_type(rng, dtype))]
    return make(rng, "repeat_frames", data, {"times": int(rng.integers(1, 5))}, exact=True)


@along
def _overlap_add(rng: Rng, dtype: str) -> Case:
    features = (int(rng.integers(1, 8)), *shape(rng, 0, 2))
    a = {"step": int(rng.integers(1, 6))}
    return make(rng, "overlap_add", [Input(features, dtype)], a, reach=features[0] // a["step"] + 2)


def _nearest(rng: Rng, dtype: str) -> Case:
    features = tuple(int(n) for n in rng.integers(1, 9, int(rng.integers(1, 4))))
    axis = int(rng.integers(len(features)))
    scale = float(pick(rng, 0, 0.4, 1.5, 2.7))
    size = int(features[axis] * scale) or int(rng.integers(1, 20))
    a = {"axis": axis, "size": size, "scale": scale}
    return make(rng, "nearest", [Input(features, any_type(rng, dtype))], a, exact=True)
