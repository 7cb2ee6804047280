"""The frames of stream tensors outside a forward as plain tensors, for what looks at frames alone: losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..stream.rules import require_same
from .tensor import Tensor

Shown = Callable[[Any], Any]


def of_elements(name: str, x: Any, others: Sequence[Any]) -> tuple[Tensor, list[Tensor], Shown]:
    """Return the frames of x and of others of its shape, and what makes a stream of a value for each element.

    Parameters
    ----------
    name : str
        The function, for messages.
    x : Tensor
    others : sequence of Tensor
        Streams like x, or plain tensors that broadcast with it, padded as it is.
    """
    given = [o if isinstance(o, Tensor) else Tensor(np.asarray(o)) for o in (x, *others)]
    model: Any = next((o for o in given if o.is_stream), None)
    if model is None:
        return given[0], given[1:], lambda y: y
    _require_outside(name, model)
    own, *rest = [_frames(name, model, o) for o in given]
    return own, rest, model.like


def _require_outside(name: str, x: Any) -> None:
    if x.edge is not None:
        raise NotStreamableError.here(f"{name} inside a forward,", ": apply it to what that returns")


def _frames(name: str, model: Any, other: Any) -> Any:
    if getattr(other, "is_stream", False):
        require_same([model.meta, other.meta], [model.starts, other.starts], name)
        if [isinstance(d, int) for d in other.dims] != [isinstance(d, int) for d in model.dims]:
            raise ShapeError(f"{name}: dimensions {other.names} don't line up with {model.names}")
        return other.in_order([d for d in model.dims if isinstance(d, int)])._frames()
    dims, shape = model.dims, model.shape  # it is padded as streams are, or broadcasts with them
    plain = other if isinstance(other, Tensor) else Tensor(np.asarray(other))
    try:
        wide: Any = plain.expand(*shape)
    except ShapeError:
        raise ShapeError(f"{name}: a tensor of shape {plain.shape} meets streams {tuple(shape)}") from None
    order = [dims.index(d) for d in ("B", "L") if d in dims]
    order += [dims.index(i) for i in range(len(dims) - len(order))]
    wide = wide.permute(*order)
    if "L" not in dims:
        return wide
    return wide[np.arange(shape[dims.index("L")]) < np.asarray(model.lengths)[:, None]]


def frames_of(name: str, x: Any, target: Any) -> tuple[Tensor, Tensor, Shown]:
    """Return the frames of x, the feature of its dimension 1 first, and those of a target without or with it."""
    t = target if isinstance(target, Tensor) else Tensor(np.asarray(target))
    if not x.is_stream:
        return x, t, lambda y: y
    _require_outside(name, x)
    if x.ndim < 2 or isinstance(x.dims[1], str):
        raise ShapeError(
            f"{name}: classes are dimension 1, which is no feature of {x.names}; transpose them there"
        )
    n_before = isinstance(x.dims[0], int)
    places = iter(range(1, len(x.dims)))
    x = x.in_order([0 if i == n_before else next(places) for i in range(len(x.features))])
    own = x._frames()
    if t.is_floating_point():
        return own, _frames(name, x, t), lambda y: y
    rest = [d if isinstance(d, str) else d - 1 for i, d in enumerate(x.dims) if i != 1]
    shown = x.like(np.zeros((len(x.value), *x.features[1:]), t.dtype), tuple(rest))
    return own, _frames(name, shown, t), lambda y: shown.like(y, tuple(rest))
