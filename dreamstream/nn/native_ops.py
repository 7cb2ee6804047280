"""What gates, experts and features do with NumPy's tensors (`routing`, `mixing`, `features`, `cepstra`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import array
from ..array import Tensor, draws
from ..errors import NotStreamableError
from . import functional as F, init
from .functional.arguments import checked
from .functional.experts import DROPPED, check_experts
from .linear import Linear, new_parameter

__all__ = ["OPS", "Ops", "first_come", "rows_of"]


def _parameter(*shape: int, bound: float = 0.0) -> Any:
    out = new_parameter(*shape)
    if bound:
        init.uniform_(out, -bound, bound)
    return out


def is_stream(x: Any) -> bool:
    return bool(getattr(x, "is_stream", False))


def first_come(rows: Any, limit: int, n: int) -> Any:
    """Return choices ``(tokens, k)``, -1 for those behind the first `limit` of their expert, token after token."""
    flat = rows.reshape(-1)
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat[flat >= 0], minlength=n)
    first = np.concatenate([[0], np.cumsum(counts)])
    rank = np.empty(len(flat), np.int64)
    rank[order] = np.arange(len(flat))
    rank -= np.sum(flat < 0) + first[np.maximum(flat, 0)]
    return np.where(rank < limit, flat, DROPPED).reshape(rows.shape)


def limited(index: Any, limit: Any, n: int) -> Any:
    """Return choices, some of them dropped: of a stream among the frames of this call."""

    def drop(value: Any) -> Any:
        rows = value.reshape(-1, value.shape[-1])
        return first_come(rows, limit(len(rows)), n).reshape(value.shape)

    return _of_values(index, drop, "capacity")


def _of_values(x: Any, function: Any, what: str) -> Any:
    if not is_stream(x):
        return Tensor(function(x.numpy()))
    if x.value is None:
        raise NotStreamableError.here(what, " looks at a batch, which an engine has not")
    return type(x).inside(function(x.value), x.dims, x.edge, x.names)


def _drawn(method: str, of_stream: Any) -> Any:
    def draw(gate: Any, like: Any) -> Any:
        name = type(gate).__name__
        if is_stream(like) and draws.is_in_loop(like):
            return draws.in_loop(name, like, of_stream)
        if is_stream(like) and like.edge is not None and like.value is not None:
            numbers = of_stream(name, like, like.value.shape[1:])
            return draws.with_values(like, numbers.astype(like.value.dtype))
        return _of_values(like, lambda v: getattr(gate.random, method)(size=v.shape).astype(v.dtype), method)

    return draw


def _symbolic(x: Any) -> bool:
    return is_stream(x) and x.value is None and not draws.is_in_loop(x)


def rows_of(x: Any) -> Any:
    """Return the id of each stream and how many frames it has in this call; None outside a forward."""
    if not is_stream(x) or x.edge is None:
        return None
    counts = x.edge.counts
    return list(zip(x.edge.entry.ids, (counts[:, 2] - counts[:, 0]).tolist()))


def _array(x: Any) -> Any:
    return x.value if is_stream(x) else x.numpy()


class Ops(SimpleNamespace):
    """What shared layers do with tensors; any other name is that of one of the modules `elsewhere`."""

    def __getattr__(self, name: str) -> Any:
        for place in self.__dict__["elsewhere"]:
            if hasattr(place, name):
                return getattr(place, name)
        raise AttributeError(name)


OPS = Ops(
    elsewhere=(F, array),
    rows=rows_of,
    array=_array,
    linear=lambda d, n, bias: Linear(d, n, bias=bias),
    parameter=_parameter,
    zeros=lambda n: Tensor(np.zeros(n, np.float32)),
    random=np.random.default_rng,
    normal=_drawn("standard_normal", draws.normal),
    uniform=_drawn("random", draws.uniform),
    limited=limited,
    is_stream=is_stream,
    is_symbolic=_symbolic,
    check_experts=check_experts,
    is_integer=lambda index: index.dtype == array.int64,
    checked=checked,
    tensor=Tensor,
    constant=lambda values, like: Tensor(values.astype(like.dtype)),
    linear_of=F.linear,
    keeps_tables=True,
)
