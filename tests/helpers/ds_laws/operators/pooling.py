"""Windows and parts of an axis that are reduced to one element: what comes out, and random cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import Array, Case, Input, Rng, pick
from ..reference import Arrays
from .drawing import WAITS, along, make, shape


# ---------------------------------------------------------------- what comes out
def windows(
    size: int, kernel: int, stride: int, left: int, right: int, dilation: int, ceil: int
) -> list[tuple[list[int], int]]:
    """Per window the elements that it holds, and how many it has with padding."""
    span = dilation * (kernel - 1) + 1
    out = list(range(-left, size + right - span + 1, stride))
    hanging = out[-1] + stride if out else -left
    if ceil and hanging - stride + span < size + right:  # the one before leaves something
        out.append(hanging)
    if ceil and out and out[-1] >= size:
        out.pop()
    return [
        ([p for p in range(s, s + span, dilation) if 0 <= p < size], min(kernel, size + right - s)) for s in out
    ]


def _axes(a: dict[str, Any], x: Array) -> tuple[Array, list[Any], list[Any]]:
    """The frames as [L][F][C], the windows of L and those of F."""
    frames = windows(len(x), a["kernel"], a["stride"], a["left"], a["right"], a.get("dilation", 1), a["ceil"])
    inner = (a["inner_kernel"], a["inner_stride"], a["inner_padding"], a.get("inner_dilation", 1))
    if inner[:3] == (1, 1, 0):
        return x.reshape(len(x), 1, -1), frames, [([0], 1)]
    wide = x.reshape(len(x), x.shape[1], -1)
    return wide, frames, windows(x.shape[1], *inner[:2], inner[2], inner[2], inner[3], a["ceil"])


def _shaped(y: Array, x: Array) -> Array:
    """[L'][F'][C] with the features of x, F pooled."""
    kept = int(np.prod(x.shape[1:])) == y.shape[2]  # the whole frame was C
    return y.reshape(len(y), *(x.shape[1:] if kept else (y.shape[1], *x.shape[2:])))


def max_pool(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    wide, frames, inner = _axes(a, x)
    y = np.full((len(frames), len(inner), wide.shape[2]), -np.inf)
    for m, (t, _) in enumerate(frames):
        for g, (u, _) in enumerate(inner):
            if t and u:
                y[m, g] = wide[np.ix_(t, u)].max((0, 1))
    return [_shaped(y, x)]


def avg_pool(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    wide, frames, inner = _axes(a, x)
    y = np.zeros((len(frames), len(inner), wide.shape[2]))
    for m, (t, n_t) in enumerate(frames):
        for g, (u, n_u) in enumerate(inner):
            n = n_t * n_u if a["count_include_pad"] else len(t) * len(u)
            if t and u:
                y[m, g] = wide[np.ix_(t, u)].sum((0, 1)) / (a["divisor"] or n)
    return [_shaped(y, x)]


def adaptive_pool(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    reduce = np.mean if a["kind"] == "avg" else np.max
    for axis, n in enumerate((a["frames"], a["inner"])):
        if n and len(x):
            size = x.shape[axis]
            parts = [(i * size // n, -(-(i + 1) * size // n)) for i in range(n)]
            x = np.stack([reduce(np.take(x, range(*p), axis), axis) for p in parts], axis)
        elif n and a["kind"] == "avg" and n == 1 and not axis:
            x = np.full((1, *x.shape[1:]), np.nan)
        elif n:
            x = np.zeros((0, *([n] if axis else []), *x.shape[1 + axis :]))
    return [x]


# ---------------------------------------------------------------- random cases
def _windows(rng: Rng, features: tuple[int, ...], dilated: bool) -> dict[str, Any]:
    """What max_pool and avg_pool have in common; padding is at most half of a window, or anything."""
    kernel = int(pick(rng, rng.integers(1, 6), rng.integers(1, 6), rng.integers(8, 20)))
    dilation = int(pick(rng, 1, 1, 2, 3)) if dilated else 1
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
    return lambda x: avg_pool(summed, [], x)


@along
def _max_pool(rng: Rng, dtype: str) -> Case:
    features = shape(rng)
    a = _windows(rng, features, True)
    data = [Input(features, dtype)]
    return make(rng, "max_pool", data, a, exact=True, reach=_reach(a), depends=_sums(a))


@along
def _avg_pool(rng: Rng, dtype: str) -> Case:
    features = shape(rng)
    a = _windows(rng, features, False)
    a |= {"count_include_pad": int(rng.integers(2)), "divisor": int(pick(rng, 0, 0, 3))}
    return make(rng, "avg_pool", [Input(features, dtype)], a, reach=_reach(a))


def _adaptive_pool(rng: Rng, dtype: str) -> Case:
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
        depends=(lambda x: adaptive_pool(mean, [], x)) if a["kind"] == "max" else None,
        reach=6,
        whole=frames > 0,
        late=WAITS if frames else "",
    )
