"""Terms and masks of attention that each key has for itself, where keys are given once.

A term s_j is one more feature of key j, which meets one more feature of every query: ``q_i k_j + s_j`` is the
product of (q_i, 1) and (k_j, s_j). So it is computed with the memory, once per stream, and kept with its keys.
Where a mask puts a number in a score's place, the key's features become zeros, and the number is its term.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import hook
from .elementwise import where
from .score_layout import KEYS, QUERIES, STREAMS, Axes, Heads, atoms_of, laid, streams_of


class KeyTerms(NamedTuple):
    """Terms and masks that each key, or each query, has for itself.

    Attributes
    ----------
    values : StreamTensor
        ``(B, heads or 1, L, 1)``, in the scores' own measure.
    along : str
        `KEYS`, or `QUERIES` while it is not said which of the two is which.
    masks : tuple
        What scores were filled by: edges.
    """

    values: Any
    along: str
    masks: tuple[Any, ...] = ()

    def plus(self, other: KeyTerms | None, factor: float = 1.0) -> KeyTerms | None:
        """Return the sum with others, multiplied; None where these belong to the other side."""
        if other is None:
            return self
        if other.along != self.along:
            return None
        return self._replace(values=self.values + other.values * factor, masks=self.masks + other.masks)


def read(x: Any, axes: Axes) -> KeyTerms | None:
    """Return a tensor that follows from what is given once as terms of keys; None where it is none.

    Parameters
    ----------
    x : StreamTensor
        With sizes that broadcast against the scores: one of them is L, of the keys.
    axes : Axes
        What the scores' dimensions are.
    """
    of = (getattr(x, "edge", None),)
    line = getattr(of[0], "line", None)
    x = streams_of(x) if line is not None and line.static else None
    if x is None or x.ndim > len(axes.dims):
        return None
    own = axes.dims[len(axes.dims) - x.ndim :]
    letters = "abcdefghijklmnop"[: x.ndim]
    theirs = atoms_of(x, letters, KEYS)
    if theirs is None:
        return None
    labels: list[tuple[Any, ...]] = []
    along = None
    for letter, dim in zip(letters, own):
        mine = theirs[letter]
        if mine == (KEYS,) and dim in ((KEYS,), (QUERIES,)):
            along, mine = dim[0], (KEYS,)
        elif mine and _sizes(mine) == _sizes(dim):
            mine = dim
        elif mine:
            return None
        labels.append(mine)
    if along is None:
        return None
    used = [h for dim in labels for h in dim if isinstance(h, Heads)]
    if used != [h for h in axes.heads if h in used][: len(used)] or used not in ([], [*axes.heads]):
        return None
    values = laid(x.unsqueeze(-1), [*labels, ("f",)], axes.heads, (KEYS, "f"))
    return KeyTerms(values, along, (of,))


def _sizes(dim: tuple[Any, ...]) -> list[Any]:
    return [STREAMS if a == STREAMS else getattr(a, "size", a) for a in dim]


def filled(k: Any, terms: KeyTerms | None, mask: KeyTerms, value: float) -> tuple[Any, KeyTerms]:
    """Return keys and terms of scores that are a number where a mask holds."""
    hidden = mask.values
    before = 0.0 if terms is None else terms.values
    if hidden.shape[1] > k.shape[1]:
        k = k.repeat_interleave(hidden.shape[1] // k.shape[1], 1)
    masks = (*(terms.masks if terms else ()), *mask.masks)
    one = where(hidden, value, before)
    return where(hidden, 0.0, k), KeyTerms(one.to(k.dtype), mask.along, masks)


def with_terms(q: Any, k: Any, terms: KeyTerms) -> tuple[Any, Any]:
    """Return queries and keys with one more feature each, whose products have the terms in them."""
    s = terms.values.to(k.dtype)
    n = max(k.shape[1], s.shape[1])
    s, k = (x if x.shape[1] == n else x.repeat_interleave(n // x.shape[1], 1) for x in (s, k))
    return with_one(q), hook.one("cat", {"axis": 1}, (k, s), (), k.dims)


def with_one(x: Any) -> Any:
    """Return a stream ``(B, heads, L, features)`` with one more feature, which is 1."""
    return between(x, 0, 1, 1.0, ("B", 0, "L", 1))


def between(x: Any, left: int, right: int, value: float, dims: tuple[Any, ...]) -> Any:
    """Return a stream with a number before and behind its second axis of features."""
    sides = {"axis": 1, "left": left, "right": right, "value": value}
    return hook.one("pad_features", sides, (x,), (), dims)
