"""Reductions: valid frames only (`dreamstream.stream.chunk_reductions`); over features the metadata stay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...operations import OPERATIONS
from ...stream.chunk_reductions import Library, Reduction, reduced
from ...stream.fallback import report_fallback
from ...stream.known import JOINED
from ...stream.rules import BATCH, LENGTH
from ...stream.tree import map_leaves
from ..tensor import StreamTensor
from ..tensor.padded_size import padded_sizes
from ..tensor.padding import cleaned, to_device, unpad
from .common import along, axis_of, inputs, keep, name_of, needs_gradient, plain, rule, run
from .pointwise import pointwise


def _bound(name: str, args: Any, kwargs: Any) -> dict[str, Any]:
    names = OPERATIONS[name].arguments
    if name in ("var", "std", "var_mean", "std_mean") and args and isinstance(args[0], bool):
        names = names[1:]
    return {**dict(zip(names, args)), **kwargs}


def _limits(x: Tensor) -> tuple[Any, Any]:
    if x.is_floating_point():
        return -math.inf, math.inf
    if x.dtype is torch.bool:
        return False, True
    known = torch.iinfo(x.dtype)
    return known.min, known.max


_TORCH = Library(
    frames=lambda x: unpad(plain(x), x._info),
    padded=lambda x, fill: plain(x) if fill is None else cleaned(plain(x), x._info, fill),
    array=lambda array, like: to_device(array, like.device),
    cat=torch.cat,
    limits=_limits,
    wants_gradient=needs_gradient,
    answers_nothing=lambda _: True,
    errors=(IndexError, RuntimeError),
    sums_with_zeros=True,
)


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
    info = x._info
    dim = options.pop("dim", OPERATIONS[name].default)
    keepdim = bool(options.pop("keepdim", False))
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return _of_everything(func, name, x, options, keepdim)
    several = isinstance(dim, (list, tuple))
    axes = [axis_of(x, d) for d in (dim if several else [dim])]

    def of(own: Tensor, dim: Any, keepdim: bool) -> Any:
        given = {"dim": dim, "keepdim": keepdim, **options}
        if name == "count_nonzero":  # which takes no keepdim
            return run(torch.sum, (run(torch.ne, (own, 0), {}),), given)
        return run(func, (own,), given)

    if not any(info.is_stream(a) for a in axes):
        return _of_features(x, of, axes, axes if several else axes[0], keepdim, options)
    r = Reduction(of, name, x, axes, several, keepdim, options, _TORCH)
    if any(info.names[i] != BATCH for i in r.left()):
        report_fallback(f"{name} over {along(x, axes)}")
    return reduced(r)


def _of_everything(func: Any, name: str, x: StreamTensor, options: dict[str, Any], keepdim: bool) -> Any:
    info, own = x._info, plain(x)
    if name in ("argmax", "argmin"):
        report_fallback(name)
        fill = _limits(own)[name == "argmin"]
        return run(func, (cleaned(own, info, fill),), {"dim": None, "keepdim": keepdim})
    if info.is_full(info.width_of(own.shape)):
        whole = {"dim": tuple(range(own.dim())), "keepdim": True} if keepdim else {}
        return run(func, (own,), {**whole, **options})
    result = run(func, (unpad(own, info),), options)
    return map_leaves(result, lambda t: t.reshape((1,) * own.dim())) if keepdim else result


def _of_features(
    x: StreamTensor, of: Callable[..., Any], axes: Sequence[int], dim: Any, keepdim: bool, options: dict[str, Any]
) -> Any:
    """Reduce over features alone: the result keeps its streams."""
    (own,), _ = inputs((x,), {})
    names = [None if i in axes else n for i, n in enumerate(x.names) if keepdim or i not in axes]
    q = options.get("q")
    if isinstance(q, Tensor) and q.dim():  # quantile's own dimension comes first
        names.insert(0, None)
    return keep(of(own, dim, keepdim), x._info.with_names(names))
