"""Random cases of all operators of the registry; each file has a `GENERATORS` of its own."""

from __future__ import annotations

from collections.abc import Callable

from ..case import Case, Rng
from . import (
    attention,
    features,
    frames,
    functions,
    norms,
    planes,
    pointwise,
    pooling,
    products,
    recurrent,
    regrouping,
    resampling,
)

__all__ = [
    "GENERATORS",
]

GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    **products.GENERATORS,
    **frames.GENERATORS,
    **pointwise.GENERATORS,
    **pooling.GENERATORS,
    **regrouping.GENERATORS,
    **functions.GENERATORS,
    **recurrent.GENERATORS,
    **resampling.GENERATORS,
    **planes.GENERATORS,
    **norms.GENERATORS,
    **features.GENERATORS,
    **attention.GENERATORS,
}
