"""Random cases of the operators along the stream: pads, cuts, framing."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

import dreamstream as ds

from ..case import Array, Call, Case, Input, Rng, door, normal, pick, random_layout, together
from ..reference import Arrays, Refused, length_of, padded
from .drawing import WAITS, along, any_type, make, shape


# ---------------------------------------------------------------- what they compute
def pad(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    if w:
        return [np.concatenate([w[0][: a["left"]], x, w[0][a["left"] :]])]
    y = padded(x, a["left"], a["right"], a["mode"], a["value"])
    return [x[:0] if y is None else y]


def pad_to_multiple(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n = len(x)
    if not n and a["mode"] == "replicate":
        return [x]
    if a["mode"] == "before":
        return [padded(x, max(a["least"] - n, 0), 0, "constant", a["value"])]
    right = a["right"] + max(n + -n % a["multiple"], a["least"]) - n
    missing = max(max(a["left"], right) + 1 - n, 0) if a["mode"] == "reflect" else 0
    longer = np.concatenate([x, np.full((missing, *x.shape[1:]), a["value"], x.dtype)])
    y = padded(longer, a["left"], right, a["mode"], a["value"])
    return [x if y is None else y[: len(y) - missing]]


def padded_to(a: dict[str, Any], x: Array, n: int) -> Array:
    """Frames before and behind x, until it has n, or n of its own, and those that are added in any case."""
    longer = padded(x, a["left"], max(n + a["right"] - len(x), 0), a["mode"], a["value"])
    if longer is None or (not len(x) and a["mode"] == "replicate"):
        return x
    return longer[: max(a["left"] + n + a["right"], 0)]


def pad_to(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    return [padded_to(a, x, length_of(a["length"], len(y)))]


def slice_(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x[a["start"] : max(len(x) - a["crop"], 0) : a["step"]]]


def cut(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    return [x[a["start"] : length_of(a["length"], len(y)) : a["step"]]]


def put(a: dict[str, Any], w: Arrays, x: Array, v: Array) -> list[Array]:
    y = x.copy()
    at = np.arange(a["start"], max(len(x) - a["crop"], a["start"]), a["step"])
    if len(x) and len(v) != len(at) * a["step"]:
        raise Refused
    y[at] = v[:: a["step"]][: len(at)]
    return [y]


def delay(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [np.concatenate([np.zeros((a["frames"], *x.shape[1:]), x.dtype), x])[: len(x)]]


def sync(a: dict[str, Any], w: Arrays, *xs: Array) -> list[Array]:
    if not all(map(len, xs)):
        return [xs[0][:0]]
    if len({len(x) for x in xs}) > 1:
        raise Refused
    return [xs[0]]


def hold(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    return [np.repeat(x[:1], len(y), 0)]  # of no first frame none


def limit(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    if len(x) > a["frames"]:
        raise Refused
    return [x]


def unless_empty(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x]


def frame(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    size, step, dilation = a["size"], a["step"], a["dilation"]
    if a["exact"] and len(x) % size:
        raise Refused
    span = dilation * (size - 1) + 1
    windows = [x[m : m + span : dilation] for m in range(0, len(x) - span + 1, step)]
    return [np.stack(windows) if windows else np.zeros((0, size, *x.shape[1:]), x.dtype)]


def unstack(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.reshape(-1, *x.shape[2:])]


def table(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n = length_of(a["length"], len(x))
    if n > len(w[0]):
        raise Refused
    return [w[0][: max(n, 0)]]


RELATIONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def required(a: dict[str, Any], n: int, m: int) -> bool:
    """Whether lengths compare as the operator `require` says."""
    other = a["plus"] + (length_of(a["other"], m) if a["against"] == "length" else 0)
    return not n or not m or bool(RELATIONS[a["relation"]](length_of(a["length"], n), other))


def length(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [np.array([length_of(a["length"], len(x))], np.int64)]


def require(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    if not required(a, len(x), len(y)):
        raise Refused
    return length(a, w, x)


# ---------------------------------------------------------------- random cases
def pads(rng: Rng, kind: str) -> dict[str, Any]:
    """Random attributes of a pad of streams of a type."""
    return {
        "left": int(rng.integers(0, 6)),
        "right": int(rng.integers(0, 6)),
        "mode": str(pick(rng, "constant", "replicate", "reflect")),
        "value": float(pick(rng, 0, 1, 0 if kind == "bool" else -3)),
    }


@along
def _pad(rng: Rng, dtype: str) -> Case:
    kind, weights = any_type(rng, dtype), []
    a, features = pads(rng, kind), shape(rng)
    if rng.random() < 0.3 and a["left"] + a["right"] and kind.startswith("float"):
        a["mode"], weights = "constant", [normal(rng, (a["left"] + a["right"], *features), kind)]
    reach = a["left"] + a["right"] + 2
    return make(rng, "pad", [Input(features, kind)], a, weights=weights, exact=True, reach=reach)


@along
def _pad_to_multiple(rng: Rng, dtype: str) -> Case:
    kind = any_type(rng, dtype)
    a = {**pads(rng, kind), "multiple": int(pick(rng, 1, 2, 3, 5)), "least": int(pick(rng, 0, 0, 1, 4, 7))}
    if rng.random() < 0.25:
        a = {"value": a["value"], "mode": "before", "least": a["least"], "left": 0, "right": 0, "multiple": 1}
    reach = a["left"] + a["right"] + a["multiple"] + a["least"] + 2
    return make(rng, "pad_to_multiple", [Input(shape(rng), kind)], a, exact=True, reach=reach)


@along
def _slice(rng: Rng, dtype: str) -> Case:
    a = {"start": int(rng.integers(0, 5)), "crop": int(rng.integers(0, 5)), "step": int(pick(rng, 1, 1, 2, 3))}
    return make(
        rng,
        "slice",
        [Input(shape(rng), any_type(rng, dtype))],
        a,
        exact=True,
        reach=a["start"] + a["crop"] + a["step"] + 1,
    )


def steps(rng: Rng, n: int) -> tuple[list[int], Fraction, int]:
    """A random function of a length, how it changes the rate, and frames until it repeats."""
    out: list[int] = []
    rate, reach = Fraction(1), 2
    for _ in range(n):
        code = int(rng.integers(3))
        c = int(rng.integers(-3, 4)) if code == 0 else int(rng.integers(1, 4))
        rate = rate * c if code == 1 else rate / c if code == 2 else rate
        reach = reach * c if code == 2 else reach + abs(c)
        out += [code, c]
    return out, rate, reach


@along
def _cut(rng: Rng, dtype: str) -> Case:
    length, ratio, reach = steps(rng, int(rng.integers(0, 4)))
    a = {"start": int(rng.integers(0, 3)), "step": int(pick(rng, 1, 1, 2)), "length": length}
    skew = int(pick(rng, 0, 2))
    inputs = [Input(shape(rng, 0, 2), any_type(rng, dtype), ratio), Input(shape(rng, 0, 2), any_type(rng, dtype))]
    rank = max(len(i.features) for i in inputs)
    for i in inputs:
        i.features = (1,) * (rank - len(i.features)) + i.features
    layout = random_layout(rng, rank)
    axis = layout.index("L")

    def forward(call: Call, weights: Any, x: Any, y: Any) -> Any:
        n: Any = length_of(a["length"], y.size(axis))
        return x[(slice(None),) * axis + (slice(a["start"], n, a["step"]),)]

    return make(
        rng,
        "cut",
        inputs,
        a,
        layout=layout,
        forward=forward,
        exact=True,
        skew=skew,
        lengths=_lengths(ratio, skew),
        reach=min(2 * reach + a["start"] + a["step"], 12),
    )


@lru_cache(None)
def _together(ratio: Fraction, some: range, others: range, skew: int) -> list[tuple[int, int]]:
    """The lengths of two inputs, the first of another rate, that are within the skew."""
    return [(i, j) for i in some for j in others if together((ratio, Fraction(1)), (i, j), skew)]


def _lengths(ratio: Fraction, skew: int) -> Callable[[Rng, int], list[int]]:
    """Return what draws lengths of two inputs, one of another rate, that end together."""

    def lengths(rng: Rng, n: int) -> list[int]:
        found = _together(ratio, range(3 * n + 4), range(max(0, n - 2), n + 3), skew)
        return list(pick(rng, *found)) if found else [0, 0]

    return lengths


def _pad_to(rng: Rng, dtype: str) -> Case:
    length, ratio, reach = steps(rng, int(rng.integers(0, 4)))
    skew = int(pick(rng, 0, 2))
    kind = any_type(rng, dtype)
    pads_ = {**pads(rng, kind), "mode": str(pick(rng, "constant", "replicate"))}
    inputs = [Input(shape(rng, 1, 1), kind, ratio), Input(shape(rng, 1, 1), kind)]
    all_ = _together(ratio, range(90), range(40), skew)
    longest = max([0, *(length_of(length, j) - i + pads_["right"] for i, j in all_)])
    if longest > 8:  # what is kept for so many would outlast the streams that are tried
        pads_["mode"], longest = "constant", 0

    return make(
        rng,
        "pad_to",
        inputs,
        {**pads_, "length": length, "longest": longest},
        exact=True,
        skew=skew,
        lengths=_lengths(ratio, skew),
        forward=_padded,
        reach=min(2 * reach + pads_["left"] + longest, 12),
        late="that the other stream may end early is not looked at",
    )


def _padded(call: Call, weights: Any, x: Any, y: Any) -> Any:
    if x.is_stream:
        return door(call, weights, x, y)
    axis, a = call.layout.index("L"), call.attributes
    frames = np.moveaxis(x.numpy(), axis, 0)
    frames = padded_to(a, frames, length_of(a["length"], y.shape[axis]))
    return ds.tensor(np.moveaxis(frames, 0, axis))


@along
def _put(rng: Rng, dtype: str) -> Case:
    a = {"start": int(rng.integers(0, 4)), "crop": int(pick(rng, 0, 0, 1, 3)), "step": int(pick(rng, 1, 1, 2, 3))}
    kind, features = any_type(rng, dtype), shape(rng)
    outside, step = a["start"] + a["crop"], a["step"]

    def lengths(rng: Rng, n: int) -> list[int]:
        return [n, -(-max(n - outside, 0) // step) * step]

    return make(
        rng,
        "put",
        [Input(features, kind), Input(features, kind)],
        a,
        exact=True,
        skew=outside + step,
        lengths=lengths,
        refused=lambda rng: [outside + 1, 0],
        reach=outside + step + 2,
        late="which lengths the other stream may have is not looked at",
    )


@along
def _delay(rng: Rng, dtype: str) -> Case:
    a = {"frames": int(rng.integers(0, 7))}
    return make(rng, "delay", [Input(shape(rng), any_type(rng, dtype))], a, exact=True, reach=a["frames"] + 2)


@along
def _sync(rng: Rng, dtype: str) -> Case:
    n = int(rng.integers(2, 4))
    rank = int(rng.integers(0, 3))
    inputs = [Input(shape(rng, rank, rank), any_type(rng, dtype)) for _ in range(n)]
    inputs = inputs if rng.random() < 0.6 else inputs[:1] * n
    skew = int(rng.integers(0, 5))
    same = len({(i.features, i.dtype) for i in inputs}) == 1

    def forward(call: Call, weights: Any, *tensors: Any) -> Any:
        if tensors[0].is_stream or same:
            return door(call, weights, *tensors)
        return tensors[0]  # the door's plain tensors are of one shape

    def depends(*arrays: Array) -> list[Array]:
        """Who is brought together waits for the others."""
        least = min(map(len, arrays))
        rest = sum(a[:least].reshape(least, -1).sum(1) for a in arrays)
        return [arrays[0][:least] + np.reshape(rest, (least, *(1,) * rank))]

    def refused(rng: Rng) -> list[int]:
        return [3, 2, *[3] * (n - 2)]

    return make(
        rng,
        "sync",
        inputs,
        {},
        layout=random_layout(rng, rank),
        forward=forward,
        depends=depends,
        exact=True,
        skew=skew,
        reach=skew + 2,
        refused=refused if skew else None,
    )


def _hold(rng: Rng, dtype: str) -> Case:
    rank = int(rng.integers(0, 3))
    inputs = [Input(shape(rng, rank, rank), any_type(rng, dtype)) for _ in range(2)]

    def forward(call: Call, weights: Any, x: Any, y: Any) -> Any:
        if x.is_stream or x.shape == y.shape:
            return door(call, weights, x, y)
        axis = call.layout.index("L")  # the door's plain tensors are of one shape
        first = x.narrow(axis, 0, min(1, x.shape[axis]))
        return ds.tensor(np.repeat(first.numpy(), y.shape[axis], axis))

    layout = random_layout(rng, rank)
    skew = int(rng.integers(0, 5))
    reach = skew + 2
    return make(
        rng, "hold", inputs, {}, layout=layout, forward=forward, exact=True, skew=skew, reach=reach, grows=True
    )


def _limit(rng: Rng, dtype: str) -> Case:
    a = {"frames": int(rng.integers(1, 20)), "of": str(pick(rng, "buffer", "table", "context"))}
    return make(
        rng,
        "limit",
        [Input(shape(rng), any_type(rng, dtype))],
        a,
        exact=True,
        reach=6,
        lengths=lambda rng, n: [min(n, a["frames"])],
        refused=lambda rng: [a["frames"] + 1],
    )


def _unless_empty(rng: Rng, dtype: str) -> Case:
    return make(rng, "unless_empty", [Input(shape(rng), any_type(rng, dtype))], {}, exact=True, reach=6)


@along
def _frame(rng: Rng, dtype: str) -> Case:
    size, exact = int(rng.integers(1, 6)), int(rng.random() < 0.4)
    a = {
        "size": size,
        "step": size if exact else int(rng.integers(1, 7)),
        "dilation": 1 if exact else int(pick(rng, 1, 1, 2)),
        "exact": exact,
    }
    can_refuse = exact and size > 1
    return make(
        rng,
        "frame",
        [Input(shape(rng, 0, 2), any_type(rng, dtype))],
        a,
        exact=True,
        reach=a["dilation"] * (size - 1) + a["step"] + 2,
        lengths=(lambda rng, n: [n // size * size]) if exact else None,
        refused=(lambda rng: [size + 1]) if can_refuse else None,
    )


@along
def _unstack(rng: Rng, dtype: str) -> Case:
    return make(rng, "unstack", [Input(shape(rng, 1), any_type(rng, dtype))], {}, exact=True)


def _table(rng: Rng, dtype: str) -> Case:
    length, _, reach = steps(rng, int(rng.integers(0, 3)))
    rows, features = int(rng.integers(8, 60)), shape(rng, 0, 2)
    kind = any_type(rng, dtype)
    layout = ("B", "L", *range(len(features)))
    batch = len(features) > 0 and (bool(rng.integers(2)) or features[0] == 1)

    def forward(call: Call, weights: Any, x: Any) -> Any:
        n: Any = length_of(length, x.size(1))
        n = max(n, 0) if isinstance(n, int) else n
        return weights[0].unsqueeze(0)[:, :n] if batch else weights[0][:n]

    def longest() -> int:
        return next(n for n in range(1, 500) if n == 499 or length_of(length, n + 1) > rows)

    return make(
        rng,
        "table",
        [Input(features, any_type(rng, dtype))],
        {"length": length},
        weights=[normal(rng, (rows, *features), kind)],
        layout=layout,
        forward=forward,
        exact=True,
        reach=min(reach, 8),
        lengths=lambda rng, n: [min(n, longest())] if length_of(length, 1) <= rows else [0],
        refused=lambda rng: [longest() + 1],
    )


def _length(rng: Rng, dtype: str) -> Case:
    codes, _, reach = steps(rng, int(rng.integers(0, 4)))
    return make(
        rng,
        "length",
        [Input(shape(rng), any_type(rng, dtype))],
        {"length": codes},
        reach=min(reach, 8),
        late=WAITS,
    )


def _require(rng: Rng, dtype: str) -> Case:
    skew = int(pick(rng, 0, 2))
    features, kind = shape(rng), any_type(rng, dtype)
    a = {
        "length": steps(rng, int(rng.integers(0, 3)))[0],
        "other": steps(rng, int(rng.integers(0, 3)))[0],
        "plus": int(rng.integers(-2, 5)),
        "against": str(pick(rng, "length", "number")),
        "relation": str(pick(rng, *RELATIONS)),
    }
    some = _together(Fraction(1), range(12), range(12), skew)
    right = [n for n in some if required(a, *n)]
    wrong = [n for n in some if not required(a, *n)]
    return make(
        rng,
        "require",
        [Input(features, kind), Input(features, kind)],
        a,
        skew=skew,
        reach=6,
        late="which lengths there may be is not looked at",
        lengths=lambda rng, n: list(pick(rng, *right)),
        refused=(lambda rng: list(pick(rng, *wrong))) if wrong else None,
    )
