"""torch's methods on the dimensions of a stream tensor, inside a forward and outside.

Each finds out what the dimensions are and hands over to `forward` (the axis is the whole stream) or
`chunks` (the frames of one call). A transpose changes what is seen and moves nothing. Each public function here is
the method of its name.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..operations import OPERATIONS
from ..operations.refusals import LOOPS
from ..stream.rules import BatchSize, Length, join, require_same
from ..stream.where import INSTEAD
from . import chunks, forward, hook, prefix_frames, reductions, views, writing  # noqa: F401  (plain methods that are taken up)
from .batch_constants import repeats
from .creation import cat
from .deferred import is_filled
from .dimension_arguments import axes_of, axis_of, numbered, sizes_of
from .elementwise import repeated
from .ends import continued, end_repeated, ends_repeated, expanded, frame_at_count, is_each, parted, put_last
from .first_frame import at_one_frame, first_frame
from .frame_numbers import number_in
from .lengths_of import SAME_ORDER
from .loop_body import in_loop
from .loop_frames import EachFrame, frame_of, placed, put
from .reductions import Extreme
from .rolled import rolled, turned
from .stream_tensor import StreamTensor
from .tensor import Tensor, take


def _refuse(x: StreamTensor, what: str, axis: int | None = None) -> NotStreamableError:
    loops = axis is not None and x.dims[axis] == "L"
    instead = "keep streams apart, or combine them outside the forward" if what.endswith(" along B") else INSTEAD
    why = LOOPS.text if loops else f"it is not among the operations that stream; {instead}"
    return NotStreamableError.here(f"{what} on a stream {x.roles} inside a forward,", f": {why}")


def _methods(x: StreamTensor) -> Any:
    return chunks if x.edge is None else forward


def __getitem__(self: StreamTensor, index: Any) -> Any:
    if isinstance(index, str):
        return self.stream(index)
    if index is SAME_ORDER:
        return self
    if self._waiting is not None:
        return self._waiting.taken(index, self)
    if number_in(index) or number_in(index := placed(self, index, 1)):
        return frame_of(self, index)
    if self.edge is not None and (taken := hook.lowered("places", self, "__getitem__", index)) is not None:
        return taken
    index = at_one_frame(self, index)
    if self.edge is not None and (first := first_frame(self, index)) is not None:
        return first
    if isinstance(index, tuple) and self.edge is not None:
        each = len(index) == 2 and self.dims[:2] == ("B", "L") and is_each(index[0])
        if each and (last := frame_at_count(self, 1, index[1])) is not None:
            return last
        index = tuple(slice(None) if i is SAME_ORDER else i for i in index)
    if is_filled(index) and index.value is True and self.dims[:2] == ("B", "L"):
        return self.flatten(0, 1)  # all frames of all streams
    return _methods(self).getitem(self, index)


# ---------------------------------------------------------------- order
def permute(self: Any, *given: Any, dims: Any = ()) -> Any:
    order = [self._axis("permute", d) for d in sizes_of(given, dims)]
    if sorted(order) != list(range(self.ndim)):
        raise ShapeError(f"permute: {order} is no order of {self.ndim} dimensions")
    return self.with_dims(tuple(self.dims[i] for i in order), [self.names[i] for i in order])


def contiguous(self: Any) -> Any:
    return self


def clone(self: Any) -> Any:
    if self._ends is not None or self.edge is not None:
        return writing.copied(self)
    return self.like(self._frames().clone(), self.dims, self._names)


# ---------------------------------------------------------------- sizes
def reshape(self: Any, *given: Any, shape: Any = (), size: Any = ()) -> Any:  # view is the same
    return _methods(self).reshape(self, sizes_of(given, shape or size))


def flatten(self: Any, start_dim: Any = 0, end_dim: Any = -1) -> Any:
    first, last = self._axis("flatten", start_dim), self._axis("flatten", end_dim)
    shape = self.shape
    if first == last:
        return self
    roles = self.dims[first : last + 1]
    if self.edge is None and roles != ("B", "L") and any(isinstance(d, str) for d in roles):
        return chunks.fall_back(self, "this flatten").flatten(start_dim, end_dim)
    joined = math.prod(shape[first : last + 1])
    out = self.reshape(*shape[:first], joined, *shape[last + 1 :])
    return out.with_dims(out.dims, join(self.names, first, last)) if out.is_stream else out


def unflatten(self: Any, dim: Any, sizes: Sequence[Any]) -> Any:
    axis, shape = self._axis("unflatten", dim), self.shape
    return self.reshape(*shape[:axis], *sizes, *shape[axis + 1 :])


def _reshaped(self: Any, sizes: Sequence[int], dims: tuple[Any, ...], names: Sequence[Any]) -> Any:
    """Return the tensor with features of these sizes, seen as `dims`."""
    if self.edge is None:
        return self.like(self._frames().reshape(len(self.value), *sizes), dims, names)
    return forward.reshape_features(self, sizes, dims).with_dims(dims, names)


def unsqueeze(self: Any, dim: int) -> Any:
    axis = axis_of("unsqueeze", dim, self.ndim + 1)
    x = self.in_order()
    before = sum(not isinstance(d, str) for d in x.dims[:axis])
    sizes = [*x.features[:before], 1, *x.features[before:]]
    dims = numbered([*x.dims[:axis], 0, *x.dims[axis:]])
    return _reshaped(x, sizes, dims, [*x.names[:axis], None, *x.names[axis:]])


def squeeze(self: Any, dim: Any = None) -> Any:
    x = self.in_order()
    axes = range(self.ndim) if dim is None else [self._axis("squeeze", d) for d in sizes_of((dim,))]
    if dim is not None and self.edge is not None and any(self.dims[a] == "B" for a in axes):
        raise NotStreamableError.here(
            f"squeeze of B of a stream {self.roles} inside a forward,",
            ": B is there however many streams a call has; leave it, and what brings it back, out",
        )
    gone = {a for a in axes if not isinstance(x.dims[a], str) and x.features[x.dims[a]] == 1}
    kept = [i for i in range(self.ndim) if i not in gone]
    dims = numbered([x.dims[i] for i in kept])
    names = [x.names[i] for i in kept]
    sizes = [x.features[x.dims[i]] for i in kept if not isinstance(x.dims[i], str)]
    return _reshaped(x, sizes, dims, names)


def expand(self: Any, *given: Any, size: Any = ()) -> Any:
    last = expanded(self, sizes_of(given, size))
    return _methods(self).expand(self, sizes_of(given, size)) if last is None else last


def gather(self: Any, dim: int, index: Any) -> Any:
    if self.edge is None:
        return Tensor.gather(chunks.fall_back(self, "gather"), dim, index)
    axis = self._axis("gather", dim)
    if (taken := hook.lowered("places", self, "gather", dim, index)) is not None:
        return taken
    if not getattr(index, "is_stream", False) or isinstance(self.dims[axis], str):
        raise _refuse(self, "gather along frames, or by an index that is no stream,")
    return forward.gather(self, axis, index)


def repeat(self: Any, *given: Any, repeats: Any = ()) -> Any:
    times = sizes_of(given, repeats)
    if (last := end_repeated(self, times)) is not None:
        return last
    x = self
    if any(isinstance(n, BatchSize) for n in times) and all(isinstance(n, BatchSize) or n == 1 for n in times):
        return self.expand(*(n if isinstance(n, BatchSize) else -1 for n in times))
    if self.edge is not None and any(isinstance(n, Length) for n in times):
        return self.expand(*[n if isinstance(n, Length) else -1 for n in times]).repeat(
            *[1 if isinstance(n, Length) else n for n in times]
        )
    if len(times) != self.ndim or any(isinstance(d, str) and n != 1 for d, n in zip(self.dims, times)):
        if self.edge is not None:
            raise _refuse(self, f"repeat{times}")
        return chunks.fall_back(self, "this repeat").repeat(*times)
    for axis, n in enumerate(times):
        x = cat([x] * n, axis) if n != 1 else x
    return writing.copied(x) if x is self else x


def repeat_interleave(self: Any, repeats: Any, dim: Any = None, *, output_size: int | None = None) -> Any:
    if dim is None or not isinstance(repeats, (int, Length)):
        if self.edge is not None:
            raise _refuse(self, "repeat_interleave without dim, or by several counts")
        plain = chunks.fall_back(self, "this repeat_interleave")
        return plain.repeat_interleave(repeats, dim, output_size=output_size)
    axis = self._axis("repeat_interleave", dim)
    if isinstance(repeats, int) and repeats < 1:
        raise ShapeError(f"repeat_interleave: a stream is repeated at least once, got {repeats}")
    out = _methods(self).repeat_interleave(self, axis, repeats)
    if isinstance(output_size, int) and isinstance(out.shape[axis], int) and out.shape[axis] != output_size:
        raise ShapeError.here(f"repeat_interleave: {out.shape[axis]} elements, and output_size={output_size},", "")
    return out


def _across(self: Any, what: str, axis: int) -> Any:
    """Return the plain tensor for what works along B or L outside a forward; inside, what it is of streams."""
    if self.edge is not None:
        if what == "softmax" and (weights := hook.lowered("softmax", self, axis)) is not None:
            return weights
        if what == "log_softmax" and self.dims[axis] == "L":
            total = self.logsumexp(axis, keepdim=True)
            return self - (total + (total - total))  # NaN of an infinite total, as torch's
        raise _refuse(self, f"{what} along {self.dims[axis]}")
    return chunks.fall_back(self, f"{what} along {self.dims[axis]}")


# ---------------------------------------------------------------- parts
def _part(self: Any, axis: int, item: Any) -> Any:
    return self[(slice(None),) * axis + (item,)]


def narrow(self: Any, dim: Any, start: Any, length: Any) -> Any:
    axis = self._axis("narrow", dim)
    stop = length if isinstance(start, int) and start == 0 else start + length
    return _part(self, axis, slice(start, stop))


def select(self: Any, dim: Any, index: int) -> Any:
    return _part(self, self._axis("select", dim), index)


def _count(self: Any, name: str, axis: int) -> int:
    """Return how many elements there are along a dimension of features, or of a call's frames."""
    size = self.shape[axis]
    if not isinstance(size, int):
        raise _refuse(self, f"{name} along {self.dims[axis]}", axis)
    return size


def _along_frames(self: Any, axis: int) -> bool:
    """Whether parts along a dimension are the frames of a stream inside a forward, which a loop goes through."""
    return self.edge is not None and self.dims[axis] == "L"


def unbind(self: Any, dim: Any = 0) -> Any:
    axis = self._axis("unbind", dim)
    return EachFrame(self, axis) if _along_frames(self, axis) else Tensor.unbind(self, dim)


def split(self: Any, split_size: Any, dim: Any = 0) -> Any:
    axis = self._axis("split", dim)
    each = _along_frames(self, axis) and type(split_size) is int and split_size == 1
    if self.edge is not None and isinstance(split_size, Length) and (split_size == self.shape[axis]) is True:
        return (self,)
    if _along_frames(self, axis) and isinstance(split_size, (list, tuple)):
        return parted(self, axis, split_size)
    return EachFrame(self, axis, keeps=True) if each else Tensor.split(self, split_size, dim)


def chunk(self: Any, chunks: Any, dim: Any = 0) -> Any:
    axis = self._axis("chunk", dim)
    each = _along_frames(self, axis) and isinstance(chunks, Length) and chunks == self.shape[axis]
    if self.edge is not None and type(chunks) is int and chunks == 1:
        return (self,)
    return EachFrame(self, axis, keeps=True) if each is True else Tensor.chunk(self, chunks, dim)


def _parts(self: Any, axis: int, sizes: Sequence[int]) -> Any:
    """Return parts of these sizes; pieces of the chunk have flags by the rules."""
    parts = Tensor._parts(self, axis, sizes)
    if self.dims[axis] == "L":
        for part, meta in zip(parts, self.meta.split_length(list(sizes))):
            part._meta = meta
    return parts


def unfold(self: Any, dimension: Any, size: int, step: int) -> Any:
    if size < 1 or step < 1:
        raise ShapeError(f"unfold: size and step must be at least 1, got {size} and {step}")
    return _methods(self).unfold(self, self._axis("unfold", dimension), size, step)


def _cat(self: Any, tensors: list[Any], dim: Any) -> Any:
    first = next(t for t in tensors if t.is_stream)
    axis = first._axis("cat", dim)
    if (whole := turned(tensors, axis)) is not None:
        return whole
    tensors, times = ends_repeated(tensors, axis)
    if (
        len(tensors) > 1
        and getattr(tensors[-1], "_ends", None) is not None
        and first.dims[axis : axis + 1] == ("L",)
    ):
        before = first if len(tensors) == 2 else _cat(self, tensors[:-1], dim)
        if (whole := put_last(before, tensors[-1])) is not None:
            return whole
    if isinstance(times, Length) or times:
        out = tensors[0] if len(tensors) == 1 else _cat(self, tensors, dim)
        return continued(out, times)
    framed = [t.is_stream and t.edge is not None and t.dims[axis : axis + 1] == ("L",) for t in tensors]
    if any(t.is_stream and not f and forward.is_static(t) for t, f in zip(tensors, framed)) and any(framed):
        return prefix_frames.joined(tensors, axis, framed.index(True))
    if sum(framed) > 1 and any(map(forward.is_static, tensors)):
        raise NotStreamableError.here(
            "cat: frames of a memory, as many as each stream was given, don't stand before others; a fixed number "
            "of them does (m[:, :2], m.mean(1, keepdim=True)), and queries attend to all"
        )
    if not all(t.is_stream for t in tensors):
        if first.edge is None:
            return cat(
                [chunks.fall_back(t, "cat with a plain tensor") if t.is_stream else t for t in tensors], axis
            )
        if first.dims[axis] == "L":
            return forward.extend(tensors, axis)
        if first.dims[0] == "B" and "L" not in first.dims and all(repeats(t, first) for t in tensors):
            return _cat(first, [t if t.is_stream else repeated(t, first) for t in tensors], dim)
        raise _refuse(first, "cat with a plain tensor")
    return _methods(first).cat(tensors, axis)


# ---------------------------------------------------------------- comparing as a whole
def equal(self: Any, other: Any) -> bool:
    """Return whether `other` holds the same streams with the same frames."""
    if self.edge is not None:
        if other is self or (getattr(other, "edge", None) is self.edge and other.dims == self.dims):
            return True
        raise _refuse(self, "equal")
    if not getattr(other, "is_stream", False):
        return Tensor.equal(chunks.fall_back(self, "equal with a plain tensor"), other)
    a, b = self.in_order(), other.in_order()
    return bool(a.meta == b.meta and a.dims == b.dims and np.array_equal(a.value, b.value))


def allclose(self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return whether abs(self - other) <= atol + rtol * abs(other) on all frames of the same streams."""
    if self.edge is not None:
        raise _refuse(self, "allclose")
    if not getattr(other, "is_stream", False):
        plain = chunks.fall_back(self, "allclose with a plain tensor")
        return Tensor.allclose(plain, other, rtol, atol, equal_nan)
    require_same([self.meta, other.meta], [self.starts, other.starts], "allclose")
    a, b = self.in_order(), other.in_order()
    if a.dims != b.dims:
        raise ShapeError(f"allclose: dimensions {a.roles} don't line up with {b.roles}")
    return bool(np.allclose(a.value, b.value, rtol, atol, equal_nan))


# ---------------------------------------------------------------- matrices
def matmul(self: Any, other: Any) -> Any:
    return _methods(self).matmul(self, other, False)


def bmm(self: Any, mat2: Any) -> Any:
    return self.matmul(mat2) if self.edge is not None else Tensor.bmm(chunks.fall_back(self, "bmm"), mat2)


def __rmatmul__(self: Any, other: Any) -> Any:
    return _methods(self).matmul(self, other, True)


# ---------------------------------------------------------------------- reductions
def outside(name: str, inside: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Outside a forward, reduce the frames of the call; inside, run `inside`, or reduce the whole stream."""
    plain = getattr(Tensor, name)
    signature = inspect.signature(plain)

    def own(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._ends is not None and (found := self._ends.reduced(name, *args, **kwargs)) is not None:
            return found
        if self.edge is not None and inside is not None:
            return inside(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        dim, keepdim = bound.arguments.pop("dim", None), bound.arguments.pop("keepdim", False)
        if isinstance(dim, bool):  # var(unbiased), std(unbiased)
            bound.arguments["unbiased"], dim = dim, None
        if isinstance(dim, Tensor):  # max(other), min(other)
            return plain(self, dim)
        rest = {k: v for k, v in bound.arguments.items() if k != "self"}
        given = None if dim is None else [self._axis(name, d) for d in sizes_of((dim,))]
        axes = axes_of(name, given, self.ndim)
        if self.edge is not None:
            of_all = given is None and name in ("max", "min") and "B" not in self.roles  # a value and no place
            return forward.reduce(self, f"a{name}" if of_all else name, axes, keepdim, rest)
        if given is None and name in ("argmax", "argmin"):
            return plain(chunks.fall_back(self, name), **rest)
        if given is None:
            return plain(self.in_order()._frames(), **rest)
        return chunks.reduce(self, lambda t, a, k: plain(t, dim=a, keepdim=k, **rest), axes, keepdim)

    own.__doc__ = plain.__doc__
    return own


def _feature(self: Any, name: str, dim: Any) -> int:
    """Return the stored feature axis of a tensor whose features are stored in order."""
    role = self.dims[self._axis(name, dim)]
    if isinstance(role, str):
        raise _refuse(self, f"{name} along {role}")
    return int(role)


def _flip(self: Any, *given: Any, dims: Any = ()) -> Any:
    x = self.in_order()
    for d in sizes_of(given, dims):
        if x.dims[x._axis("flip", d)] == "L":
            x = forward.flip(x)
            continue
        axis = _feature(x, "flip", d)
        x = forward.index_features(x, axis, np.arange(x.features[axis])[::-1])
    return writing.copied(x)


def _roll(self: Any, shifts: Any, dims: Any = None) -> Any:
    if dims is None:
        raise _refuse(self, "roll without dims")
    axes, by = sizes_of((dims,)), sizes_of((shifts,))
    if self.edge is not None and len(axes) == len(by) == 1 and self.dims[self._axis("roll", axes[0])] == "L":
        return rolled(self, by[0])
    x = self.in_order()
    if len(by) != len(axes):
        raise ShapeError(f"roll: {len(by)} shifts for {len(axes)} dimensions")
    for d, n in zip(axes, by):
        axis = _feature(x, "roll", d)
        x = forward.index_features(x, axis, (np.arange(x.features[axis]) - n) % x.features[axis])
    return writing.copied(x)


def _reduced_so_far(x: Any, name: str, dim: Any, kind: str) -> Any:
    """Return what comes of all so far along a dimension, of L or of features."""
    if x.dims[x._axis(name, dim)] == "L":
        return forward.so_far(x, kind)
    x = x.in_order()
    return forward.running(x, _feature(x, name, dim), kind)


def _so_far(name: str, kind: str) -> Callable[..., Any]:
    def own(self: Any, dim: Any, dtype: Any = None) -> Any:
        return _reduced_so_far(self if dtype is None else self.to(dtype), name, dim, kind)

    return own


def _extreme_so_far(name: str, kind: str) -> Callable[..., Any]:
    def own(self: Any, dim: Any) -> Extreme:
        values = _reduced_so_far(self, name, dim, kind)
        return Extreme(values.to(self.dtype), _reduced_so_far(self, name, dim, f"arg{kind}"))

    return own


def _index_select(self: Any, dim: Any, index: Any) -> Any:
    x, at = self.in_order(), self._axis("index_select", dim)
    if index is SAME_ORDER or self.dims[at] == "L":
        return _part(self, at, index)
    axis = _feature(x, "index_select", dim)
    places = np.asarray(index.numpy() if isinstance(index, Tensor) else index).reshape(-1)
    if not len(places):
        raise ShapeError.here("index_select: a stream without features can't be; give an index or more")
    return writing.copied(
        forward.index_features(x, axis, [forward._from_front(int(i), x.features[axis]) for i in places])
    )


#: Methods along one dimension that keep it, and what they are inside a forward.
ALONG: dict[str, Callable[..., Any]] = {
    "cumsum": _so_far("cumsum", "sum"),
    "cumprod": _so_far("cumprod", "prod"),
    "logcumsumexp": _so_far("logcumsumexp", "logsumexp"),
    "cummax": _extreme_so_far("cummax", "max"),
    "cummin": _extreme_so_far("cummin", "min"),
    "flip": _flip,
    "roll": _roll,
}


def _along(name: str, inside: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method along one dimension that keeps it: `inside` a forward, and of the call's frames outside."""
    plain = getattr(Tensor, name)
    *before, key = OPERATIONS[name].arguments

    def own(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.edge is not None:
            return inside(self, *args, **kwargs)
        if name == "flip" and len(args) > 1:
            args = (args,)
        rest = {**dict(zip((*before, key, "dtype"), args)), **kwargs}
        dim = rest.pop(key, None)
        while isinstance(dim, (list, tuple)) and len(dim) == 1:
            (dim,) = dim

        def run(t: Any, a: Any) -> Any:
            return plain(t, **rest, **{key: (a,) if name == "flip" and isinstance(a, int) else a})

        if dim is None or isinstance(dim, (list, tuple)):
            return run(chunks.fall_back(self, name), dim)
        axis = self._axis(name, dim)
        if isinstance(self.dims[axis], str):
            return run(chunks.fall_back(self, f"{name} along {self.dims[axis]}"), axis)
        return chunks.per_frame(self, axis, run, True)

    own.__doc__ = plain.__doc__
    return own


def _plain_only(name: str, inside: Callable[..., Any] | None = None) -> Callable[..., Any]:
    plain = getattr(Tensor, name)

    def own(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.edge is not None and inside is not None:
            return inside(self, *args, **kwargs)
        if self.edge is not None:
            raise _refuse(self, name)
        return plain(chunks.fall_back(self, name), *args, **kwargs)

    own.__doc__ = plain.__doc__
    return own


# ---------------------------------------------------------------------- views
_detached = StreamTensor.detach


def detach(self: Any) -> Any:
    return in_loop(self, "detach") if self.value is None else _detached(self)


def _back_permuted(x: Any, v: Any, *dims: Any) -> Any:
    order = [x._axis("permute", d) for d in sizes_of(dims)]
    return v.permute(*[order.index(i) for i in range(x.ndim)])


def _back_shaped(x: Any, v: Any, *_: Any, **__: Any) -> Any:
    own, v = x.in_order(), v.in_order()
    return forward.reshape_features(v, own.features, own.dims).with_dims(own.dims, own.names)


def _back_viewed(x: Any, v: Any, *_: Any, **__: Any) -> Any:
    return v.reshape(*x.shape)


#: What shares memory: by its name the method, and what puts a view back where it was taken from.
VIEWS: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "permute": (permute, _back_permuted),
    "unsqueeze": (unsqueeze, _back_shaped),
    "squeeze": (squeeze, _back_shaped),
    "view": (reshape, _back_viewed),
    "unflatten": (unflatten, _back_viewed),
    "expand": (expand, None),
    "unfold": (unfold, None),
}

REDUCTIONS = (
    "sum", "prod", "mean", "var", "std", "norm", "logsumexp", "max", "min", "amax", "amin", "argmax", "argmin",
    "all", "any",
)  # fmt: skip

take(
    StreamTensor,
    globals(),
    __matmul__=matmul,
    _across=_across,
    _cat=_cat,
    _count=_count,
    _parts=_parts,
    **{name: outside(name) for name in REDUCTIONS},
    **{name: _along(name, inside) for name, inside in ALONG.items()},
    index_select=_plain_only("index_select", _index_select),
    **{name: _plain_only(name) for name in ("masked_select", "addmm")},
)
take(
    StreamTensor,
    **{name: writing.viewing(method, back) for name, (method, back) in VIEWS.items()},
    __getitem__=writing.viewing(__getitem__, put, copies=writing.has_arrays),
    **{f.__name__: writing.viewing(f, None, certain=False) for f in (reshape, flatten, contiguous, detach)},
)
