"""What frames are folded into one by one, so far or of the whole stream: what comes out, and random cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick
from .drawing import make, shape
from .features import ties
from .norms import far

KINDS = ("sum", "mean", "max", "min", "prod", "logsumexp", "argmax", "argmin")
REAL = ("mean", "logsumexp")

#: What is known of all frames so far.
FOLDS: dict[str, Callable[[Array], Array]] = {
    "sum": lambda x: x.cumsum(0),
    "mean": lambda x: x.cumsum(0) / np.arange(1, len(x) + 1).reshape(-1, *(1,) * (x.ndim - 1)),
    "max": np.maximum.accumulate,
    "min": np.minimum.accumulate,
    "prod": lambda x: x.cumprod(0),
    "logsumexp": np.logaddexp.accumulate,
}


# ---------------------------------------------------------------- what comes out
def cumulative(a: dict[str, Any], w: Any, x: Array) -> list[Array]:
    """Of extremes the last of equals is where they are."""
    if a["kind"].startswith("arg"):
        best = FOLDS[a["kind"][3:]](x)
        places = np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1))
        return [np.maximum.accumulate(np.where((x == best) | np.isnan(x), places, 0), 0)]
    return [FOLDS[a["kind"]](x)]


def cumulative_within(a: dict[str, Any], w: Any, x: Array) -> list[Array]:
    axis = a["axis"] + 1
    return [y.swapaxes(0, axis) for y in cumulative(a, w, x.swapaxes(0, axis))]


def reduce_frames(a: dict[str, Any], w: Any, x: Array) -> list[Array]:
    """Of extremes the first of equals is where they are."""
    kind, one = a["kind"], np.zeros((1, *x.shape[1:]))
    if not len(x):
        none = {"sum": one, "mean": one + np.nan, "prod": one + 1, "logsumexp": one - np.inf}
        return [none[kind].astype(x.dtype) if kind in none else x[:0]]
    return [getattr(x, a["kind"])(0)[None] if a["kind"].startswith("arg") else FOLDS[a["kind"]](x)[-1:]]


# ---------------------------------------------------------------- random cases
def _fold(
    rng: Rng, name: str, dtype: str, sums: Callable[[Array], Array], features: Any = None, **more: Any
) -> Case:
    kind = str(pick(rng, *KINDS, *REAL, "mean"))
    element = dtype if kind in REAL else str(pick(rng, dtype, dtype, "int64"))
    draw = ties if "arg" in kind else far if kind == "logsumexp" else normal
    return make(
        rng,
        name,
        [Input(features or shape(rng), element, draw=draw)],
        {"kind": kind, **more},
        exact=kind[-3:] in ("max", "min") or element == "int64",
        depends=lambda x: [sums(x)],
    )


def _cumulative(rng: Rng, dtype: str) -> Case:
    return _fold(rng, "cumulative", dtype, lambda x: x.cumsum(0))


def _cumulative_within(rng: Rng, dtype: str) -> Case:
    features = list(shape(rng, 1))
    axis = int(rng.integers(len(features)))
    features[axis] = int(pick(rng, features[axis], 1, 9, 70))
    return _fold(rng, "cumulative_within", dtype, lambda x: x.cumsum(axis + 1), tuple(features), axis=axis)


def _reduce_frames(rng: Rng, dtype: str) -> Case:
    return _fold(rng, "reduce_frames", dtype, lambda x: x.sum(0, keepdims=True) if len(x) else x)
