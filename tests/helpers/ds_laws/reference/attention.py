"""Attention, one query at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Array, Arrays

__all__ = ["REFERENCES"]


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


def attention(a: dict[str, Any], w: Arrays, q: Array, k: Array, v: Array) -> list[Array]:
    n, heads, d = q.shape
    times = heads // k.shape[1]
    k, v = np.repeat(k, times, axis=1), np.repeat(v, times, axis=1)
    scale = a["scale"] or d**-0.5
    out = np.zeros((n, heads, v.shape[2]))
    for i in range(n):
        begin = i // a["chunk"] * a["chunk"] if a["chunk"] else 0
        low = 0 if a["left"] < 0 else max(begin - a["left"], 0)
        high = n if not a["chunk"] or a["right"] < 0 else min(begin + a["chunk"] + a["right"], n)
        score = scale * np.einsum("hd,jhd->hj", q[i], k[low:high])
        if w and w[0] is not None:
            score = score + _bias(a, w[0], i - np.arange(low, high))
        top = score.max(axis=1, keepdims=True)
        weight = np.exp(score - np.where(top == -np.inf, 0, top))
        total = weight.sum(axis=1, keepdims=True)
        out[i] = np.einsum("hj,jhe->he", weight, v[low:high]) / np.where(total == 0, 1, total)
    return [out]


REFERENCES = {"attention": attention}
