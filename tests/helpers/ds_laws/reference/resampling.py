"""Changes of the rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays

__all__ = ["REFERENCES"]


def resample(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    orig, new, width = a["orig"], a["new"], a["width"]
    y = np.zeros((-(-len(x) * new // orig), *x.shape[1:]))
    for m in range(len(y)):
        for i in range(len(x)):
            if abs(i * new - m * orig) <= a["half"]:
                y[m] += x[i] * w[0][m % new, 0, i - m // new * orig + width]
    return [y]


REFERENCES: dict[str, Callable[..., list[Array]]] = {"resample": resample}
