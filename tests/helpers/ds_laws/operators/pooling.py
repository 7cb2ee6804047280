"""Random cases of the operators that reduce windows and parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..case import Array, Case, Input, Rng, pick
from ..reference.pooling import adaptive_pool as mean_of_parts
from ..reference.pooling import avg_pool as mean_of_windows
from .drawing import WAITS, make, shape

__all__ = ["GENERATORS"]


def _windows(rng: Rng, features: tuple[int, ...], dilated: bool) -> dict[str, Any]:
    """What max_pool and avg_pool have in common; padding is at most half of a window, or anything."""
    kernel, dilation = int(rng.integers(1, 6)), int(pick(rng, 1, 1, 2, 3)) if dilated else 1
    half = kernel // 2
    same = int(rng.integers(0, half + 1))
    left, right = pick(
        rng, (same, same), (same, same), (kernel - 1, 0), (int(rng.integers(5)), int(rng.integers(5)))
    )
    a = {
        "kernel": kernel,
        "stride": int(pick(rng, 1, 1, kernel, int(rng.integers(1, 7)))),
        "left": int(left),
        "right": int(right),
        "ceil": int(rng.integers(2)),
        "inner_kernel": 1,
        "inner_stride": 1,
        "inner_padding": 0,
    }
    inner_dilation = 1
    if features and rng.random() < 0.7:
        size = int(rng.integers(1, features[0] + 1))
        if dilated and size == 2 and features[0] > 2:
            inner_dilation = 2
        a["inner_kernel"] = size
        a["inner_stride"] = int(pick(rng, 1, size, int(rng.integers(1, 5))))
        a["inner_padding"] = int(rng.integers(0, size // 2 + 1))
    if dilated:
        a |= {"dilation": dilation, "inner_dilation": inner_dilation}
    return a


def _reach(a: dict[str, Any]) -> int:
    span = a.get("dilation", 1) * (a["kernel"] - 1) + 1
    return span + int(a["left"]) + int(a["right"]) + int(a["stride"]) + 1


def _sums(a: dict[str, Any]) -> Callable[..., list[Array]]:
    """Windows whose largest element hides the others: their sum; padding is no element."""
    summed = {**a, "divisor": 1, "count_include_pad": 1}
    return lambda x: mean_of_windows(summed, [], x)


def max_pool(rng: Rng, dtype: str) -> Case:
    features = shape(rng)
    a = _windows(rng, features, True)
    data = [Input(features, dtype)]
    return make(rng, "max_pool", data, a, exact=True, reach=_reach(a), depends=_sums(a))


def avg_pool(rng: Rng, dtype: str) -> Case:
    features = shape(rng)
    a = _windows(rng, features, False)
    a |= {"count_include_pad": int(rng.integers(2)), "divisor": int(pick(rng, 0, 0, 3))}
    return make(rng, "avg_pool", [Input(features, dtype)], a, reach=_reach(a))


def adaptive_pool(rng: Rng, dtype: str) -> Case:
    features = shape(rng)
    frames = int(pick(rng, 0, 0, 1, 2, 5))
    a = {
        "kind": str(pick(rng, "avg", "max")),
        "frames": frames,
        "inner": int(pick(rng, 0, 1, 2, 3, 6)) if features else 0,
    }
    mean = {**a, "kind": "avg"}

    return make(
        rng,
        "adaptive_pool",
        [Input(features, dtype)],
        a,
        exact=a["kind"] == "max",
        depends=(lambda x: mean_of_parts(mean, [], x)) if a["kind"] == "max" else None,
        reach=6,
        whole=frames > 0,
        late=WAITS if frames else "",
    )


GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "adaptive_pool": adaptive_pool,
}
