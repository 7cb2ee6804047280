"""What is computed of whole streams: variances, attention that pools, and what frames wait for."""

from __future__ import annotations

from typing import Any

import numpy as np

import dreamstream as ds

from ..case import Array, Call, Case, Input, Rng, door, normal, pick, random_layout
from ..reference import Refused, length_of
from .drawing import WAITS, any_type, make, shape
from .features import ties
from .norms import far


# ---------------------------------------------------------------- what they compute
def var_frames(a: dict[str, Any], w: Any, x: Array) -> list[Array]:
    squares = ((x - x.mean(0)) ** 2).sum(0, keepdims=True)
    with np.errstate(all="ignore"):
        return [squares / max(len(x) - a["correction"], 0)]


def softmax_sum(a: dict[str, Any], w: Any, scores: Array, x: Array) -> list[Array]:
    if not len(x) or not len(scores):
        return [np.zeros((1, *x.shape[1:]))]
    powers = np.exp(scores - scores.max(0))
    return [(powers / powers.sum(0) * x).sum(0, keepdims=True)]


def spread(a: dict[str, Any], w: Any, x: Array, of: Array) -> list[Array]:
    if 0 <= a["limit"] < len(of):
        raise Refused
    n = max(length_of(a["length"], len(of)), 0)
    return [np.repeat(x[:1], n, 0)]


def flip(a: dict[str, Any], w: Any, x: Array) -> list[Array]:
    return [x[::-1]]


def sort(a: dict[str, Any], w: Any, x: Array) -> list[Array]:
    rank = np.unique(x, return_inverse=True)[1].reshape(x.shape)  # NaN is the greatest
    order = np.argsort(-rank if a["descending"] else rank, 0, kind="stable")
    return [np.take_along_axis(x, order, 0), order]


# ---------------------------------------------------------------- random cases
def _var_frames(rng: Rng, dtype: str) -> Case:
    a = {"correction": float(pick(rng, 0, 1, 1, 0.5))}
    return make(rng, "var_frames", [Input(shape(rng), dtype, draw=pick(rng, normal, far))], a)


def _softmax_sum(rng: Rng, dtype: str) -> Case:
    features = shape(rng)
    own = tuple(int(pick(rng, 1, n)) for n in features)
    skew = int(rng.integers(0, 3))
    return make(
        rng,
        "softmax_sum",
        [Input(own, dtype, draw=pick(rng, normal, far)), Input(features, dtype)],
        {},
        skew=skew,
        refused=(lambda rng: [3, 2]) if skew else None,
    )


def _spread(rng: Rng, dtype: str) -> Case:
    length = list(pick(rng, (), (), (1, 2), (2, 3), (0, 2, 1, 3)))
    rank = int(rng.integers(0, 3))
    limit = int(pick(rng, -1, 20))

    def forward(call: Call, weights: Any, x: Any, of: Any) -> Any:
        axis = call.layout.index("L")
        if x.is_stream or x.shape[axis] == of.shape[axis]:
            return door(call, weights, x, of)
        n = max(length_of(length, of.shape[axis]), 0) if x.shape[axis] and of.shape[axis] else 0
        first = np.moveaxis(x.numpy(), axis, 0)[:1]
        return ds.tensor(np.moveaxis(np.repeat(first, n, 0), 0, axis))

    return make(
        rng,
        "spread",
        [Input(shape(rng, rank, rank), any_type(rng, dtype)), Input(shape(rng, rank, rank), any_type(rng, dtype))],
        {"length": length, "limit": limit},
        layout=random_layout(rng, rank),
        forward=forward,
        exact=True,
        whole=True,
        late=WAITS,
        skew=2,
        lengths=lambda rng, n: [min(n, limit)] * 2 if limit >= 0 else [n, max(n - int(rng.integers(3)), 0)],
        refused=(lambda rng: [limit + 1] * 2) if limit >= 0 else None,
    )


def _flip(rng: Rng, dtype: str) -> Case:
    return make(rng, "flip", [Input(shape(rng), any_type(rng, dtype))], {}, exact=True, whole=True, late=WAITS)


def _sort(rng: Rng, dtype: str) -> Case:
    return make(
        rng,
        "sort",
        [Input(shape(rng), any_type(rng, dtype), draw=pick(rng, normal, ties))],
        {"descending": int(rng.integers(2))},
        exact=True,
        whole=True,
        late=WAITS,
    )
