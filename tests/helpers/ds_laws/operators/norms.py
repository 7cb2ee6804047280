"""Random cases of normalisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick, random_layout
from .drawing import WAITS, make, maybe, shape

__all__ = ["GENERATORS"]


def far(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Far from zero, differing by little."""
    return (1e3 + rng.standard_normal(shape) / 4).astype(dtype)


def rms_norm(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 2), int(rng.integers(1, 40)))
    axes = int(rng.integers(1, len(features) + 1))
    trailing = rng.random() < 0.5
    layout = ("B", "L", *range(len(features))) if trailing else random_layout(rng, len(features))
    return make(
        rng,
        "rms_norm",
        [Input(features, dtype, draw=pick(rng, normal, normal, far))],
        {"axes": axes, "eps": float(pick(rng, 1e-6, 1e-3, 0.5))},
        weights=[maybe(rng, normal(rng, features[len(features) - axes :], dtype))],
        layout=layout,
        dims=(..., *range(axes)) if trailing else "layout",
    )


def batch_norm(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 2), int(rng.integers(1, 40)))
    n = features[-1:]
    offset = float(pick(rng, 0, 0, 1e3))
    weights = [
        (offset + rng.standard_normal(n)).astype(dtype),
        np.exp(rng.standard_normal(n)).astype(dtype),
        maybe(rng, normal(rng, n, dtype)),
        maybe(rng, normal(rng, n, dtype)),
    ]
    draw = far if offset else normal
    a = {"eps": float(pick(rng, 1e-5, 1e-3, 0.5))}
    return make(rng, "batch_norm", [Input(features, dtype, draw=draw)], a, weights=weights)


def group_norm(rng: Rng, dtype: str) -> Case:
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


GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    "rms_norm": rms_norm,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
}
