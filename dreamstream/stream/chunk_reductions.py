"""Reductions outside a forward, for the tensors of both front ends: valid frames only.

Over all of B and L they see the frames of all rows, over L the frames of each row, over B the rows that have a
frame there; the results are plain. A row without frames gives what the library gives for no elements, and NaN (-1
for places) where that is an error. Rows of unlike lengths are reduced in one call where something can stand behind
their frames that changes nothing, else in one call for each length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .known import Info
from .rules import BATCH, LENGTH
from .tree import leaves, map_leaves

#: Reductions that are no error for no elements.
_OF_NOTHING = frozenset((
    "sum", "nansum", "count_nonzero", "prod", "all", "any", "mean", "nanmean", "norm", "linalg_vector_norm",
    "logsumexp",
))  # fmt: skip
#: Reductions that give places, alone or beside values.
_WITH_PLACES = frozenset(("argmax", "argmin", "max", "min", "median", "nanmedian", "mode", "kthvalue"))
#: Whether the greatest or the least is looked for.
_GREATEST = {"max": True, "amax": True, "argmax": True, "min": False, "amin": False, "argmin": False}
#: What changes nothing wherever it stands.
_NEUTRAL = {
    "sum": 0, "nansum": 0, "count_nonzero": 0, "mean": 0, "prod": 1, "all": True, "any": False,
    "nanmean": math.nan, "logsumexp": -math.inf,
}  # fmt: skip


class Library(NamedTuple):
    """What the reductions ask of NumPy's tensors or of torch's.

    Attributes
    ----------
    frames : callable
        ``(x)``: the frames of all rows ``(frames, *features)``, features in the order in which they are seen.
    padded : callable
        ``(x, fill)``: the plain padded tensor, `fill` behind each row's frames; any padding if it is None.
    array : callable
        ``(array, like)``: NumPy's array as a tensor that meets another.
    cat : callable
    limits : callable
        ``(x)``: the least and the greatest number of a tensor's element type.
    wants_gradient : callable
        ``(x)``: whether a tensor's gradient may be asked for.
    answers_nothing : callable
        ``(x)``: whether NaN, or -1, is the extreme of no elements of a tensor's type; else that is an error.
    errors : tuple of type
        What is raised for no elements.
    sums_with_zeros : bool
        Whether sums of floats may be taken with zeros among them, which can change how they are rounded.
    """

    frames: Callable[[Any], Any]
    padded: Callable[[Any, Any], Any]
    array: Callable[[Any, Any], Any]
    cat: Callable[[Sequence[Any], int], Any]
    limits: Callable[[Any], tuple[Any, Any]]
    wants_gradient: Callable[[Any], bool]
    answers_nothing: Callable[[Any], bool]
    errors: tuple[type[Exception], ...]
    sums_with_zeros: bool


@dataclass
class Reduction:
    """A reduction of a stream tensor over some of its dimensions.

    Attributes
    ----------
    of : callable
        ``of(tensor, dim, keepdim)``: the same of a plain tensor; `dim` is a number, or several in a tuple.
    name : str
        The function's name.
    x : StreamTensor
        The front end's.
    axes : list of int
        The dimensions, of which one at least is a stream's; where `several` is False, the only one.
    keepdim : bool
    options : dict
        All other arguments, which `of` gives to the function.
    library : Library
    """

    of: Callable[[Any, Any, bool], Any]
    name: str
    x: Any
    axes: list[int]
    several: bool
    keepdim: bool
    options: dict[str, Any]
    library: Library

    @property
    def info(self) -> Info:
        """What is known of the tensor."""
        info: Info = self.x._info
        return info

    def left(self) -> list[int]:
        """Return the dimensions B and L over which nothing is reduced."""
        return [i for i in range(len(self.info.names)) if self.info.is_stream(i) and i not in self.axes]

    def run(self, own: Any) -> Any:
        """Run the function on a plain tensor of the same dimensions; those of `axes` keep the size 1."""
        return self.of(own, tuple(self.axes) if self.several else self.axes[0], True)


def reduced(r: Reduction) -> Any:
    """Return a reduction over B or L, or both, and over features."""
    outer = r.left()
    if not outer:
        return _of_all_frames(r)
    own = r.library.padded(r.x, None)
    full = r.info.is_full(r.info.width_of(own.shape)) and all(own.shape[a] for a in r.axes)
    inner = r.info.names.index(BATCH if r.info.names[outer[0]] == LENGTH else LENGTH)
    result = r.run(own) if full else _filled(r, own, inner, outer[0])
    return _by_parts(r, own, inner, outer[0]) if result is None else map_leaves(result, lambda t: _seen(r, t))


def _seen(r: Reduction, t: Any) -> Any:
    """Return a result without the dimensions that were reduced, unless they are kept."""
    extra = t.ndim - len(r.info.names)  # quantile's own dimension comes first
    for a in [] if r.keepdim else sorted(r.axes, reverse=True):
        t = t.squeeze(a + extra)
    return t


def _of_all_frames(r: Reduction) -> Any:
    """Reduce over every dimension of streams: over all frames, and over the features among the axes."""
    places = [0] + [1 + r.info.features.index(a) for a in r.axes if not r.info.is_stream(a)]
    result = r.of(r.library.frames(r.x), tuple(places) if len(places) > 1 else 0, False)

    def spread(t: Any) -> Any:
        for axis in sorted(r.axes):
            t = t.unsqueeze(axis)
        return t

    return map_leaves(result, spread) if r.keepdim else result


# ---------------------------------------------------------------- all rows at once
def _neutral(r: Reduction, own: Any) -> Any:
    """Return what changes a reduction of a tensor nowhere, None where there is nothing."""
    floats, name = own.is_floating_point(), r.name
    if name in _GREATEST:
        if name in ("amax", "amin") and r.library.wants_gradient(own):
            return None  # equals share a gradient, and what stands in for frames may be one of them
        return r.library.limits(own)[not _GREATEST[name]]
    if name in ("norm", "linalg_vector_norm"):
        p = r.options.get("p", r.options.get("ord", 2))
        neutral = 0 if p in (None, "fro") or (isinstance(p, (int, float)) and 0 < p < math.inf) else None
    else:
        neutral = _NEUTRAL.get(name)
    if floats:
        return neutral if r.library.sums_with_zeros or name in ("all", "any") else None
    return None if name in ("mean", "norm") or r.library.wants_gradient(own) else neutral


def _filled(r: Reduction, own: Any, inner: int, outer: int) -> Any:
    """Reduce over one of B and L in one call, with what is neutral behind the frames; None where nothing is."""
    lengths, shape = r.info.meta.lengths, own.shape
    neutral = _neutral(r, own)
    if neutral is None or not all(shape) or (r.name in _WITH_PLACES and r.info.names[inner] == BATCH):
        return None
    valid = np.arange(shape[r.info.names.index(LENGTH)]) < lengths[:, None]  # (B, L)
    sizes = [shape[outer] if i == outer else 1 for i in range(len(shape))]
    counts = valid.sum(int(r.info.names[inner] == LENGTH)).reshape(sizes)
    whole = r.library.padded(r.x, neutral)
    if r.name == "mean":
        each = math.prod(shape[a] for a in r.axes if a != inner)
        total = whole.sum(tuple(r.axes), keepdim=True, **r.options)
        return total / r.library.array(counts * each, total).to(total.dtype)
    result = r.run(whole)
    if r.name not in _GREATEST or counts.all():
        return result
    if not r.library.answers_nothing(own):
        return None
    none = r.library.array(counts == 0, own)
    return map_leaves(result, lambda t: t.masked_fill(none, _nothing(t)))


# ---------------------------------------------------------------- one length after the other
def _parts(r: Reduction, own: Any, inner: int, outer: int) -> Iterator[tuple[Any, Any, Any]]:
    """Give the frames of rows of one length each, and which rows these are.

    Over B: runs of frames that the same rows have, these rows, and which frames they are.
    """
    lengths = r.info.meta.lengths
    if r.info.names[inner] == LENGTH:
        for n in np.unique(lengths):
            rows = np.flatnonzero(lengths == n)
            yield own.index_select(outer, r.library.array(rows, own)).narrow(inner, 0, int(n)), None, rows
    else:
        for start, end in pairwise(np.unique([0, *lengths, own.shape[outer]]).tolist()):
            index = r.library.array(np.flatnonzero(lengths > start), own)
            yield own.narrow(outer, start, end - start).index_select(inner, index), index, range(start, end)


def _by_parts(r: Reduction, own: Any, inner: int, outer: int) -> Any:
    """Reduce over one of B and L."""
    parts = list(_parts(r, own, inner, outer)) or [(own.narrow(inner, 0, 0), None, [])]
    results = [_of_part(r, part, inner, rows) for part, rows, _ in parts]
    places = np.argsort(np.concatenate([order for _, _, order in parts]))

    def join(found: Sequence[Any]) -> Any:
        if len(parts) == 1:
            return _seen(r, found[0])
        at = outer + found[0].ndim - own.ndim
        whole = r.library.cat(found, at)
        return _seen(r, whole.index_select(at, r.library.array(places, whole)))

    joined = iter([join(found) for found in zip(*map(leaves, results))])
    return map_leaves(results[0], lambda _: next(joined))


def _of_part(r: Reduction, part: Any, inner: int, rows: Any) -> Any:
    if not part.shape[inner]:
        return _of_nothing(r, part, inner)
    out = r.run(part)
    if rows is None or r.name not in _WITH_PLACES:
        return out
    places = leaves(out)[-1]
    return map_leaves(out, lambda t: rows[t] if t is places else t)  # among all rows


def _of_nothing(r: Reduction, part: Any, inner: int) -> Any:
    """Return what a reduction of no frames is: the library's answer, or NaN, and -1 for places."""
    answered = r.library.answers_nothing(part)
    if r.name in _OF_NOTHING or not answered:
        try:
            return r.run(part)
        except r.library.errors:
            if not answered:
                raise
    like = r.run(part.new_zeros([2 if i == inner else n for i, n in enumerate(part.shape)]))
    return map_leaves(like, lambda t: t.new_full(t.shape, _nothing(t)))


def _nothing(t: Any) -> float:
    return math.nan if t.is_floating_point() else -1
