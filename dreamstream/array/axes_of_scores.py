"""What the dimensions of noted scores are, in whatever order, with heads joined with B or in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..stream.rules import BatchSize, Length

__all__ = ["KEYS", "QUERIES", "STREAMS", "Axes", "Heads"]

STREAMS, QUERIES, KEYS = "B", "i", "j"


class Heads:
    """Some of the heads, or a factor of their number.

    Parameters
    ----------
    size : int
    """

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class Axes:
    """What each dimension is made of, in row-major order: `STREAMS`, `QUERIES`, `KEYS` and `Heads`.

    Parameters
    ----------
    dims : sequence of tuple
        An empty tuple is a dimension of size 1.
    heads : sequence of Heads
        All of them, in the order in which operators have them.
    """

    def __init__(self, dims: Sequence[tuple[Any, ...]], heads: Sequence[Heads]) -> None:
        self.dims = tuple(dims)
        self.heads = tuple(heads)

    @property
    def n_heads(self) -> int:
        return math.prod(h.size for h in self.heads)

    def index(self, *atoms: Any) -> int | None:
        """Return the dimension that is these, and nothing else."""
        return self.dims.index(atoms) if atoms in self.dims else None

    def like(self, dims: Sequence[tuple[Any, ...]]) -> Axes:
        return Axes(dims, self.heads)

    def key(self) -> tuple[Any, ...]:
        """Return what is equal of the same dimensions, of the same numbers of heads."""
        at = {h: i for i, h in enumerate(self.heads)}
        return (tuple(h.size for h in self.heads), tuple(tuple(at.get(a, a) for a in dim) for dim in self.dims))

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
        """Return what they are after a reshape; None where that is none of heads and streams alone."""
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
        for size, dim in zip(shape, self.dims):
            whole = [a.size if isinstance(a, Heads) else 1 if a == STREAMS else n for a in dim]
            if size not in (1, math.prod(whole)):
                return None
            sizes += whole if size == math.prod(whole) else [1] * len(dim)
        order = [atoms.index(a) for a in (*((STREAMS,) if STREAMS in atoms else ()), *self.heads, QUERIES, KEYS)]
        out = x.reshape(sizes).permute(order)
        if STREAMS in atoms:
            out = out.squeeze(0)
        if all(s == 1 for s in out.shape[:-2]):
            return out.reshape(1, *out.shape[-2:]).expand(1, n, n)
        return out.expand(*(h.size for h in self.heads), n, n).reshape(self.n_heads, n, n)


def _taken(left: list[Any], heads: list[Heads], size: Any, end: int) -> tuple[Any, ...] | None:
    """Take what makes up a size from one end of what is left."""
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
    """Have heads as two factors, where they stand."""
    parts = Heads(first), Heads(whole.size // first)
    for where in (left, heads):
        at = where.index(whole)
        where[at : at + 1] = parts
