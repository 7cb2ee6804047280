"""Writing into plain tensors that are on the tape.

What is written into a tensor becomes what it follows from. A view shares its memory with another tensor, its base:
what is written into the view is written into the base, too, and every other view of it then follows from that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import autograd
from ..errors import ModeError
from .derivatives import fitted

Array = NDArray[Any]


def view_of(base: Any, out: Any) -> None:
    """Note that a tensor may share the memory of another one that it was made of."""
    if out._array.base is not None and np.may_share_memory(out._array, base._array):
        out._base = base if base._base is None else base._base
        out._base_at = out._base._rewritten


def check(x: Any, name: str) -> None:
    """Refuse a write into a leaf that wants a gradient, or into its view."""
    for tensor, what in ((x, "a tensor"), (x._base, "a view of a tensor")):
        if tensor is not None and tensor.grad_fn is None and tensor._wanted and autograd.is_grad_enabled():
            raise ModeError(
                f"{name} writes into {what} with requires_grad=True, whose gradient would be lost; do it under "
                "ds.no_grad(), or use .clone() first"
            )


def apart(x: Any, *others: Any) -> Any:
    """Return x, or a copy for the tape to read where x is about to be written into."""
    if x.is_stream or not autograd.is_grad_enabled():
        return x
    return x.clone() if any(getattr(t, "requires_grad", False) for t in (x, *others)) else x


def written(x: Any, name: str, value: Any, index: Any = ...) -> None:
    """Say that `value`, a tensor or a number, was written into x at an index."""
    autograd.edited(x._array)
    given = value if hasattr(value, "grad_fn") else None
    sources = autograd.sources([t for t in (x, given) if t is not None])
    if sources is None:
        return
    like = None if given is None else given.numpy()

    def back(g: Array) -> list[Array | None]:
        rest = g.copy()
        rest[index] = 0
        return [rest, None if like is None else fitted(g[index], like.shape).astype(like.dtype)]

    _set(x, autograd.Record(name, sources, back))


def became(x: Any, name: str, value: Any) -> None:
    """Say that all of x was replaced by a tensor that was computed of it, and maybe of others."""
    autograd.edited(x._array)
    sources = autograd.sources([value])
    if sources is not None:
        shape = value.shape
        _set(x, autograd.Record(name, sources, lambda g: [fitted(g, shape)]))


def _set(x: Any, record: autograd.Record) -> None:
    """Let a tensor follow from a record, and its base likewise."""
    base = x._base
    x.grad_fn, x.output_nr, x._wanted = record, 0, False
    if base is None:
        x._rewritten += 1
        return
    at, shape = _positions(x._array, base._array), base._array.shape

    def back(g: Array) -> list[Array | None]:
        rest = g.copy().reshape(-1)
        rest[at] = 0
        return [rest.reshape(shape), g.reshape(-1)[at]]

    base.grad_fn = autograd.Record(record.name, [autograd.source(base), (record, 0)], back)
    base.output_nr, base._wanted = 0, False
    base._rewritten += 1
    refresh(x)


def refresh(x: Any) -> None:
    """Let a view follow from its base again, which was written into since."""
    base = x._base
    x._base_at = base._rewritten
    at, shape, kind = _positions(x._array, base._array), base._array.shape, base._array.dtype
    if not base.requires_grad:
        return

    def back(g: Array) -> list[Array | None]:
        out = np.zeros(shape, kind)
        np.add.at(out.reshape(-1), at, g)
        return [out]

    x.grad_fn, x.output_nr = autograd.Record("a view", [autograd.source(base)], back), 0


def _positions(view: Array, base: Array) -> Array:
    """Return for each element of a view its number among the base's elements."""
    own, theirs = _addresses(view), _addresses(base).reshape(-1)
    order = np.argsort(theirs)
    return order[np.searchsorted(theirs, own, sorter=order)]


def _addresses(array: Array) -> Array:
    out = np.asarray(array.__array_interface__["data"][0])
    for n, stride in zip(array.shape, array.strides):
        out = out[..., None] + np.arange(n) * stride
    return out
