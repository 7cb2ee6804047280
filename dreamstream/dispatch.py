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

import numpy as np
import numpy.typing as npt

from . import autograd
from .array import hook
from .array.batch_folding import by_lane
from .array.deferred_stream import DeferredStream
from .array.derivatives import record
from .array.forward import for_batch, hold_for, is_static
from .array.in_place import view_of
from .array.loop_body import Body, mixed
from .array.lowerings import lowered
from .array.operators import operator, run, weight_of as _weight
from .array.over_time import spread_to
from .array.plain import ARRAYS
from .array.stream_tensor import StreamTensor
from .array.tensor import Tensor
from .errors import ModeError, NotStreamableError, ShapeError, StreamMismatchError
from .plain_operators import back_of, offline, require_one_float, run_whole, signature
from .stream.edge import Request
from .stream.place import Recording, is_number, repeat, same_entry, seen
from .stream.rules import holds, lanes_of, require_same
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
    """Run the operator `name` on tensors; return one per output.

    The operator is one of the C registry, or of plain tensors one of `dreamstream.array.plain`. The inputs are all
    plain, or StreamTensors of one entry. Weights are in the operator's order, None where an optional one is
    absent.

    `dims` are what the dimensions of a *plain* input mean, and what those of a StreamTensor must be:
    ``("B", 0, "L")`` for a convolution, ``("B", "L", 0)`` for an LSTM, ``(..., 0)`` where the last axis is the
    feature axis and all others are frames, ``(..., 0, 1)`` for the last two. The numbers say in which order
    features are stored: ``("B", 1, "L", 0)`` for images of (channels, time, frequency), whose channels are stored
    last. None is for elementwise operators, whose operands broadcast as in NumPy. Without ``"B"`` a plain input is
    one sequence.

    Outputs have their dimensions in the input's order (an output without L lacks it; where the number of feature
    axes differs they come last).
    """
    for x in inputs:
        if x.is_stream:
            for y in inputs:
                if isinstance(y, DeferredStream):
                    made = y.by_element(apply, name, attributes, inputs, weights, dims)
                    if made is not None:
                        return made
            entry = None if x.edge is None else x.edge.entry
            return _streaming(name, attributes, inputs, weights, dims, entry)
    missing = any(isinstance(x, Tensor) and x._missing for x in inputs)
    if dims is None and name in ARRAYS:
        row = ARRAYS[name]
        missing = missing or (name == "unfold" and inputs[0].shape[attributes["axis"]] < attributes["size"])
        array = row.of(*[x.numpy() for x in inputs], **attributes)
        out = Tensor._plain(_of_missing(name, array, attributes) if missing else array)
        if row.views:
            view_of(inputs[0], out)
        emptied = out.shape != array.shape  # of which no gradient goes back
        outputs: tuple[Tensor, ...] = (out if emptied else record(name, row.rules, out, inputs, attributes),)
    else:
        outputs = offline(name, dict(attributes), inputs, weights, dims)
    for y in outputs if missing else ():
        y._missing = True
    return outputs


def _of_missing(name: str, array: Array, attributes: Mapping[str, Any]) -> Array:
    """Return what follows from frames that can't be: no frames, and of all frames NaN, as at a stream's end."""
    if not array.size:
        return array
    if name == "cat":
        return array.take([], attributes["axis"])
    return np.full_like(array, np.nan) if array.dtype.kind == "f" else array


# ---------------------------------------------------------------- streams
def _streaming(
    name: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Any],
    weights: Sequence[Any],
    dims: Dims | None,
    entry: Any,
) -> tuple[StreamTensor, ...]:
    """Repeat what the call before did here where it asked for the same; else find out, and note it."""
    places = None if entry is None else entry.places
    if places is None or entry.recording is not None:
        return _found(name, attributes, inputs, weights, dims)
    try:
        arrays = [w if w is None else w._own for w in weights]
        asked = [name, attributes, dims, *map(seen, inputs)]
    except AttributeError:  # a plain tensor among streams, or a stream for a weight
        return _found(name, attributes, inputs, weights, dims)
    at = entry.n_done  # what was written into runs operators when it is looked at
    place = places.get(at)
    if place is not None and place.asked == asked and same_entry(inputs):
        given = place.weights if all(map(is_, place.held, arrays)) else None
        if given is not None:
            if autograd.CONSTANTS.get() is not None:  # where gradients of these arrays go is noted anew
                _constants(name, weights, dims or (), inputs)
            return tuple(repeat(place, entry, inputs, given))
        if place.known_as == list(map(entry.known_as, arrays)):
            return tuple(repeat(place, entry, inputs, _constants(name, weights, dims, inputs)))
    entry.recording = recording = Recording(inputs)
    try:
        outputs = _found(name, attributes, inputs, weights, dims)
    finally:
        entry.recording = None
    asked[1] = dict(attributes)
    known_as = list(map(entry.known_as, arrays))
    held = [a if isinstance(k, str) or is_number(a) else None for a, k in zip(arrays, known_as)]
    place = recording.place_of(asked, held, outputs, known_as)
    if place is not None:
        places[at] = place
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
            met[i] = loop.input((x.edge, x.value, "once"), partial(hold_for, x, loop.clock, -1))
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
    return [hold_for(x, model.edge, max(len(x.dims) + at, -1)) if o else x for x, o in zip(tensors, once)]


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
    if not shape:  # it takes the element type of what it meets, as torch says
        return weight.constant()
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


hook.fill(apply, lowered)
