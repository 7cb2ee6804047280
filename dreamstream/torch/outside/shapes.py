"""Operations on the order and the sizes of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...stream.rules import join, resolve
from ...stream.tensor_info import JOINED
from ...stream.tree import map_leaves
from ..tensor import StreamTensor
from .common import axis_of, fall_back, keep, kept, name_of, plain, rule, run, unknown, viewed

Names = Sequence[str | None]


@rule("permuted", "unsqueeze", "as real")
def permuted(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Exchange dimensions, or insert some: a probe whose sizes are all different tells how."""
    names, first = x._info.names, 3  # new dimensions have one element, or the two of a complex number
    probe = torch.empty(tuple(range(first, first + len(names))), dtype=plain(x).dtype, device="meta")
    sizes = run(func, (probe, *args), kwargs).shape
    return viewed(func, x, args, kwargs, [None if n < first else names[n - first] for n in sizes])


@rule("squeeze")
def squeeze(func: Any, x: Any, dim: Any = None) -> Any:
    """Remove dimensions of size 1, B of one stream and L of one frame included."""
    info, shape = x._info, plain(x).shape
    dims = range(len(shape)) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    axes = [resolve(info.names, d) for d in dims]
    gone = [a for a in axes if shape[a] == 1]
    given = () if dim is None else (tuple(axes),)
    if any(info.names[a] == JOINED for a in gone):
        return fall_back(func, (x, *given), {}, "squeeze of B_L")
    return viewed(func, x, given, {}, [n for i, n in enumerate(info.names) if i not in gone])


@rule("reshaped")
def reshaped(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Reshape features; B and L stay dimensions of their own, or the result is plain."""
    x, what = args[0], name_of(func)
    if what == "view" and len(args) > 1 and isinstance(args[1], torch.dtype):
        return _seen_as(func, x, args[1])
    result = run(func, (plain(x), *map_leaves(args[1:], plain)), map_leaves(kwargs, plain))
    info = x._info.reshaped(plain(x).shape, result.shape)
    if info is None:
        return fall_back(func, args, kwargs, f"this {what}")
    if what == "flatten":
        info = info.with_names(_flattened(x, info.names, *args[1:], **kwargs))
    return keep(result, info)


def _flattened(x: StreamTensor, names: Names, start_dim: Any = 0, end_dim: Any = -1) -> Names:
    """Return the names after a flatten: features' are joined; those of a reshape where B or L takes part."""
    first, last = axis_of(x, start_dim), axis_of(x, end_dim)
    streams = any(x._info.is_stream(i) for i in range(first, last + 1))
    return names if streams or first == last else join(x._info.names, first, last)


def _seen_as(func: Any, x: StreamTensor, dtype: torch.dtype) -> Any:
    result = run(func, (plain(x), dtype), {})
    if result.shape != plain(x).shape and x._info.is_stream(len(x._info.names) - 1):
        return fall_back(func, (x, dtype), {}, "a view of L in another element size")
    return keep(result, x._info)


@rule("repeated")
def repeated(func: Any, x: Any, *sizes: Any, **kwargs: Any) -> Any:
    """Repeat features, and insert dimensions before the first."""
    result = run(func, (plain(x), *map_leaves(sizes, plain)), map_leaves(kwargs, plain))
    info, shape = x._info, plain(x).shape
    lead = result.dim() - len(shape)
    if any(info.is_stream(i) and result.shape[lead + i] != size for i, size in enumerate(shape)):
        return fall_back(func, (x, *sizes), kwargs, f"{name_of(func)} along B or L")
    return keep(result, info.with_names((None,) * lead + info.names))


@rule("unfold")
def unfolded(func: Any, x: Any, dimension: Any, size: int, step: int) -> Any:
    """Return windows over features."""
    axis = axis_of(x, dimension)
    if x._info.is_stream(axis):
        return fall_back(func, (x, axis, size, step), {}, f"unfold along {x._info.names[axis]}")
    return viewed(func, x, (axis, size, step), {}, (*x._info.names, None))


@rule("pad")
def padded_features(func: Any, x: Any, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Any:
    """Pad features, the last dimensions first."""
    info = x._info
    axes = [len(info.names) - 1 - i // 2 for i, n in enumerate(pad) if n]
    if any(a < 0 or info.is_stream(a) for a in axes) or mode != "constant":
        return fall_back(func, (x, pad, mode, value), {}, "this pad")
    return kept(info, func, x, pad, mode, value)


@rule("as complex")
def as_complex(func: Any, x: Any) -> Any:
    """Join the last dimension, of two elements, to complex numbers."""
    names = x._info.names
    return unknown(func, x) if x._info.is_stream(len(names) - 1) else viewed(func, x, (), {}, names[:-1])
