"""Random cases of the operators that work frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream.operations import ELEMENTWISE, LOGICAL

from ..case import Array, Call, Case, Input, Rng, door, normal, pick, random_layout
from ..reference import Arrays, operands, sigmoid
from .drawing import any_type, innermost, long, make, total
from .functions import halves, wide


# ---------------------------------------------------------------- what they compute
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


def pick_(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    return [x.take(w[0].clip(0, x.shape[a["axis"] + 1] - 1), a["axis"] + 1)]


def expand(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
    features = (1,) * (len(a["shape"]) - x.ndim + 1) + x.shape[1:]
    return [np.broadcast_to(x.reshape(len(x), *features), (len(x), *a["shape"]))]


# ---------------------------------------------------------------- random cases
EXACT = {
    "where", "cast", "cat", "permute", "reshape", "narrow", "expand", "pick", *(row.name for row in LOGICAL),
}  # fmt: skip


def _make(rng: Rng, name: str, inputs: list[Input], attributes: dict[str, Any], **more: Any) -> Case:
    return make(rng, name, inputs, attributes, exact=name in EXACT, **more)


# ---------------------------------------------------------------- one operand
def _cast(rng: Rng, dtype: str) -> Case:
    source = str(pick(rng, dtype, "int64", "bool"))
    targets = ["float32", "int64", "bool"] + ["float64"] * (dtype == "float64")
    draw = normal if source == "bool" else halves
    return _make(
        rng, "cast", [Input(long(rng), source, draw=draw)], {"to": str(pick(rng, *targets))}, depends=total
    )


def _flags(name: str, rng: Rng, dtype: str) -> Case:
    return _make(rng, name, [Input(long(rng), "bool")], {}, depends=total, dims=pick(rng, "layout", None))


# ---------------------------------------------------------------- two or three operands
def _operands(name: str, types: Sequence[str], rng: Rng, dtype: str) -> Case:
    """Streams and constants that broadcast against each other."""
    kinds = [dtype if t == "real" else t for t in types]
    full = long(rng)
    order = [int(rng.random() < 0.35) for _ in kinds]
    if all(order):
        order[int(rng.integers(len(order)))] = 0
    inputs, weights = [], []
    for kind, constant in zip(kinds, order):
        own = tuple(1 if rng.random() < 0.2 else n for n in full)
        if constant:
            own = own[int(rng.integers(len(own) + 1)) :]
            weights.append(np.asarray(normal(rng, own, kind)))
        else:
            inputs.append(Input(own, kind))
    attributes: dict[str, Any] = {"order": order} if weights or rng.random() < 0.5 else {}

    def depends(*arrays: Array) -> list[Array]:
        return total(*operands(attributes, [w.astype(float) for w in weights], arrays))

    skew = int(rng.integers(0, 4))
    refused = (lambda rng: [2, *[3] * (len(inputs) - 1)]) if skew and len(inputs) > 1 else None
    return _make(
        rng,
        name,
        inputs,
        attributes,
        weights=weights,
        dims=None,
        depends=depends,
        skew=skew,
        reach=skew + 3,
        refused=refused,
    )


def _truths(name: str, rng: Rng, dtype: str) -> Case:
    return _operands(name, ("bool", "bool"), rng, dtype)


# ---------------------------------------------------------------- within a frame
def _within(name: str, rng: Rng, dtype: str) -> Case:
    features = (*long(rng, 0, 2), int(rng.integers(1, 20)) * (2 if name == "glu" else 1))
    kind = Input(features, dtype, draw=wide)
    return _make(rng, name, [kind], {}, **innermost(rng, features), depends=None)


def _cat(rng: Rng, dtype: str) -> Case:
    features, kind = long(rng, 1), any_type(rng, dtype)
    axis = int(rng.integers(len(features)))
    n = int(rng.integers(2, 4))
    sizes = [tuple(int(rng.integers(1, 4)) if d == axis else s for d, s in enumerate(features)) for _ in range(n)]
    layout = random_layout(rng, len(features))

    def forward(call: Call, weights: Any, *tensors: Any) -> Any:
        if tensors[0].is_stream:
            return door(call, weights, *tensors)
        return ds.cat(tensors, call.layout.index(axis))  # the door's plain tensors are of one shape

    return _make(rng, "cat", [Input(s, kind) for s in sizes], {"axis": axis}, layout=layout, forward=forward)


def _permute(rng: Rng, dtype: str) -> Case:
    features = long(rng, 1)
    return _make(
        rng,
        "permute",
        [Input(features, any_type(rng, dtype))],
        {"order": [int(i) for i in rng.permutation(len(features))]},
    )


def _reshape(rng: Rng, dtype: str) -> Case:
    features = long(rng)
    n = int(np.prod(features, dtype=int))
    factors = [d for d in range(1, n + 1) if n % d == 0]
    a = int(pick(rng, *factors))
    return _make(
        rng,
        "reshape",
        [Input(features, any_type(rng, dtype))],
        {"shape": list(pick(rng, (n,), (a, n // a), (1, n // a, a)))},
    )


def _narrow(rng: Rng, dtype: str) -> Case:
    features = long(rng, 1)
    axis = int(rng.integers(len(features)))
    start = int(rng.integers(features[axis]))
    length = int(rng.integers(1, features[axis] - start + 1))
    a = {"axis": axis, "start": start, "length": length, "step": int(pick(rng, 1, 1, 2, 3))}
    return _make(rng, "narrow", [Input(features, any_type(rng, dtype))], a)


def _pick(rng: Rng, dtype: str) -> Case:
    features = long(rng, 1)
    axis, n = int(rng.integers(len(features))), int(rng.integers(1, 9))
    index = rng.integers(0, features[axis], n) if rng.random() < 0.5 else np.arange(n) * int(pick(rng, 1, -1, 2))
    index = index.clip(0, features[axis] - 1)
    return _make(rng, "pick", [Input(features, any_type(rng, dtype))], {"axis": axis}, weights=[index])


def _expand(rng: Rng, dtype: str) -> Case:
    full = long(rng)
    own = tuple(1 if rng.random() < 0.5 else n for n in full)[int(rng.integers(len(full) + 1)) :]
    return _make(rng, "expand", [Input(own, any_type(rng, dtype))], {"shape": list(full)})


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    **{n: (unary if row.operands == 1 else elementwise)(row.reference) for n, row in ELEMENTWISE.items()},
    "where": elementwise(np.where),
    "softmax": unary(lambda x: np.exp(_log_softmax(x))),
    "log_softmax": unary(_log_softmax),
}
GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    "where": partial(_operands, "where", ("bool", "real", "real")),
    **{r.name: partial(_flags if r.operands == 1 else _truths, r.name) for r in LOGICAL},
    **{name: partial(_within, name) for name in ("softmax", "log_softmax", "glu")},
}
