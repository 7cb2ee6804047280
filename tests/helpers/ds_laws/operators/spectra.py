"""Random cases of Fourier transforms over features."""

from __future__ import annotations

from collections.abc import Callable

from ..case import Case, Input, Rng, pick, random_layout
from .drawing import make, shape

__all__ = ["GENERATORS"]


def transform(name: str) -> Callable[[Rng, str], Case]:
    def draw(rng: Rng, dtype: str) -> Case:
        n = int(pick(rng, *range(1, 17), 21, 25, 44, 60, 67, 128))
        features = (*shape(rng, 0, 2), n // 2 + 1 if name == "irfft" else n)
        trailing = rng.random() < 0.5
        layout = ("B", "L", *range(len(features))) if trailing else random_layout(rng, len(features))
        return make(
            rng,
            name,
            [Input(features, dtype)] * (1 if name == "rfft" else 2),
            {"size": n} if name == "irfft" else {},
            layout=layout,
            dims=(..., 0) if trailing else "layout",
        )

    return draw


GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    name: transform(name) for name in ("rfft", "irfft", "fft", "ifft")
}
