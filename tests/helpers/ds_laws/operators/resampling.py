"""Random cases of changes of the rate."""

from __future__ import annotations

from collections.abc import Callable

from ..case import Case, Input, Rng, normal, pick
from .drawing import make, shape

__all__ = ["GENERATORS"]


def resample(rng: Rng, dtype: str) -> Case:
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


GENERATORS: dict[str, Callable[[Rng, str], Case]] = {"resample": resample}
