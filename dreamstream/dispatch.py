"""The door: every layer, every functional call and every method that makes a value goes through :func:`apply`.

It alone chooses how an operator runs: on plain tensors at once (offline; by NumPy what has no kernel), inside an
online forward through the entry that the tensors belong to (a session's call, or a capture), outside one on the
frames at hand. No operator is coded once per mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any

import numpy.typing as npt

from . import autograd
from .array import hook
from .array.batch_folding import by_lane
from .array.derivatives import record
from .array.forward import for_batch, held, is_static
from .array.in_place import view_of
from .array.loops import Body, mixed
from .array.masked_select import Picked
from .array.merged_dimensions import Merged
from .array.over_time import spread_to
from .array.plain import ARRAYS
from .array.softmax_pooling import Weights, weighted
from .array.stream_tensor import StreamTensor
from .array.tensor import Tensor
from .array.writing import of_constant
from .errors import ModeError, NotStreamableError, ShapeError, StreamMismatchError
from .plain_operators import (
    back_of,
    offline,
    operator,
    require_one_float,
    run_whole,
    signature,
    weight_of as _weight,
)
from .source_line import user_line
from .stream.course import Recording, is_number, repeat, same_entry, seen
from .stream.edge import Edge, Request
from .stream.rules import Length, holds, joined, lanes_of, require_equal_rates, require_same, same_lineage
from .stream.where import refuse_offline

Dims = tuple[Any, ...]
"""What each visible dimension is: ``"B"`` (streams), ``"L"`` (stream axis), ``"B_L"`` (both joined), or
an int: that feature axis of the stored value ``[frames][features...]``."""

Array = npt.NDArray[Any]


def apply(
    name: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Any],
    weights: Sequence[Any] = (),
    dims: Dims | None = None,
) -> tuple[Tensor, ...]:
    """Run the operator `name` on tensors.

    Parameters
    ----------
    name, attributes
        An operator of the C registry, or of plain tensors one of `dreamstream.array.plain`, and its attributes.
    inputs
        Tensors: all plain, or StreamTensors of one entry.
    weights
        Constant tensors in the operator's order, None where an optional one is absent.
    dims
        What the dimensions of a *plain* input mean, and what those of a StreamTensor must be:
        ``("B", 0, "L")`` for a convolution, ``("B", "L", 0)`` for an LSTM, ``(..., 0)`` where the last
        axis is the feature axis and all others are frames, ``(..., 0, 1)`` for the last two. The numbers
        say in which order features are stored: ``("B", 1, "L", 0)`` for images of (channels, time,
        frequency), whose channels are stored last. None: elementwise, operands broadcast as in NumPy.
        Without ``"B"`` a plain input is one sequence.

    Returns
    -------
    tuple of Tensor
        One per output, with the dimensions in the input's order (an output without L lacks it; where the
        number of feature axes differs they come last).
    """
    for x in inputs:
        if x.is_stream:
            kinds = [*map(type, inputs)]
            if Picked in kinds or Merged in kinds:
                noted: Any = next(y for y in inputs if type(y) in (Picked, Merged))
                return tuple(noted.by_element(apply, name, attributes, inputs, weights, dims))
            noted = weighted(name, attributes, inputs, weights) if Weights in kinds else None
            if noted is not None:
                return (noted,)
            entry = None if x.edge is None else x.edge.entry
            return _streaming(name, attributes, inputs, weights, dims, entry)
    if dims is None and name in ARRAYS:
        row = ARRAYS[name]
        out = Tensor._plain(row.of(*[x.numpy() for x in inputs], **attributes))
        if row.views:
            view_of(inputs[0], out)
        return (record(name, row.rules, out, inputs, attributes),)
    return offline(name, dict(attributes), inputs, weights, dims)


# ---------------------------------------------------------------- streams
def _streaming(
    name: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Any],
    weights: Sequence[Any],
    dims: Dims | None,
    entry: Any,
) -> tuple[StreamTensor, ...]:
    """Go the course of the call before where it asked for the same; else find the way, and leave a course."""
    courses = None if entry is None else entry.courses
    if courses is None or entry.recording is not None:
        return _found(name, attributes, inputs, weights, dims)
    try:
        arrays = [w if w is None else w._array for w in weights]
        asked = [name, attributes, dims, *map(seen, inputs)]
    except AttributeError:  # a plain tensor among streams, or a stream for a weight
        return _found(name, attributes, inputs, weights, dims)
    at = entry.n_done  # what was written into runs operators when it is looked at
    course = courses.get(at)
    if course is not None and course.asked == asked and same_entry(inputs):
        given = course.weights if all(map(is_, course.held, arrays)) else None
        if given is not None:
            if autograd.CONSTANTS.get() is not None:  # where gradients of these arrays go is noted anew
                _constants(name, weights, dims or (), inputs)
            return tuple(repeat(course, entry, inputs, given))
        if course.known_as == list(map(entry.known_as, arrays)):
            return tuple(repeat(course, entry, inputs, _constants(name, weights, dims, inputs)))
    entry.recording = recording = Recording(inputs)
    try:
        outputs = _found(name, attributes, inputs, weights, dims)
    finally:
        entry.recording = None
    asked[1] = dict(attributes)
    known_as = list(map(entry.known_as, arrays))
    held = [a if isinstance(k, str) or is_number(a) else None for a, k in zip(arrays, known_as)]
    course = recording.course(asked, held, outputs, known_as)
    if course is not None:
        courses[at] = course
    return outputs


def _constants(name: str, weights: Sequence[Any], dims: Dims | None, inputs: Sequence[Any]) -> list[Any]:
    """Return constants as the operator takes them."""
    if dims is not None:
        return [_weight(w) for w in weights]
    model = max(inputs, key=_extent)
    return [_constant(name, w, model) for w in weights]


def _found(
    name: str, attributes: Mapping[str, Any], inputs: Sequence[Any], weights: Sequence[Any], dims: Dims | None
) -> tuple[StreamTensor, ...]:
    for x in inputs:
        if not x.is_stream:
            raise NotStreamableError.here(
                f"{name}: a plain tensor of shape {x.shape} meets streams",
                "; constants serve in arithmetic, where their extent along B and L is 1",
            )
    entries = [x.edge.entry for x in inputs if x.edge is not None]
    if any(e is not entries[0] for e in entries):
        inputs = _within_loop(inputs, entries)
    tensors: list[Any] = list(inputs)
    if dims is not None:
        tensors = [_stored(name, x, dims) for x in inputs]
    elif any(x.dims != inputs[0].dims for x in inputs):
        tensors = [x.in_order() for x in inputs]
    if dims is None and any(map(is_static, tensors)):
        tensors = _held(tensors)
    tensors = list(_brought_together(name, tensors, dims is None))
    model = tensors[0]
    if dims is None:
        model = max(tensors, key=_extent)
        if any("B" not in x.dims for x in tensors):
            tensors = [_with_batch(x, model) for x in tensors]
        for x in tensors:
            _require_aligned(name, x, model)
    require_one_float(name, [x.dtype for x in tensors] + [w.dtype for w in weights if w is not None])
    given = weights
    if model.edge is None and autograd.is_grad_enabled():
        with autograd.noting() as noted:
            weights = _constants(name, weights, dims, tensors)
    else:
        noted, weights = {}, _constants(name, weights, dims, tensors)
    lead = model.dims[: len(model.dims) - len(dims) + 1] if dims and Ellipsis in dims else ()
    if dims is not None and model.lanes:
        laned = by_lane(name, attributes, tensors, given)
        if laned is not None:
            return tuple(_led(lead, model.made(y.value, y.edge)) for y in laned)
    if model.edge is None:
        return tuple(_led(lead, y) for y in _outside(name, dict(attributes), tensors, weights, model, noted))
    if any(x.edge is None or x.edge.entry is not model.edge.entry for x in tensors):
        raise StreamMismatchError.here(
            f"{name}: tensors of different entries meet",
            "; what one forward returned can't be combined inside another",
        )
    results = run(Request(name, attributes, [x.edge for x in tensors], [x.value for x in tensors], weights))
    return tuple(_led(lead, model.made(value, edge)) for value, edge in results)


def _led(lead: Dims, out: StreamTensor) -> StreamTensor:
    """Return an output with the dimensions that stood before the operator's own in front again."""
    if out.dims[: len(lead)] == lead:
        return out
    n_lead = sum(isinstance(d, int) for d in lead)
    return out.with_dims((*lead, *range(n_lead, len(out.features))))


def run(request: Request) -> list[tuple[Any, Edge]]:
    """Run an operation inside a forward: its operator, refusals, syncs, then the entry."""
    name, edges = request.name, request.edges
    entry = edges[0].entry
    try:
        op = operator(name, request.attributes, [e.signature for e in edges], request.weights)
    except StreamMismatchError as error:
        require_equal_rates([e.rate for e in edges], where := f"{name} at {user_line()}")
        raise StreamMismatchError(str(error).replace(name, where, 1)) from None
    except ShapeError as error:
        _advise(error, edges[0], request.weights)
        raise
    request.op = op
    if op.whole:
        if not edges[0].may_wait:
            raise NotStreamableError.here(
                name,
                ' needs the whole stream before it can give a frame; patch or compile with unstreamable="buffer" '
                "to wait for the end",
            )
        _limit(request, entry.buffer_limit, "buffer")
    elif name == "attention" and request.attributes.get("left", -1) < 0:
        _limit(request, entry.context_limit, "context")
    if op.lockstep and len(request.edges) > 1:
        _sync(request)
    return entry.run(request)


def _limit(request: Request, frames: int | None, of: str) -> None:
    """Refuse streams that are longer than so many frames before an operation that keeps all."""
    if frames is None:
        return
    edges = request.edges
    limited: list[tuple[Any, Edge]] = []
    for edge, value in zip(edges, request.values):
        if edge.rate == 0 or edge.line.static:
            limited.append((value, edge))
            continue
        limit = Request("limit", {"frames": frames, "of": of}, [edge], [value])
        limit.op = operator(limit.name, limit.attributes, [edge.signature], ())
        limited += edge.entry.run(limit)
    request.edges = [*(edge for _, edge in limited), *edges[len(limited) :]]
    request.values = [value for value, _ in limited]


def _advise(error: ShapeError, edge: Edge, weights: Sequence[Any]) -> None:
    """Say what to do where streams don't fit a weight because there are none, or because they lie across."""
    if edge.counts is None or len(edge.features) != 1 or not weights or weights[0] is None:
        return
    lengths = {int(n) for n in edge.counts[:, 2] - edge.counts[:, 0]}
    if not lengths:
        error.add("there are no streams: leave out the call, or give zeros of shape (0, features, 0)")
    elif lengths <= {int(n) for n in weights[0].shape[:2]}:
        error.add("chunks are (features, L) here: transpose those that are (L, features)")


def _sync(request: Request) -> None:
    """Bring inputs that progress differently together: one sync per value, decided by lineage alone."""
    edges = request.edges
    if len({e.line.static for e in edges}) > 1:
        raise NotStreamableError.here(
            f"{request.name}: frames of an input that is given once meet those of a stream, whose length is "
            "another; attend to it, or take what is one for all, as x.mean(dim)"
        )
    if any(e.rate != edges[0].rate for e in edges):
        require_equal_rates([e.rate for e in edges], f"{request.name} at {user_line()}")
    if same_lineage(e.cid for e in edges):
        return
    cid = joined(e.cid for e in edges)
    synced: list[tuple[Any, Edge]] = []
    for edge, value in zip(edges, request.values):
        if edge.cid == cid:
            synced.append((value, edge))
            continue
        group = [edge, *{e.cid: e for e in edges if e.cid != edge.cid}.values()]
        sync = Request("sync", {}, group, [value], cid=cid)
        sync.op = operator("sync", {}, [e.signature for e in group], ())
        synced += edge.entry.run(sync)
    request.values, request.edges = [v for v, _ in synced], [e for _, e in synced]


def _stored(name: str, x: StreamTensor, dims: Dims) -> StreamTensor:
    """Return the tensor stored as `dims` wants it; what its dimensions are must fit."""
    if "B" in dims and len(dims) == len(x.dims) and not any(isinstance(d, str) and holds(d, "B") for d in x.dims):
        x = for_batch(x, dims.index("B"))
    own = tuple(["F" if isinstance(d, int) else _streams(d) for d in x.dims])
    if Ellipsis not in dims:
        wanted = tuple("F" if isinstance(d, int) else _streams(d) for d in dims)
        if own != wanted:
            raise ShapeError.here(
                f"{name}: expected dimensions {wanted}, got a stream with {x.roles}; transpose it, or name the "
                "input's dimensions so, in the spec or by names="
            )
        return x.in_order([d for d in dims if isinstance(d, int)])
    n = len(dims) - 1
    if len(own) < n:
        raise ShapeError.here(f"{name}: expected {n} dimensions or more, got {x.roles}")
    mixed = [d for d in own[len(own) - n :] if d != "F"]
    if mixed:
        raise NotStreamableError.here(
            name,
            f" works along the last {n} dimension(s) of {x.roles} and would mix {' and '.join(mixed)}; transpose "
            "the features to the end",
        )
    lead = own.count("F") - n
    return x.in_order([*range(lead), *(lead + d for d in dims if isinstance(d, int))])


def _streams(dim: Any) -> Any:
    """Return B for B that is joined with features: every lane is as a stream."""
    return "B" if isinstance(dim, str) and holds(dim, "B") and not holds(dim, "L") else dim


def _within_loop(inputs: Sequence[Any], entries: Sequence[Any]) -> Sequence[Any]:
    """Give what is given once to the frame of a loop that it meets; refuse other streams there."""
    body = next((e for e in entries if isinstance(e, Body)), None)
    if body is None:
        return inputs
    loop, met = body.loop, list(inputs)
    for i, x in enumerate(met):
        if x.edge is not None and x.edge.entry is loop.entry and is_static(x) and "L" not in x.dims:
            met[i] = loop.input((x.edge, x.value, "once"), partial(held, x, loop.clock, -1))
    if any(x.edge is not None and x.edge.entry is not body for x in met):
        mixed(entries)
    return met


def _held(tensors: Sequence[StreamTensor]) -> list[StreamTensor]:
    """Give what is given once to the frames that it meets: operands broadcast from the right."""
    framed = [x for x in tensors if "L" in x.dims]
    if not framed:
        return list(tensors)
    model = max(framed, key=lambda x: len(x.dims))
    at = model.dims.index("L") - len(model.dims)
    once = [is_static(x) and "L" not in x.dims for x in tensors]
    return [held(x, model.edge, max(len(x.dims) + at, -1)) if o else x for x, o in zip(tensors, once)]


def _brought_together(name: str, tensors: Sequence[Any], elementwise: bool) -> Sequence[Any]:
    """Return tensors of frames, or of values of whole streams: those wait for the end where they meet frames."""
    pooled = [x.rate == 0 for x in tensors]
    if len({*pooled}) < 2:
        return tensors
    if not elementwise:
        raise ShapeError.here(
            f"{name}: a value of the whole stream, {tensors[pooled.index(True)].roles}, meets frames, "
            f"{tensors[pooled.index(False)].roles}; it needs their length, as by .expand(...)"
        )
    model = max((x for x in tensors if x.rate != 0), key=lambda x: len(x.dims))
    return [spread_to(name, x, model) if x.rate == 0 else x for x in tensors]


def _extent(x: StreamTensor) -> tuple[int, int]:
    """By which an operand has the dimensions of the result: what all streams of a batch have alike lacks B."""
    return len(x.dims), x.lanes or int("B" in x.dims)


def _with_batch(x: StreamTensor, model: StreamTensor) -> StreamTensor:
    """Return an operand with B for its axis of one element that stands in B's place."""
    at = next((i for i, d in enumerate(model.dims) if _streams(d) == "B"), -1)
    own = at - (len(model.dims) - len(x.dims))
    return for_batch(x, own, lanes_of((model.dims[at],)) or 1) if at >= 0 <= own and x.edge is not None else x


def _require_aligned(name: str, x: StreamTensor, model: StreamTensor) -> None:
    """Operands broadcast from the right; B and L must meet their like (a table may lack a leading B)."""
    lead = len(model.dims) - len(x.dims)
    met = all(a == b for a, b in zip(x.dims, model.dims[lead:]) if isinstance(a, str) or isinstance(b, str))
    if not met or any(isinstance(d, str) and holds(d, "L") for d in model.dims[:lead]):
        raise ShapeError.here(
            f"{name}: dimensions {x.roles} don't line up with {model.roles}; B and L must stand in the same places"
        )


def _constant(name: str, weight: Any, model: StreamTensor) -> Any:
    """Return a constant operand with the features' shape: its extent along B and L must be 1."""
    if weight.is_stream:
        raise NotStreamableError.here("a stream can't serve as a weight")
    shape = tuple(weight.shape)
    if len(shape) > len(model.dims):
        raise ShapeError.here(f"{name}: a constant of shape {shape} meets {model.roles}")
    sizes = (1,) * (len(model.dims) - len(shape)) + shape
    for size, role in zip(sizes, model.dims):
        if isinstance(role, str) and size != 1:
            raise NotStreamableError.here(
                f"{name}: a constant of shape {shape} has extent {size} where the stream has {role}; it must be 1 "
                "there (x.size(L) indexes a table by position)"
            )
    features = [s for s, role in zip(sizes, model.dims) if not isinstance(role, str)]
    stored = [role for role in model.dims if isinstance(role, int)]
    order = [stored.index(i) for i in range(len(stored))]
    laid = weight if tuple(features) == shape else weight.reshape(features)  # without features a number
    return (laid if order == sorted(order) else laid.permute(order)).constant()


def _outside(
    name: str,
    attributes: dict[str, Any],
    tensors: Sequence[StreamTensor],
    weights: Sequence[Array | None],
    model: StreamTensor,
    noted: Mapping[int, Any],
) -> tuple[StreamTensor, ...]:
    """Frame by frame, on what the tensors hold."""
    if any(x.edge is not None for x in tensors):
        raise StreamMismatchError.here(f"{name}: a tensor from outside meets streams", "")
    refuse_offline(StreamTensor)
    require_same([x.meta for x in tensors], [x.starts for x in tensors], name)
    op = operator(name, attributes, [signature(x.value) for x in tensors], weights)
    if not op.framewise:
        raise ModeError(
            f"{name} on a StreamTensor needs what came before: it works inside an online module "
            "(ds.patch_module(model).online())"
        )
    places = None if op.constant else autograd.sources(tensors)
    of_weights = [autograd.of_constant(noted, w) for w in weights]
    if places is None and any(p is not None for p in of_weights):
        places = [None] * len(tensors)
    taped = places is not None and op.differentiable
    values = [x.value for x in tensors]
    results, _, known = run_whole(op, values, 1, [len(model.value)] * len(tensors), weights, taped)
    out = tuple(model.like(y) for y in results)
    if places is not None:
        places += of_weights
        read = [w for w in weights if w is not None and id(w) in noted]
        back = back_of(known, places, len(tensors)) if taped else f"{name} has no derivative yet"
        autograd.recorded(autograd.Record(name, places, back, read, len(out)), out)
    return out


# ---------------------------------------------------------------- tables
def table(tensor: Tensor, index: Any) -> StreamTensor:
    """Index a plain tensor with a Length: ``pe[:, :x.size(1)]`` is the rows at these frames' positions."""
    parts = index if isinstance(index, tuple) else (index,)
    n_axes = sum(p is not None and p is not Ellipsis for p in parts)
    if Ellipsis in [p for p in parts if p is not None and not isinstance(p, slice)]:
        at = next(i for i, p in enumerate(parts) if p is Ellipsis)
        parts = parts[:at] + (slice(None),) * (tensor.ndim - n_axes) + parts[at + 1 :]
    else:
        parts = parts + (slice(None),) * (tensor.ndim - n_axes)
    axes = [i for i, p in enumerate(parts) if isinstance(p, slice) and isinstance(p.stop, Length)]
    if len(axes) != 1 or not all(p is None or isinstance(p, (slice, int)) for p in parts):
        raise NotStreamableError.here("a table is indexed as pe[:x.size(L)] on one axis")
    part = parts[axes[0]]
    start = 0 if part.start is None else part.start
    if not isinstance(start, int) or start < 0 or part.step not in (None, 1):
        raise NotStreamableError.here("a table is read row by row, from a number on")
    length: Length = part.stop - start if start else part.stop
    whole = (*parts[: axes[0]], slice(start, None), *parts[axes[0] + 1 :])
    axis = sum(not isinstance(p, int) for p in parts[: axes[0]])
    array = tensor[whole]
    # In a table made for broadcasting, a first axis of extent 1 stands for B; any other does where it meets one.
    batch = 0 if axis and array.ndim > 2 and array.shape[0] == 1 else None
    rows = array.movedim(axis, 0) if batch is None else array.movedim(axis, 0).squeeze(1)
    edge = length.of
    assert isinstance(edge, Edge)
    ((value, out),) = run(Request("table", {"length": length.steps()}, [edge], [], [_weight(rows)]))
    features = iter(range(array.ndim))
    dims = tuple("L" if i == axis else "B" if i == batch else next(features) for i in range(array.ndim))
    return of_constant(StreamTensor.inside(value, dims, out))


hook.fill(apply, table, run)
