"""Reductions over features, products with many matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays


def _variance(x: Array, correction: float) -> Array:
    squares = np.square(x - x.mean(-1, keepdims=True)).sum(-1)
    with np.errstate(all="ignore"):
        return np.asarray(squares / np.float64(max(x.shape[-1] - correction, 0)))


def _norm(x: Array, p: float) -> Array:
    size = np.abs(x)
    if np.isinf(p):
        return np.asarray(size.max(-1) if p > 0 else size.min(-1))
    return np.asarray((size != 0).sum(-1) + 0.0 if p == 0 else (size**p).sum(-1) ** (1 / p))


def _logsumexp(x: Array) -> Array:
    top = x.max(-1, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(x - top).sum(-1)))


def reduce_features(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    rank = x.ndim - 1
    over = sorted(a["axes"]) or list(range(rank))
    kept = [i for i in range(rank) if i not in over]
    rows = x.transpose(0, *(i + 1 for i in kept), *(i + 1 for i in over))
    rows = rows.reshape(len(x), *(x.shape[i + 1] for i in kept), int(np.prod([x.shape[i + 1] for i in over])))
    whole = np.int64 if x.dtype.kind in "ib" else None
    found: dict[str, Callable[[], Array]] = {
        "sum": lambda: rows.sum(-1, dtype=whole),
        "mean": lambda: rows.mean(-1),
        "prod": lambda: rows.prod(-1, dtype=whole),
        "amax": lambda: rows.max(-1),
        "amin": lambda: rows.min(-1),
        "var": lambda: _variance(rows, a["correction"]),
        "std": lambda: np.sqrt(_variance(rows, a["correction"])),
        "norm": lambda: _norm(rows, a["p"]),
        "logsumexp": lambda: _logsumexp(rows),
        "any": lambda: rows.any(-1),
        "all": lambda: rows.all(-1),
        "argmax": lambda: rows.argmax(-1),
        "argmin": lambda: rows.argmin(-1),
    }
    y = np.asarray(found[a["kind"]]())
    if a["keepdim"]:
        y = y.reshape(len(x), *(1 if i in over else x.shape[i + 1] for i in range(rank)))
    return [y]


def matmul(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    (weight,) = w
    leading = weight.ndim - 2
    lead, rest = x.shape[1 : 1 + leading], x.shape[1 + leading : -1]
    flat = x.reshape(len(x), *lead, int(np.prod(rest)), x.shape[-1])
    y = flat @ weight.swapaxes(-1, -2)
    return [y.reshape(len(x), *lead, *rest, weight.shape[-2])]
