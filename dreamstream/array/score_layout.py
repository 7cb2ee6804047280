"""Which dimension of scores is that of streams, heads, queries or keys, also where heads are joined or split.

Queries, keys and values are brought from there to ``(B, heads, L, features)``, as operators have them, and back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..stream.rules import BatchSize, Length

Dim = tuple[Any, ...]

STREAMS, QUERIES, KEYS = "B", "i", "j"


class Heads:
    """Some of the heads, or a factor of their number."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class Spread(NamedTuple):
    """How keys or queries, of which there is one for several frames of the others, stand among these."""

    along: str  #: `KEYS` or `QUERIES`.
    times: int  #: How far they are apart.
    first: int  #: Where the first one is.
    #: Whether pairs between them are those before them on a diagonal; else they are those of the frame before.
    diagonal: bool

    def continued(self, x: Any, n: int) -> Any:
        """Return pairs ``(*, n, n)`` of a tensor that has those of some frames along its dimension."""
        size = x.shape[-1 if self.along == KEYS else -2]
        if size == 1:
            return x
        at, beside = np.meshgrid(np.arange(n), np.arange(n))
        own = np.clip((at - self.first) // self.times, 0, size - 1)
        gone = at - self.first - own * self.times
        next_one = (gone > beside) & (own + 1 < size) & self.diagonal
        own, gone = own + next_one, gone - next_one * self.times
        others = np.clip(beside - gone * self.diagonal, 0, n - 1)
        return x[..., others, own] if self.along == KEYS else x[..., own.T, others.T]


class Before(NamedTuple):
    """How many keys there are in front of the first query's own, as memories that all queries see.

    Pairs of queries in front of the first one, one for each of these keys, are continued along diagonals.
    """

    keys: int
    along: str = QUERIES
    times: int = 0

    def continued(self, x: Any, n: int) -> Any:
        """Return pairs ``(*, n, n)`` of a tensor that has those of the queries."""
        rows, keys = x.shape[-2:]
        at = np.arange(n)[:, None] - self.keys
        beside = np.clip(np.arange(n) - np.minimum(at, 0), 0, keys - 1)
        return x if rows == 1 else x[..., np.clip(at, 0, rows - 1), beside]


class Axes:
    """What each dimension is made of, in row-major order: `STREAMS`, `QUERIES`, `KEYS` and `Heads`.

    An empty tuple in `dims` is a dimension of size 1. `heads` are all heads in the order in which operators have
    them, and `head_part` is which of them are read. `spread` says how keys stand among more queries, or queries
    among more keys, or behind them.
    """

    def __init__(
        self,
        dims: Sequence[tuple[Any, ...]],
        heads: Sequence[Heads],
        spread: Spread | Before | None = None,
        head_part: slice | None = None,
    ) -> None:
        self.dims = tuple(dims)
        self.heads = tuple(heads)
        self.spread, self.head_part = spread, head_part
        self._key: tuple[Any, ...] | None = None

    @property
    def n_heads(self) -> int:
        return math.prod(h.size for h in self.heads)

    def index(self, *atoms: Any) -> int | None:
        """Return the number of the dimension that is made of exactly these; None where there is none."""
        return self.dims.index(atoms) if atoms in self.dims else None

    def like(self, dims: Sequence[tuple[Any, ...]], spread: Spread | Before | None = None) -> Axes:
        return Axes(dims, self.heads, spread or self.spread, self.head_part)

    def key(self) -> tuple[Any, ...]:
        """Return a key that is equal for equal dimensions and equal numbers of heads."""
        if self._key is None:
            at = {h: i for i, h in enumerate(self.heads)}
            dims = tuple(tuple(at.get(a, a) for a in dim) for dim in self.dims)
            self._key = tuple(h.size for h in self.heads), dims, self.spread, str(self.head_part)
        return self._key

    def sizes(self, batch: Any, queries: Any, keys: Any) -> tuple[Any, ...]:
        """Return the size of each dimension."""
        known = {STREAMS: batch, QUERIES: queries, KEYS: keys}
        out = []
        for dim in self.dims:
            size: Any = 1
            for atom in dim:
                of = atom.size if isinstance(atom, Heads) else known[atom]
                size = of if isinstance(size, int) and size == 1 else size * of
            out.append(size)
        return tuple(out)

    def reshaped(self, shape: Sequence[Any]) -> Axes | None:
        """Return the dimensions after a reshape; None if it splits or joins more than heads and streams."""
        left = [a for dim in self.dims for a in dim]
        heads = list(self.heads)
        at = next((i for i, s in enumerate(shape) if isinstance(s, int) and s == -1), len(shape))
        front = [_taken(left, heads, s, 0) for s in shape[:at]]
        back = [_taken(left, heads, s, -1) for s in reversed(shape[at + 1 :])]
        if None in front or None in back or (left and at == len(shape)):
            return None
        rest = [tuple(left)] if at < len(shape) else []
        return Axes([*front, *rest, *reversed(back)], heads)  # type: ignore[list-item]

    def read(self, x: Any, n: int) -> Any:
        """Return a tensor that broadcasts against scores of one stream and n frames as ``(1 or heads, n, n)``.

        None where it does not.
        """
        shape = tuple(x.shape)
        while len(shape) > len(self.dims) and shape[0] == 1:
            shape = shape[1:]
        if len(shape) > len(self.dims):
            return None
        shape = (1,) * (len(self.dims) - len(shape)) + shape
        atoms = [a for dim in self.dims for a in dim]
        sizes: list[int] = []
        along = self.spread and self.spread.along
        for size, dim in zip(shape, self.dims):
            fewer = size if (along,) == dim else n
            whole = [a.size if isinstance(a, Heads) else 1 if a == STREAMS else fewer for a in dim]
            if size not in (1, math.prod(whole)):
                return None
            sizes += whole if size == math.prod(whole) else [1] * len(dim)
        order = [atoms.index(a) for a in (*((STREAMS,) if STREAMS in atoms else ()), *self.heads, QUERIES, KEYS)]
        out = x.reshape(sizes).permute(order)
        if STREAMS in atoms:
            out = out.squeeze(0)
        if self.spread:
            out = self.spread.continued(out, n)
        if all(s == 1 for s in out.shape[:-2]):
            return out.reshape(1, *out.shape[-2:]).expand(1, n, n)
        out = out.expand(*(h.size for h in self.heads), n, n).reshape(self.n_heads, n, n)
        return out if self.head_part is None else out[self.head_part]


def _taken(left: list[Any], heads: list[Heads], size: Any, end: int) -> tuple[Any, ...] | None:
    """Take the parts whose product is a size from one end of those that are left; None where none are."""
    out: list[Any] = []
    streams = isinstance(size, BatchSize)
    number = getattr(size, "times", 1) if streams else 1 if isinstance(size, Length) else size
    frames = isinstance(size, Length)
    while streams or frames or number > 1:
        atom = left[end] if left else None
        if isinstance(atom, Heads) and number > 1 and (number % atom.size == 0 or atom.size % number == 0):
            if number < atom.size:
                _split(left, heads, atom, number if end == 0 else atom.size // number)
                atom = left[end]
            number //= atom.size
        elif atom == STREAMS and streams:
            streams = False
        elif atom in (QUERIES, KEYS) and frames:
            frames = False
        else:
            return None
        out.append(left.pop(end))
    return tuple(out if end == 0 else reversed(out))


def _split(left: list[Any], heads: list[Heads], whole: Heads, first: int) -> None:
    """Replace heads by two factors of them in both lists."""
    parts = Heads(first), Heads(whole.size // first)
    for where in (left, heads):
        at = where.index(whole)
        where[at : at + 1] = parts


# ---------------------------------------------------------------------- as operators have them
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


def with_heads(x: Any, n: int) -> Any:
    """Return a stream ``(B, heads, L, features)`` with n heads, each of its own as often as it serves."""
    return x if x.shape[1] == n else x.repeat_interleave(n // x.shape[1], 1)


def laid(x: Any, labels: Sequence[Dim], heads: Sequence[Heads], tail: Sequence[Any]) -> Any:
    """Return a stream as ``(B, heads, L, features)``.

    `labels` say what each of its dimensions is; an empty tuple is one of size 1. `heads` are all heads in their
    order, of which x may lack the last. `tail` is what stands for L, and for the features that become one.
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
    """Undo `laid`: return a stream ``(B, heads, L, features)`` with the dimensions that scores have."""
    y = y.unflatten(1, [h.size for h in heads]) if heads else y.squeeze(1)
    flat = [STREAMS, *heads, *tail]
    y = y.permute([flat.index(a) for dim in dims for a in dim])
    for at, dim in enumerate(dims):
        if not dim:
            y = y.unsqueeze(at)
        elif len(dim) > 1:
            y = y.flatten(at, at + len(dim) - 1)
    return y
