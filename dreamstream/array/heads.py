"""Queries, keys and values as the operator of attention has them, ``(B, heads, L, features)``, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .axes_of_scores import STREAMS, Heads

__all__ = ["atoms_of", "laid", "shown", "streams_of"]

Dim = tuple[Any, ...]


def streams_of(x: Any) -> Any:
    """Return a stream whose B and L are dimensions of their own, also where a table has been given no B."""
    dims = getattr(x, "dims", ())
    if "B_L" in dims and dims.index("B_L") and x.shape[0] == 1:  # a table, of one row
        x = x.squeeze(0)
        return x.with_dims(("B", *("L" if d == "B_L" else d for d in x.dims)))
    return x if "L" in dims else None


def atoms_of(x: Any, letters: str, frames: str) -> dict[str, Dim] | None:
    """Return what each dimension is made of, by letters; those of features are heads."""
    out: dict[str, Dim] = {}
    for letter, dim, size in zip(letters, x.dims, x.shape):
        if isinstance(dim, int):
            out[letter] = (Heads(size),) if size > 1 else ()
        elif dim == "L":
            out[letter] = (frames,)
        else:
            parts = dim.split("_")
            if "L" in parts:
                return None
            out[letter] = tuple(STREAMS if p == "B" else Heads(int(p)) for p in parts)
    return out


def laid(x: Any, labels: Sequence[Dim], heads: Sequence[Heads], tail: Sequence[Any]) -> Any:
    """Return a stream as ``(B, heads, L, features)``.

    Parameters
    ----------
    x : StreamTensor
    labels : sequence of tuple
        What each of its dimensions is; an empty tuple is one of size 1.
    heads : sequence of Heads
        All heads in their order; x may lack the last.
    tail : sequence
        What stands for L, and for the features that become one.
    """
    sizes = x.shape
    for at in reversed(range(len(labels))):
        if len(labels[at]) > 1:
            own = [a.size if isinstance(a, Heads) else a for a in labels[at]]
            by = math.prod(s for s in own if isinstance(s, int))
            x = x.unflatten(at, [sizes[at] // by if s == STREAMS else s for s in own])
    flat = [a for dim in labels for a in dim or ((),)]
    for at in reversed(range(len(flat))):
        if flat[at] == ():
            x = x.squeeze(at)
            del flat[at]
    if STREAMS not in flat:  # a table
        x, flat = x.with_dims(("B", *x.dims)), [STREAMS, *flat]
    mine = [h for h in heads if h in flat]
    x = x.permute([flat.index(a) for a in (STREAMS, *mine, *tail)])
    x = x.flatten(2 + len(mine), -1) if len(tail) > 2 else x
    return x.flatten(1, len(mine)) if mine else x.unsqueeze(1)


def shown(y: Any, dims: Sequence[Dim], heads: Sequence[Heads], tail: Sequence[Any]) -> Any:
    """Return what `laid` would take, of a stream ``(B, heads, L, features)``."""
    y = y.unflatten(1, [h.size for h in heads]) if heads else y.squeeze(1)
    flat = [STREAMS, *heads, *tail]
    y = y.permute([flat.index(a) for dim in dims for a in dim])
    for at, dim in enumerate(dims):
        if not dim:
            y = y.unsqueeze(at)
        elif len(dim) > 1:
            y = y.flatten(at, at + len(dim) - 1)
    return y
