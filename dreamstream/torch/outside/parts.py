"""Taking parts, and putting parts together: the streams' metadata follow by the rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ...errors import ShapeError, StreamIdError, StreamIndexError
from ...stream import tensor_info
from ...stream.rules import BATCH, LENGTH, Fallback, require_equal_rates
from ...stream.tensor_info import JOINED
from ...stream.tree import map_leaves
from ..tensor import StreamTensor
from ..tensor.padding import pad, runs, to_device, unpad
from .common import agree, axis_of, cut, fall_back, keep, kept, name_of, padded, plain, rule, run, unknown


# ---------------------------------------------------------------- index
def _on_host(item: Any) -> Any:
    if isinstance(item, StreamTensor):
        return item  # the rules say why not
    return item.detach().cpu().numpy() if isinstance(item, torch.Tensor) else item


def _plan(x: StreamTensor, index: Any) -> Any:
    host = tuple(map(_on_host, index)) if isinstance(index, tuple) else _on_host(index)
    return x._info.index(host, x._info.width_of(plain(x).shape))


def _for_torch(plan: Any, device: torch.device) -> tuple[Any, ...]:
    return tuple(
        to_device(np.ascontiguousarray(i), device) if isinstance(i, np.ndarray) else i for i in plan.plain
    )


@rule("index")
def getitem(func: Any, x: Any, index: Any) -> Any:
    """Index: B picks rows, L frames of the chunk."""
    found = _plan(x, index)
    if isinstance(found, Fallback):
        return fall_back(func, (x, index), {}, f"this index ({found.reason})")
    x_plain = plain(x)
    return keep(run(func, (x_plain, _for_torch(found[0], x_plain.device)), {}), found[1])


@rule("assignment", anywhere=True)
def setitem(func: Any, x: Any, index: Any, value: Any) -> None:
    """Write to parts of a tensor, which keeps its streams."""
    found = _plan(x, index) if isinstance(x, StreamTensor) else None
    if found is None or isinstance(found, Fallback):
        run(func, (x, map_leaves(index, plain), plain(value)), {})
        return
    own = _for_torch(found[0], plain(x).device)
    if isinstance(value, StreamTensor):
        tensor_info.agree([found[1], value._info], "an assignment")
    run(func, (x, own, plain(value)), {})


def _part(x: StreamTensor, axis: int, item: Any) -> Any:
    return getitem(torch.Tensor.__getitem__, x, (slice(None),) * axis + (item,))


@rule("narrow")
def narrow(func: Any, x: Any, dim: Any, start: Any, length: Any) -> Any:
    """Return a run of rows, frames or features."""
    axis, first = axis_of(x, dim), int(start)
    size = plain(x).shape[axis]
    run(func, (plain(x), axis, first, length), {})  # what torch refuses
    first += size if first < 0 else 0
    return _part(x, axis, slice(first, first + length))


@rule("select")
def select(func: Any, x: Any, dim: Any, index: int) -> Any:
    """Return one row, frame or feature."""
    return _part(x, axis_of(x, dim), int(index))


@rule("index_select")
def index_select(func: Any, x: Any, dim: Any, index: Any) -> Any:
    """Return rows in any order, frames in theirs, or features."""
    axis = axis_of(x, dim)
    if x._info.is_stream(axis):
        return _part(x, axis, plain(index))
    return kept(x._info, func, x, axis, plain(index))


def _of_features(x: StreamTensor, axis: int, index: Any, what: str) -> None:
    """Refuse to pick among streams or frames element by element."""
    if x._info.is_stream(axis):
        raise StreamIndexError(
            f"{what} along {x._info.names[axis]} would mix streams or frames; index with one dimension "
            "(x[rows], x[..., frames]), or take x.tensor()"
        )
    if isinstance(index, StreamTensor):
        agree([x, index], what)


@rule("gather")
def gather(func: Any, x: Any, dim: Any, index: Any, **kwargs: Any) -> Any:
    """Pick features by an index per element; where it is shorter along B or L, so is the result."""
    axis = axis_of(x, dim)
    _of_features(x, axis, index, "gather")
    shape = plain(index).shape
    for i in range(min(len(shape), len(x._info.names))):
        if x._info.is_stream(i) and shape[i] < plain(x).shape[i]:
            x = _part(x, i, slice(0, shape[i]))
    return kept(x._info, func, x, axis, padded(index), **kwargs)


@rule("take_along_dim")
def take_along_dim(func: Any, x: Any, indices: Any, dim: Any = None) -> Any:
    """Pick features by an index per element, broadcast."""
    if dim is None:
        return unknown(func, x, indices)
    axis = axis_of(x, dim)
    _of_features(x, axis, indices, "take_along_dim")
    return kept(x._info, func, x, padded(indices), axis)


# ---------------------------------------------------------------- parts
_FIXED = {"hsplit": 1, "vsplit": 0, "dsplit": 2}


@rule("split")
def split(func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Cut into pieces along a dimension; split gives a list of them, the others a tuple."""
    name, rest = name_of(func), list(args)
    if name in _FIXED:
        axis = min(_FIXED[name], len(x._info.names) - 1)
    elif len(rest) > 1:
        axis = rest[1] = axis_of(x, rest[1])
    else:
        axis = kwargs["dim"] = axis_of(x, kwargs.get("dim", 0))
    pieces = run(func, (plain(x), *map_leaves(rest, plain)), kwargs)
    ends = np.cumsum([0, *(p.shape[axis] for p in pieces)]).tolist()
    if x._info.is_stream(axis) and (ends[-1] != plain(x).shape[axis] or x._info.names[axis] == JOINED):
        return fall_back(func, (x, *rest), kwargs, f"{name} along {x._info.names[axis]}")
    items = [slice(a, b) for a, b in pairwise(ends)]
    if not ends[-1]:
        items[0] = slice(None)  # of no frames the first piece begins and ends the streams
    found = [_part(x, axis, item) for item in items]
    return found if name in ("split", "split_with_sizes") else tuple(found)


@rule("unbind")
def unbind(func: Any, x: Any, dim: Any = 0) -> Any:
    """Return the rows, each with its stream, or the features."""
    axis = axis_of(x, dim)
    role = x._info.names[axis]
    if role == LENGTH:
        raise ShapeError(
            "unbind along L: single frames are no chunks of their streams; split(1, dim) keeps L, and "
            "x.tensor().unbind() gives plain frames"
        )
    if role == JOINED:
        return fall_back(func, (x, axis), {}, "unbind of B_L")
    return tuple(_part(x, axis, i) for i in range(plain(x).shape[axis]))


# ---------------------------------------------------------------- together
@rule("cat")
def cat(func: Any, tensors: Any, dim: Any = 0) -> Any:
    """Put tensors one behind the other: batches of different streams, chunks of the same, or features."""
    parts = list(tensors)
    first = next(t for t in parts if isinstance(t, StreamTensor))
    axis = axis_of(first, dim)
    if first._info.is_stream(axis) and not all(isinstance(t, StreamTensor) for t in parts):
        return fall_back(torch.cat, (parts, axis), {}, "cat of streams and a plain tensor")
    streams = [t for t in parts if isinstance(t, StreamTensor)]
    if any(t.dims != first.dims for t in streams):
        raise ShapeError(f"cat: dimensions {[t.names for t in streams]} don't line up")
    require_equal_rates([t.rate for t in streams], "cat")
    role = first._info.names[axis]
    if role == BATCH:
        return _cat_rows(streams, axis)
    if role == LENGTH:
        return _cat_frames(streams, axis)
    if role == JOINED:
        return fall_back(torch.cat, (parts, axis), {}, "cat along B_L")
    info = agree(streams, "cat")
    return kept(info, torch.cat, cut(parts), axis)


def _cat_rows(parts: Sequence[StreamTensor], axis: int) -> Any:
    info = tensor_info.join([p._info for p in parts], BATCH)
    length = info.axis(LENGTH)
    values = [plain(p) for p in parts]
    if length is not None:
        width = max(v.shape[length] for v in values)
        behind = [0, 0] * (values[0].dim() - 1 - length)
        values = [torch.nn.functional.pad(v, (*behind, 0, width - v.shape[length])) for v in values]
    return keep(torch.cat(values, axis), info)


def _cat_frames(parts: Sequence[StreamTensor], axis: int) -> Any:
    info = tensor_info.join([p._info for p in parts], LENGTH)
    if all(p._info.is_full(plain(p).shape[axis]) for p in parts[:-1]):
        return keep(torch.cat([plain(p) for p in parts], axis), info)
    frames = torch.cat([unpad(plain(p), p._info) for p in parts])
    lengths = np.stack([p.lengths for p in parts], 1)  # (B, parts); stored part by part
    ends = np.cumsum(lengths.T.ravel()).reshape(lengths.T.shape).T
    order = to_device(runs((ends - lengths).ravel(), lengths.ravel()), frames.device)
    return keep(pad(frames.index_select(0, order), info), info)


@rule("stack")
def stack(func: Any, tensors: Any, dim: Any = 0) -> Any:
    """Stack features of the same streams; or single rows of different streams to a batch."""
    parts = list(tensors)
    streams = [t for t in parts if isinstance(t, StreamTensor)]
    first = streams[0]
    at = dim % (len(first.names) + 1)
    ids = [i for t in streams for i in t.ids]
    rows = len(streams) == len(parts) and all(BATCH not in t.names and JOINED not in t.names for t in streams)
    if rows and len(set(ids)) == len(ids) and len({t.names for t in streams}) == 1:
        require_equal_rates([t.rate for t in streams], "stack")
        names = [*first.names[:at], BATCH, *first.names[at:]]
        return _cat_rows([StreamTensor.of(plain(t).unsqueeze(at), t._info.with_names(names)) for t in streams], at)
    if len(streams) > 1 and len(set(ids)) == len(ids) > 0 and all(BATCH in t.names for t in streams):
        raise StreamIdError(
            "stack: of different streams; torch.cat joins them, in a DataLoader collate_fn=torch.cat", ids
        )
    info = agree(streams, "stack")
    if any(t.names != first.names for t in streams):
        raise ShapeError(f"stack: dimensions {[t.names for t in streams]} don't line up")
    new = (*info.names[:at], None, *info.names[at:])
    return kept(info.with_names(new), torch.stack, cut(parts), at)


@rule("stacked")
def stacked(func: Any, tensors: Any) -> Any:
    """hstack, vstack, dstack and column_stack, where they are concatenations."""
    name = name_of(func)
    ranks = {plain(t).dim() for t in tensors}
    axis = {"vstack": 0, "row_stack": 0, "dstack": 2}.get(name, 0 if ranks == {1} and name == "hstack" else 1)
    least = {"hstack": 1, "dstack": 3}.get(name, 2)
    return cat(torch.cat, tensors, axis) if min(ranks) >= least else unknown(func, tensors)
