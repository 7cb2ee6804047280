"""Operators on streams whose B is joined with features: every lane of a frame goes through them by itself.

Lanes are stored as one axis in front of the other features (`stream.rules.batch_folding`). Most operators look at
the last features alone, or at none, and take lanes as they come. The others are run as an operator on frames with
one axis more; their rows (`dreamstream.operations`) say which, or this file does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from ..errors import NotStreamableError
from ..operations import row_of
from . import hook
from .forward import reshape_features
from .stream_tensor import StreamTensor

Attributes = Mapping[str, Any]
Outputs = Sequence[StreamTensor]


def by_lane(
    name: str, attributes: Attributes, inputs: Sequence[StreamTensor], weights: Sequence[Any]
) -> Outputs | None:
    """Return the opened outputs of an operator on tensors with lanes; None where it takes lanes as they come.

    They are stored as the operator wants their other features. Where none runs on frames with lanes, that is
    refused.
    """
    way = row_of(name).lanes
    if way == "as they come":
        return None
    lanes = inputs[0].lanes
    opened = [x.opened() for x in inputs]
    if way == "axis":
        return _run(name, {**attributes, "axis": attributes["axis"] + 1}, opened, weights)
    if way == "axes":
        return _run(name, {**attributes, "axes": [a + 1 for a in attributes["axes"]]}, opened)
    if way == "shape":
        return _run(name, {**attributes, "shape": [lanes, *attributes["shape"]]}, opened)
    if name == "permute":
        return _run(name, {"order": [0, *(a + 1 for a in attributes["order"])]}, opened)
    if name == "frame":
        return [_lanes_second(y) for y in _run(name, attributes, opened)]
    if way == "behind":
        if _whole(name, attributes):
            return None
        made = _run(name, attributes, [_lanes_second(x) for x in opened], weights)
        return [_lanes_second(y) if len(y.features) == len(opened[0].features) else y for y in made]
    if name in ("conv2d", "conv_transpose2d") and len(weights[0].shape) == 3:  # within frames: lanes are rows
        return None
    own = _OWN.get(name)
    found = None if own is None else own(attributes, opened, weights)
    if found is not None:
        return found
    raise NotStreamableError.here(
        name,
        f" does not stream where B is joined with features, {inputs[0].roles}; keep them apart, or call it on "
        "each of them",
    )


def _whole(name: str, attributes: Attributes) -> bool:
    """Whether a pooling operator leaves the features of a frame alone."""
    usual = {"inner_kernel": 1, "inner_stride": 1, "inner": 0}
    return name.endswith("pool") and all(attributes.get(k, n) == n for k, n in usual.items())


def _run(name: str, attributes: Attributes, inputs: Outputs, weights: Sequence[Any] = ()) -> Outputs:
    return hook.apply(name, attributes, inputs, weights, inputs[0].dims)


def _lanes_second(x: StreamTensor) -> StreamTensor:
    """Return frames whose first two axes are exchanged."""
    return x.stored_anew([1, 0, *range(2, len(x.features))])


def _each(x: Any, weights: Sequence[Any], make: Callable[[Any], Any]) -> list[Any]:
    """Return what is made of weights, for an operator on a stream."""
    recording = getattr(x.edge.entry, "recording", None)
    make = make if recording is None else partial(recording.making, make)
    return [None if w is None else make(w) for w in weights]


def _attention(attributes: Attributes, inputs: Outputs, weights: Sequence[Any]) -> Outputs | None:
    """Lanes are heads, as long as no head has weights of its own."""
    if any(w is not None and w.shape[0] != 1 for w in weights):
        return None
    lanes, heads = inputs[0].features[:2]
    merged = [reshape_features(x, (lanes * x.features[1], *x.features[2:]), x.dims).opened() for x in inputs]
    return [
        reshape_features(y, (lanes, heads, *y.features[1:]), y.dims).opened()
        for y in _run("attention", attributes, merged, weights)
    ]


def _norm(attributes: Attributes, inputs: Outputs, weights: Sequence[Any]) -> Outputs:
    """Lanes are groups of channels."""
    (x,), lanes = inputs, inputs[0].features[0]
    n = len(x.features)
    x = x.stored_anew([*range(1, n - 1), 0, n - 1])
    merged = reshape_features(x, (*x.features[:-2], lanes * x.features[-1]), x.dims).opened()
    many = _each(x, weights, methodcaller("repeat", lanes))
    (y,) = _run("group_norm", {**attributes, "groups": attributes["groups"] * lanes}, [merged], many)
    return [reshape_features(y, x.features, y.dims).opened().stored_anew([n - 2, *range(n - 2), n - 1])]


def _planes(name: str, attributes: Attributes, inputs: Outputs, weights: Sequence[Any]) -> Outputs | None:
    """Lanes are groups of channels, with equal weights."""
    (x,), lanes = inputs, inputs[0].features[0]
    if len(x.features) > 3:  # images of their own
        return None
    x = _lanes_second(x)
    channels = reshape_features(x, (x.features[0], lanes * x.features[2]), x.dims).opened()
    many = _each(x, weights, lambda w: w.repeat(lanes, *(1,) * (len(w.shape) - 1)))
    groups = {**attributes, "groups": attributes.get("groups", 1) * lanes}
    (y,) = _run(name, groups, [channels], many)
    return [_lanes_second(reshape_features(y, (y.features[0], lanes, y.features[1] // lanes), y.dims).opened())]


_OWN: dict[str, Callable[[Attributes, Outputs, Sequence[Any]], Outputs | None]] = {
    "attention": _attention,
    "group_norm": _norm,
    "matmul": lambda attributes, inputs, weights: _run(
        "matmul", attributes, inputs, _each(inputs[0], weights[:1], methodcaller("unsqueeze", 0))
    ),
    "conv2d": partial(_planes, "conv2d"),
    "conv_transpose2d": partial(_planes, "conv_transpose2d"),
}
