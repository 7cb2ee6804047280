"""Random cases of all operators of the registry; each file has a `GENERATORS` of its own."""

from __future__ import annotations

from collections.abc import Callable

from ..case import Case, Rng
from . import features, frames, norms, pointwise, products

__all__ = ["GENERATORS"]

GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    **products.GENERATORS,
    **frames.GENERATORS,
    **pointwise.GENERATORS,
    **norms.GENERATORS,
    **features.GENERATORS,
}
