"""What works frame by frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dreamstream.operations import ELEMENTWISE

from .base import Array, Arrays, operands, sigmoid

__all__ = ["REFERENCES"]


def elementwise(f: Callable[..., Array]) -> Callable[..., list[Array]]:
    def reference(a: dict[str, Any], w: Arrays, *xs: Array) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(f(*operands(a, w, xs)))]

    return reference


def unary(f: Callable[..., Array]) -> Callable[..., list[Array]]:
    def reference(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(f(x, **a))]

    return reference


def cast(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.astype(a["to"])]


# ---------------------------------------------------------------- within a frame
def _log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def glu(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    n = x.shape[-1] // 2
    return [x[..., :n] * sigmoid(x[..., n:])]


def cat(a: dict[str, Any], w: Arrays, *xs: Array) -> list[Array]:
    return [np.concatenate(xs, axis=a["axis"] + 1)]


def permute(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.transpose(0, *(d + 1 for d in a["order"]))]


def reshape(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.reshape(len(x), *a["shape"])]


def narrow(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [
        np.moveaxis(np.moveaxis(x, a["axis"] + 1, 0)[a["start"] :][: a["length"] : a["step"]], 0, a["axis"] + 1)
    ]


def pick(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.take(w[0].clip(0, x.shape[a["axis"] + 1] - 1), a["axis"] + 1)]


def expand(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    features = (1,) * (len(a["shape"]) - x.ndim + 1) + x.shape[1:]
    return [np.broadcast_to(x.reshape(len(x), *features), (len(x), *a["shape"]))]


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    **{n: (unary if row.operands == 1 else elementwise)(row.reference) for n, row in ELEMENTWISE.items()},
    "where": elementwise(np.where),
    "softmax": unary(lambda x: np.exp(_log_softmax(x))),
    "log_softmax": unary(_log_softmax),
}
