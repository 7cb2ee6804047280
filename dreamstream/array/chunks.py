"""What views, indices and reductions of a stream tensor mean outside a forward: the call's frames.

Indices are relative to the chunk. What can't keep the metadata becomes a plain padded tensor, with a
`StreamFallbackWarning` (see `on_fallback`); reductions see valid frames only.
What looks at frames alone, as losses do, gets these as plain tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..autograd import follow, source
from ..errors import NotStreamableError, ShapeError
from ..stream.fallback import report_fallback
from ..stream.rules import Fallback, require_equal_rates, require_same
from ..stream.tensor_info import Info, agree, join
from ..stream.tree import leaves, map_leaves
from . import creation
from .dimension_arguments import numbered
from .feature_reductions import product, why_not_matmul
from .hook import made
from .stream_tensor import StreamTensor
from .tensor import Tensor


def fall_back(x: StreamTensor, what: str) -> Any:
    """Return the plain padded tensor, with a warning."""
    report_fallback(what)
    return x.tensor()


def getitem(x: StreamTensor, index: Any) -> Any:
    x = x.in_order()
    index = _arrays(index)
    found = x._info.index(index)
    if isinstance(found, Fallback):
        return fall_back(x, f"this index ({found.reason})")[index]
    plan, info = found
    frames = x._frames()
    if plan.rows is not None or plan.frames is not None:
        offsets = x.offsets
        rows = range(len(x.meta)) if plan.rows is None else plan.rows
        frames = _index_rows(frames, [_span(offsets, r)[plan.frames_of(int(x.lengths[r]))] for r in rows])
    frames = made("index", frames, index=(slice(None), *plan.features))
    if plan.take is not None:
        axis, where = plan.take
        frames = made("index", frames, index=(slice(None),) * (1 + axis) + (where,))
    return _of_rows(frames.contiguous(), info)


def _of_rows(frames: Tensor, info: Info) -> StreamTensor:
    """Return frames of which this is known, with the gradient that they have."""
    out = StreamTensor._make(frames.numpy(), info.dims, info.names, info.meta, info.starts, info.rate, None)
    return follow(out, source(frames), "frames")


def _span(offsets: Any, row: int) -> Any:
    """Return the places of a row's frames among those of all rows."""
    return np.arange(offsets[row], offsets[row + 1])


def _index_rows(frames: Tensor, indices: Sequence[Any]) -> Tensor:
    """Return frames in another order."""
    index = np.concatenate(indices) if indices else np.zeros(0, np.int64)
    return made("index_select", frames, index=index, axis=0)


def reshape(x: StreamTensor, shape: Sequence[Any]) -> Any:
    """Reshape features; sizes that equal B's and L's stand for them where they come in order."""
    x = x.in_order()
    rest = math.prod(s for s in x.shape if s) // math.prod(s for s in shape if s not in (0, -1))
    rest = 0 if 0 in x.shape and 0 not in shape else rest  # what -1 stands for; of no frames as of some
    sizes = [rest if s == -1 else int(s) for s in shape]
    if math.prod(sizes) != math.prod(x.shape):
        raise ShapeError(f"reshape: a stream {x.roles} can't take the shape {tuple(shape)}")
    info = x._info.reshaped(x.shape, sizes)
    if info is None:
        return fall_back(x, "this reshape").reshape(*shape)
    frames = made("reshape", x._frames(), shape=(len(x.value), *(sizes[i] for i in info.features)))
    return _of_rows(frames, info)


def unfold(x: StreamTensor, axis: int, size: int, step: int) -> Any:
    return fall_back(x, "unfold").unfold(axis, size, step)


def repeat_interleave(x: StreamTensor, axis: int, times: int) -> Any:
    if isinstance(x.dims[axis], str):
        what = f"repeat_interleave along {x.dims[axis]}"
        return fall_back(x, what).repeat_interleave(times, axis)
    return per_frame(x, axis, lambda t, a: t.repeat_interleave(times, a), True)


def expand(x: StreamTensor, sizes: Sequence[Any]) -> Any:
    x = x.in_order()
    if len(sizes) != len(x.dims):
        return fall_back(x, "expand to more dimensions").expand(*sizes)
    for d, size, own in zip(x.dims, sizes, x.shape):
        if isinstance(d, str) and size not in (-1, own):
            return fall_back(x, f"expand along {d}").expand(*sizes)
    features = [x.features[d] if s == -1 else int(s) for d, s in zip(x.dims, sizes) if not isinstance(d, str)]
    return x.like(made("expand", x._frames(), shape=(len(x.value), *features)).contiguous(), x.dims, x.names)


def cat(tensors: Sequence[StreamTensor], axis: int) -> Any:
    first = tensors[0]
    role = first.dims[axis]
    parts = [t.in_order() for t in tensors]
    if any(p.dims != parts[0].dims for p in parts):
        raise ShapeError(f"cat: dimensions {[p.roles for p in parts]} don't line up")
    require_equal_rates([p.rate for p in parts], "cat")
    features = {p.features for p in parts}
    if role in ("B", "L") and len(features) > 1:
        raise ShapeError(f"cat: the features differ: {sorted(features)}")
    frames, infos = [p._frames() for p in parts], [p._info for p in parts]
    if role in ("B", "L"):
        info, joined = join(infos, role), made("cat", *frames, axis=0)
        if role == "L":
            offsets = [p.offsets + before for p, before in zip(parts, np.cumsum([0, *map(len, frames)]))]
            joined = _index_rows(joined, [_span(o, r) for r in range(len(info.meta)) for o in offsets])
        return _of_rows(joined, info)
    if role == "B_L":
        return creation.cat(
            [fall_back(first, "cat along B and L joined"), *(t.tensor() for t in tensors[1:])], axis
        )
    return _of_rows(made("cat", *frames, axis=1 + parts[0].dims[axis]), agree(infos, "cat"))


def matmul(x: StreamTensor, other: Any, reverse: bool) -> Any:
    reason = why_not_matmul(x, other, reverse)
    if reason is None:
        return product(x, other, reverse)
    plain = fall_back(x, f"this matrix product {reason}")
    other = other.tensor() if getattr(other, "is_stream", False) else other
    return other @ plain if reverse else plain @ other


def _arrays(index: Any) -> Any:
    def plain(i: Any) -> Any:
        return i.numpy() if hasattr(i, "is_stream") else i

    return tuple(plain(i) for i in index) if isinstance(index, tuple) else plain(index)


def per_frame(x: StreamTensor, axis: int, method: Callable[[Any, int], Any], keeps: bool) -> Any:
    """Apply a plain tensor's method along one feature axis of all frames; results keep the metadata.

    `keeps` says whether the axis stays.
    """
    x = x.in_order()
    stored = x.dims[axis]
    dims = x.dims
    if not keeps:
        dims = numbered([d for d in x.dims if d != stored])
    names = x.names if keeps else tuple(n for i, n in enumerate(x.names) if i != axis)
    out = method(x._frames(), stored + 1)

    def wrap(t: Any) -> Any:
        return x.like(t.contiguous(), dims, names)

    return type(out)(*map(wrap, out)) if isinstance(out, tuple) else wrap(out)


def reduce(x: StreamTensor, method: Callable[..., Any], axes: Sequence[int], keepdim: bool) -> Any:
    """Apply a plain tensor's reduction ``method(tensor, dim, keepdim)`` to valid frames only."""
    roles = [x.dims[a] for a in axes]
    x = x.in_order()
    if not any(isinstance(r, str) for r in roles):
        if len(axes) == 1:
            return per_frame(x, axes[0], lambda t, a: method(t, a, keepdim), keepdim)
        stored = tuple(x.dims[a] + 1 for a in axes)
        keeps = per_frame(x, axes[0], lambda t, a: method(t, stored, True), True)
        return keeps if keepdim else keeps.squeeze(tuple(axes))
    if "L" not in roles and "B_L" not in roles:
        return method(fall_back(x, "this reduction"), tuple(axes) if len(axes) > 1 else axes[0], keepdim)
    order = [{"B": 0}.get(d, 1) if isinstance(d, str) else 2 + d for d in x.dims]  # of rows, frames, features
    over = tuple(order[a] for a in axes if x.dims[a] != "B")
    frames, same = x._frames(), [np.zeros(1, np.int64)]
    if "B" in roles or "B" not in x.dims:  # all valid frames at once
        found = [method(frames.unsqueeze(0), over if len(over) > 1 else over[0], True)]
    else:  # rows of one length at once
        same = [np.flatnonzero(x.lengths == n) for n in np.unique(x.lengths)] or [np.zeros(0, np.int64)]
        spans = np.split(np.arange(len(frames)), x.offsets[1:-1])
        rows = [_index_rows(frames, [spans[row] for row in indices]) for indices in same]
        sizes = [(len(indices), x.lengths[indices].max(initial=0)) for indices in same]
        found = [_reduce_rows(x, t.reshape(*n, *x.features), method, over) for t, n in zip(rows, sizes)]
    turn = np.argsort(np.concatenate(same))
    new = [0] if 0 not in order else []
    gone = (*new, *(() if keepdim else (a + len(new) for a in axes)))

    def joined(parts: Sequence[Tensor]) -> Tensor:
        return _index_rows(creation.cat(parts, 0), [turn]).permute(*new, *order).squeeze(gone)

    whole = iter([joined(parts) for parts in zip(*map(leaves, found))])
    return map_leaves(found[0], lambda _: next(whole))


def _reduce_rows(x: StreamTensor, rows: Any, method: Callable[..., Any], over: tuple[int, ...]) -> Any:
    try:
        return method(rows, over if len(over) > 1 else over[0], True)
    except ShapeError:  # an extreme of no frames
        if x.value.dtype.kind != "f" or rows.shape[1]:
            raise
        return _of_nothing(x, method, over, len(rows))


def _of_nothing(x: StreamTensor, method: Callable[..., Any], over: tuple[int, ...], n: int) -> Any:
    """Return NaN, and -1 for indices, in the form of the results of n rows."""
    like = _reduce_rows(x, creation.zeros(n, 1, *x.features, dtype=x.dtype), method, over)
    return map_leaves(like, lambda t: creation.full_like(t, np.nan if t.dtype.kind == "f" else -1))


Shown = Callable[[Any], Any]


def of_elements(name: str, x: Any, others: Sequence[Any]) -> tuple[Tensor, list[Tensor], Shown]:
    """Return the frames of x and of others of its shape, and what makes a stream of a value for each element.

    Others are streams like x, or plain tensors that broadcast with it, padded as it is. Messages name the function
    `name`.
    """
    given = [o if isinstance(o, Tensor) else Tensor(np.asarray(o)) for o in (x, *others)]
    model: Any = next((o for o in given if o.is_stream), None)
    if model is None:
        return given[0], given[1:], lambda y: y
    _require_outside(name, model)
    own, *rest = [_frames(name, model, o) for o in given]
    return own, rest, model.like


def _require_outside(name: str, x: Any) -> None:
    if x.edge is not None:
        raise NotStreamableError.here(f"{name} inside a forward,", ": apply it to what that returns")


def _frames(name: str, model: Any, other: Any) -> Any:
    if getattr(other, "is_stream", False):
        require_same([model.meta, other.meta], [model.starts, other.starts], name)
        if [isinstance(d, int) for d in other.dims] != [isinstance(d, int) for d in model.dims]:
            raise ShapeError(f"{name}: dimensions {other.names} don't line up with {model.names}")
        return other.in_order([d for d in model.dims if isinstance(d, int)])._frames()
    dims, shape = model.dims, model.shape  # it is padded as streams are, or broadcasts with them
    plain = other if isinstance(other, Tensor) else Tensor(np.asarray(other))
    try:
        wide: Any = plain.expand(*shape)
    except ShapeError:
        raise ShapeError(f"{name}: a tensor of shape {plain.shape} meets streams {tuple(shape)}") from None
    order = [dims.index(d) for d in ("B", "L") if d in dims]
    order += [dims.index(i) for i in range(len(dims) - len(order))]
    wide = wide.permute(*order)
    if "L" not in dims:
        return wide
    return wide[np.arange(shape[dims.index("L")]) < np.asarray(model.lengths)[:, None]]


def frames_of(name: str, x: Any, target: Any) -> tuple[Tensor, Tensor, Shown]:
    """Return the frames of x, the feature of its dimension 1 first, and those of a target without or with it."""
    t = target if isinstance(target, Tensor) else Tensor(np.asarray(target))
    if not x.is_stream:
        return x, t, lambda y: y
    _require_outside(name, x)
    if x.ndim < 2 or isinstance(x.dims[1], str):
        raise ShapeError(
            f"{name}: classes are dimension 1, which is no feature of {x.names}; transpose them there"
        )
    n_before = isinstance(x.dims[0], int)
    axes = iter(range(1, len(x.dims)))
    x = x.in_order([0 if i == n_before else next(axes) for i in range(len(x.features))])
    own = x._frames()
    if t.is_floating_point():
        return own, _frames(name, x, t), lambda y: y
    rest = [d if isinstance(d, str) else d - 1 for i, d in enumerate(x.dims) if i != 1]
    shown = x.like(np.zeros((len(x.value), *x.features[1:]), t.dtype), tuple(rest))
    return own, _frames(name, shown, t), lambda y: shown.like(y, tuple(rest))
