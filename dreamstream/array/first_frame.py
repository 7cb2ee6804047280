"""The first frame of a stream, ``x[:, 0]`` or ``x[:, :1]`` inside a forward.

What is computed of it alone is computed of all frames, of which the first is meant. It meets other frames as many
times as these are, joins them in front, and is what a loop over frames begins with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..operations import ARITHMETIC, BINARY, OPERATIONS, RELATIONS, UNARY, ours
from ..source_line import user_line
from ..stream.edge import Request
from ..stream.rules import Length
from .dimension_arguments import numbered, parts_of
from .elementwise import ones_of, where
from .loop_frames import is_all
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
_AS_IT_IS = frozenset(("full_like", "clone", "contiguous", "detach", "to", "float", "type_as"))
_FILLED = {"zeros_like": "new_zeros", "ones_like": "new_ones", "empty_like": "new_empty"}


class FirstFrame:
    """``x[:, 0]`` and ``x[:, :1]`` inside a forward.

    Parameters
    ----------
    stream : StreamTensor
        Whose first frame it is.
    axis : int
        Where L is.
    keeps : bool
        Whether L stays, of one frame.
    times : int
        How often it stands there, one behind the other.
    """

    is_stream = False

    def __init__(self, stream: StreamTensor, axis: int, keeps: bool, times: int = 1) -> None:
        self.stream, self.axis, self.keeps, self.times = stream, axis, keeps, times
        self.line = user_line()

    # ------------------------------------------------------------------ what it looks like
    @property
    def shape(self) -> tuple[Any, ...]:
        sizes = list(self.stream.shape)
        sizes[self.axis : self.axis + 1] = [self.times] if self.keeps else []
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
        inner = getattr(stream, "_inner", stream)
        axis = self.axis if axis is None else axis
        if type(inner) is not StreamTensor or inner.dims[axis : axis + 1] != ("L",):
            self.refuse("what is computed like this")
        return FirstFrame(inner, axis, self.keeps, self.times)

    # ------------------------------------------------------------------ what is computed of it
    def through(self, name: str, call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return what a function gives of it, and of other arguments."""
        name = name.strip("_")
        name = name[1:] if name[:1] == "i" and name[1:] in ARITHMETIC else name  # +=
        name = name if name in _BY_ELEMENTS else ours(name.removesuffix("_function"))
        if name == "cat":
            return self._joined(call, *args, **kwargs)
        if name in _FILLED and self.keeps:  # of a stream without frames there is none
            return self._like(call(self._seen, *args[1:], **kwargs))
        if name in _FILLED:
            return getattr(self._seen, _FILLED[name])(self.shape)
        kind = OPERATIONS[name].outside if name in OPERATIONS else ""
        by_elements = name in _BY_ELEMENTS | _AS_IT_IS or kind == "elementwise"
        others = [a._inner if hasattr(type(a), "_inner") else a for a in (*args, *kwargs.values())]
        streams = [
            x for x in others if not isinstance(x, FirstFrame) and any(isinstance(n, Length) for n in _shape(x))
        ]
        if not by_elements and (streams or self.times > 1 or kind not in _OF_FEATURES):
            self.refuse(name)
        if self.times > 1 and streams:
            self.refuse(name)
        if streams:
            places = [len(_shape(x)) - self.stream.ndim + self.axis for x in streams]
            if any(at < 0 or not isinstance(_shape(x)[at], Length) for at, x in zip(places, streams)):
                self.refuse(f"{name} of frames that lie elsewhere, and")
            like = next((x for x in streams if type(x) is StreamTensor and x._waiting is None), None)
            return call(*(_held(x, like) for x in args), **{k: _held(v, like) for k, v in kwargs.items()})
        if not self.keeps and not by_elements:
            args, kwargs = self._among_frames(name, kind, args, kwargs)
        elif not self.keeps:
            ranks = [getattr(x, "ndim", 0) for x in others if not isinstance(x, FirstFrame)]
            if max(ranks, default=0) > self.stream.ndim - self.axis - 1:
                self.refuse(name)
        out = call(*map(_all, args), **{k: _all(v) for k, v in kwargs.items()})
        if isinstance(out, (tuple, list)):
            parts = [self._first(name, x, by_elements) for x in out]
            return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
        return self._first(name, out, by_elements)

    def _first(self, name: str, out: Any, by_elements: bool) -> FirstFrame:
        """Return the first frame of what a function gives, whose frames follow from none behind them."""
        made = getattr(out, "_inner", out)
        if type(made) is not StreamTensor or "L" not in made.dims:
            self.refuse(name)
        if not by_elements and made.edge.cid != self.stream.edge.cid:  # type: ignore[union-attr]
            self.refuse(name)
        return self._like(made, made.dims.index("L"))

    def _among_frames(self, name: str, kind: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the arguments of a function of features with its dimension counted among those of all frames."""
        if name == "linear" or (kind in ("matmul", "last dimensions") and isinstance(args[0], FirstFrame)):
            return args, kwargs
        given = [*args[1:], *(v for k, v in kwargs.items() if k not in ("keepdim", "dim"))]
        if kind not in ("reduction", "along") or any(type(x) is not int for x in given[1:]):
            self.refuse(name)
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if type(dim) is not int or len(given) > ("dim" not in kwargs):
            self.refuse(name)
        dim %= self.ndim
        return args[:1], {**kwargs, "dim": dim + (dim >= self.axis)}

    def _joined(self, call: Callable[..., Any], tensors: Sequence[Any], dim: int = 0, axis: int = 0) -> Any:
        """Return frames with the first one of a stream before them."""
        firsts = [x for x in tensors if isinstance(x, FirstFrame)]
        rest = [x for x in tensors if not isinstance(x, FirstFrame)]
        axis = (dim or axis) % self.ndim
        if (
            not all(x.keeps and x.axis == axis for x in firsts)
            or firsts != list(tensors[: len(firsts)])
            or not rest
        ):
            self.refuse("cat along other dimensions, or behind frames,")
        library = self.stream.edge.entry.library  # type: ignore[union-attr]
        seen = rest[0] if len(rest) == 1 else call(rest, axis)
        made = getattr(seen, "_inner", seen)
        if type(made) is not StreamTensor or made.dims[axis : axis + 1] != ("L",):
            self.refuse("cat with what has no frames")
        for first in reversed(firsts):
            for _ in range(first.times):
                made = with_first(made, first)
        return library.see(made)

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
        if self.keeps and self.times == 1 and dim % self.ndim == self.axis:
            return FirstFrame(self.stream, self.axis, False)
        self.refuse("squeeze")

    def expand(self, *sizes: Any) -> Any:
        """Return it so many times, one behind the other, or as often as there are frames."""
        sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
        own = self.shape
        if not self.keeps or len(sizes) != len(own) or self.times != 1:
            self.refuse("expand")
        same = all(i == self.axis or s is own[i] or s in (-1, own[i]) for i, s in enumerate(sizes))
        times = sizes[self.axis]
        if same and isinstance(times, Length):
            return self.stream.edge.entry.library.see(held(self))  # type: ignore[union-attr]
        if not same or not isinstance(times, int):
            self.refuse("expand")
        return self if times == -1 else FirstFrame(self.stream, self.axis, True, times)

    def expand_as(self, other: Any) -> Any:
        """Return it as often as another tensor has frames."""
        return self.expand(other.shape)

    def repeat(self, *sizes: Any) -> Any:
        """Return it so many times, one behind the other."""
        sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
        once = [isinstance(s, int) and s == 1 for s in sizes]
        if len(sizes) != self.ndim or not all(o or i == self.axis for i, o in enumerate(once)):
            self.refuse("repeat")
        return self.expand(*(s if i == self.axis else -1 for i, s in enumerate(sizes)))

    def __getitem__(self, index: Any) -> Any:
        parts = parts_of(index, self.ndim)
        if not self.keeps and all(p is None or is_all(p) for p in parts) and None in parts:
            out: Any = self
            for i in [i for i, p in enumerate(parts) if p is None]:
                out = out.unsqueeze(i)
            return out
        if self.keeps and len(parts) > self.axis and parts[self.axis] == 0 and None not in parts[: self.axis]:
            rest = [slice(None) if i == self.axis else p for i, p in enumerate(parts)]
            return FirstFrame(self._like(self._seen[tuple(rest)]).stream, self.axis, False)
        before = parts[: self.axis]
        if not all(map(is_all, before)) or (self.keeps and not all(map(is_all, parts[self.axis : self.axis + 1]))):
            self.refuse("this index")
        behind = parts[self.axis + self.keeps :]
        at: Any = (*(slice(None),) * (self.axis + 1), *behind)
        return self._like(self._seen[at])

    # ------------------------------------------------------------------ in a loop
    def frame(self, loop: Loop) -> Any:
        """Return it in the body of a loop, whose first frame it is given to."""
        made: Any = loop.input(
            (self.stream.edge, self.stream.value, -loop.first),
            lambda: loop.shifted(self.stream.in_order(), -loop.first),
        )
        return made.unsqueeze(self.axis) if self.keeps else made

    # ------------------------------------------------------------------ what it is not for
    def refuse(self, name: str) -> NoReturn:
        """Say what it is not for."""
        raise NotStreamableError(
            f"{name} of the first frame of a stream, taken at {self.line}: one frame of a stream is neither its "
            "first nor its last for ever; use a slice (x[..., a:], x[..., :-b], x[..., ::k]), or pick the frame "
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

        return self.through(name, call, (self, *args), kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return first_of((*args, *(kwargs or {}).values()), True).through(func.__name__, func, args, kwargs or {})


def _operator(name: str) -> Callable[..., Any]:
    def method(self: FirstFrame, *others: Any) -> Any:
        return self._method(name, *others)

    return method


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


def _all(x: Any) -> Any:
    return x._seen if isinstance(x, FirstFrame) else x


def _held(x: Any, like: Any = None) -> Any:
    """Return a first frame for each frame of its stream, or of another that is some frames longer or shorter."""
    if not isinstance(x, FirstFrame):
        return x
    library, out = x.stream.edge.entry.library, held(x)  # type: ignore[union-attr]
    more = 0 if like is None else library.length(x.stream.edge) - library.length(like.edge)
    return library.see(_longer(out, -more) if isinstance(more, int) and more else out)


def _longer(x: StreamTensor, more: int) -> StreamTensor:
    """Return frames with so many of the first before them, or so many less at the end where that is below 0."""
    if more < 0:
        return x._through("slice", {"start": 0, "crop": -more, "step": 1})
    return x._through("pad", {"left": more, "right": 0, "mode": "replicate"}) if more else x


def held(first: FirstFrame) -> StreamTensor:
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
    """Return what an index takes where that is the first frame alone; None for all other indices.

    In the body of a loop that is a frame which the loop carries on.
    """
    if "L" not in x.dims or (x.edge is not None and x.edge.line.static):
        return None
    parts = parts_of(index, x.ndim)
    axis = x.dims.index("L")
    places = [i for i, p in enumerate(parts) if p is not None]
    if axis >= len(places):
        return None
    part = parts[places[axis]]
    ends = (part.start, part.stop, part.step) if type(part) is slice else ()
    keeps = {int, type(None)}.issuperset(map(type, ends)) and ends in ((None, 1, None), (0, 1, None), (None, 1, 1))
    if not keeps and not (type(part) is int and part == 0):
        return None
    loop = getattr(x.edge.entry, "loop", None) if x.edge is not None else None
    if isinstance(loop, Loop) and x.edge.entry is loop.entry:  # type: ignore[union-attr]
        frame: Any = loop.first_frame(x)
        own = [slice(None)] if keeps else []
        taken = (*parts[: places[axis]], *own, *parts[places[axis] + 1 :])
        return (frame.unsqueeze(axis) if keeps else frame)[taken]
    if all(map(is_all, parts[:axis] + parts[axis + 1 :])):
        return FirstFrame(x.with_dims(x.dims), axis, keeps)
    if len(places) < len(parts) or not all(map(is_all, parts[:axis])):
        return None
    at: Any = (*parts[:axis], slice(None), *parts[axis + 1 :])
    some = x[at]
    same = type(some) is StreamTensor and some.dims[axis : axis + 1] == ("L",)
    return FirstFrame(some, axis, keeps) if same else None


def with_first(frames: Any, first: FirstFrame, behind: int | None = None) -> Any:
    """Return frames with the first one of a stream before them; `behind` is how many that has more at its end."""
    whole: Any = first.stream.in_order()
    if frames.in_order().features != whole.features or frames.dtype != first.stream.dtype:
        raise ShapeError.here(f"cat: a first frame {first.stream.roles} before frames {frames.roles}")
    dims = frames.dims
    frames = frames.in_order()
    library = whole.edge.entry.library
    if behind is None:
        behind = library.length(whole.edge) - library.length(frames.edge) - 1
    if not isinstance(behind, int):
        first.refuse("cat with frames of another length, and")
    before, there = (x._through("pad", {"left": 1, "right": 0}) for x in (frames, ones_of(frames)))
    out: Any = where(there.gt(0.5), before, _longer(whole, -behind))
    return out.with_dims(numbered(dims))
