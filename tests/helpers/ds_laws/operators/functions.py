"""Random cases of the functions of single elements that `dreamstream.operations` names; look-ups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dreamstream.operations import BINARY, UNARY, Elementwise

from ..case import Array, Case, Input, Rng, normal, pick, sizes
from ..reference import Arrays, operands
from .drawing import long, make, shape, total


# ---------------------------------------------------------------- data that has something to show
def inside(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Within [-1, 1], by and large."""
    out = rng.uniform(-1, 1, shape)
    return np.where(rng.random(shape) < 0.05, 2 * out, out).astype(dtype)


def above(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """From 1 on, by and large."""
    return (0.95 + sizes(rng, shape, 3)).astype(dtype)


def wide(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Small and large, up to 20."""
    return np.clip(rng.standard_normal(shape) * sizes(rng, shape, 1.5), -20, 20).astype(dtype)


def quarters(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Multiples of 1/4, never zero, whose quotients are exact."""
    return ((rng.integers(0, 40, shape) + 1) / 4 * rng.choice([-1, 1], shape)).astype(dtype)


def positive(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Above zero, by and large."""
    out = sizes(rng, shape, 3)
    out[rng.random(shape) < 0.05] *= -1
    return out.astype(dtype)


def ties(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Few values, so that many are equal."""
    return rng.integers(-2, 3, shape).astype(dtype)


def halves(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Integers, halves, and what lies between."""
    out = rng.integers(-9, 10, shape) / 2
    return (out + np.where(rng.random(shape) < 0.5, rng.random(shape), 0)).astype(dtype)


DRAWS: dict[str, Callable[[Rng, Sequence[int], str], Array]] = {
    "any": wide,
    "positive": positive,
    "unit": inside,
    "above": above,
    "ties": ties,
    "halves": halves,
    "quarters": quarters,
    "base": lambda rng, shape, dtype: np.abs(normal(rng, shape, dtype)) + np.dtype(dtype).type(0.1),
}
"""What shows a function, by the domain that its row names."""


# ---------------------------------------------------------------- one operand
def _unary(row: Elementwise, rng: Rng, dtype: str) -> Case:
    kind = Input(long(rng), dtype, draw=DRAWS[row.domain])
    a = {name: values[int(rng.integers(len(values)))] for name, values in row.tries.items()}
    return make(rng, row.name, [kind], a, depends=total, dims=pick(rng, "layout", None), exact=row.exact)


# ---------------------------------------------------------------- two operands
def _binary(row: Elementwise, rng: Rng, dtype: str) -> Case:
    """Streams and constants that broadcast against each other."""
    first = normal if row.domain == "any" else DRAWS[row.domain]
    draws, full = (first, normal if row.domain == "base" else first), long(rng)
    order = [int(rng.random() < 0.35) for _ in range(2)]
    if all(order):
        order[int(rng.integers(2))] = 0
    inputs: list[Input] = []
    weights: list[Array | None] = []
    for constant, draw in zip(order, draws):
        own = tuple(1 if rng.random() < 0.2 else n for n in full)
        if constant:
            weights.append(np.asarray(draw(rng, own[int(rng.integers(len(own) + 1)) :], dtype)))
        else:
            inputs.append(Input(own, dtype, draw=draw))
    a: dict[str, Any] = {"order": order} if weights or rng.random() < 0.5 else {}

    def depends(*arrays: Array) -> list[Array]:
        return total(*operands(a, [w.astype(float) for w in weights if w is not None], arrays))

    skew = int(rng.integers(0, 4))
    more: dict[str, Any] = {"skew": skew, "reach": skew + 3, "exact": row.exact, "dims": None}
    if skew and len(inputs) > 1:
        more["refused"] = lambda rng: [2, 3]
    return make(rng, row.name, inputs, a, weights=weights, depends=depends, **more)


# ---------------------------------------------------------------- look-ups
def embedding(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [w[0][x.astype(np.int64)]]


def _embedding(rng: Rng, dtype: str) -> Case:
    features, n, size = shape(rng, 0, 2), int(rng.integers(2, 8)), int(rng.integers(1, 20))
    kind = Input(features, "int64", draw=lambda rng, shape, dtype: rng.integers(0, n, shape))

    def depends(x: Array) -> list[Array]:
        return [np.repeat(x[..., None], size, -1)]

    def wrong(rng: Rng) -> list[Array]:
        out = rng.integers(0, n, (int(rng.integers(1, 5)), *features))
        out.flat[int(rng.integers(out.size))] = pick(rng, -1, n, -n, 1 << 40)
        return [out]

    trailing = rng.random() < 0.5
    return make(
        rng,
        "embedding",
        [kind],
        {},
        weights=[rng.standard_normal((n, size)).astype(dtype)],
        dims=(...,) if trailing else "layout",
        depends=depends,
        wrong=wrong,
        exact=True,
    )


GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    **{row.name: partial(_unary, row) for row in UNARY},
    **{row.name: partial(_binary, row) for row in BINARY},
}
