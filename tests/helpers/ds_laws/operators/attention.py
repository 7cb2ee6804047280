"""Attention: one query at a time, and random cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick
from .drawing import WAITS, cases, make


def _bias(a: dict[str, Any], table: Array, distance: Array) -> Array:
    """Entries ``[heads][...]`` of a table over distances, which goes on beyond its ends."""
    at = distance - a["first"]
    near = np.clip(at, 0, table.shape[1] - 1)
    found = table[:, near]
    if a["beyond"] == "linear" and table.shape[1] > 1:
        low, high = table[:, 1] - table[:, 0], table[:, -1] - table[:, -2]
        beyond = np.where(at < 0, low[:, None], high[:, None]) * (at - near)
        found = np.where(at == near, found, found + beyond)
    return found


def by_definition(a: dict[str, Any], w: Sequence[Array], q: Array, k: Array, v: Array, *u: Array) -> list[Array]:
    n, heads, d = q.shape
    times = heads // k.shape[1]
    k, v = np.repeat(k, times, axis=1), np.repeat(v, times, axis=1)
    scale = a["scale"] or d**-0.5
    out = np.zeros((n, heads, v.shape[2]))
    for i in range(n):
        begin = i // a["chunk"] * a["chunk"] if a["chunk"] else 0
        low = 0 if a["left"] < 0 else max(begin - a["left"], 0)
        high = n if not a["chunk"] or a["right"] < 0 else min(begin + a["chunk"] + a["right"], n)
        at = np.r_[: min(a.get("keep", 0), low), low:high]  # the keys that it sees
        score = np.einsum("hd,jhd->hj", q[i], k[at])
        if u and a.get("sinusoids"):
            f = u[0].shape[2]
            angles = (i - at)[:, None] * a["sinusoids"] ** (-np.arange(0, f, 2) / f)
            row = np.stack([np.sin(angles), np.cos(angles)], 2).reshape(-1, f)
            score = score + np.einsum("hf,jf->hj", u[0][i], row)
        elif u:
            row = np.clip(a["rows_first"] - (i - at), 0, w[1].shape[1] - 1)
            score = score + np.einsum("hf,hjf->hj", u[0][i], np.repeat(w[1], heads // len(w[1]), 0)[:, row])
        score = scale * score
        if a.get("softcap"):
            score = a["softcap"] * np.tanh(score / a["softcap"])
        if w and w[0] is not None:
            score = score + _bias(a, w[0], i - at)
        sinks = w[2][:, None] if len(w) > 2 else np.full((heads, 1), -np.inf)
        top = np.maximum(score.max(axis=1, keepdims=True), sinks)
        top = np.where(top == -np.inf, 0, top)
        weight = np.exp(score - top)
        total = weight.sum(axis=1, keepdims=True) + np.exp(sinks - top)
        out[i] = np.einsum("hj,jhe->he", weight, v[at]) / np.where(total == 0, 1, total)
    return [out]


@cases(9)
def attention(rng: Rng, dtype: str) -> Case:
    groups, per = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    d = int(pick(rng, rng.integers(1, 6), 16, 19, 33))
    e = int(pick(rng, d, rng.integers(1, 6), 70))
    a: dict[str, Any] = {
        "chunk": int(pick(rng, 0, 1, 1, 1, 2, 2, 3, 5)),
        "left": int(pick(rng, -1, 0, 1, rng.integers(2, 9), rng.integers(2, 9), 70)),
        "right": int(pick(rng, -1, 0, 0, 0, rng.integers(0, 5), rng.integers(0, 5))),
        "scale": float(pick(rng, 0.0, 0.3)),
    }
    if rng.random() < 0.4:
        a["keep"] = int(pick(rng, 1, rng.integers(2, 6), 7))
    weights: list[Array | None] = []
    if rng.random() < 0.5:
        n = int(rng.integers(1, 6))
        a["first"] = int(rng.integers(-3, 4))
        a["beyond"] = str(pick(rng, "constant", "linear"))
        table = normal(rng, (int(pick(rng, 1, groups * per)), n), dtype)
        if a["beyond"] == "constant":
            table = np.where(rng.random(table.shape) < 0.2, -np.inf, table).astype(dtype)
        weights.append(table)
    features = ((groups * per, d), (groups, d), (groups, e))
    if rng.random() < 0.5:
        f = int(pick(rng, d, rng.integers(1, 6), 35))
        if rng.random() < 0.4:
            f, a["sinusoids"] = f + f % 2, float(pick(rng, 10000.0, 30.0))
        else:
            a["rows_first"] = int(rng.integers(-2, 6))
        heads = int(pick(rng, 1, groups * per))
        if "sinusoids" not in a:
            weights = [*(weights or [None]), normal(rng, (heads, int(rng.integers(1, 9)), f), dtype)]
        features = (*features, (groups * per, f))
    if rng.random() < 0.3:
        a["softcap"] = float(pick(rng, 0.5, 2.0, 30.0))
    if rng.random() < 0.3:
        sinks = 2 * normal(rng, (groups * per,), dtype)
        sinks = np.where(rng.random(sinks.shape) < 0.2, -np.inf, sinks).astype(dtype)
        weights = [*[*weights, None, None][:2], sinks]
    whole = a["chunk"] == 0 or a["right"] < 0
    reach = a["chunk"] + max(a["left"], 0) + max(a["right"], 0) + a.get("keep", 0) + 2
    return make(
        rng, "attention", [Input(f, dtype) for f in features], a,
        weights=weights, whole=whole, late=WAITS if whole else "", grows=a["left"] < 0, reach=min(reach, 30),
    )  # fmt: skip


def of_fixed(a: dict[str, Any], w: Sequence[Array], q: Array) -> list[Array]:
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in w)
    score = (a["scale"] or q.shape[2] ** -0.5) * np.einsum("ihd,jhd->ihj", q, k)
    weight = np.exp(score - score.max(axis=2, keepdims=True))
    return [np.einsum("ihj,jhe->ihe", weight / weight.sum(axis=2, keepdims=True), v)]


def cross_attention(rng: Rng, dtype: str) -> Case:
    """Keys and values that are weights; tests/torch/test_memory.py is about those of a stream."""
    groups, per, n = int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(pick(rng, 1, rng.integers(2, 9), 70))
    d, e = int(pick(rng, rng.integers(1, 6), 16, 19)), int(pick(rng, rng.integers(1, 6), 33))
    weights: list[Array | None] = [normal(rng, (n, groups, size), dtype) for size in (d, e)]
    a = {"scale": float(pick(rng, 0.0, 0.3))}
    return make(rng, "cross_attention", [Input((groups * per, d), dtype)], a, weights=weights)


REFERENCES = {"attention": by_definition, "cross_attention": of_fixed}
