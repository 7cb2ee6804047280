"""Mixture of experts: one token at a time, and random cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick
from .drawing import cases, make, maybe, shape
from .features import ties
from .products import _linear as linear, linear as by_linear


def topk_by_definition(a: dict[str, Any], w: Sequence[Array], x: Array) -> list[Array]:
    n = x.shape[-1]
    order = np.zeros((*x.shape[:-1], a["k"] - a.get("first", 0)), np.int64)
    for at in np.ndindex(x.shape[:-1]):
        sign = 1 if a["smallest"] else -1
        keys = [
            (np.isnan(v) == bool(a["smallest"]), 0 if np.isnan(v) else sign * v, i) for i, v in enumerate(x[at])
        ]
        order[at] = [i for _, _, i in sorted(keys)][a.get("first", 0) : min(a["k"], n)]
    return [np.take_along_axis(x, order, -1), order]


@cases(6)
def topk(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 2), int(pick(rng, rng.integers(2, 6), 32, 40)))
    k = int(rng.integers(1, min(features[-1], 9) + 1)) if rng.random() < 0.6 else features[-1]
    a = {"k": k, "smallest": int(rng.random() < 0.25), "first": int(pick(rng, 0, 0, rng.integers(k)))}

    def depends(x: Array) -> list[Array]:
        return [np.repeat(x.sum(-1, keepdims=True), k - a["first"], -1)] * 2

    layout = ("B", "L", *range(len(features)))
    draw = pick(rng, normal, ties, ties, ties, ties)
    return make(
        rng,
        "topk",
        [Input(features, str(pick(rng, dtype, dtype, "int64")), draw=draw)],
        a,
        layout=layout,
        dims=(..., 0),
        exact=True,
        depends=depends,
    )


def _whole(index: Array) -> Array:
    """Places as integers; NaN, where one was looked at, is out of range."""
    return np.nan_to_num(index, nan=-9).astype(np.int64)


def gather_by_definition(a: dict[str, Any], w: Sequence[Array], x: Array, index: Array) -> list[Array]:
    index = _whole(index)
    there = (index >= 0) & (index < x.shape[-1])
    nothing = np.nan if x.dtype.kind == "f" else -1
    return [np.where(there, np.take_along_axis(x, np.where(there, index, 0), -1), nothing)]


def places(n: int, dropped: bool = False) -> Any:
    """Random places below n, few of them out of range; or -1 instead, where that has a meaning."""

    def draw(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
        out = rng.integers(0, n, shape)
        return np.where(rng.random(shape) < 0.1, -1 if dropped else pick(rng, n, n + 7, -2), out)

    return draw


def gather(rng: Rng, dtype: str) -> Case:
    lead, n, k = shape(rng, 0, 2), int(rng.integers(1, 9)), int(rng.integers(1, 5))
    inputs = [Input((*lead, n), str(pick(rng, dtype, dtype, "int64"))), Input((*lead, k), "int64", draw=places(n))]

    def depends(x: Array, index: Array) -> list[Array]:
        return [x.sum(-1, keepdims=True) + index]

    layout = ("B", "L", *range(len(lead) + 1))
    return make(rng, "gather", inputs, {}, layout=layout, dims=(..., 0), exact=True, depends=depends)


def experts_by_definition(a: dict[str, Any], w: Sequence[Array], x: Array, index: Array) -> list[Array]:
    weight, bias, index = w[0], w[1], _whole(index)
    n_experts, n_out, depth = weight.shape
    k = index.shape[-1]
    out = np.zeros((*index.shape, n_out))
    for at in np.ndindex(index.shape):
        e, j = index[at], at[-1]
        row = x[at[:-1]]
        vector = row if len(row) == depth else row[j * depth : (j + 1) * depth]
        if e != -1:
            out[at] = np.nan
        if 0 <= e < n_experts:
            out[at] = weight[e] @ vector + (0 if bias is None else bias[e])
    return [out.reshape(*index.shape[:-1], k * n_out)]


def expert_linear(rng: Rng, dtype: str) -> Case:
    lead, k, n = shape(rng, 0, 1), int(rng.integers(1, 4)), int(pick(rng, rng.integers(1, 5), 32))
    depth, n_out = int(pick(rng, rng.integers(1, 9), 40)), int(pick(rng, rng.integers(1, 9), 33, 140))
    wide = depth * (k if rng.random() < 0.5 else 1)
    inputs = [Input((*lead, wide), dtype), Input((*lead, k), "int64", draw=places(n, dropped=True))]
    weights = [normal(rng, (n, n_out, depth), dtype), maybe(rng, normal(rng, (n, n_out), dtype))]

    def depends(x: Array, index: Array) -> list[Array]:
        return [np.repeat(x.sum(-1, keepdims=True) + index, n_out, -1)]

    def wrong(rng: Rng) -> list[Array]:
        index = np.zeros((3, *lead, k), np.int64)
        index[int(rng.integers(0, 3))] = pick(rng, n, n + 7, -2)
        return [np.zeros((3, *lead, wide), dtype), index]

    layout = ("B", "L", *range(len(lead) + 1))
    more = {"weights": weights, "layout": layout, "dims": (..., 0), "depends": depends, "wrong": wrong}
    return make(rng, "expert_linear", inputs, {}, **more)


def combine_by_definition(a: dict[str, Any], w: Sequence[Array], x: Array, weights: Array) -> list[Array]:
    parts = x.reshape(*weights.shape, -1) * weights[..., None]
    return [parts.sum(-2)]


def combine(rng: Rng, dtype: str) -> Case:
    lead, k, n = shape(rng, 0, 2), int(rng.integers(1, 6)), int(pick(rng, rng.integers(1, 9), 33))
    inputs = [Input((*lead, k * n), dtype), Input((*lead, k), dtype)]
    return make(rng, "combine", inputs, {}, layout=("B", "L", *range(len(lead) + 1)), dims=(..., 0))


def router(rng: Rng, dtype: str) -> Case:
    case = linear(rng, dtype)
    case.name = "router"
    return case


REFERENCES = {
    "topk": topk_by_definition,
    "gather": gather_by_definition,
    "expert_linear": experts_by_definition,
    "combine": combine_by_definition,
    "router": by_linear,
}
