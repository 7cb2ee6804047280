"""Random cases of attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Case, Input, Rng, normal, pick
from .drawing import WAITS, make

__all__ = ["GENERATORS"]


def attention(rng: Rng, dtype: str) -> Case:
    groups, per = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    d = int(pick(rng, rng.integers(1, 6), 16, 19, 33))
    e = int(pick(rng, d, rng.integers(1, 6), 70))
    a: dict[str, Any] = {
        "chunk": int(pick(rng, 0, 1, 1, 2, 3, 5)),
        "left": int(pick(rng, -1, 0, 1, rng.integers(0, 9), 70)),
        "right": int(pick(rng, -1, 0, 0, rng.integers(0, 5))),
        "scale": float(pick(rng, 0.0, 0.3)),
    }
    weights = []
    if rng.random() < 0.5:
        n = int(rng.integers(1, 6))
        a["first"] = int(rng.integers(-3, 4))
        a["beyond"] = str(pick(rng, "constant", "linear"))
        table = normal(rng, (int(pick(rng, 1, groups * per)), n), dtype)
        if a["beyond"] == "constant":
            table = np.where(rng.random(table.shape) < 0.2, -np.inf, table).astype(dtype)
        weights.append(table)
    whole = a["chunk"] == 0 or a["right"] < 0
    features = ((groups * per, d), (groups, d), (groups, e))
    reach = a["chunk"] + max(a["left"], 0) + max(a["right"], 0) + 2
    return make(
        rng, "attention", [Input(f, dtype) for f in features], a,
        weights=weights, whole=whole, late=WAITS if whole else "", grows=a["left"] < 0, reach=min(reach, 30),
    )  # fmt: skip


GENERATORS = {"attention": attention}
