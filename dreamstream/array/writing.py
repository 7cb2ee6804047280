"""Writing into streams inside a forward: every write is a new value, which all that shares the memory sees.

A tensor that shares another's memory is a *view*: it knows the tensor that it was taken of and how it is
taken again. What is written into a view is written into that tensor, and so on to the first one; every other
view of them then forgets its value, and takes it again when it is asked for. Where it isn't certain that two
tensors share memory (torch copies in ``x.reshape(...)`` if it must), neither is read after the other was written
into.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ClassVar, NoReturn
from weakref import ref

import numpy as np

from ..errors import DTypeError, NotStreamableError, ShapeError
from ..source_line import user_line
from ..stream.rules import Fallback, Length, is_full_slice, open_branch, stream_slice
from . import dtypes, elementwise, forward, hook
from .batch_constants import value_of
from .deferred import has_formula, is_computed, is_filled
from .ends import standing_for, with_last
from .masked_select import MaskedSelect
from .merged_dimensions import Merged
from .stream_tensor import StreamTensor
from .tensor import Tensor


@dataclass(slots=True, eq=False)
class View:
    """How a tensor is taken of another one whose memory it shares."""

    of: Any
    method: Callable[..., Any]  #: Gives the view, of the tensor, `args` and `kwargs`.
    #: ``(tensor, view, *args, **kwargs)``: gives the tensor with the view written into it; None where it can't be.
    put: Callable[..., Any] | None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    fill: Callable[[], Any] | None = None  #: Gives both, args and kwargs, when they are needed.

    #: Why it can't be written into, where it has no way back.
    why: ClassVar[str] = (
        "several elements of this stream share memory (expand, unfold), so that it can't be written into; use "
        ".clone() first"
    )

    def retake(self, x: StreamTensor) -> None:
        """Give the tensor its value back."""
        args, kwargs = self.given()
        _set(x, self.method(self.of, *args, **kwargs))

    def back(self, whole: Any, part: Any) -> Any:
        """Return the tensor into which the view was written."""
        assert self.put is not None
        args, kwargs = self.given()
        return self.put(whole, part, *args, **kwargs)

    def given(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the method's arguments."""
        if self.fill is not None:
            (self.args, self.kwargs), self.fill = self.fill(), None
        return self.args, self.kwargs


class _OfConstant(View):
    """A constant's memory, frame by frame: what is written into it is the constant's."""

    __slots__ = ()
    why = (
        "a constant's rows are written into, which all streams share; streams keep what they need of earlier "
        "frames (attention its keys): leave caches out, or use .clone() first"
    )


def of_constant(x: StreamTensor) -> StreamTensor:
    """Return a stream that shares a constant's memory."""
    x._view = _OfConstant(None, copied, None)
    return x


def is_of_constant(x: StreamTensor) -> bool:
    """Whether a stream shares a constant's memory."""
    return type(x._view) is _OfConstant


class _Undecided:
    """In a view's place: the tensor may or may not share memory that was written into."""

    def __init__(self, line: str) -> None:
        self.line = line

    def retake(self, x: StreamTensor) -> NoReturn:
        raise NotStreamableError.here(
            "a stream is used",
            f" after a tensor that may share its memory was written into, at {self.line}: torch shares it or "
            "copies it, as it lies in memory; use .clone() before the write, or compute a new tensor instead",
        )


def _set(x: StreamTensor, state: StreamTensor) -> None:
    x.value, x.edge, x.dims, x._names = state.value, state.edge, state.dims, state._names
    x._ends = state._ends


def unsure(x: Any, out: Any) -> Any:
    """Return `out`, as a tensor that may share the memory of x."""
    if not isinstance(x, StreamTensor) or x.edge is None or not isinstance(out, StreamTensor):
        return out
    out = copied(out) if out is x else out
    for one, other in ((x, ref(out)), (out, lambda: x)):  # the second for good: through x it is related to others
        views: Any = one._views or []
        views.append((other, False))
        one._views = views
    out._view = out._ends  # last frames that were put off stay so
    return out


def copied(x: StreamTensor) -> StreamTensor:
    """Return a tensor of the same value that shares nothing."""
    if x._ends is not None:
        return standing_for(x._ends.copied())
    return x.with_dims(x.dims, x._names)


def viewed(
    x: Any,
    out: Any,
    method: Callable[..., Any],
    put: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    fill: Callable[[], Any] | None = None,
) -> Any:
    """Return `out`, as the view of x that a method gives with these arguments; see `View`."""
    out._view = View(x, method, put, args, kwargs, fill)
    if not x._views:
        x._views = []
    x._views.append((ref(out), True))
    return out


def shared(x: StreamTensor, among: Sequence[StreamTensor]) -> Any:
    """Return whose memory x shares, of tensors: their numbers, and the view; None where it shares none's.

    Where it isn't certain that it does there is no view. NotImplemented: it shares memory in other ways.
    """
    own = x._view
    if own is not None and type(own) is not View:
        return NotImplemented
    near = [own.of] if own is not None else [other for other, _ in x._relatives()]
    at = [next((i for i, y in enumerate(among) if y is of), None) for of in near]
    if near and None not in at:
        return at, own
    family = sharing(x)  # what it was made of by way of others
    at = [i for i, y in enumerate(among) if id(y) in family]
    first = x
    while type(first._view) is View:
        first = first._view.of
    strange = any(y._view is not None and type(y._view) is not View for y in family.values())
    if strange or (at and any(y is first for y in among)):
        return NotImplemented
    return (at, None) if at else None


def viewing(
    method: Callable[..., Any],
    back: Callable[..., Any] | None,
    certain: bool = True,
    copies: Callable[..., bool] = lambda *_, **__: False,
) -> Callable[..., Any]:
    """Let what a method gives inside a forward be a view.

    ``back(tensor, view, arguments of the method)`` gives the tensor into which the view was written. `certain`
    says whether it shares memory always, `copies` whether it never does, with these arguments.
    """

    @wraps(method)
    def taken(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = method(self, *args, **kwargs)
        if isinstance(out, Merged) and not isinstance(self, Merged):
            out.base = unsure(self, copied(out.base))
        if type(out) is not type(self) or (out._ends is None and self._waiting is None and self.edge is None):
            return out
        if copies(*args, **kwargs):
            return copied(out) if out is self else out
        if not certain:
            return unsure(self, out)
        if out is self or isinstance(out._view, View):
            return out
        return viewed(self, out, method, back, args, kwargs)

    return taken


def is_own_part(x: Any, index: Any, value: Any) -> bool:
    """Whether a value is the view of x that an index takes: Python assigns it behind ``x[:, 1:] *= 2``."""
    view: Any = value._view if isinstance(value, StreamTensor) else None
    if type(view) is not View or view.of is not x or view.method.__name__ != "__getitem__":
        return False
    (taken,), _ = view.given()
    return _is_plain(index) and _is_plain(taken) and taken == index


def _is_plain(index: Any) -> bool:
    """Whether an index has nothing but slices, numbers, None and Ellipsis."""
    for part in index if type(index) is tuple else (index,):
        numbers = {type(part.start), type(part.stop), type(part.step)} if type(part) is slice else {type(part)}
        if not numbers <= _PLAIN:
            return False
    return True


_PLAIN = frozenset((int, type(None), type(...)))


def has_arrays(index: Any) -> bool:
    """Whether an index has arrays, so that it makes a copy."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(p, (list, np.ndarray)) or getattr(p, "ndim", 0) for p in parts)


# ---------------------------------------------------------------- writing
def write(x: StreamTensor, value: Any, what: str) -> Any:
    """Let a tensor be `value`, for all that shares its memory; refuse a view whose elements share memory."""
    if value is x or _is_taken_over(x, value):
        return x
    if x._waiting is not None:
        x._waiting.become(x, value)
        return x
    if x._ends is not None and type(x._view) is View:
        of, (index,) = x._view.of, x._view.args
        if (whole := with_last(of, index, value)) is not None:
            write(of, whole, what)
            return x
    elif x._ends is not None and getattr(value, "_ends", None) is not None:  # a copy of last frames
        if (branch := open_branch(x._ends.of.edge.entry)) is not None:
            raise branch.wrote(what)
        x.forget()
        x._view = x._ends = value._ends
        return x
    if x.edge is not None and (branch := open_branch(x.edge.entry)) is not None:
        raise branch.wrote(what)
    if isinstance(x, MaskedSelect):
        x.become(value)
        return x
    if isinstance(x, Merged):
        x.refuse(what)
    if not isinstance(value, StreamTensor):
        raise NotStreamableError.here(f"{what}: only streams can be written into a stream as a whole")
    if (value.dims, value.features) != (x.dims, x.features) and value.roles != x.roles:
        raise ShapeError.here(f"{what}: a stream {x.roles} can't take values of the shape {value.roles}")
    if value.dtype != x.dtype:
        if dtypes.common(what, [x.dtype, value.dtype]) != x.dtype and not _holds(x.dtype, value.dtype):
            raise DTypeError.here(f"{what}: a stream of {x.dtype} can't hold {value.dtype}")
        value = value.to(x.dtype)
    _written(x, value, what)
    return x


def _holds(kind: Any, other: Any) -> bool:
    """Whether torch converts in place: not to integers from real numbers, nor to bools from numbers."""
    order = "bif"
    return order.index(kind.kind) >= order.index(other.kind)


def _is_taken_over(x: StreamTensor, value: Any) -> bool:
    """Let a stream be another of its kind, where it shares no memory and has no gradient; say whether it is."""
    both: Any = (x, value) if type(x) is type(value) is StreamTensor else ()
    if not both or x._views or any(s._view is not None or s._ends is not None or s.edge is None for s in both):
        return False
    own, kind = [(s.dims, s.edge.line.dtype, s.edge.line.features, getattr(s.value, "dtype", None)) for s in both]
    has_gradient = getattr(x.value, "requires_grad", x.requires_grad)
    if own != kind or x.value is None or has_gradient or open_branch(both[0].edge.entry) is not None:
        return False
    _set(x, value)
    return True


def _written(x: Any, value: StreamTensor, what: str) -> None:
    root, whole = x, value
    while isinstance(root._view, View):
        view = root._view
        if view.put is None:
            raise NotStreamableError.here(f"{what}: {view.why}")
        root, whole = view.of, view.of.edge.entry.library.put_back(view, whole)
    has_gradient = getattr(root.value, "requires_grad", root.requires_grad)  # torch's values say so, or the stream
    library = root.edge.entry.library
    if has_gradient and library.is_without_gradients():
        raise NotStreamableError.here(
            f"{what} under no_grad() into a stream that has a gradient", "; write into x.detach().clone()"
        )
    own = library.as_kind_of(x, value)
    _set(root, library.as_kind_of(root, whole))
    family = sharing(root, surely=True)
    for member in family.values():
        for other, certain in member._relatives():
            if not certain:
                _undecide(other, family, _Undecided(user_line()))
        if member is not root and member is not x:
            member.forget()
    _set(x, own)


def forget_views(x: Any) -> None:
    """Let views of x, whose frame a loop has written, be taken again when they are asked for."""
    for member in sharing(x, surely=True).values():
        if member is not x:
            member.forget()


def sharing(x: Any, surely: bool = False) -> dict[int, Any]:
    """Return all that shares x's memory, or may share it, by id; `surely`: the views of x and of these alone."""
    family, waiting = dict[int, Any](), [x]
    while waiting:
        if id(member := waiting.pop()) not in family:
            family[id(member)] = member
            waiting += [other for other, certain in member._relatives() if certain] if surely else _near(member)
    return family


def _near(x: Any) -> list[Any]:
    """Return what x is a view of, and what is a view of x, or may share its memory."""
    of = [x._view.of] if isinstance(x._view, View) and x._view.of is not None else []
    return [*of, *(other for other, _ in x._relatives())]


def _undecide(x: Any, family: dict[int, Any], why: _Undecided) -> None:
    """Let all that is connected with x, and no member of the family, be read no more."""
    if id(x) in family or x._view is why:
        return
    near = _near(x)
    x.forget()
    x._view = why
    for other in near:
        _undecide(other, family, why)


# ---------------------------------------------------------------- assignment
def assign(x: StreamTensor, index: Any, value: Any) -> StreamTensor:
    """Return x with `value` at an index, as ``x[index] = value`` leaves it.

    Refused are frames that are no slice of every stream, and what can't be found out.
    """
    if is_computed(index) or is_filled(index):
        index = index.as_stream()
    if getattr(index, "is_stream", False):
        return _masked(x, index, value)
    x = x.in_order()
    parts = forward.parts_of(x, index)
    if isinstance(parts, Fallback):
        _refuse(x, f"this index ({parts.reason})")
    if not is_full_slice(parts.batch):
        _refuse(x, "an index on the batch")
    value = value.beside_frames() if has_formula(value) else value_of(value)
    at = parts.length
    if "B_L" in x.dims and not is_full_slice(at):
        _refuse(x, "an index on B and L joined")
    if isinstance(at, slice):
        at = _from_the_end(x, at)
    if getattr(value, "is_stream", False):
        if is_full_slice(at):
            return _of_stream(x, parts, value)
        s = stream_slice(at)
        return put_frames(x, _of_stream(forward.slice_stream(x, at), parts, value), s.start, s.crop, s.step)
    filled = _of_constant(x, parts, value)
    return filled if is_full_slice(at) else _frames(x, filled, at)


def _refuse(x: StreamTensor, what: str) -> NoReturn:
    raise NotStreamableError.here(
        f"assignment to {what} of a stream {x.roles} inside a forward,",
        "; write into features, or along L into slices of the whole stream (y[..., a:] = x, y[..., ::k] = x)",
    )


def _from_the_end(x: StreamTensor, at: slice) -> slice:
    """Return a slice of L whose bounds that were lengths are counted from the end."""
    length = x._token("L")

    def bound(b: Any, is_start: bool) -> Any:
        if not isinstance(b, Length):
            return b if b is None else operator.index(b)
        behind = length - b
        if not isinstance(behind, int) or behind < 0 or (is_start and behind == 0):
            _refuse(x, f"the frames {'from' if is_start else 'up to'} {b!r}")
        return -behind or None

    return slice(bound(at.start, True), bound(at.stop, False), at.step)


def put_frames(x: StreamTensor, v: StreamTensor, start: int, crop: int, step: int = 1) -> StreamTensor:
    """Return x with frames of v in the place of its own."""
    x, v = x.in_order(), v.in_order()
    return x._with(v if step == 1 else forward.repeat_interleave(v, v.dims.index("L"), step), start, crop, step)


def _frames(x: StreamTensor, filled: StreamTensor, at: Any) -> StreamTensor:
    """Return x with the frames of `filled` at an index of the whole stream."""
    if not isinstance(at, slice):
        if not isinstance(at, int):
            _refuse(x, "an array of frames")
        at = slice(at, at + 1 or None)
    first, last, step = at.start or 0, at.stop, 1 if at.step is None else operator.index(at.step)
    if step < 1:
        raise ShapeError.here(f"assignment: a slice's step must be at least 1, got {step}")

    def part(y: StreamTensor, *bounds: Any) -> StreamTensor:
        return forward.slice_stream(y, slice(*bounds))

    if step > 1:
        if first < 0:
            _refuse(x, "every k-th frame from one on that is counted from the end")
        filled, step = put_frames(x, part(filled, first, None, step), first, 0, step), 1
    if first < 0:
        if last is not None and last >= 0:
            _refuse(x, "frames whose number depends on the stream's length")
        ends = put_frames(filled, part(x, None, first), 0, -first)
        return ends if last is None else x if last <= first else put_frames(x, part(ends, None, last), 0, -last)
    if last is None or last < 0:
        crop = -(last or 0)
        return filled if not first and not crop else put_frames(x, part(filled, first, last), first, crop)
    if last <= first:
        return x
    starts = put_frames(filled, part(x, last, None), last, 0)
    return starts if not first else put_frames(x, part(starts, first), first, 0)


def _indices(x: StreamTensor, parts: Any) -> Any:
    """Return the numbers of a frame's elements that an index picks, in their visible shape."""
    indices = np.arange(int(np.prod(x.features, dtype=int))).reshape(x.features)
    try:
        indices = indices[tuple(parts.features)]
        return indices if parts.take is None else indices[(slice(None),) * parts.take[0] + (parts.take[1],)]
    except (IndexError, ValueError) as error:
        raise ShapeError.here("assignment", f" to a stream {x.roles}: {error}") from None


def _fitted(x: StreamTensor, parts: Any, given: Sequence[Any], indices: Any) -> Any:
    """Return, for each element that an index picks, the number of that of a value's frame which it becomes.

    `given` are the value's dimensions: "B", "L", or sizes of features.
    """
    dims = [d for d in parts.dims if isinstance(d, int) or d in x.dims]
    extra = max(len(given) - len(dims), 0)
    own = [*(1,) * (len(dims) - len(given)), *given[extra:]]
    met = all(g == d or g == 1 if isinstance(d, str) else isinstance(g, int) for g, d in zip(own, dims))
    if not met or any(g != 1 for g in given[:extra]):
        raise ShapeError.here(
            f"assignment: a value {tuple(map(str, given))} doesn't fit into "
            f"{tuple(d if isinstance(d, str) else str(indices.shape[d]) for d in dims)}"
        )
    sizes = [g for g, d in zip(own, dims) if not isinstance(d, str)]
    numbers = np.arange(int(np.prod(sizes, dtype=int))).reshape(sizes)
    try:
        return np.broadcast_to(numbers, indices.shape)
    except ValueError:
        raise ShapeError.here(f"assignment: features {tuple(sizes)} don't fit into {indices.shape}") from None


def _of_stream(x: StreamTensor, parts: Any, value: StreamTensor) -> StreamTensor:
    """Return x with frames of another stream among its features."""
    value = value.in_order()
    indices = _indices(x, parts)
    given = [d if isinstance(d, str) else value.features[d] for d in value.dims]
    if "L" in parts.dims and "L" not in given:
        _refuse(x, "frames by a value of the whole stream")
    source = _fitted(x, parts, given, indices)
    if value.dtype != x.dtype:
        value = value.to(x.dtype)
    n = int(np.prod(x.features, dtype=int))
    index = np.arange(n)
    index[indices.ravel()] = n + source.ravel()

    def flat(y: StreamTensor) -> StreamTensor:
        lead = tuple(d for d in y.dims if isinstance(d, str))
        return forward.reshape_features(y, (int(np.prod(y.features, dtype=int)),), (*lead, 0))

    x_flat, out = flat(x), flat(value)
    if (index < n).any() or value.edge.cid != x.edge.cid:  # type: ignore[union-attr]
        out = hook.one("cat", {"axis": 0}, [x_flat, out.with_dims(x_flat.dims)], (), x_flat.dims)
    else:
        out, index = out.with_dims(x_flat.dims), index - n
    out = forward.index_features(out, 0, index)
    return forward.reshape_features(out, x.features, x.dims).with_dims(x.dims, x._names)


def _of_constant(x: StreamTensor, parts: Any, value: Any) -> StreamTensor:
    """Return x with a constant among the features of every frame."""
    indices = _indices(x, parts)
    sizes = [1 if isinstance(d, str) else x.features[d] for d in x.dims]
    mask = np.zeros(x.features, bool)
    mask.ravel()[indices.ravel()] = True
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if isinstance(value, (np.ndarray, list, tuple)):
        value = Tensor(np.asarray(value))
    if isinstance(value, Tensor):
        shape = tuple(value.shape)
        dims = [d for d in parts.dims if isinstance(d, int) or d in x.dims]
        roles = [d for d, _ in zip(reversed(dims), shape)][::-1]
        wide = [d for d, n in zip(roles, shape[len(shape) - len(roles) :]) if isinstance(d, str) and n != 1]
        if wide:
            _refuse(x, f"frames by a constant of shape {shape}, whose extent along {wide[0]} must be 1,")
        source = np.zeros(x.features, int)
        source.ravel()[indices.ravel()] = _fitted(x, parts, shape, indices).ravel()
        value = value.reshape(-1)[source.ravel()].reshape(sizes).to(x.dtype)
    return elementwise.where(Tensor(mask.reshape(sizes)), value, x).to(x.dtype)  # type: ignore[return-value]


def _masked(x: StreamTensor, mask: Any, value: Any) -> StreamTensor:
    """Return x with a constant, or with a selection by the same mask, where a stream of bools holds.

    It picks elements, or all that lies behind its dimensions.
    """
    behind = x.ndim - mask.ndim
    is_selected = isinstance(value, MaskedSelect)
    value = value.at(x, mask) if is_selected else value
    fits = (
        is_selected
        or not isinstance(value, Tensor)
        or (not value.is_stream and (value.numel() == 1 or value.ndim <= behind))
    )
    if mask.dtype != dtypes.bool or not fits:
        _refuse(x, "elements that a stream picks")
    if mask.roles != x.roles[: mask.ndim]:
        _refuse(x, f"a mask {mask.roles}")
    for _ in range(behind):
        mask = mask.unsqueeze(-1)
    return elementwise.where(mask, value, x).to(x.dtype)  # type: ignore[return-value]
