"""Random cases of products and norms."""

from __future__ import annotations

from ..case import Case, Input, Rng, normal, pick
from .drawing import WAITS, along, cases, innermost, lanes, make, maybe, shape


def linear(rng: Rng, dtype: str) -> Case:
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
def conv1d(rng: Rng, dtype: str) -> Case:
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
def conv_transpose1d(rng: Rng, dtype: str) -> Case:
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


def layer_norm(rng: Rng, dtype: str) -> Case:
    features = (*shape(rng, 0, 2), int(rng.integers(2, 20)))
    axes = int(rng.integers(1, len(features) + 1))
    normed = features[len(features) - axes :]
    weights = [maybe(rng, normal(rng, normed, dtype)), maybe(rng, normal(rng, normed, dtype))]
    a = {"axes": axes, "eps": float(pick(rng, 1e-5, 1e-3, 0.5))}
    return make(rng, "layer_norm", [Input(features, dtype)], a, weights=weights, **innermost(rng, features, axes))
