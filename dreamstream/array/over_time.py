"""Values of whole streams inside a forward: statistics over L, and how they meet the frames again.

A statistic has no stream axis: it is there once, at the stream's end. With the frames that it was taken of it can
only be combined then, so that they wait (`spread`), where ``unstreamable="buffer"`` lets them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..operations.refusals import AT_THE_END, Refusal
from ..stream.edge import Edge
from .dimension_arguments import numbered
from .elementwise import with_frames
from .feature_reductions import attributes_of, over_features
from .stream_tensor import StreamTensor


def require_waiting(what: str, edge: Edge, where: str = "", why: Refusal = AT_THE_END) -> None:
    """Refuse what has to wait for the stream's end where nothing may; `where` it stands, if not here."""
    if not edge.may_wait:
        raise NotStreamableError.here(
            what,
            f': {why.text}, or patch or compile with unstreamable="buffer" to wait for the end of each stream',
            where,
        )


# ---------------------------------------------------------------------- back to frames
def spread(what: str, x: StreamTensor, axis: int, length: Any) -> StreamTensor:
    """Repeat the value that each stream has at its end at every frame of others, where something may wait for it.

    x has no stream axis; its dimension `axis`, of size 1, becomes one of `length`. Messages name the function
    `what`.
    """
    assert x.edge is not None
    require_waiting(what, x.edge)
    limit = x.edge.entry.buffer_limit
    x = x.in_order()
    dims, names = [*x.dims[:axis], "L", *x.dims[axis + 1 :]], [*x.names[:axis], "L", *x.names[axis + 1 :]]
    x = x.squeeze(axis)
    attributes = {"length": length.steps(), "limit": -1 if limit is None else limit}
    return StreamTensor._operate_on("spread", attributes, [x.edge, length.of], [x.value], numbered(dims), names)


def spread_to(what: str, x: StreamTensor, model: StreamTensor) -> StreamTensor:
    """Repeat the value that each stream has at its end at every frame of `model`, with which it is combined."""
    assert model.edge is not None
    require_waiting(f"{what}: a value of the whole stream meets its frames,", model.edge)
    if "L" not in model.dims:
        raise NotStreamableError.here(
            f"{what}: a value of the whole stream meets {model.roles}; combine them before B and L are joined"
        )
    axis = model.dims.index("L") - len(model.dims) + len(x.dims)
    while axis < 0 and not any(isinstance(d, str) for d in x.dims):  # it goes along what it has no axis for
        x, axis = x.unsqueeze(0), axis + 1
    if axis < 0 or isinstance(x.dims[axis], str) or x.features[x.dims[axis]] != 1:
        raise ShapeError.here(
            f"{what}: a value of the whole stream, {x.roles}, meets {model.roles}; it needs a dimension of size 1 "
            "where they have L, as by keepdim=True"
        )
    return spread(what, x, axis, model.edge.entry.library.length(model.edge))


# ---------------------------------------------------------------------- statistics
def of_frames(x: StreamTensor, others: Sequence[int], name: str, attributes: dict[str, Any]) -> StreamTensor:
    """Run an operator that leaves one frame of each stream, the other axes laid out as frames too."""
    if others:
        x = x.in_order()
        gone = [x.dims[a] for a in others]
        order = [*gone, *(i for i in range(len(x.features)) if i not in gone)]
        seen = [i for i in range(x.ndim) if i not in others]
        dims, names = numbered([x.dims[i] for i in seen]), [x.names[i] for i in seen]
        x = x.stored_anew(order)
        shape = (math.prod(x.features[: len(gone)]), *x.features[len(gone) :])
        straight = (*(d for d in x.dims if isinstance(d, str)), *range(len(shape)))
        x = x._operate("reshape", {"shape": shape}, (), straight)._operate("unstack", {}).with_dims(dims, names)
    kept = [i for i, d in enumerate(x.dims) if d != "L"]
    out = x._operate(name, attributes, (), x.dims)
    return out.with_dims(tuple(x.dims[i] for i in kept), [x.names[i] for i in kept])


#: Where gradients are wanted, of all elements at once: equal ones share the gradient.
_OF_ALL = ("amax", "amin", "logsumexp")


def _by_parts(kind: str) -> Callable[..., StreamTensor]:
    """Reductions that may be taken over features first and over frames then."""

    def run(x: StreamTensor, others: Sequence[int], _: dict[str, Any]) -> StreamTensor:
        if x.dtype == np.bool_ and kind in ("sum", "prod", "argmax", "argmin"):
            x = x.to(np.dtype(np.int64))
        if others and not (kind in _OF_ALL and x.has_gradients):
            x, others = over_features(x, kind, others, False, {}), ()
        return of_frames(x, others, "reduce_frames", {"kind": {"amax": "max", "amin": "min"}.get(kind, kind)})

    return run


def _var(x: StreamTensor, others: Sequence[int], options: dict[str, Any]) -> StreamTensor:
    return of_frames(x, others, "var_frames", attributes_of("var", options))


def _norm(x: StreamTensor, others: Sequence[int], options: dict[str, Any]) -> Any:
    p = attributes_of("norm", options)["p"]
    if math.isinf(p):
        return _KINDS["amax" if p > 0 else "amin"](x.abs(), others, {})
    if p < 0:
        x = with_frames(x)
    if p == 0:
        return _KINDS["sum"](x.ne(0).to(x.dtype), others, {})
    size: Any = x.abs() if p != 2 else x
    parts: Any = size if p == 1 else x * x if p == 2 else (size if p > 1 else size.relu()).pow(p)
    total: Any = _KINDS["sum"](parts, others, {})
    if p == 1:
        return total
    total = total.relu()  # whose gradient at 0 is 0, where that of roots and powers is infinite
    return total.sqrt() if p == 2 else total.pow(1 / p)


def _any(x: StreamTensor, others: Sequence[int], _: dict[str, Any]) -> Any:
    return _by_parts("sum")(x if x.dtype == np.bool_ else x.ne(0), others, {}).ne(0)


def _extreme(kind: str) -> Callable[..., Any]:
    def run(x: StreamTensor, others: Sequence[int], _: dict[str, Any]) -> Any:
        if x.dtype != np.bool_:
            return _by_parts(kind)(x, others, {})
        return _by_parts(kind)(x.to(np.dtype(np.float32)), others, {}).ne(0)

    return run


_KINDS: dict[str, Callable[..., Any]] = {
    **{kind: _by_parts(kind) for kind in ("sum", "mean", "prod", "logsumexp", "argmax", "argmin")},
    "amax": _extreme("amax"),
    "amin": _extreme("amin"),
    "var": _var,
    "std": lambda x, others, options: _var(x, others, options).relu().sqrt(),  # its gradient at 0 is 0
    "norm": _norm,
    "any": _any,
    "all": lambda x, others, _: _any(x.eq(0), others, {}).logical_not(),
}


def chosen(x: StreamTensor, kind: str, axis: int, keepdim: bool) -> StreamTensor:
    """Return the largest ("max") or smallest frame, of equal ones the first, which alone has the gradient."""
    if not x.has_gradients or x.dtype == np.bool_:
        return reduce_stream(x, f"a{kind}", [axis], keepdim, {})
    out = of_frames(x, (), "chosen_frame", {"kind": kind})
    return out.unsqueeze(axis) if keepdim else out


def reduce_stream(x: StreamTensor, kind: str, axes: Sequence[int], keepdim: bool, options: dict[str, Any]) -> Any:
    """Return a reduction as `over_features`, but over L, and features too; it is there at the stream's end."""
    out = _KINDS[kind](x, [a for a in axes if x.dims[a] != "L"], options)
    for axis in sorted(axes) if keepdim else ():
        out = out.unsqueeze(axis)
    return out
