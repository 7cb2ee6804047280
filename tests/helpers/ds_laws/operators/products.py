"""Random cases of products and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import Case, Input, Rng, normal, pick
from ..reference import Array, Arrays, by_lane, no_frames, padded
from .drawing import WAITS, along, cases, innermost, lanes, make, maybe, shape


# ---------------------------------------------------------------- what they compute
def linear(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    y = np.einsum("...k,nk->...n", x, w[0])
    return [y if w[1] is None else y + w[1]]


def conv1d(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    weight, bias = w
    n_out, per_group, kernel = weight.shape
    groups, stride, dilation = a["groups"], a["stride"], a["dilation"]
    span = dilation * (kernel - 1) + 1
    x = padded(x, a["left"], a["right"], a["mode"])
    if x is None or len(x) < span:
        return [no_frames(n_out)]
    n = (len(x) - span) // stride + 1
    y = np.zeros((n, n_out))
    per_out = n_out // groups
    for g in range(groups):
        part = x[:, g * per_group : (g + 1) * per_group]
        for tap in range(kernel):
            rows = part[tap * dilation :][: (n - 1) * stride + 1 : stride]
            y[:, g * per_out : (g + 1) * per_out] += rows @ weight[g * per_out : (g + 1) * per_out, :, tap].T
    return [y if bias is None else y + bias]


def conv_transpose1d(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    weight, bias = w
    n_in, per_out, kernel = weight.shape
    groups, stride, dilation, padding = a["groups"], a["stride"], a["dilation"], a["padding"]
    n_out = per_out * groups
    n = (len(x) - 1) * stride - 2 * padding + dilation * (kernel - 1) + a["output_padding"] + 1
    if len(x) == 0 or n <= 0:
        return [no_frames(n_out)]
    y = np.zeros((n + 2 * padding, n_out))
    per_in = n_in // groups
    for g in range(groups):
        part = x[:, g * per_in : (g + 1) * per_in]
        for i in range(len(x)):
            for tap in range(kernel):
                at = i * stride + tap * dilation
                y[at, g * per_out : (g + 1) * per_out] += part[i] @ weight[g * per_in : (g + 1) * per_in, :, tap]
    y = y[padding : padding + n]
    return [y if bias is None else y + bias]


def layer_norm(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    axes = tuple(range(-a["axes"], 0))
    centred = x - x.mean(axes, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + a["eps"])
    y = y if w[0] is None else y * w[0]
    return [y if w[1] is None else y + w[1]]


# ---------------------------------------------------------------- random cases
def _linear(rng: Rng, dtype: str) -> Case:
    features = shape(rng, 1)
    n_out = int(rng.integers(1, 40))
    weights = [normal(rng, (n_out, features[-1]), dtype), maybe(rng, normal(rng, (n_out,), dtype))]
    return make(rng, "linear", [Input(features, dtype)], {}, weights=weights, **innermost(rng, features))


def channels(rng: Rng) -> tuple[int, int, int]:
    """Input and output channels, and groups: dense, grouped, depthwise, depthwise with more outputs."""
    groups = int(pick(rng, 1, 1, 1, 2, 3))
    kind = rng.random()
    if kind < 0.25:
        return groups, groups * int(rng.integers(1, 3)), groups
    return groups * int(rng.integers(1, 6)), groups * int(rng.integers(1, 20)), groups


@along
@cases(18)
def _conv1d(rng: Rng, dtype: str) -> Case:
    n_in, n_out, groups = channels(rng)
    kernel = int(rng.integers(1, 6))
    mode = str(pick(rng, *["zeros", "replicate", "reflect"] * 3, "circular"))
    a = {
        "stride": int(pick(rng, 1, 1, 2, 3, 7)),
        "dilation": int(pick(rng, 1, 1, 2, 3)),
        "groups": groups,
        "left": int(pick(rng, 0, *rng.integers(0, 6, 2))),
        "right": int(pick(rng, 0, *rng.integers(0, 6, 2))),
        "mode": mode,
    }
    if rng.random() < 0.3:  # where what the right padding reads back is all that is kept
        kernel, a["dilation"], a["right"] = (int(rng.integers(1, 4)), 1, int(rng.integers(1, a["stride"] + 1)))
    whole = mode == "circular" and (a["left"] > 0 or a["right"] > 0)
    return make(
        rng,
        "conv1d",
        [Input((*lanes(rng), n_in), dtype)],
        a,
        weights=[normal(rng, (n_out, n_in // groups, kernel), dtype), maybe(rng, normal(rng, (n_out,), dtype))],
        whole=whole,
        late=WAITS if whole else "",
        reach=a["dilation"] * (kernel - 1) + a["stride"] + a["left"] + a["right"] + 2,
    )


@along
def _conv_transpose1d(rng: Rng, dtype: str) -> Case:
    n_in, n_out, groups = channels(rng)
    kernel, stride, dilation = (int(rng.integers(1, 6)), int(pick(rng, 1, 2, 3, 5)), int(pick(rng, 1, 1, 2, 3)))
    a = {
        "stride": stride,
        "padding": int(pick(rng, 0, rng.integers(0, 4))),
        "output_padding": int(pick(rng, 0, rng.integers(0, max(stride, dilation)))),
        "dilation": dilation,
        "groups": groups,
    }
    weights = [normal(rng, (n_in, n_out // groups, kernel), dtype), maybe(rng, normal(rng, (n_out,), dtype))]
    span = dilation * (kernel - 1) + 1
    # The first frame that counts say is open may be one that padding drops, and the next one a structural zero.
    gaps = min(dilation, stride, kernel) > 1 and a["padding"] > 0
    return make(
        rng,
        "conv_transpose1d",
        [Input((*lanes(rng), n_in), dtype)],
        a,
        weights=weights,
        late="structural zeros between dilated taps" if gaps else "",
        reach=(span + 2 * a["padding"]) // stride + 3,
    )


def _layer_norm(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 2), int(rng.integers(2, 20)))
    axes = int(rng.integers(1, len(features) + 1))
    normed = features[len(features) - axes :]
    weights = [maybe(rng, normal(rng, normed, dtype)), maybe(rng, normal(rng, normed, dtype))]
    a = {"axes": axes, "eps": float(pick(rng, 1e-5, 1e-3, 0.5))}
    return make(rng, "layer_norm", [Input(features, dtype)], a, weights=weights, **innermost(rng, features, axes))


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "conv1d": by_lane(conv1d),
    "conv_transpose1d": by_lane(conv_transpose1d),
}
