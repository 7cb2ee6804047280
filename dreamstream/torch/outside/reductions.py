"""Reductions: valid frames only.

Over features the metadata stay. Over all of B and L (or everything) they see the frames of all rows, over L the
frames of each row, over B the rows that have a frame there; those results are plain. A row without frames gives
what torch gives for no elements, and NaN (-1 for places) where that is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...array.chunks import report_fallback
from ...operations import OPERATIONS
from ...stream.rules import BATCH, LENGTH
from ...stream.tree import map_leaves
from ..tensor import StreamTensor
from ..tensor.known import JOINED
from ..tensor.padded_size import padded_sizes
from ..tensor.padding import cleaned, to_device, unpad
from .common import along, axis_of, inputs, keep, name_of, plain, rule, run
from .pointwise import pointwise

_LOWEST = ("amax", "max", "argmax")
_HIGHEST = ("amin", "min", "argmin")
_EXTREMES = (*_LOWEST, *_HIGHEST, "aminmax")
_FILLS = {"sum": 0, "nansum": 0, "count_nonzero": 0, "prod": 1, "all": True, "any": False, "nanmean": np.nan}


def _bound(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    names = OPERATIONS[name].arguments
    if name in ("var", "std", "var_mean", "std_mean") and args and isinstance(args[0], bool):
        names = names[1:]
    return {**dict(zip(names, args)), **kwargs}


@dataclass
class _Reduction:
    """A reduction of a stream tensor over some of its dimensions.

    Attributes
    ----------
    func, name, x
        torch's function, its name, and the tensor.
    axes : list of int
        The dimensions; where `several` is False, the only one, given as a number.
    keepdim : bool
    options : dict
        All other arguments.
    """

    func: Any
    name: str
    x: StreamTensor
    axes: list[int]
    several: bool
    keepdim: bool
    options: dict[str, Any]

    def run(self, own: Tensor, dim: Any = None, keepdim: bool | None = None) -> Any:
        """Run torch's function on a plain tensor, over the same dimensions or another one."""
        if dim is None:
            dim = tuple(self.axes) if self.several else self.axes[0]
        kept = {"keepdim": self.keepdim if keepdim is None else keepdim}
        given = {"dim": dim, **({} if self.name == "count_nonzero" else kept), **self.options}
        return run(self.func, (own,), given)

    def squeezed(self, result: Tensor) -> Tensor:
        """Return a result in which the dimensions have size 1 as the caller wants it."""
        return result if self.keepdim else result.squeeze(tuple(self.axes))


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
    elif info.is_full(info.width_of(shape)) and (shape[axes[0]] or name not in _EXTREMES):
        return r.run(plain(x))
    return _masked(r)


def _of_everything(func: Any, name: str, x: StreamTensor, options: dict[str, Any], keepdim: bool) -> Any:
    if name in ("argmax", "argmin"):
        report_fallback(name)
        return run(func, (_filled(name, x, options),), {"dim": None, "keepdim": keepdim})
    info, own = x._info, plain(x)
    if info.is_full(info.width_of(own.shape)):
        whole = {"dim": tuple(range(own.dim())), "keepdim": True} if keepdim else {}
        return run(func, (own,), {**whole, **options})
    result = run(func, (unpad(own, info),), options)
    return map_leaves(result, lambda t: t.reshape((1,) * own.dim())) if keepdim else result


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
def _fill_of(name: str, dtype: torch.dtype, options: dict[str, Any]) -> Any:
    """Return what changes nothing in a reduction."""
    if name in _FILLS:
        return _FILLS[name]
    if name in ("norm", "linalg_vector_norm"):
        p = options.get("p", options.get("ord", 2))
        return np.inf if isinstance(p, (int, float)) and p < 0 else 0
    sign = 1 if name in _HIGHEST else -1
    if dtype.is_floating_point:
        return sign * np.inf
    if dtype is torch.bool:
        return sign > 0
    return torch.iinfo(dtype).max if sign > 0 else torch.iinfo(dtype).min


def _filled(name: str, x: StreamTensor, options: dict[str, Any]) -> Tensor:
    return cleaned(plain(x), x._info, _fill_of(name, plain(x).dtype, options))


def _missing(t: Tensor) -> Tensor:
    """Return what stands where there is no element: NaN, -1 for places."""
    return torch.full_like(t, torch.nan if t.is_floating_point() else -1)


def _masked(r: _Reduction) -> Any:
    """Reduce over one of B and L, with what changes nothing in the place of padding."""
    if r.name in ("mean", "var", "std", "var_mean", "std_mean"):
        return _moments(r)
    if r.name in ("median", "nanmedian", "mode", "quantile", "nanquantile", "kthvalue"):
        return _one_by_one(r)
    if r.name == "aminmax":
        low, high = (_masked(replace(r, func=f, name=f.__name__, options={})) for f in (torch.amin, torch.amax))
        return torch.return_types.aminmax((low, high))
    filled = _filled(r.name, r.x, r.options)
    if r.name not in _EXTREMES:
        return r.run(filled)
    for a in [a for a in r.axes if not filled.shape[a]]:  # one that changes nothing, so that there is an extreme
        sizes = [1 if i == a else n for i, n in enumerate(filled.shape)]
        filled = filled.new_full(sizes, _fill_of(r.name, filled.dtype, r.options))
    counts = _counts(r.x, r.axes, r.keepdim, filled.device)
    return _mapped(r.run(filled), lambda t: torch.where(counts > 0, t, _missing(t)))


def _counts(x: StreamTensor, axes: Sequence[int], keepdim: bool, device: torch.device) -> Tensor:
    """Return how many frames meet in each element of a result, a tensor that broadcasts to it."""
    info = x._info
    lengths = info.meta.lengths
    if LENGTH in [info.names[a] for a in axes]:
        counts, role = lengths, BATCH
    else:
        width = info.width_of(plain(x).shape)
        counts, role = (np.arange(width) < lengths[:, None]).sum(0), LENGTH
    kept = [i for i in range(len(info.names)) if keepdim or i not in axes]
    sizes = [len(counts) if info.names[i] == role else 1 for i in kept]
    return to_device(np.array(counts).reshape(sizes), device)


def _moments(r: _Reduction) -> Any:
    """Mean and variance: deviations are taken from the mean of the valid frames."""
    own, info, options = plain(r.x), r.x._info, r.options
    if r.name != "mean" or not (own.is_floating_point() or options.get("dtype")):
        r.run(own, tuple(r.axes))  # what torch refuses
    if options.get("dtype") is not None:
        own = own.to(options["dtype"])
    own = cleaned(own, info)
    n = _counts(r.x, r.axes, True, own.device).to(own.dtype)
    for a in r.axes:
        if not info.is_stream(a):
            n = n * own.shape[a]
    mean = own.sum(r.axes, keepdim=True) / n
    if r.name == "mean":
        return r.squeezed(mean)
    correction = options.get("correction", int(options.get("unbiased", True)))
    correction = 1 if correction is None else correction
    deviations = cleaned((own - mean).square(), info)
    result = deviations.sum(r.axes, keepdim=True) / (n - correction).clamp_min(0)
    result = result.relu().sqrt() if r.name.startswith("std") else result  # the gradient at 0 is 0, as torch's is
    result = r.squeezed(result)
    return (result, r.squeezed(mean)) if r.name.endswith("_mean") else result


def _one_by_one(r: _Reduction) -> Any:
    """Reduce row by row what has no neutral element (over B: frame by frame)."""
    info, own, lengths = r.x._info, plain(r.x), r.x.lengths
    over_length = LENGTH in [info.names[a] for a in r.axes]
    outer = info.names.index(BATCH if over_length else LENGTH)
    inner = info.names.index(LENGTH if over_length else BATCH)
    results = []
    for i in range(own.shape[outer]):
        part = own.narrow(outer, i, 1)
        if over_length:
            part = part.narrow(inner, 0, int(lengths[i]))
        else:
            part = part.index_select(inner, to_device(np.flatnonzero(lengths > i), own.device))
        results.append(_of_part(r, part, inner))
    if not results:
        return r.run(own)

    def join(parts: Sequence[Tensor]) -> Tensor:
        extra = parts[0].dim() - own.dim()  # quantile's own dimension comes first
        whole = torch.cat(list(parts), outer + extra)
        for a in [] if r.keepdim else sorted(r.axes, reverse=True):
            whole = whole.squeeze(a + extra)
        return whole

    if isinstance(results[0], tuple):
        return type(results[0])([join(p) for p in zip(*results)])
    return join(results)


def _of_part(r: _Reduction, part: Tensor, inner: int) -> Any:
    if part.shape[inner]:
        return r.run(part, keepdim=True)
    sizes = [1 if i == inner else n for i, n in enumerate(part.shape)]
    return _mapped(r.run(part.new_zeros(sizes), keepdim=True), _missing)
