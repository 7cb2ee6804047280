"""Fourier transforms over features: what comes out, by their definition, and random cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import Case, Input, Rng, pick
from ..reference import Array, Arrays
from .drawing import innermost, make, shape


# ---------------------------------------------------------------- what comes out
def _waves(rows: int, columns: int, n: int) -> tuple[Array, Array]:
    """cos and sin of 2 pi j k / n, the angles below a turn."""
    angle = np.outer(np.arange(rows), np.arange(columns)) % n * (2 * np.pi / n)
    return np.cos(angle), np.sin(angle)


def rfft(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n = x.shape[-1]
    cos, sin = _waves(n, n // 2 + 1, n)
    sin[:, :: (n // 2 if n % 2 == 0 else n)] = 0  # of a whole or half turn
    return [x @ cos, -(x @ sin)]


def irfft(a: dict[str, Any], w: Arrays, real: Array, imag: Array) -> list[Array]:
    n = a["size"]
    cos, sin = _waves(n // 2 + 1, n, n)
    single = [0] if n % 2 else [0, n // 2]  # all others stand for two
    twice = np.full((n // 2 + 1, 1), 2.0)
    twice[single] = 1
    others = [k for k in range(n // 2 + 1) if k not in single]
    return [(real @ (twice * cos) - imag[..., others] @ (2 * sin[others])) / n]


def fft(a: dict[str, Any], w: Arrays, real: Array, imag: Array) -> list[Array]:
    cos, sin = _waves(real.shape[-1], real.shape[-1], real.shape[-1])
    return [real @ cos + imag @ sin, imag @ cos - real @ sin]


def ifft(a: dict[str, Any], w: Arrays, real: Array, imag: Array) -> list[Array]:
    n = real.shape[-1]
    cos, sin = _waves(n, n, n)
    return [(real @ cos - imag @ sin) / n, (imag @ cos + real @ sin) / n]


# ---------------------------------------------------------------- random cases
def transform(name: str) -> Callable[[Rng, str], Case]:
    def draw(rng: Rng, dtype: str) -> Case:
        n = int(pick(rng, *range(1, 17), 21, 25, 44, 60, 67, 128, 134, 142))
        features = (*shape(rng, 0, 2), n // 2 + 1 if name == "irfft" else n)
        return make(
            rng,
            name,
            [Input(features, dtype)] * (1 if name == "rfft" else 2),
            {"size": n} if name == "irfft" else {},
            **innermost(rng, features),
        )

    return draw


GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    name: transform(name) for name in ("rfft", "irfft", "fft", "ifft")
}
