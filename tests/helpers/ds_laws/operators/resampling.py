"""Changes of the rate: what comes out, and random cases."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..case import Case, Input, Rng, normal, pick
from ..reference import Array, Arrays
from .drawing import along, make, shape


# ---------------------------------------------------------------- what comes out
def resample(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    orig, new, width = a["orig"], a["new"], a["width"]
    y = np.zeros((-(-len(x) * new // orig), *x.shape[1:]))
    for m in range(len(y)):
        for i in range(len(x)):
            if abs(i * new - m * orig) <= a["half"]:
                y[m] += x[i] * w[0][m % new, 0, i - m // new * orig + width]
    return [y]


# ---------------------------------------------------------------- random cases
@along
def _resample(rng: Rng, dtype: str) -> Case:
    new, width = int(rng.integers(1, 8)), int(rng.integers(0, 5))
    a = {
        "orig": int(rng.integers(1, 8)),
        "new": new,
        "width": width,
        "half": int(pick(rng, width * new, rng.integers(0, width * new + 1))),
    }
    return make(
        rng,
        "resample",
        [Input(shape(rng, 0, 2), dtype)],
        a,
        weights=[normal(rng, (new, 1, 2 * width + a["orig"]), dtype)],
        reach=2 * width + a["orig"] + 2,
    )
