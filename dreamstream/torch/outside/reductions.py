"""Reductions: valid frames only.

Over features the metadata stay. Over all of B and L (or everything) they see the frames of all rows, over L the
frames of each row, over B the rows that have a frame there; those results are plain. A row without frames gives
what torch gives for no elements, and NaN (-1 for places) where that is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...array.chunks import report_fallback
from ...stream.rules import BATCH, LENGTH
from ...stream.tree import map_leaves
from ..tensor import StreamTensor
from ..tensor.padding import cleaned, to_device, unpad
from .common import along, axis_of, inputs, keep, name_of, named, plain, run
from .pointwise import pointwise

__all__ = ["REDUCTIONS"]

Tensor = torch.Tensor

#: Arguments behind the tensor, in their order.
_ARGUMENTS = {
    **named("sum nansum mean nanmean", ("dim", "keepdim", "dtype")),
    **named(
        "prod amax amin max min argmax argmin all any logsumexp median nanmedian mode",
        ("dim", "keepdim"),
    ),
    "count_nonzero": ("dim",),
    "aminmax": (),
    "norm": ("p", "dim", "keepdim", "dtype"),
    "linalg_vector_norm": ("ord", "dim", "keepdim"),
    **named("var std var_mean std_mean", ("dim", "unbiased", "keepdim")),
    **named("quantile nanquantile", ("q", "dim", "keepdim")),
    "kthvalue": ("k", "dim", "keepdim"),
}
_LAST = ("mode", "kthvalue")  # along the last dimension by default
_LOWEST = ("amax", "max", "argmax")
_HIGHEST = ("amin", "min", "argmin")
_EXTREMES = (*_LOWEST, *_HIGHEST, "aminmax")
_FILLS = {
    "sum": 0,
    "nansum": 0,
    "count_nonzero": 0,
    "prod": 1,
    "all": True,
    "any": False,
    "nanmean": np.nan,
}


def _bound(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    names = _ARGUMENTS[name]
    if name in ("var", "std", "var_mean", "std_mean") and args and isinstance(args[0], bool):
        names = names[1:]
    return {**dict(zip(names, args)), **kwargs}


def reduction(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a reduction."""
    name = name_of(func)
    other = args[0] if args else kwargs.get("other")
    if name in ("max", "min") and isinstance(other, Tensor):
        return pointwise(func, x, *args, **kwargs)
    options = map_leaves(_bound(name, args, kwargs), plain)
    info, shape = x._info, plain(x).shape
    dim = options.pop("dim", -1 if name in _LAST else None)
    keepdim = bool(options.pop("keepdim", False))
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return _of_everything(func, name, x, options, keepdim)
    several = isinstance(dim, (list, tuple))
    axes = [axis_of(x, d) for d in (dim if several else [dim])]
    if not any(info.is_stream(a) for a in axes):
        (own,), _ = inputs((x,), {})
        result = run(func, (own,), _given(name, tuple(axes) if several else axes[0], keepdim, options))
        names = [
            None if keepdim and i in axes else n
            for i, n in enumerate(info.names)
            if keepdim or i not in axes
        ]
        if (
            name in ("quantile", "nanquantile")
            and isinstance(options["q"], Tensor)
            and options["q"].dim()
        ):
            names.insert(0, None)
        return keep(result, info.with_names(names))
    left = [i for i in range(len(shape)) if info.is_stream(i) and i not in axes]
    if not left:
        return _of_frames(func, name, x, axes, options, keepdim)
    if info.names[left[0]] != BATCH:
        report_fallback(f"{name} over {along(x, axes)}")
    elif info.is_full(info.width_of(shape)) and (shape[axes[0]] or name not in _EXTREMES):
        return run(
            func, (plain(x),), _given(name, tuple(axes) if several else axes[0], keepdim, options)
        )
    return _masked(func, name, x, axes, several, options, keepdim)


def _given(name: str, dim: Any, keepdim: bool, options: dict[str, Any]) -> dict[str, Any]:
    """Return a call's keyword arguments (count_nonzero has no keepdim)."""
    return {"dim": dim, **({} if name == "count_nonzero" else {"keepdim": keepdim}), **options}


def _of_everything(func: Any, name: str, x: StreamTensor, options: dict[str, Any], keepdim: bool) -> Any:
    if name in ("argmax", "argmin"):
        report_fallback(name)
        return run(func, (_filled(name, x, options),), {"dim": None, "keepdim": keepdim})
    info = x._info
    if keepdim:
        options = {"dim": tuple(range(len(info.names))), "keepdim": True, **options}
    if info.is_full(info.width_of(plain(x).shape)):
        return run(func, (plain(x),), options)
    frames = unpad(plain(x), info)
    if not keepdim:
        return run(func, (frames,), options)
    options.pop("dim"), options.pop("keepdim")
    return map_leaves(run(func, (frames,), options), lambda t: t.reshape((1,) * len(info.names)))


def _of_frames(
    func: Any, name: str, x: StreamTensor, axes: Sequence[int], options: dict[str, Any], keepdim: bool
) -> Any:
    """Reduce over every dimension of streams: over all frames, and over the features among `axes`."""
    info = x._info
    frames = unpad(plain(x), info)
    places = [0] + [1 + info.features.index(a) for a in axes if not info.is_stream(a)]
    result = run(func, (frames,), _given(name, tuple(places) if len(places) > 1 else 0, False, options))

    def spread(t: Any) -> Any:
        for axis in sorted(axes):
            t = t.unsqueeze(axis)
        return t

    return _mapped(result, spread) if keepdim else result


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


def _masked(
    func: Any,
    name: str,
    x: StreamTensor,
    axes: list[int],
    several: bool,
    options: dict[str, Any],
    keepdim: bool,
) -> Any:
    """Reduce over one of B and L, with what changes nothing in the place of padding."""
    if name in ("mean", "var", "std", "var_mean", "std_mean"):
        return _moments(func, name, x, axes, options, keepdim)
    if name in ("median", "nanmedian", "mode", "quantile", "nanquantile", "kthvalue"):
        return _one_by_one(func, name, x, axes, several, options, keepdim)
    if name == "aminmax":
        low, high = (
            _masked(f, f.__name__, x, axes, several, {}, keepdim) for f in (torch.amin, torch.amax)
        )
        return torch.return_types.aminmax((low, high))
    filled = _filled(name, x, options)
    counts = _counts(x, axes, keepdim, filled.device)
    if name in _EXTREMES:
        empty = [a for a in axes if not filled.shape[a]]
        for a in empty:  # one that changes nothing, so that there is an extreme
            sizes = [1 if i == a else n for i, n in enumerate(filled.shape)]
            filled = filled.new_full(sizes, _fill_of(name, filled.dtype, options))
    result = run(func, (filled,), _given(name, tuple(axes) if several else axes[0], keepdim, options))
    if name not in _EXTREMES:
        return result

    def none(t: Tensor) -> Tensor:
        nothing = torch.nan if t.is_floating_point() else -1
        return torch.where(counts > 0, t, torch.full_like(t, nothing))

    return _mapped(result, none)


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


def _moments(
    func: Any, name: str, x: StreamTensor, axes: list[int], options: dict[str, Any], keepdim: bool
) -> Any:
    """Mean and variance: deviations are taken from the mean of the valid frames."""
    own = plain(x)
    if name != "mean" or not (own.is_floating_point() or options.get("dtype")):
        run(func, (own,), _given(name, tuple(axes), keepdim, options))  # what torch refuses
    dtype = options.pop("dtype", None)
    own = own if dtype is None else own.to(dtype)
    own = cleaned(own, x._info)
    n = _counts(x, axes, True, own.device).to(own.dtype)
    for a in axes:
        if not x._info.is_stream(a):
            n = n * own.shape[a]
    mean = own.sum(axes, keepdim=True) / n
    if name == "mean":
        return mean if keepdim else _squeezed(mean, axes)
    unbiased = options.get("unbiased", True)
    correction = options.get("correction", int(unbiased))
    correction = 1 if correction is None else correction
    deviations = cleaned((own - mean).square(), x._info)
    result = deviations.sum(axes, keepdim=True) / (n - correction).clamp_min(0)
    result = result.sqrt() if name.startswith("std") else result
    if not keepdim:
        result, mean = _squeezed(result, axes), _squeezed(mean, axes)
    return (result, mean) if name.endswith("_mean") else result


def _squeezed(x: Tensor, axes: Sequence[int]) -> Tensor:
    return x.squeeze(tuple(axes))


def _one_by_one(
    func: Any,
    name: str,
    x: StreamTensor,
    axes: list[int],
    several: bool,
    options: dict[str, Any],
    keepdim: bool,
) -> Any:
    """Reduce row by row what has no neutral element (over B: frame by frame)."""
    info, own = x._info, plain(x)
    over_length = LENGTH in [info.names[a] for a in axes]
    outer = info.names.index(BATCH if over_length else LENGTH)
    inner = info.names.index(LENGTH if over_length else BATCH)
    lengths = info.meta.lengths
    results = []
    for i in range(own.shape[outer]):
        part = own.narrow(outer, i, 1)
        if over_length:
            part = part.narrow(inner, 0, int(lengths[i]))
        else:
            part = part.index_select(inner, to_device(np.flatnonzero(lengths > i), own.device))
        results.append(_of_part(func, name, part, tuple(axes) if several else axes[0], inner, options))
    gone = sorted(axes, reverse=True)

    def join(parts: Sequence[Tensor]) -> Tensor:
        extra = parts[0].dim() - own.dim()  # quantile's own dimension comes first
        whole = torch.cat(list(parts), outer + extra)
        for a in [] if keepdim else gone:
            whole = whole.squeeze(a + extra)
        return whole

    if not results:
        return run(func, (own,), _given(name, tuple(axes) if several else axes[0], keepdim, options))
    if isinstance(results[0], tuple):
        return type(results[0])([join(p) for p in zip(*results)])
    return join(results)


def _of_part(func: Any, name: str, part: Tensor, dim: Any, inner: int, options: dict[str, Any]) -> Any:
    given = _given(name, dim, True, options)
    if part.shape[inner]:
        return run(func, (part,), given)
    sizes = [1 if i == inner else n for i, n in enumerate(part.shape)]
    like = run(func, (part.new_zeros(sizes),), given)
    return _mapped(like, lambda t: torch.full_like(t, torch.nan if t.is_floating_point() else -1))


REDUCTIONS: dict[str, Callable[..., Any]] = dict.fromkeys(_ARGUMENTS, reduction)
