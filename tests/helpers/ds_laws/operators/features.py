"""Random cases of what makes other features of those of a frame: reductions, products with many matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick
from ..reference import Arrays
from .drawing import cases, make, shape


# ---------------------------------------------------------------- what they compute
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


def bmm(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    return [x @ y]


def matmul(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    (weight,) = w
    leading = weight.ndim - 2
    lead, rest = x.shape[1 : 1 + leading], x.shape[1 + leading : -1]
    flat = x.reshape(len(x), *lead, int(np.prod(rest)), x.shape[-1])
    y = flat @ weight.swapaxes(-1, -2)
    return [y.reshape(len(x), *lead, *rest, weight.shape[-2])]


# ---------------------------------------------------------------- random cases
KINDS = ("sum", "mean", "prod", "amax", "amin", "var", "std", "norm", "logsumexp", "any", "all", "argmax")
KINDS += ("argmin",)
REAL = {"mean", "var", "std", "norm", "logsumexp"}
EXACT = {"amax", "amin", "any", "all", "argmax", "argmin"}


def ties(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Few values, so that many are equal."""
    return rng.integers(-1, 3, shape).astype(dtype)


@cases(26)
def _reduce_features(rng: Rng, dtype: str) -> Case:
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


def _matmul(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 3), int(rng.integers(1, 9)))
    n_out = int(rng.integers(1, 40))
    leading = int(rng.integers(len(features)))
    matrices = [n if rng.random() < 0.7 else 1 for n in features[:leading]]
    weight = normal(rng, (*matrices, n_out, features[-1]), dtype)
    return make(rng, "matmul", [Input(features, dtype)], {}, weights=[weight])


def _bmm(rng: Rng, dtype: str) -> Case:
    lead = shape(rng, 0, 2)
    m, k, n = (int(pick(rng, 1, 3, 8, 17, 40)) for _ in range(3))
    return make(rng, "bmm", [Input((*lead, m, k), dtype), Input((*lead, k, n), dtype)], {})
