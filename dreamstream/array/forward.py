"""What views, slices and reductions of a stream mean inside a forward: the axis is the whole stream.

Only what is listed here runs; everything else that would touch B or L raises `NotStreamableError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import NotStreamableError, ShapeError
from ..operations.refusals import PLACES
from ..source_line import user_line
from ..stream.rules import (
    BatchSize,
    Fallback,
    IndexParts,
    Length,
    holds,
    is_full_slice,
    open_branch,
    own_sizes,
    parse_index,
    plan_reshape,
    stream_slice,
)
from . import dtypes, hook
from .batch_constants import is_constant, value_of
from .dimension_arguments import numbered, parts_of as all_parts_of
from .elementwise import where
from .ends import bound_of, first_frames, in_most_streams, last_frame, last_frames, last_frames_of
from .feature_reductions import over_features, product, why_not_matmul
from .merged_dimensions import Merged
from .over_time import chosen, reduce_stream, require_waiting, spread
from .reductions import OF_FLOATS, Extreme
from .shape_of import Empty
from .stream_tensor import StreamTensor
from .tensor import Tensor
from .verdicts import Verdict


def _refuse(x: StreamTensor, what: str, remedy: str, line: str = "") -> NoReturn:
    raise NotStreamableError.here(f"{what} on a stream {x.roles} inside a forward,", f"; {remedy}", line)


def hold_for(x: StreamTensor, edge: Any, at: int) -> StreamTensor:
    """Repeat a value that is given once for each frame of `edge`: L replaces dimension `at`, of size 1.

    With `at` of -1, L is a new first dimension.
    """
    x = x.in_order()
    if at >= 0:
        if isinstance(x.dims[at], str) or x.features[x.dims[at]] != 1:
            raise ShapeError.here(
                f"a value given once, of shape {x.roles}, meets frames: where they have L it must have a "
                "dimension of size 1, as x.unsqueeze(dim) makes it"
            )
        kept = [d for i, d in enumerate(x.dims) if i != at]
        sizes = [x.features[d] for d in kept if isinstance(d, int)]
        x = reshape_features(x, sizes, numbered(kept))
    place = max(at, 0)
    dims = (*x.dims[:place], "L", *x.dims[place:])
    return StreamTensor._operate_on("hold", {}, [x.edge, edge], [x.value], dims, cid=edge.cid)


def is_static(x: Any) -> bool:
    """Whether a tensor inside a forward follows from inputs alone that are given once."""
    return x.edge is not None and x.edge.line.static


def _hold_over_length(x: StreamTensor, sizes: Sequence[Any]) -> tuple[StreamTensor, list[Any]]:
    """Expand a value that is given once along L, to the length in `sizes`; return it and sizes with -1 there."""
    sizes = list(sizes)
    at = next(i for i, size in enumerate(sizes) if isinstance(size, Length))
    edge: Any = sizes[at].of
    if (sizes[at] == edge.entry.library.length(edge)) is not True:
        _refuse(x, f"expand to the length {sizes[at]!r}", "expand it over the length of a stream as it is")
    new = len(sizes) - len(x.dims)
    if new > 1 or (new and at):
        _refuse(x, f"expand to {len(sizes)} dimensions", "unsqueeze first")
    x = hold_for(x, edge, at - new)
    sizes[at] = -1
    return x, sizes


def reshape_features(x: StreamTensor, shape: Sequence[int], dims: Any) -> StreamTensor:
    """Return the frames with another feature shape and these dimensions."""
    if tuple(shape) == x.features:
        return x.with_dims(dims)
    return x._operate("reshape", {"shape": list(shape)}, (), dims)


def gather(x: StreamTensor, axis: int, index: StreamTensor) -> StreamTensor:
    """Return ``x.gather(axis, index)`` along a dimension of features; `index` is a stream too."""
    last = axis == len(x.dims) - 1
    given = [x, index] if last else [x.transpose(axis, -1), index.transpose(axis, -1)]
    out = hook.one("gather", {}, given, (), (..., 0))
    return out if last else out.transpose(axis, -1)


def scatter(x: Any, axis: int, index: Any, src: Any, adds: bool = False) -> StreamTensor:
    """Return ``x.scatter(axis, index, src)``, or scatter_add, along a dimension of features, in index order."""
    number = isinstance(src, (int, float))
    streams = [x, index] if number else [x, index, src]
    if any(getattr(t, "edge", None) is None for t in streams) or isinstance(x.dims[axis], str):
        raise NotStreamableError.here(
            "scatter: expected streams of a forward, or a number to write, along a dimension of features"
        )
    out: Any
    out, index, *given = [t.transpose(axis, -1) for t in streams]
    kind: Any = float if x.dtype == np.bool_ else type(np.zeros((), x.dtype).item())
    places = x._plain(np.arange(out.shape[-1], dtype=np.float32))
    for j in range(int(index.shape[-1])):
        part = slice(j, j + 1)
        here = index[..., part].to(np.float32) == places
        new = given[0][..., part] if given else kind(src)
        out = where(here, out + new if adds else new, out)
    return cast(StreamTensor, out.to(x.dtype).transpose(axis, -1))


def _counts_from_the_first(index: Any) -> bool:
    """Whether an index along L looks at a fixed number of first frames only, as ``x[:, :3]`` and ``x[:, 2]``."""
    at = index.stop if isinstance(index, slice) else index
    return isinstance(at, int) and at >= 0 and (not isinstance(index, slice) or (index.start or 0) >= 0)


def slice_stream(x: StreamTensor, index: Any) -> StreamTensor:
    """Return x[..., index] on the stream axis."""
    edge: Any = x.edge
    frames = edge.entry.library.length(edge)
    if is_static(x) and _counts_from_the_first(index):
        if not isinstance(index, slice):
            return first_frames(x, index + 1).select(x.dims.index("L"), index)
        start = index.start or 0
        found = first_frames(slice_stream(x, slice(start, None)), max(0, index.stop - start))
        few: StreamTensor = found[(slice(None),) * x.dims.index("L") + (slice(None, None, index.step),)]
        return few
    if isinstance(index, slice):
        start, stop = bound_of(index.start, frames), bound_of(index.stop, frames)
        step = index.step.settled() if isinstance(index.step, Length) else index.step
        stop = bound_of(in_most_streams(stop, stop), frames)
        past = stop - frames if isinstance(stop, Length) else None
        if isinstance(past, int) and past >= 0:
            stop = None
        start = bound_of(start.soon(), frames) if isinstance(start, Length) else start
        if isinstance(start, Length) and isinstance(behind := start - frames, int):
            if behind >= 0:
                what = f"x[..., {start!r}:, ...] on the stream axis"
                raise NotStreamableError.here(what, ": it begins where each stream ends, so nothing is left")
            start.require("ge", 0)  # of shorter streams it is counted from the end
            start = behind
        if isinstance(start, Length):  # counted from the end, so that what is left has another's length
            from_end = frames + start
            start = start if isinstance(from_end, Length) or from_end < 0 else from_end
        if isinstance(start, int) and start < 0 and step in (None, 1):
            before = stop if isinstance(stop, int) and stop < 0 else None
            if before is not None or stop is None:
                x = x if before is None else slice_stream(x, slice(None, before))
                return last_frames(x, (before or 0) - start)
        index = slice(start, stop, step)
    elif isinstance(at := bound_of(index, frames), int) and at < 0:
        return last_frame(x, -at)
    s = stream_slice(index)
    if s.stop_length is not None:
        steps = {"start": s.start, "step": s.step, "length": s.stop_length.steps(rises=True)}
        return x._operate_on("cut", steps, [x.edge, s.stop_length.of], [x.value], x.dims, x.names)
    return x._operate("slice", {"start": s.start, "crop": s.crop, "step": s.step})


def _emptied(x: StreamTensor, parts: IndexParts) -> Empty | None:
    """Return an `Empty` of the right shape where a slice keeps no feature, as ``x[..., 2:2]``; else None."""
    own = iter([x.features[d] for d in x.dims if isinstance(d, int)])
    sizes, origin = [], ""
    for item in parts.features:
        size = 1 if item is None else next(own)
        if isinstance(item, slice):
            start, stop, step = item.indices(size)
            if step > 0 and start >= stop:
                origin, size = f"[{start}:{stop}] of {size} features at {user_line()}", 0
            else:
                size = len(range(start, stop, step))
        if not isinstance(item, int):
            sizes.append(size)
    if not origin:
        return None
    return Empty([sizes[d] if isinstance(d, int) else x._token(d) for d in parts.dims], x.dtype, origin)


def _split_off_frames(x: StreamTensor, index: Any) -> tuple[Any, Any] | None:
    """Split an index into one of all other dimensions and one of L, to apply after it; None if it is of L alone.

    The latter may turn L into features, since a value that is given once has its frames at once.
    """
    items = all_parts_of(index, x.ndim)
    own = [i for i, item in enumerate(items) if item is not None]
    at = own[x.dims.index("L")]
    frames, items[at] = items[at], slice(None)
    if all(map(is_full_slice, items)):
        return None
    place = sum(not isinstance(item, int) for item in items[:at])
    return tuple(items), (*(slice(None),) * place, frames)


def parts_of(x: StreamTensor, index: Any) -> IndexParts | Fallback:
    """Return an index's parts by dimension, or a `Fallback` for what is no index of numbers and constants."""
    names = tuple(d if isinstance(d, str) else n for d, n in zip(x.dims, x.names))
    parts = index if isinstance(index, tuple) else (index,)
    return parse_index(tuple(i.numpy() if getattr(i, "is_stream", None) is False else i for i in parts), names)


def getitem(x: StreamTensor, index: Any) -> Any:
    if (found := hook.lowered("index", x, index)) is not None:
        return found
    parts = parts_of(x, index)
    if any(getattr(i, "is_stream", False) for i in (index if isinstance(index, tuple) else (index,))):
        raise NotStreamableError.here("an index by a stream,", f": {PLACES.text}")
    if isinstance(parts, Fallback):
        _refuse(x, f"this index ({parts.reason})", "index one axis at a time with slices")
    if not is_full_slice(parts.batch):
        _refuse(x, "an index on the batch", "pick streams outside the forward")
    only_slices = parts.take is None and all(isinstance(i, slice) for i in parts.features)
    if not only_slices:
        x = x.in_order()
    if "L" in x.dims and not is_full_slice(parts.length):
        branch = open_branch(cast(Any, x.edge).entry)
        begins = only_slices and branch is not None and getattr(parts.length, "start", None) is not None
        if begins and last_frames_of(last := slice_stream(x, parts.length)) is not None:
            return last
        if branch is not None:
            if not only_slices or not all(is_full_slice(i) for i in parts.features):
                _refuse(x, "an index of features besides, in an if that some streams enter", "index them after it")
            return branch.cropped(x, parts.length, x.size(x.dims.index("L")), slice_stream)
    if not is_full_slice(parts.length):
        if "L" not in x.dims:
            _refuse(x, "an index on B and L joined", "index before the reshape")
        if is_static(x) and (index := _split_off_frames(x, index)) is not None:
            return getitem(x[index[0]], index[1])
        x = slice_stream(x, parts.length)
    if only_slices and all(map(is_full_slice, parts.features)):
        return x
    if (empty := _emptied(x, parts)) is not None:
        return empty
    if only_slices:  # each on its axis, wherever that is stored
        stored = [d for d in x.dims if isinstance(d, int)]
        for place, item in zip(stored, parts.features):
            x = _narrow(x, place, cast("slice", item))
        return x
    features: list[int] = []
    axis = 0
    for item in parts.features:
        if item is None:
            features.append(1)
            continue
        size = x.features[axis]
        if isinstance(item, int):
            at = _from_front(item, size)
            x = _narrow(x, axis, slice(at, at + 1))
        else:
            x = _narrow(x, axis, item)
            features.append(x.features[axis])
        axis += 1
    if parts.take is None:
        result = reshape_features(x, features, parts.dims)
    else:
        result = _take(reshape_features(x, features, _straight(x, features)), *parts.take)
    return result.with_dims(parts.dims, parts.names)


def reshape(x: StreamTensor, shape: Sequence[Any]) -> StreamTensor:
    try:
        plan = _planned(x, shape)
    except NotStreamableError:
        if x.dims[0] == f"B_{x.lanes}" and shape and isinstance(shape[0], BatchSize):
            return _behind_lanes(x, shape)
        if (found := hook.lowered("reshape", x, shape)) is None:
            raise
        return found
    names = [None if o is None else x.names[o] for o in plan.origin]
    named = [d if isinstance(d, str) else n for d, n in zip(plan.dims, names)]
    x = x.opened() if plan.steps and x.lanes else x
    for step in plan.steps:
        if step[0] == "permute":
            x = x.stored_anew(step[1])
        elif step[0] == "features":
            x = reshape_features(x, step[1], x.dims).opened()
        elif step[0] == "stack":
            n = len(x.features) + 1
            x = x._operate("frame", {"size": step[1], "step": step[1], "exact": 1}, (), ("B", "L", *range(n)))
        elif step[0] == "unstack":
            x = x._operate("unstack", {}, (), ("B", "L", *range(len(x.features) - 1)))
    x = x.with_dims(plan.dims, named)
    for length in plan.claims:
        x.require_length(length)
    return x


def _planned(x: StreamTensor, shape: Sequence[Any]) -> Any:
    """Return the plan of a reshape, found once if its sizes are numbers and sizes of `x` itself."""
    edge: Any = x.edge
    facts, sizes = edge.line.facts, own_sizes(edge, shape)
    plan = None if sizes is None else facts.get(key := ("reshape", x.dims, x.features, sizes))
    if plan is None:
        plan = plan_reshape(x.dims, [x._token(d) for d in x.dims], shape)
        if sizes is not None and not plan.claims:
            facts[key] = plan
    return plan


def _behind_lanes(x: StreamTensor, shape: Sequence[Any]) -> StreamTensor:
    """Return a reshape to ``(B with its features, *shape[1:])``, where only dimensions behind the first change."""
    apart = (x._token("B"), x.lanes)
    y = reshape(reshape(x, (*apart, *x.shape[1:])), (*apart, *shape[1:]))
    if isinstance(y, Merged):
        return Merged(x, [[0], *([a - 1 for a in g] for g in y.groups[2:])])
    return reshape(y, (shape[0], *y.shape[2:]))


def so_far(x: StreamTensor, kind: str) -> StreamTensor:
    """Return the cumulative sum, product or extreme along L."""
    return (x.to(np.dtype(np.int64)) if x.dtype == np.bool_ else x)._operate("cumulative", {"kind": kind})


def running(x: StreamTensor, axis: int, kind: str) -> StreamTensor:
    """Return a cumulative reduction along features."""
    x = x.to(np.dtype(np.int64)) if x.dtype == np.bool_ else x
    out = x.with_dims(x._straight())._operate("cumulative_within", {"kind": kind, "axis": axis})
    return out.with_dims(x.dims, x.names)


def flip(x: StreamTensor) -> StreamTensor:
    """Return the frames from the last to the first."""
    assert x.edge is not None
    require_waiting("flip", x.edge)
    return x._operate("flip", {})


def unfold(x: StreamTensor, axis: int, size: int, step: int) -> StreamTensor:
    if x.dims[axis] != "L":
        return _unfold_features(x.in_order(), axis, size, step)
    n = len(x.features)
    framed = x._operate("frame", {"size": size, "step": step}, (), ("B", "L", *range(n + 1)))
    dims = tuple(d if isinstance(d, str) else d + 1 for d in x.dims)
    return framed.with_dims((*dims, 0), (*x.names, None))


def _unfold_features(x: StreamTensor, axis: int, size: int, step: int) -> StreamTensor:
    at = x.dims[axis]
    if isinstance(at, str):
        _refuse(x, f"unfold over {at}", "unfold over the stream axis, or over features")
    n = (x.features[at] - size) // step + 1
    if n < 1:
        raise ShapeError.here(f"unfold: {x.features[at]} features are fewer than a window of {size}")
    x = index_features(x, at, np.add.outer(step * np.arange(n), np.arange(size)).ravel())
    shape = (*x.features[:at], n, size, *x.features[at + 1 :])
    dims = tuple(d if isinstance(d, str) or d <= at else d + 1 for d in x.dims)
    return reshape_features(x, shape, (*dims, at + 1)).with_dims((*dims, at + 1), (*x.names, None))


def repeat_interleave(x: StreamTensor, axis: int, times: Any) -> Any:
    if isinstance(times, Length):
        return expand(x, [times if i == axis else -1 for i in range(x.ndim)])
    x = x.in_order()
    at = x.dims[axis]
    if at == "L":
        return x._operate("repeat_frames", {"times": times})
    if isinstance(at, str):
        _refuse(x, f"repeat_interleave along {at}", "repeat frames or features")
    before, after = x.features[: at + 1], x.features[at + 1 :]
    straight = _straight(x, (*before, 1, *after))
    spread = reshape_features(x, (*before, 1, *after), straight)
    spread = spread._operate("expand", {"shape": [*before, times, *after]}, (), straight)
    shape = (*before[:-1], before[-1] * times, *after)
    return reshape_features(spread, shape, x.dims).with_dims(x.dims, x.names)


def for_batch(x: StreamTensor, axis: int, lanes: int = 1) -> StreamTensor:
    """Return a constant with B, and `lanes` features joined with it, in place of a feature axis of size 1."""
    if not any(isinstance(d, str) and holds(d, "B") for d in x.dims):
        if isinstance(x.dims[axis], str) or x.features[x.dims[axis]] != 1:
            return x
        x = x.in_order()
        at = x.dims[axis]
        dims = numbered((*x.dims[:axis], "B", *x.dims[axis + 1 :]))
        x = reshape_features(x, (*x.features[:at], *x.features[at + 1 :]), dims)
    if lanes == 1 or x.dims[axis] != "B" or not cast(Any, x.edge).line.alike:
        return x
    spread: Any = repeat_interleave(x.unsqueeze(axis + 1), axis + 1, lanes)
    return cast("StreamTensor", spread.flatten(axis, axis + 1))


def expand(x: StreamTensor, sizes: Sequence[Any]) -> Any:
    if is_static(x) and any(isinstance(s, Length) for s in sizes):
        x, sizes = _hold_over_length(x, sizes)
    while len(sizes) > len(x.dims):
        x = x.unsqueeze(0)
    if len(sizes) != len(x.dims):
        _refuse(x, f"expand to {len(sizes)} dimensions", "unsqueeze first")
    for axis, size in enumerate(sizes):
        x = for_batch(x, axis, size.times) if isinstance(size, BatchSize) else x
        if isinstance(size, Length) and x.rate == 0:
            x = spread("expand", x, axis, size)
    each = next(
        (i for i, (s, d) in enumerate(zip(sizes, x.dims)) if isinstance(s, Length) and type(d) is int), None
    )
    if each is not None and (deferred := hook.lowered("broadcast", "expand", x, each)) is not None:
        return deferred.expand(*sizes)
    x = x.in_order()
    features = []
    for size, d in zip(sizes, x.dims):
        if isinstance(d, str):
            if not (isinstance(size, int) and size == -1) and size != x._token(d):
                _refuse(x, f"expand along {d}", "give x.size() of it, or -1")
        else:
            features.append(x.features[d] if isinstance(size, int) and size == -1 else int(size))
    return x if tuple(features) == x.features else x._operate("expand", {"shape": features})


_OF_ONE = ("max", "min", "argmax", "argmin")


def reduce(x: StreamTensor, kind: str, axes: Sequence[int], keepdim: bool, options: dict[str, Any]) -> Any:
    if (found := hook.lowered("reduce", x, kind, axes, keepdim, options)) is not None:
        return found
    roles = [x.dims[a] for a in axes]
    of_all = kind in ("all", "any") and len(axes) == x.ndim
    if any(isinstance(r, str) and r != "L" for r in roles) or (of_all and "B" not in x.roles):
        advice = "keep B, as in x.mean((1, 2)), or combine streams outside the forward"
        if x.dtype == dtypes.bool:
            advice += f"; an if that skips experts without frames is left out: {PLACES.words[1]}"
        refusing = partial(_refuse, x, f"{kind} over the batch", advice, user_line())
        return Verdict.of(x, kind, refusing) if of_all else refusing()
    if options.get("dtype") is not None:
        x = x.to(options["dtype"])
    if kind in OF_FLOATS:
        dtypes.require_float(kind, x.dtype)
    if kind in _OF_ONE and len(axes) != 1:
        raise ShapeError(f"{kind}: expected one dimension, got {len(axes)} of a stream {x.roles}")
    if kind in ("max", "min"):
        places = reduce(x, f"arg{kind}", axes, keepdim, {})
        (axis,), whole = axes, roles == ["L"]
        return Extreme(
            chosen(x, kind, axis, keepdim) if whole else reduce(x, f"a{kind}", axes, keepdim, {}), places
        )
    if "L" in roles:
        return reduce_stream(x, kind, axes, keepdim, options)
    return over_features(x, kind, axes, keepdim, options)


_CAT = "F.pad adds frames; cat works along features, and puts first and last frames of streams beside others"
#: The most streams that the operator `cat` takes.
_MOST_JOINED = 16


def cat(tensors: Sequence[StreamTensor], axis: int) -> StreamTensor:
    first = tensors[0]
    if isinstance(first.dims[axis], str):
        _refuse(first, f"cat along {first.dims[axis]}", _CAT)
    if len(tensors) == 1:
        return first.with_dims(first.dims, first.names)
    dtype = dtypes.common("cat", [t.dtype for t in tensors])
    parts = [t.to(dtype).in_order() for t in tensors]
    if any(
        [isinstance(d, str) and d for d in p.dims] != [isinstance(d, str) and d for d in parts[0].dims]
        for p in parts
    ):
        raise ShapeError.here(f"cat: dimensions {[p.roles for p in parts]} don't line up")
    feature, dims = parts[0].dims[axis], parts[0].dims
    while len(parts) > 1:
        groups = [parts[i : i + _MOST_JOINED] for i in range(0, len(parts), _MOST_JOINED)]
        joined = [hook.one("cat", {"axis": feature}, g, (), dims) if len(g) > 1 else g[0] for g in groups]
        parts = [t.with_dims(dims) for t in joined]
    return parts[0].with_dims(dims, first.names)


def extend(tensors: Sequence[Any], axis: int) -> StreamTensor:
    """Return ``cat`` along L of constants, a stream and constants: the stream padded by them."""
    at = [i for i, t in enumerate(tensors) if getattr(t, "is_stream", False)]
    x: StreamTensor = tensors[at[0]]
    if len(at) > 1:
        _refuse(x, "cat along L", _CAT)
    x = x.in_order()
    order = [x.dims.index("L"), *(x.dims.index(d) for d in range(len(x.dims)) if d in x.dims)]
    frames: list[list[Any]] = [[], []]
    for i, t in enumerate(tensors):
        if i == at[0]:
            continue
        constant = value_of(t)
        batch = [t.batch_axis] if is_constant(t) else [i for i, d in enumerate(x.dims) if d == "B"]
        sizes = [1 if d == "B" else n if d == "L" else x.features[d] for d, n in zip(x.dims, constant.shape)]
        if list(constant.shape) != sizes or constant.ndim != x.ndim or batch != [x.dims.index("B")]:
            raise ShapeError.here(f"cat: {tuple(constant.shape)} doesn't line up with a stream {x.roles}")
        if constant.shape[axis]:
            frames[i > at[0]].append(constant.permute(x.dims.index("B"), *order)[0].to(x.dtype))
    if not any(frames):
        return x
    pads: dict[str, Any] = {name: sum(map(len, parts)) for name, parts in zip(("left", "right"), frames)}
    values = np.unique(np.concatenate([t.numpy().reshape(-1) for parts in frames for t in parts]))
    given = [t for parts in frames for t in parts]
    if len(values) > 1 or any(t._learned for t in given):
        weights = [given[0]._cat(given, 0) if len(given) > 1 else given[0]]
    else:
        pads, weights = {**pads, "value": float(values[0])}, []
    return x._operate("pad", pads, weights)


def _by_matrices(x: StreamTensor, y: StreamTensor) -> Any:
    """Return the product of matrices, or vectors, that are both of a frame."""
    alike = x.ndim == y.ndim > 2 and dtypes.is_float(x.dtype) and not (is_static(x) or is_static(y))
    if alike:
        a, b = x.in_order(), y.in_order()
        alike = a.dims == b.dims and a.features[:-2] == b.features[:-2] and a.features[-1] == b.features[-2]
        if alike and min(*a.features[-2:], b.features[-1]) > 1:
            return hook.one("bmm", {}, [a, b], (), (..., 0, 1))
    return (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2)


def matmul(x: StreamTensor, other: Any, reverse: bool) -> Any:
    if (found := hook.lowered("product", x, other, reverse)) is not None:
        return found
    if isinstance(other, StreamTensor):
        first, second = (other, x) if reverse else (x, other)
        axes = (*first.dims[-2:], *second.dims[-2:])
        once = any(is_static(t) and "L" not in t.dims for t in (x, other))
        summed = (*first.dims[-1:], *second.dims[-2:-1])
        if "B" not in axes and ("L" not in axes or (once and "L" not in summed)):  # a frame's, or a stream's, own
            return _by_matrices(first, second)
    reason = why_not_matmul(x, other, reverse)
    if reason is not None:
        _refuse(x, f"this matrix product {reason}", "x @ W and W @ x mix features by a constant matrix W")
    return product(x, other, reverse)


def _narrow(x: StreamTensor, axis: int, item: slice) -> StreamTensor:
    size = x.features[axis]
    start, stop, step = item.indices(size)
    if step < 1:
        _refuse(x, "a slice with a negative step", "use a positive one")
    length = max(0, stop - start)
    if (start, length, step) == (0, size, 1):
        return x
    return x._operate("narrow", {"axis": axis, "start": start, "length": length, "step": step})


def _straight(x: StreamTensor, features: Sequence[int]) -> tuple[Any, ...]:
    """Return dimensions for features of these sizes: B and L first, then each feature in order."""
    return (*(d for d in x.dims if isinstance(d, str)), *range(len(features)))


def _take(x: StreamTensor, axis: int, array: NDArray[Any]) -> StreamTensor:
    """Return features at an array of indices, or at a mask of as many axes as it has."""
    mask = array.dtype == np.bool_
    behind = axis + (array.ndim if mask else 1)
    before, taken, after = x.features[:axis], x.features[axis:behind], x.features[behind:]
    places = np.flatnonzero(array) if mask else array.ravel()
    shape = places.shape if mask else array.shape
    if mask and array.shape != taken:
        raise ShapeError.here(f"a mask of shape {array.shape} over features {taken}")
    if not len(places):
        _refuse(x, "an empty index array over features", "pick at least one")
    size = math.prod(taken)
    merged = (*before, size, *after)
    x = reshape_features(x, merged, _straight(x, merged))
    out = index_features(x, axis, [_from_front(int(p), size) for p in places])
    shown = (*before, *shape, *after)
    return reshape_features(out, shown, _straight(x, shown))


def index_features(x: StreamTensor, axis: int, index: Any) -> StreamTensor:
    """Return ``x.index_select`` along a stored feature axis; `index` counts from 0."""
    at = np.asarray(index, np.int64)
    if np.array_equal(at, np.arange(x.features[axis])):
        return x
    step = int(at[1] - at[0]) if len(at) > 1 else 1
    if step > 0 and np.array_equal(at, at[0] + step * np.arange(len(at))):
        return _narrow(x, axis, slice(int(at[0]), int(at[-1]) + 1, step))
    return x._operate("pick", {"axis": axis}, (constant_index(at.tobytes()),))


@lru_cache(maxsize=256)
def constant_index(data: bytes) -> Tensor:
    """Return indices as the same tensor each time."""
    return Tensor(np.frombuffer(data, np.int64))


def _from_front(index: int, size: int) -> int:
    """Return an index of features counted from the front."""
    if not -size <= index < size:
        raise ShapeError.here(f"index {index} is out of range for {size} features")
    return index % size
