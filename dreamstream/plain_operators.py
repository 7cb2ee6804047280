"""Operators on plain tensors: whole sequences, at once.

An operator gets the sequences as rows of frames, and gives frames; here they are laid out so, and brought back
into the order of the caller's dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _core, autograd
from .array.derivatives import fitted
from .array.dimension_arguments import in_c_order
from .array.draws import drop_probability, fresh_keys
from .array.dtypes import name_of
from .array.operators import operator, weight_of
from .array.plain import INTEGERS, of_integers
from .array.tensor import Tensor
from .errors import DTypeError, ShapeError

Dims = tuple[Any, ...]
Array = npt.NDArray[Any]


# ---------------------------------------------------------------- plain tensors
def run_whole(
    op: _core.Op,
    values: Sequence[Array],
    n_rows: int,
    n_frames: Sequence[int],
    weights: Sequence[Array | None],
    record: bool = False,
) -> tuple[list[Array], list[int], Any]:
    """Run an operator on whole sequences, of one length for each input.

    Returns its outputs, their lengths, and if asked for what backward reads. A length of -1: there are no such
    frames, since torch refuses what they would follow from.
    """
    row = [np.array([[0, -1, max(n, 0), n]], np.int64) for n in n_frames]  # -1: it begins here
    ended = np.ones(n_rows, bool)
    out = op.counts(row, ended[:1] if n_rows else np.ones(1, bool))
    inputs, outputs = row, out
    if n_rows != 1:
        inputs, outputs = ([np.repeat(c, n_rows, 0) for c in counts] for counts in (row, out))
    run: Any = op.run
    p = drop_probability(op.name)
    drop = ((p, fresh_keys(n_rows)),) if p else ()
    made = run(values, inputs, outputs, ended, None, weights, True, (), None, record, *drop)
    return made[0], [int(c[0, 3]) for c in out], made[2] if record else None


def signature(array: Array) -> _core.Signature:
    return (name_of(array.dtype), array.shape[1:], 1, 1)


def offline(
    name: str, attributes: dict[str, Any], inputs: Sequence[Tensor], weights: Sequence[Any], dims: Dims | None
) -> tuple[Tensor, ...]:
    if dims is None:
        return (elementwise(name, attributes, inputs, weights),)
    constants = [weight_of(w) for w in weights]
    arrays = [x.numpy() for x in inputs]
    shape = arrays[0].shape
    roles, order, alike, *_ = _layout(name, dims, shape)
    if any(a.ndim != len(roles) or any(a.shape[i] != shape[i] for i in alike) for a in arrays[1:]):
        raise ShapeError(f"{name}: the inputs differ in shape: {[a.shape for a in arrays]}")
    laid = [_layout(name, dims, a.shape) for a in arrays]
    n_rows, n_frames = laid[0].n_rows, [each.n_frames for each in laid]
    known_lengths = [-1 if x._missing and not n else n for x, n in zip(inputs, n_frames)]
    frames = [in_c_order(a.transpose(order)).reshape(each.stored) for a, each in zip(arrays, laid)]
    op = operator(name, attributes, [signature(f) for f in frames], constants)
    places = None if op.constant else autograd.sources([*inputs, *weights])
    taped = places is not None and op.differentiable
    outputs, lengths, known = run_whole(op, frames, n_rows, known_lengths, constants, taped)
    views = [
        partial(_unfold, n_frames=max(n, 0), pooled=rate_num == 0, roles=roles, shape=shape, n_rows=n_rows)
        for n, (_, _, rate_num, _) in zip(lengths, op.outputs)
    ]
    made = tuple(Tensor._plain(in_c_order(v(out)), n < 0) for v, out, n in zip(views, outputs, lengths))
    if places is not None:
        back: Any = f"{name} has no derivative yet"
        if taped:
            back = _back(known, places, views, outputs, [a.shape for a in arrays], order)
        read = [a for a in (*known.reads, *constants) if a is not None] if taped else ()
        autograd.recorded(autograd.Record(name, places, back, read, len(made)), made)
    return made


def back_of(known: _core.Record, places: Sequence[Any], n_inputs: int) -> autograd.Back:
    """Return what makes gradients of an operator's inputs and weights, as they are stored."""
    wanted = [p is not None for p in places]

    def back(*slopes: Array | None) -> list[Array | None]:
        given = [None if g is None else np.ascontiguousarray(g) for g in slopes]
        inner, of_weights, _ = known.backward(given, wanted[:n_inputs], wanted[n_inputs:], None, False)
        return [*inner, *of_weights]

    return back


def _back(
    known: _core.Record,
    places: Sequence[Any],
    views: Sequence[Callable[[Array], Array]],
    outputs: Sequence[Array],
    shapes: Sequence[tuple[int, ...]],
    order: Sequence[int],
) -> autograd.Back:
    """Return what makes gradients of an operator's inputs and weights, as they are seen."""
    like = [(out.shape, out.dtype) for out in outputs]
    n, turn, stored = len(shapes), np.argsort(order), back_of(known, places, len(shapes))

    def back(*slopes: Array | None) -> list[Array | None]:
        made = stored(*[None if g is None else _laid(view, own, g) for view, own, g in zip(views, like, slopes)])
        frames = [None if g is None else g.reshape([s[i] for i in order]) for g, s in zip(made, shapes)]
        return [*(None if g is None else g.transpose(turn) for g in frames), *made[n:]]

    return back


def _laid(look: Callable[[Array], Array], like: tuple[Any, Any], g: Array) -> Array:
    """Return the gradient of an operator's output, of that of the output as it is seen."""
    out = np.empty(*like)
    look(out)[...] = g  # a view
    return out


class _Layout(NamedTuple):
    """How a plain tensor is laid out in frames."""

    roles: Dims  #: For every dimension "B", "L", a feature axis, or Ellipsis.
    order: tuple[int, ...]  #: The dimensions as frames have them.
    alike: tuple[int, ...]  #: The dimensions that all inputs have in one size.
    n_rows: int  #: How many sequences there are.
    n_frames: int  #: How many frames each has.
    stored: tuple[int, ...]  #: The shape of the frames of all rows.


@lru_cache(maxsize=1024)
def _layout(name: str, dims: Dims, shape: tuple[int, ...]) -> _Layout:
    n_features = sum(isinstance(d, int) for d in dims)
    roles = tuple(dims)
    if Ellipsis in dims:
        if len(shape) < n_features:
            raise ShapeError(f"{name}: expected {n_features} dimensions or more, got shape {shape}")
        roles = (Ellipsis,) * (len(shape) - n_features) + tuple(d for d in dims if d is not Ellipsis)
    if len(roles) != len(shape):
        raise ShapeError(f"{name}: expected {len(dims)} dimensions, got shape {shape}")
    alike = [i for i, r in enumerate(roles) if not isinstance(r, int) and (r, name) != ("L", "cross_attention")]
    order = [i for i, r in enumerate(roles) if r is Ellipsis]
    order += [roles.index(r) for r in ("B", "L", *range(n_features)) if r in roles]
    n_rows = shape[roles.index("B")] if "B" in roles else 1
    n_frames = prod(n for n, r in zip(shape, roles) if r == "L" or r is Ellipsis)
    stored = (n_rows * n_frames, *(shape[roles.index(i)] for i in range(n_features)))
    return _Layout(roles, tuple(order), tuple(alike), n_rows, n_frames, stored)


def _unfold(
    out: Array, n_frames: int, pooled: bool, roles: tuple[Any, ...], shape: tuple[int, ...], n_rows: int
) -> Array:
    """Return a view of an operator's output in the order of the caller's dimensions."""
    features = out.shape[1:]
    n_before = sum(isinstance(r, int) for r in roles)
    if Ellipsis in roles:
        stored = out.reshape(*(s for s, r in zip(shape, roles) if r is Ellipsis), *features)
        lead = len(roles) - n_before
        if len(features) != n_before or roles[lead:] == tuple(range(n_before)):
            return stored
        places = [i if r is Ellipsis else lead + r for i, r in enumerate(roles)]
        return np.transpose(stored, places)
    if pooled and not len(out):  # what can't be made of no frames
        out = np.full((n_rows, *features), np.nan, out.dtype)
    streams = [r for r in ("B", "L") if r in roles and not (pooled and r == "L")]
    sizes = {"B": n_rows, "L": n_frames}
    stored = out.reshape((*(sizes[r] for r in streams), *features))
    axes: list[Any] = [*streams, *range(len(features))]
    kept = [r for r in roles if r in axes]
    if len(features) != n_before:
        kept = [r for r in roles if isinstance(r, str) and r in axes] + list(range(len(features)))
    return np.transpose(stored, [axes.index(r) for r in kept])


def _operands(
    attributes: Mapping[str, Any], inputs: Sequence[Any], weights: Sequence[Any]
) -> list[tuple[int, Any]]:
    """Return the operands in their order, each with 0 (an input) or 1 (a constant)."""
    order = attributes.get("order") or [0] * len(inputs)
    queues = [list(inputs), list(weights)]
    return [(kind, queues[kind].pop(0)) for kind in order]


@lru_cache(maxsize=1024)
def _meeting(name: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Return the shape in which operands meet, that of a frame, and for each whether it is a constant (1).

    Constants are what broadcasts over the leading axes; the rest are runs of frames.
    """
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"{name}: shapes {[*shapes]} don't broadcast") from None
    trail = min((s for s in shapes if s != shape), key=len, default=())
    if 0 in trail or any(s not in (shape, trail) for s in shapes) or shape[len(shape) - len(trail) :] != trail:
        trail = ()
    return shape, trail, tuple(int(len(shapes) > 1 and s == trail and s != shape) for s in shapes)


def elementwise(name: str, attributes: dict[str, Any], inputs: Sequence[Tensor], weights: Sequence[Any]) -> Tensor:
    operands = _operands(attributes, inputs, weights) if len(inputs) + len(weights) > 1 else [(0, inputs[0])]
    arrays = [x.numpy() for _, x in operands]
    require_one_float(name, [a.dtype for a in arrays])
    if arrays[-1].dtype.kind != "f" and name in INTEGERS:
        return Tensor._plain(of_integers(name, arrays))
    shape, trail, order = _meeting(name, tuple([a.shape for a in arrays]))
    values, constants = [], []
    for a, constant in zip(arrays, order):
        if constant:
            constants.append(np.asarray(a, order="C"))
        else:
            full = np.ascontiguousarray(a if a.shape == shape else np.broadcast_to(a, shape))
            values.append(full.reshape(-1, *trail))
    if len(arrays) > 1:
        attributes = {**attributes, "order": order}
    op = operator(name, attributes, [signature(v) for v in values], constants)
    kinds, shapes = order, [a.shape for a in arrays]
    places = None if op.constant else autograd.sources([x for _, x in operands])
    (out,), _, known = run_whole(op, values, 1, [len(v) for v in values], constants, places is not None)
    made: Tensor = Tensor._plain(out.reshape(shape))
    if places is not None:
        own = [[p for p, k in zip(places, kinds) if k == kind] for kind in (0, 1)]
        stored, like = back_of(known, [*own[0], *own[1]], len(values)), out.shape

        def back(g: Array) -> list[Array | None]:
            slopes = stored(g.reshape(like))
            queues = [iter(slopes[: len(values)]), iter(slopes[len(values) :])]
            with np.errstate(all="ignore"):
                return [
                    None if (d := next(queues[k])) is None else fitted(d.reshape(s if k else shape), s)
                    for k, s in zip(kinds, shapes)
                ]

        read = [a for a in (*known.reads, *constants) if a is not None]
        if name == "mul":  # each is read for the other's gradient
            read = [a for a, p in zip(arrays, reversed(places)) if p is not None]
        autograd.recorded(autograd.Record(name, places, back, read), [made])
    return made


def require_one_float(name: str, types: Sequence[np.dtype[Any]]) -> None:
    if len({t for t in types if t.kind == "f"}) > 1:
        raise DTypeError.here(f"{name}: float32 and float64 don't mix; convert one with .float() or .double()")
