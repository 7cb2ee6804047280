"""Random cases of what repeats, overlaps and sums up frames, and of features of another size."""

from __future__ import annotations

from collections.abc import Callable

from ..case import Case, Input, Rng, pick
from .drawing import any_type, make, shape

__all__ = ["GENERATORS"]


def repeat_frames(rng: Rng, dtype: str) -> Case:
    data = [Input(shape(rng), any_type(rng, dtype))]
    return make(rng, "repeat_frames", data, {"times": int(rng.integers(1, 5))}, exact=True)


def overlap_add(rng: Rng, dtype: str) -> Case:
    features = (int(rng.integers(1, 8)), *shape(rng, 0, 2))
    a = {"step": int(rng.integers(1, 6))}
    return make(rng, "overlap_add", [Input(features, dtype)], a, reach=features[0] // a["step"] + 2)


def cumulative(rng: Rng, dtype: str) -> Case:
    a = {"kind": str(pick(rng, "sum", "mean"))}
    return make(rng, "cumulative", [Input(shape(rng), dtype)], a)


def nearest(rng: Rng, dtype: str) -> Case:
    features = tuple(int(n) for n in rng.integers(1, 9, int(rng.integers(1, 4))))
    axis = int(rng.integers(len(features)))
    scale = float(pick(rng, 0, 0.4, 1.5, 2.7))
    size = int(features[axis] * scale) or int(rng.integers(1, 20))
    a = {"axis": axis, "size": size, "scale": scale}
    return make(rng, "nearest", [Input(features, any_type(rng, dtype))], a, exact=True)


GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    "repeat_frames": repeat_frames,
    "overlap_add": overlap_add,
    "cumulative": cumulative,
    "nearest": nearest,
}
