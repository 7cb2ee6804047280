"""What follows from absolute positions: random cases, and one frame at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import dreamstream as ds

from ..case import Array, Call, Case, Input, Rng, normal, pick
from ..reference import length_of
from .drawing import any_type, cases, make, shape
from .frames import steps


def _made(codes: Sequence[int], at: Any) -> Any:
    for code, c in zip(codes[::2], codes[1::2]):
        at = (at + c, at * c, at // max(c, 1), at % max(c, 1))[code]
    return at


def numbers(a: dict[str, Any], w: Sequence[Array], x: Array) -> list[Array]:
    n = length_of(a["length"], len(x))
    return [_made(a["steps"], np.arange(max(n, 0))).astype(a["to"])]


@cases(9)
def positions(rng: Rng, dtype: str) -> Case:
    length, _, reach = steps(rng, int(rng.integers(0, 3)))
    codes: list[int] = pick(rng, [], [], [1, -1, 2, 3])
    for _ in range(int(rng.integers(0, 4))):
        code = int(rng.integers(4))
        codes += [code, int(rng.integers(-3, 4)) if code < 2 else int(rng.integers(1, 6))]
    to = str(pick(rng, "int64", dtype))

    def forward(call: Call, weights: Any, x: Any) -> Any:
        n = x.size(1)
        for code, c in zip(length[::2], length[1::2]):
            n = n + c if code == 0 else n * c if code == 1 else n // c
        if isinstance(n, int):
            return ds.tensor(_made(codes, np.arange(max(n, 0))).astype(to))
        return ds.arange(n).stream(to, codes)

    a = {"length": length, "steps": codes, "to": to}
    features = shape(rng, 0, 2)
    layout = ("B", "L", *range(len(features)))
    return make(
        rng, "positions", [Input(features, any_type(rng, dtype))], a,
        layout=layout, forward=forward, exact=True, reach=min(reach, 8),
    )  # fmt: skip


def turned(a: dict[str, Any], w: Sequence[Array], x: Array) -> list[Array]:
    width = a["features"] or x.shape[-1]
    n, out = width // 2, x.copy()
    given = w[0] if w and w[0] is not None else a["base"] ** (-np.arange(n) / n)
    for m in range(len(x)):
        for i in range(n):
            p, q = (2 * i, 2 * i + 1) if a["form"] == "pairs" else (i, n + i)
            c, s = np.cos(m * a["scale"] * given[i]), np.sin(m * a["scale"] * given[i])
            out[m, ..., p] = x[m, ..., p] * c - x[m, ..., q] * s
            out[m, ..., q] = x[m, ..., q] * c + x[m, ..., p] * s
    return [out]


def rotary(rng: Rng, dtype: str) -> Case:
    n = int(rng.integers(1, 5))
    part = bool(rng.integers(2))
    features = (*shape(rng, 0, 2), 2 * n + (int(rng.integers(0, 4)) if part else 0))
    a = {
        "features": 2 * n if part else 0,
        "base": float(pick(rng, 10000.0, 3.0)),
        "scale": float(pick(rng, 1.0, 0.25, 40.0)),
        "form": str(pick(rng, "halves", "pairs")),
    }
    weights = [normal(rng, (n,), dtype)] if rng.integers(2) else []
    return make(rng, "rotary", [Input(features, dtype)], a, weights=weights)


REFERENCES = {"positions": numbers, "rotary": turned}
