"""Random cases of what makes other features of those of a frame: reductions, products with many matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick
from .drawing import cases, make, shape

KINDS = ("sum", "mean", "prod", "amax", "amin", "var", "std", "norm", "logsumexp", "any", "all", "argmax")
KINDS += ("argmin",)
REAL = {"mean", "var", "std", "norm", "logsumexp"}
EXACT = {"amax", "amin", "any", "all", "argmax", "argmin"}


def ties(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Few values, so that many are equal."""
    return rng.integers(-1, 3, shape).astype(dtype)


@cases(26)
def reduce_features(rng: Rng, dtype: str) -> Case:
    features = shape(rng, 1)
    if rng.random() < 0.3:
        features = (*features[:-1], int(rng.integers(5, 40)))
    kind = str(pick(rng, *KINDS, "argmax", "argmin"))
    axes = [int(i) for i in rng.permutation(len(features))[: int(rng.integers(len(features) + 1))]]
    a = {
        "kind": kind,
        "axes": axes,
        "keepdim": int(rng.integers(2)),
        "correction": float(pick(rng, 1, 0, 0.5, 2)),
        "p": float(pick(rng, 2, 1, np.inf, -np.inf, 0, 3, 0.5)),
    }
    element = dtype if kind in REAL else str(pick(rng, dtype, dtype, "int64", "bool"))
    over = tuple(i + 1 for i in (axes or range(len(features))))

    def depends(x: Array) -> list[Array]:
        return [x.sum(over, keepdims=bool(a["keepdim"]))]

    return make(
        rng,
        "reduce_features",
        [Input(features, element, draw=ties if "arg" in kind else pick(rng, normal, ties))],
        a,
        exact=kind in EXACT or element in ("int64", "bool"),
        depends=depends,
    )


def matmul(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 3), int(rng.integers(1, 9)))
    n_out = int(rng.integers(1, 40))
    leading = int(rng.integers(len(features)))
    matrices = [n if rng.random() < 0.7 else 1 for n in features[:leading]]
    weight = normal(rng, (*matrices, n_out, features[-1]), dtype)
    return make(rng, "matmul", [Input(features, dtype)], {}, weights=[weight])
