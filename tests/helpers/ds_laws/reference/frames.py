"""Operators along the stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Array, Arrays, Refused, length_of

__all__ = ["RELATIONS", "padded_to", "required"]


from .products import padded


def pad(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    if w and len(x):
        return [np.concatenate([w[0][: a["left"]], x, w[0][a["left"] :]])]
    y = padded(x, a["left"], a["right"], a["mode"], a["value"])
    return [x[:0] if y is None else y]


def pad_to_multiple(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n = len(x)
    if not n:
        return [x]
    right = a["right"] + max(n + -n % a["multiple"], a["least"]) - n
    missing = max(max(a["left"], right) + 1 - n, 0) if a["mode"] == "reflect" else 0
    longer = np.concatenate([x, np.full((missing, *x.shape[1:]), a["value"], x.dtype)])
    y = padded(longer, a["left"], right, a["mode"], a["value"])
    assert y is not None
    return [y[: len(y) - missing]]


def padded_to(a: dict[str, Any], x: Array, n: int) -> Array:
    """Frames before and behind x, until it has n, or n of its own, and those that are added in any case."""
    longer = padded(x, a["left"], max(n + a["right"] - len(x), 0), a["mode"], a["value"])
    assert longer is not None
    return longer[: max(a["left"] + n + a["right"], 0)]


def pad_to(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    if not len(x) or not len(y):
        return [x[:0]]
    return [padded_to(a, x, length_of(a["length"], len(y)))]


def slice_(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x[a["start"] : max(len(x) - a["crop"], 0) : a["step"]]]


def cut(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    if not len(x) or not len(y):
        return [x[:0]]
    return [x[a["start"] : max(length_of(a["length"], len(y)), 0) : a["step"]]]


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
    return [np.repeat(x[:1], len(y), 0)]


def limit(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    if len(x) > a["frames"]:
        raise Refused
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
    n = length_of(a["length"], len(x)) if len(x) else 0
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
    return [np.array([length_of(a["length"], len(x))] if len(x) else [], np.int64)]


def require(a: dict[str, Any], w: Arrays, x: Array, y: Array) -> list[Array]:
    if not required(a, len(x), len(y)):
        raise Refused
    return [length(a, w, x)[0][: len(y)]]
