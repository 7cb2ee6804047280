"""The first frames of a stream, ``x[:, 0]``, ``x[:, :1]`` or ``x[:, :k]`` inside a forward, or one of them.

An operation on them alone runs on every frame, and only the first results are used; one that goes over them, as
their mean does, runs on all frames so far, or on windows. Beside other frames a first frame is repeated; the first
frames join others in front, and the first one is what a loop over frames begins with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NoReturn

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..operations import ARITHMETIC, BINARY, OPERATIONS, RELATIONS, UNARY, ours
from ..source_line import user_line
from ..stream.edge import Request
from ..stream.foreign import inner_of
from ..stream.rules import Length, is_full_slice
from . import writing
from .dimension_arguments import LikeOthers, numbered, parts_of, sizes_of
from .ends import bound_of, where_filled
from .fades import placed
from .loops import Loop
from .operators import run
from .protocol import refuse_the_rest
from .stream_tensor import StreamTensor
from .tensor import Tensor

#: Functions of elements, beside those of `OPERATIONS`.
_BY_ELEMENTS = frozenset((
    "pos", "where", "masked_fill", *(row.name for row in (*UNARY, *BINARY)), *RELATIONS, *ARITHMETIC,
    *(f"r{name}" for name in ARITHMETIC),
))  # fmt: skip
#: Kinds of functions of a frame's features, and of frames up to each.
_OF_FEATURES = frozenset((
    "reduction", "along", "permuted", "unsqueeze", "squeeze", "reshaped", "matmul", "einsum", "linear", "gather",
    "last dimensions", "angles", "split", "unbind", "select", "narrow", "index_select", "take_along_dim",
))  # fmt: skip
#: Kinds of functions that go over dimensions.
_OVER = ("reduction", "along")
#: What some of them are of all frames so far.
_SO_FAR = {"sum": "sum", "mean": "mean", "prod": "prod", "logsumexp": "logsumexp", "amax": "max", "amin": "min"}
#: The most first frames that are looked at together, as a window of so many frames that begins at each frame.
_MOST_TOGETHER = 64
_AS_IT_IS = frozenset((
    "full_like", "clone", "contiguous", "detach", "to", "float", "type_as", "double", "half", "bfloat16", "int",
    "long", "bool",
))  # fmt: skip
_FILLED = {"zeros_like": "new_zeros", "ones_like": "new_ones", "empty_like": "new_empty"}


class FirstFrame(LikeOthers):
    """``x[:, 0]`` and ``x[:, :k]`` inside a forward, the first frames of a stream with L at `axis`.

    `keeps` says whether L stays; the first frame then stands there `times` times, one behind the other. `count` is
    how many first frames these are, as k of ``x[:, :k]``; a shorter stream has fewer.
    """

    is_stream = False
    stop = 1
    """Where they end in the stream that they were taken of, if they are several."""
    side_by_side = False
    """Whether several stand in L's place as features of one frame."""

    def __init__(self, stream: StreamTensor, axis: int, keeps: bool, times: int = 1, count: int = 1) -> None:
        self.stream, self.axis, self.keeps, self.times, self.count = stream, axis, keeps, times, count
        self.line = user_line()
        #: A stream and an index, if the frames are written into.
        self.taken_of: tuple[StreamTensor, Any] | None = None

    def state(self) -> tuple[Any, ...]:
        """Return what it says of its stream, as `of_state` takes it."""
        return self.axis, self.keeps, self.times, self.count, self.stop, self.side_by_side

    def of_state(self, stream: StreamTensor, taken_of: Any = None) -> FirstFrame:
        """Return the same first frames of another call's stream."""
        out = object.__new__(FirstFrame)
        out.__dict__.update(self.__dict__, stream=stream, taken_of=taken_of)
        return out

    # ------------------------------------------------------------------ what it looks like
    @property
    def shape(self) -> tuple[Any, ...]:
        sizes = list(self.stream.shape)
        sizes[self.axis : self.axis + 1] = [self.times * self.count] if self.keeps else []
        return tuple(sizes)

    def size(self, dim: int | None = None) -> Any:
        """Return the sizes, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    ndim = property(lambda self: self.stream.ndim - (not self.keeps))
    dtype = property(lambda self: self._seen.dtype)
    device = property(lambda self: self._seen.device)

    def dim(self) -> int:
        """Return how many dimensions it has."""
        return int(self.ndim)

    @property
    def _seen(self) -> Any:
        """All frames, as the forward sees them."""
        return self.stream.edge.entry.library.see(self.stream)  # type: ignore[union-attr]

    def _like(self, stream: Any, axis: int | None = None) -> FirstFrame:
        inner = inner_of(stream)
        axis = self.axis if axis is None else axis
        if type(inner) is not StreamTensor or inner.dims[axis : axis + 1] != ("L",):
            self.refuse("what is computed like this")
        made = self._as(inner, self.keeps, axis, self.times, self.count)
        made.side_by_side = self.side_by_side
        return made

    def _as(self, stream: Any, keeps: bool, axis: int | None = None, times: int = 1, count: int = 1) -> FirstFrame:
        """Return the first frames of another stream, taken where these were."""
        made = FirstFrame(stream, self.axis if axis is None else axis, keeps, times, count)
        made.stop = self.stop
        return made

    # ------------------------------------------------------------------ what is computed of it
    def apply_function(
        self, name: str, call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Return what a function gives of it, and of other arguments."""
        target = args[0] if args else kwargs.get("input")
        is_written = kwargs.get("inplace") or (name.endswith("_") and not name.endswith("__"))
        if is_written and isinstance(inner_of(target), FirstFrame):
            self.refuse(f"{name} in place")
        name = name.strip("_")
        name = name[1:] if name[:1] == "i" and name[1:] in ARITHMETIC else name  # +=
        name = name if name in _BY_ELEMENTS else ours(name.removesuffix("_function"))
        if name in ("cat", "stack"):
            return (self._joined if name == "cat" else self._stacked)(call, *args, **kwargs)
        if name in _FILLED and self.keeps:  # of a stream without frames there is none
            return self._like(call(self._seen, *args[1:], **kwargs))
        if name in _FILLED:
            return getattr(self._seen, _FILLED[name])(self.shape)
        kind = OPERATIONS[name].outside if name in OPERATIONS else ""
        by_elements = name in _BY_ELEMENTS | _AS_IT_IS or kind == "elementwise"
        if by_elements and self.keeps and self.times == 1:
            first = partial(self._as, keeps=True, count=self.count)
            args = placed(args, self.stream, self.axis, self.count, first)
        others = [inner_of(a) for a in (*args, *kwargs.values())]
        streams = [
            x for x in others if not isinstance(x, FirstFrame) and any(isinstance(n, Length) for n in _shape(x))
        ]
        dims, more = self._dims(name, kind, args, kwargs)
        if self.keeps and self.axis in dims and not streams and self.times == 1:
            return self._over(name, call, dims, more)
        if not by_elements and (streams or self.times > 1 or kind not in _OF_FEATURES):
            self.refuse(name)
        firsts = [x for x in others if isinstance(x, FirstFrame)]
        if streams and any(x.times * x.count > 1 for x in firsts):
            self.refuse(name)
        if streams:
            places = [len(_shape(x)) - self.stream.ndim + self.axis for x in streams]
            if any(at < 0 or not isinstance(_shape(x)[at], Length) for at, x in zip(places, streams)):
                self.refuse(f"{name} of frames that lie elsewhere, and")
            like = next((x for x in streams if type(x) is StreamTensor and x._waiting is None), None)
            return call(
                *(_beside_frames(x, like) for x in args), **{k: _beside_frames(v, like) for k, v in kwargs.items()}
            )
        if len({(x.keeps, x.side_by_side, x.times, x.count) for x in firsts}) > 1:
            self.refuse(f"{name} of other numbers")
        if not self.keeps and dims and args[0] is self:
            return self._of_features(name, call, dims, more)
        is_product = kind in ("matmul", "last dimensions") and isinstance(args[0], FirstFrame)
        if not self.keeps and not by_elements:
            if name != "linear" and not is_product:
                self.refuse(name)
        elif not self.keeps:
            ranks = [getattr(x, "ndim", 0) for x in others if not isinstance(x, FirstFrame)]
            if max(ranks, default=0) > self.stream.ndim - self.axis - 1:
                self.refuse(name)
        seen = dict(zip(map(id, firsts), _of_one_length(firsts)))
        out = call(*(seen.get(id(x), x) for x in args), **{k: seen.get(id(v), v) for k, v in kwargs.items()})
        return _each(partial(self._first, name, by_elements), out)

    def _first(self, name: str, by_elements: bool, out: Any) -> FirstFrame:
        """Return the first frames of what a function gives, whose frames follow from none behind them."""
        made = inner_of(out)
        if type(made) is not StreamTensor or "L" not in made.dims:
            self.refuse(name)
        if not by_elements and made.edge.cid != self.stream.edge.cid:  # type: ignore[union-attr]
            self.refuse(name)
        return self._like(made, made.dims.index("L"))

    def _dims(self, name: str, kind: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[int], Any]:
        """Return the dimensions that a function goes over, and its other arguments; none where it takes others."""
        given, named = list(args[1:]), dict(kwargs)
        dims = next((named.pop(n) for n in ("dim", "dims", "axis") if n in named), None)
        row = OPERATIONS.get(name)
        if dims is None and given and row is not None and row.arguments[:1] in (("dim",), ("dims",)):
            dims, given = (given, []) if name == "flip" and type(given[0]) is int else (given[0], given[1:])
        if len(given) == 1 and type(given[0]) is bool and kind == "reduction":
            named["keepdim"] = given.pop()
        dims = list(dims) if isinstance(dims, (tuple, list)) else [dims]
        if kind not in _OVER or given or any(type(d) is not int for d in dims):
            return [], named
        return [d % self.ndim for d in dims], named

    def _of_features(self, name: str, call: Callable[..., Any], dims: Sequence[int], more: dict[str, Any]) -> Any:
        """Return what a function gives that goes over dimensions of a frame."""
        at = [d + (d >= self.axis) for d in dims]
        given: Any = {"dim": at[0] if len(at) == 1 else tuple(at)}
        out = call(self._seen, at) if name == "flip" else call(self._seen, **given, **more)
        over = self.side_by_side and self.axis in dims

        def first(out: Any) -> FirstFrame:
            made = self._first(name, False, out)
            made.side_by_side = self.side_by_side and not (over and made.stream.ndim < self.stream.ndim)
            if over and more.get("keepdim"):  # one frame stands in L's place again
                return self._as(made.stream.squeeze(made.axis + 1), True, made.axis)
            return made

        return _each(first, out)

    def _over(self, name: str, call: Callable[..., Any], dims: Sequence[int], more: dict[str, Any]) -> Any:
        """Return what a function gives that goes over these frames."""
        if name in _SO_FAR and not more.keys() - {"keepdim"} and [*dims] == [self.axis] and self._is_real():
            so_far = self.stream._operate("cumulative", {"kind": _SO_FAR[name]})  # of shorter streams all
            last = self.count - 1
            return self._as(so_far._padded(-last, last, mode="replicate"), bool(more.get("keepdim")))
        return self.among_features()._of_features(name, call, dims, more)

    def _is_real(self) -> bool:
        return np.dtype(self.stream.dtype).kind == "f"

    def among_features(self) -> FirstFrame:
        """Return the first frame of a stream that has all of these, in L's place among its features."""
        if not self.keeps:
            return self
        if self.count > _MOST_TOGETHER or self.times > 1:
            self.refuse(f"what is no sum, mean or extreme and goes over more than {_MOST_TOGETHER}")
        self.stream.require_frames(self.count)
        windows = self.stream.unfold(self.axis, self.count, 1)
        made = self._as(windows.movedim(-1, self.axis + 1), False)
        made.side_by_side = True
        return made

    def one_by_one(self) -> list[FirstFrame]:
        """Return each of the frames, with L in its place."""
        frames: Any = [(slice(None),) * self.axis + (slice(j, None),) for j in range(self.count)]
        return [self._as(self.stream[part], True) for part in frames]

    # ------------------------------------------------------------------ before others
    def parts(self, axis: int) -> list[FirstFrame]:
        """Return frames that stand along a dimension, each with L there; all at once where they are a stream's."""
        if self.keeps and axis == self.axis:
            return [self] * self.times
        if axis != self.axis or not self.side_by_side:
            self.refuse("cat along other dimensions, or behind frames,")
        return [
            FirstFrame(self.stream.select(axis + 1, j), axis, True) for j in range(self.stream.shape[axis + 1])
        ]

    def _joined(self, call: Callable[..., Any], tensors: Sequence[Any], dim: int = 0, axis: int = 0) -> Any:
        """Return frames with the first ones of streams before them."""
        firsts = [x for x in tensors if isinstance(x, FirstFrame)]
        rest = [x for x in tensors if not isinstance(x, FirstFrame)]
        axis = (dim or axis) % self.ndim
        if firsts != list(tensors[: len(firsts)]) or not rest:
            self.refuse("cat along other dimensions, or behind frames,")
        parts = [part for x in firsts for part in x.parts(axis)]
        library = self.stream.edge.entry.library  # type: ignore[union-attr]
        seen = rest[0] if len(rest) == 1 else call(rest, axis)
        made = inner_of(seen)
        if type(made) is not StreamTensor or made.dims[axis : axis + 1] != ("L",):
            self.refuse("cat with what has no frames")
        for first in reversed(parts):
            made = with_first(made, first)
        return library.see(made)

    def _stacked(self, call: Callable[..., Any], tensors: Sequence[Any], dim: int = 0) -> FirstFrame:
        """Return single frames side by side, in L's place."""
        axis = dim % (self.ndim + 1)
        if any(not isinstance(x, FirstFrame) or x.keeps or x.axis != axis for x in tensors):
            self.refuse("stack along other dimensions, or with others,")
        made = call(_of_one_length(tensors), axis + 1)
        first = FirstFrame(inner_of(made), axis, False)
        first.side_by_side = True
        return first

    # ------------------------------------------------------------------ dimensions
    def unsqueeze(self, dim: int) -> Any:
        """Return it with one dimension more; in L's place that is L's."""
        axis = dim % (self.ndim + 1)
        if not self.keeps and axis == self.axis:
            return FirstFrame(self.stream, self.axis, True)
        place = axis + (not self.keeps and axis > self.axis)
        return self._like(self._seen.unsqueeze(place), self.axis + (place <= self.axis))

    def squeeze(self, dim: int) -> Any:
        """Return it without the dimension that is L's."""
        if self.keeps and self.times * self.count == 1 and dim % self.ndim == self.axis:
            return FirstFrame(self.stream, self.axis, False)
        self.refuse("squeeze")

    def expand(self, *sizes: Any) -> Any:
        """Return it so many times, one behind the other, or as often as there are frames."""
        sizes, own = sizes_of(sizes), self.shape
        if not self.keeps or len(sizes) != len(own) or self.times * self.count != 1:
            self.refuse("expand")
        same = all(i == self.axis or s is own[i] or s in (-1, own[i]) for i, s in enumerate(sizes))
        times = sizes[self.axis]
        if same and isinstance(times, Length):
            return self.stream.edge.entry.library.see(for_each_frame(self))  # type: ignore[union-attr]
        if not same or not isinstance(times, int):
            self.refuse("expand")
        return self if times == -1 else FirstFrame(self.stream, self.axis, True, times)

    def repeat(self, *sizes: Any) -> Any:
        """Return it so many times, one behind the other."""
        sizes = sizes_of(sizes)
        once = [isinstance(s, int) and s == 1 for s in sizes]
        if len(sizes) != self.ndim or not all(o or i == self.axis for i, o in enumerate(once)):
            self.refuse("repeat")
        return self.expand(*(s if i == self.axis else -1 for i, s in enumerate(sizes)))

    def __getitem__(self, index: Any) -> Any:
        parts = parts_of(index, self.ndim)
        if not self.keeps and all(p is None or is_full_slice(p) for p in parts) and None in parts:
            out: Any = self
            for i in [i for i, p in enumerate(parts) if p is None]:
                out = out.unsqueeze(i)
            return out
        if self.keeps and len(parts) > self.axis and parts[self.axis] == 0 and None not in parts[: self.axis]:
            rest = [slice(None) if i == self.axis else p for i, p in enumerate(parts)]
            return self._as(self._like(self._seen[tuple(rest)]).stream, False)
        before = parts[: self.axis]
        if not all(map(is_full_slice, before)) or (
            self.keeps and not all(map(is_full_slice, parts[self.axis : self.axis + 1]))
        ):
            self.refuse("this index")
        behind = parts[self.axis + self.keeps :]
        own: Any = (*(slice(None),) * (self.axis + 1), *behind)
        return self._like(self._seen[own])

    # ------------------------------------------------------------------ in a loop
    def frame(self, loop: Loop) -> Any:
        """Return it in the body of a loop, whose first frame it is given to."""
        if self.count > 1:
            self.refuse("the begin of a loop that is several")
        made: Any = loop.input(
            (self.stream.edge, self.stream.value, -loop.first),
            lambda: loop.shifted(self.stream.in_order(), -loop.first),
        )
        return made.unsqueeze(self.axis) if self.keeps else made

    # ------------------------------------------------------------------ what it is not for
    def refuse(self, name: str) -> NoReturn:
        """Say what it is not for."""
        if self.stop > 1:
            raise NotStreamableError(
                f"{name} of some frames of a stream, taken at {self.line}: it ends at the constant position "
                f"{self.stop}, after which the output would go on without frames; use a stop counted from the end "
                "(x[..., :-b]) or another tensor's length (x[..., :y.size(L)]). They may be computed with by "
                "elements, summed up (x[:, :k].mean(1)), and stand before frames (cat)"
            )
        raise NotStreamableError(
            f"{name} of a frame of a stream, taken at {self.line}: a frame at a constant position comes once, and "
            "is no stream; use a slice (x[..., a:], x[..., :-b], x[..., ::k]), or pick the frame "
            "outside the forward. It may be computed with by elements, stand before frames (cat), and a loop over "
            "frames may begin with it, which is written for t in range(x.size(1)), not by while"
        )

    def as_output(self) -> NoReturn:
        """Refuse to leave the forward."""
        self.refuse("an output")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name.endswith("_"):
            self.refuse(name)
        return partial(self._method, name)

    def _method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        def call(x: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(x, name)(*args, **kwargs)

        return self.apply_function(name, call, (self, *args), kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return first_of((*args, *(kwargs or {}).values()), True).apply_function(
            func.__name__, func, args, kwargs or {}
        )


def _operator(name: str) -> Callable[..., Any]:
    def method(self: FirstFrame, *others: Any) -> Any:
        return self._method(name, *others)

    return method


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: FirstFrame, other: Any) -> FirstFrame:
        if self.taken_of is None:
            self.refuse(f"{name} in place")
        x, index = self.taken_of
        x[index] = self._method(f"__{name}__", other)
        return self

    return method


for _name in ARITHMETIC:
    setattr(FirstFrame, f"__i{_name}__", _in_place(_name))
for _name in (*ARITHMETIC, *RELATIONS, "matmul", *(f"r{name}" for name in ARITHMETIC), "neg", "abs", "pos"):
    setattr(FirstFrame, f"__{_name}__", _operator(f"__{_name}__"))
refuse_the_rest(FirstFrame, FirstFrame.refuse, copies=True)


def first_of(values: Any, within: bool = False) -> Any:
    """Return the first argument that is a first frame, or is in a list where `within`; else None."""
    for x in values:
        if type(x) is FirstFrame:
            return x
        if within and type(x) in (list, tuple) and (found := first_of(x)) is not None:
            return found
    return None


def _shape(x: Any) -> Any:
    return getattr(x, "shape", ())


def _each(f: Callable[[Any], Any], out: Any) -> Any:
    """Return what a function gives of a value, or of each of several."""
    if not isinstance(out, (tuple, list)):
        return f(out)
    parts = list(map(f, out))
    return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)


def _of_one_length(firsts: Sequence[FirstFrame]) -> list[Any]:
    """Return the streams whose first frames are meant, as the forward sees them, without what some have more."""
    library = firsts[0].stream.edge.entry.library  # type: ignore[union-attr]
    own: Any = [library.length(x.stream.edge) for x in firsts]
    more = [where_filled(n - own[0]) for n in own]
    least = min((m for m in more if isinstance(m, int)), default=0)
    crops = [m - least if isinstance(m, int) else 0 for m in more]
    return [library.see(_longer(x.stream, -n)) if n else x._seen for x, n in zip(firsts, crops)]


def _beside_frames(x: Any, like: Any) -> Any:
    """Return a first frame for each frame of its stream, or of another that is some frames longer or shorter."""
    if not isinstance(x, FirstFrame):
        return x
    library, out = x.stream.edge.entry.library, for_each_frame(x)  # type: ignore[union-attr]
    more = 0 if like is None else where_filled(library.length(x.stream.edge) - library.length(like.edge))
    return library.see(_longer(out, -more) if isinstance(more, int) and more else out)


def _longer(x: StreamTensor, more: int) -> StreamTensor:
    """Return frames with so many of the first before them, or so many less at the end where that is below 0."""
    return x._padded(max(more, 0), min(more, 0), mode="replicate")


def for_each_frame(first: FirstFrame) -> StreamTensor:
    """Return a first frame for each frame of its stream: a loop that carries it on."""
    if not first.keeps:
        first.refuse("arithmetic with frames")
    x: Any = first.stream.in_order()
    carried = {"name": "first", "dtype": str(x.edge.dtype), "shape": list(x.features)}
    bodies = [{"nodes": [], "carried": [i], "outputs": [i]} for i in (0, 1)]  # values: the frame, what is carried
    body = json.dumps({"carried": [carried], "bodies": bodies}, separators=(",", ":"))
    ((value, edge),) = run(Request("scan", {"body": body}, [x.edge], [x.value], [None]))
    out = StreamTensor.inside(value, ("B", "L", *range(len(x.features))), edge)
    return out.with_dims(numbered(first.stream.dims))


def at_one_frame(x: StreamTensor, index: Any) -> Any:
    """Return an index of frames by a constant of one place, the first or the last, as the place or its slice."""
    if x.edge is None or "L" not in x.dims:
        return index
    parts = list(index) if type(index) is tuple else [index]
    at = [i for i, p in enumerate(parts) if type(p) is list or (isinstance(p, Tensor) and not p.is_stream)]
    if len(at) != 1 or any(p is Ellipsis for p in parts):
        return index
    (i,), place = at, np.asarray(getattr(parts[at[0]], "numpy", lambda: parts[at[0]])())
    if sum(p is not None for p in parts[:i]) != x.dims.index("L") or place.size != 1 or place.dtype.kind != "i":
        return index
    number = int(place.reshape(()))
    if number not in (0, -1) or place.ndim > 1:
        return index
    parts[i] = slice(number, number + 1 or None) if place.ndim else number
    return tuple(parts)


def first_frame(x: StreamTensor, index: Any) -> Any:
    """Return what an index takes where that is a frame, or some, at constant positions from the start; else None.

    In the body of a loop that is a frame which the loop carries on.
    """
    if "L" not in x.dims or (x.edge is not None and x.edge.line.static):
        return None
    parts = parts_of(index, x.ndim)
    axis = x.dims.index("L")
    places = [i for i, p in enumerate(parts) if p is not None]
    part = parts[places[axis]]
    ends: tuple[Any, ...] = (part, part, 1)
    if type(part) is slice:
        start, stop = part.start, part.stop
        if x.edge is not None:
            start, stop = (bound_of(at, x.edge.entry.library.length(x.edge)) for at in (start, stop))
        ends = (0 if start is None else start, stop, 1 if part.step is None else part.step)
    if any(type(n) is not int for n in ends) or ends[2] != 1 or ends[0] < 0:
        return None
    keeps, start, count = type(part) is slice, ends[0], ends[1] - ends[0] if type(part) is slice else 1
    if count < 1:
        return None
    loop = getattr(x.edge.entry, "loop", None) if x.edge is not None else None
    if isinstance(loop, Loop) and x.edge.entry is loop.entry:  # type: ignore[union-attr]
        if start or count > 1:
            return None
        frame: Any = loop.first_frame(x)
        own = [slice(None)] if keeps else []
        taken = (*parts[: places[axis]], *own, *parts[places[axis] + 1 :])
        return (frame.unsqueeze(axis) if keeps else frame)[taken]
    if all(map(is_full_slice, parts[:axis] + parts[axis + 1 :])) and not start:
        made = FirstFrame(writing.viewed(x, writing.copied(x), writing.copied, None, (), {}), axis, keeps)
        made.taken_of = (x, index)
    elif len(places) < len(parts) or not all(map(is_full_slice, parts[:axis])):
        return None
    else:
        at: Any = (*parts[:axis], slice(start, None), *parts[axis + 1 :])
        some = x[at]
        if type(some) is not StreamTensor or some.dims[axis : axis + 1] != ("L",):
            return None
        made = FirstFrame(some, axis, keeps)
    made.count, made.stop = count, start + count if count > 1 else 1
    return made


def write_first(x: StreamTensor, index: Any, value: FirstFrame) -> bool:
    """Write first frames into those at an index, and say so; False where they aren't written there."""
    at = first_frame(x, index)
    if type(at) is not FirstFrame or at.taken_of is None:
        return False
    parts = value.parts(at.axis) if at.keeps else [value]
    if sum(part.count for part in parts) != at.count:
        value.refuse(f"assignment to {at.count} frames")
    made = x[(slice(None),) * at.axis + (slice(at.count, None),)]
    for part in reversed(parts):
        made = with_first(made, part)
    writing.write(x, made, "assignment")
    return True


def with_first(frames: Any, first: FirstFrame, behind: int | None = None) -> Any:
    """Return frames with the first ones of a stream before them; `behind` is how many that has more at its end."""
    whole: Any = first.stream.in_order()
    if frames.in_order().features != whole.features or frames.dtype != first.stream.dtype:
        raise ShapeError.here(f"cat: a first frame {first.stream.roles} before frames {frames.roles}")
    length = whole.edge.entry.library.length
    if behind is None:
        behind = where_filled(length(whole.edge) - length(frames.in_order().edge) - first.count)
    if not isinstance(behind, int):
        first.refuse("cat with frames of another length, and")
    if behind < 0:
        for x, least in ((frames.in_order(), -behind), (whole, first.count)):
            x.require_frames(least)  # shorter streams have fewer frames to put before the others
        if first.count > 1:
            return reduce(with_first, reversed(first.one_by_one()), frames)
    whole = _longer(whole, max(-behind, 0))
    if behind > 0:
        whole = whole[:, : (length(whole.edge) - behind).at_least(first.count)]
    out = writing.put_frames(whole, frames, first.count, 0)
    return out.with_dims(numbered(frames.dims))
