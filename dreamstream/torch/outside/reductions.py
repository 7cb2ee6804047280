"""Reductions: valid frames only.

Over features the metadata stay. Over all of B and L (or everything) they see the frames of all rows, over L the
frames of each row, over B the rows that have a frame there; those results are plain. A row without frames gives
what torch gives for no elements, and NaN (-1 for places) where that is an error. Rows of unlike lengths are
reduced in one call where something can stand behind their frames that changes nothing, else length by length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...operations import OPERATIONS
from ...stream.fallback import report_fallback
from ...stream.rules import BATCH, LENGTH
from ...stream.tensor_info import JOINED
from ...stream.tree import map_leaves
from ..tensor import StreamTensor
from ..tensor.padding import cleaned, mask_of, padded_sizes, to_device, unpad
from .common import along, axis_of, inputs, keep, name_of, needs_gradient, plain, rule, run
from .pointwise import pointwise

#: What torch gives a value of no elements.
_OF_NOTHING = frozenset((
    "sum", "nansum", "count_nonzero", "prod", "all", "any", "mean", "nanmean", "norm", "linalg_vector_norm",
    "logsumexp",
))  # fmt: skip
#: What gives places, alone or beside values.
_WITH_PLACES = frozenset(("argmax", "argmin", "max", "min", "median", "nanmedian", "mode", "kthvalue"))

#: What changes nothing wherever it stands; of extremes, of which end of the element type it is.
_NEUTRAL = {
    "sum": 0, "nansum": 0, "count_nonzero": 0, "mean": 0, "prod": 1, "all": True, "any": False,
    "nanmean": math.nan, "logsumexp": -math.inf, "norm": 0, "linalg_vector_norm": 0,
}  # fmt: skip
_EXTREMES = {"max": 0, "amax": 0, "argmax": 0, "min": 1, "amin": 1, "argmin": 1}


def _bound(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    names = OPERATIONS[name].arguments
    if name in ("var", "std", "var_mean", "std_mean") and args and isinstance(args[0], bool):
        names = names[1:]
    return {**dict(zip(names, args)), **kwargs}


@dataclass
class _Reduction:
    """A reduction of a stream tensor over some of its dimensions."""

    func: Any  #: torch's function.
    name: str  #: The function's name.
    x: StreamTensor
    axes: list[int]  #: The dimensions; where `several` is False, the only one, given as a number.
    several: bool
    keepdim: bool
    options: dict[str, Any]  #: All other arguments.

    def run(self, own: Tensor, dim: Any = None, keepdim: bool | None = None) -> Any:
        """Run torch's function on a plain tensor, over the same dimensions or another one."""
        if dim is None:
            dim = tuple(self.axes) if self.several else self.axes[0]
        given = {"dim": dim, "keepdim": self.keepdim if keepdim is None else keepdim, **self.options}
        if self.name == "count_nonzero":  # which takes no keepdim
            return run(torch.sum, (run(torch.ne, (own, 0), {}),), given)
        return run(self.func, (own,), given)


@rule("number of elements", dims=False)
def number_of_elements(func: Any, x: StreamTensor) -> int:
    """Return how many elements reductions over everything see."""
    info, shape = x._info, plain(x).shape
    if not any(map(info.is_stream, range(len(shape)))):
        return int(shape.numel())
    per_frame: int = math.prod(shape[i] for i in info.features)
    return int(info.meta.lengths.sum()) * per_frame


@rule("sizes", dims=False)
def sizes(func: Any, x: StreamTensor, *dim: Any) -> Any:
    """Return the sizes of the padded tensor."""
    info, shape = x._info, plain(x).shape
    if info.has_frames and not info.is_full(info.width_of(shape)):
        joined = info.axis(JOINED)
        shape = padded_sizes(shape, info.axis(LENGTH) if joined is None else joined)
    return shape[axis_of(x, dim[0])] if dim else shape


@rule("reduction")
def reduction(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a reduction."""
    name = name_of(func)
    other = args[0] if args else kwargs.get("other")
    if name in ("max", "min") and isinstance(other, Tensor):
        return pointwise(func, x, *args, **kwargs)
    options = map_leaves(_bound(name, args, kwargs), plain)
    info, shape = x._info, plain(x).shape
    dim = options.pop("dim", OPERATIONS[name].default)
    keepdim = bool(options.pop("keepdim", False))
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return _of_everything(func, name, x, options, keepdim)
    several = isinstance(dim, (list, tuple))
    axes = [axis_of(x, d) for d in (dim if several else [dim])]
    r = _Reduction(func, name, x, axes, several, keepdim, options)
    if not any(info.is_stream(a) for a in axes):
        return _of_features(r)
    left = [i for i in range(len(shape)) if info.is_stream(i) and i not in axes]
    if not left:
        return _of_frames(r)
    if info.names[left[0]] != BATCH:
        report_fallback(f"{name} over {along(x, axes)}")
    if info.is_full(info.width_of(shape)) and all(shape[a] for a in axes):
        return r.run(plain(x))
    neutral = _neutral(r)
    return _by_parts(r) if neutral is None else _filled(r, neutral)


def _of_everything(func: Any, name: str, x: StreamTensor, options: dict[str, Any], keepdim: bool) -> Any:
    info, own = x._info, plain(x)
    if name in ("argmax", "argmin"):
        report_fallback(name)
        fill = _limits(own.dtype)[name == "argmin"]
        return run(func, (cleaned(own, info, fill),), {"dim": None, "keepdim": keepdim})
    if info.is_full(info.width_of(own.shape)):
        whole = {"dim": tuple(range(own.dim())), "keepdim": True} if keepdim else {}
        return run(func, (own,), {**whole, **options})
    result = run(func, (unpad(own, info),), options)
    return map_leaves(result, lambda t: t.reshape((1,) * own.dim())) if keepdim else result


def _limits(dtype: torch.dtype) -> tuple[float, float]:
    if dtype.is_floating_point:
        return -math.inf, math.inf
    if dtype is torch.bool:
        return False, True
    known = torch.iinfo(dtype)
    return known.min, known.max


def _of_features(r: _Reduction) -> Any:
    """Reduce over features alone: the result keeps its streams."""
    (own,), _ = inputs((r.x,), {})
    names = [None if i in r.axes else n for i, n in enumerate(r.x.names) if r.keepdim or i not in r.axes]
    q = r.options.get("q")
    if isinstance(q, Tensor) and q.dim():  # quantile's own dimension comes first
        names.insert(0, None)
    return keep(r.run(own), r.x._info.with_names(names))


def _of_frames(r: _Reduction) -> Any:
    """Reduce over every dimension of streams: over all frames, and over the features among the axes."""
    info = r.x._info
    places = [0] + [1 + info.features.index(a) for a in r.axes if not info.is_stream(a)]
    result = r.run(unpad(plain(r.x), info), tuple(places) if len(places) > 1 else 0, False)

    def spread(t: Any) -> Any:
        for axis in sorted(r.axes):
            t = t.unsqueeze(axis)
        return t

    return _mapped(result, spread) if r.keepdim else result


def _mapped(result: Any, fn: Callable[[Any], Any]) -> Any:
    return map_leaves(result, fn) if not hasattr(result, "n_fields") else type(result)(map(fn, result))


# ---------------------------------------------------------------- some frames of some rows
def _neutral(r: _Reduction) -> Any:
    """Return what can stand behind the frames of all rows at once, None where nothing can."""
    own, neutral = plain(r.x), _NEUTRAL.get(r.name)
    if not own.numel() or own.is_complex() or (r.name in _WITH_PLACES and BATCH in [r.x.names[a] for a in r.axes]):
        return None
    if r.name in _EXTREMES:  # of amax equals share a gradient, and what stands there may be one of them
        shared = r.name in ("amax", "amin") and needs_gradient(own)
        return None if shared else _limits(own.dtype)[_EXTREMES[r.name]]
    if r.name in ("mean", "nanmean", "logsumexp") and not own.is_floating_point():
        return None
    if r.name == "mean" and own.dtype.itemsize < 4:
        return None  # whose sum may be too large
    p = r.options.get("p", r.options.get("ord"))
    usual = p in (None, "fro") or (isinstance(p, (int, float)) and 0 < p < math.inf)
    return neutral if usual else None


def _filled(r: _Reduction, neutral: Any) -> Any:
    """Reduce over one of B and L, with what is neutral behind the frames."""
    info, own = r.x._info, plain(r.x)
    whole = cleaned(own, info, neutral)
    if r.name not in ("mean", *_EXTREMES):
        return r.run(whole)
    count = mask_of(info, own.shape, own.device).sum(r.axes, keepdim=r.keepdim)  # features have size 1
    if r.name != "mean":
        none = count == 0
        return map_leaves(r.run(whole), lambda t: t.masked_fill(none, torch.nan if t.is_floating_point() else -1))
    per_frame = math.prod(own.shape[a] for a in r.axes if not info.is_stream(a))
    return run(torch.sum, (whole,), {"dim": r.axes, "keepdim": r.keepdim, **r.options}) / (count * per_frame)


def _parts(r: _Reduction, inner: int, outer: int) -> Iterator[tuple[Tensor, Tensor | None, Any]]:
    """Give the frames of rows of one length each, and which rows these are.

    Over B: runs of frames that the same rows have, these rows, and which frames they are.
    """
    own, lengths = plain(r.x), r.x.lengths
    if r.x.names[inner] == LENGTH:
        for n in np.unique(lengths):
            rows = np.flatnonzero(lengths == n)
            yield own.index_select(outer, to_device(rows, own.device)).narrow(inner, 0, int(n)), None, rows
    else:
        for start, end in pairwise(np.unique([0, *lengths, own.shape[outer]]).tolist()):
            index = to_device(np.flatnonzero(lengths > start), own.device)
            yield own.narrow(outer, start, end - start).index_select(inner, index), index, range(start, end)


def _by_parts(r: _Reduction) -> Any:
    """Reduce over one of B and L."""
    info, own = r.x._info, plain(r.x)
    sides = [info.names.index(side) for side in (LENGTH, BATCH)]
    inner, outer = sides if sides[0] in r.axes else sides[::-1]
    parts = list(_parts(r, inner, outer))
    results = [_of_part(r, part, inner, rows) for part, rows, _ in parts]
    if not results:
        return r.run(own)
    places = np.argsort(np.concatenate([order for _, _, order in parts]))

    def join(found: Sequence[Tensor]) -> Tensor:
        extra = found[0].dim() - own.dim()  # quantile's own dimension comes first
        whole = torch.cat(list(found), outer + extra)
        whole = whole.index_select(outer + extra, to_device(places, whole.device)) if len(parts) > 1 else whole
        for a in [] if r.keepdim else sorted(r.axes, reverse=True):
            whole = whole.squeeze(a + extra)
        return whole

    if isinstance(results[0], tuple):
        return type(results[0])([join(p) for p in zip(*results)])
    return join(results)


def _of_part(r: _Reduction, part: Tensor, inner: int, rows: Tensor | None) -> Any:
    if not part.shape[inner] and r.name not in _OF_NOTHING:
        sizes = [2 if i == inner else n for i, n in enumerate(part.shape)]
        return _mapped(
            r.run(part.new_zeros(sizes), keepdim=True),
            lambda t: torch.full_like(t, torch.nan if t.is_floating_point() else -1),
        )
    out = r.run(part, keepdim=True)
    if rows is None or r.name not in _WITH_PLACES:
        return out
    return rows[out] if isinstance(out, Tensor) else type(out)((out[0], rows[out[1]]))  # among all rows
