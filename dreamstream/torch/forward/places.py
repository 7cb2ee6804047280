"""What each call of a torch function did, so that the next call of it at the same place need only repeat it.

The forward of the user runs in every call. What it asks of torch on streams is the same from call to call: the
same function, on edges of the same lines seen with the same dimensions, with equal numbers, lists, slices and
sizes, and with weights that are the same tensors or have the same type and shape. What was asked is the key of a
`Place`. It holds the operators that ran, what torch made of plain tensors for them, and how the results are seen,
and which of them share the memory of an argument. So the native front end is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch

from ...array import writing
from ...array.deferred import Deferred
from ...array.ends import last_frames, later
from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.symbolic import Symbolic
from ...stream.context import times_asked
from ...stream.course import Recording, is_number
from ...stream.edge import Edge
from ...stream.rules import Token
from ...stream.tree import leaves, map_leaves
from ..private import without_functions
from ..run.kernels import attention
from ..tensor.stream_tensor import SHELL, StreamTensor
from .sizes import TorchBatch, TorchBatchLength, TorchLength

_NUMBERS = frozenset((int, bool))
_ATOMS = frozenset((
    str, type(None), type(...), torch.dtype, torch.device, torch.memory_format, torch.layout, type, torch.Size,
))  # fmt: skip

_SIZES = frozenset((TorchLength, TorchBatch, TorchBatchLength))

#: What a result may hold beside streams.
_RESULTS = (*_NUMBERS, float, *_ATOMS)


class _Unknown(Exception):
    """An argument, or a result, of which a place can't be known or repeated."""


class Asked:
    """What a call of a torch function asks for.

    Attributes
    ----------
    key : tuple or None
        Equal where the same is asked for; None where that can't be told.
    streams : list
        The native tensors among the arguments.
    tokens : list
        The sizes among them.
    edges : list of Edge
        Whose frames these count.
    held : list
        Parameters and buffers, which are compared by identity.
    made : list
        All other tensors, which are compared by type and shape.
    """

    __slots__ = ("_entry", "_known", "edges", "held", "key", "made", "streams", "tokens")

    def __init__(
        self, entry: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: dict[int, Any]
    ) -> None:
        self.streams: list[Any] = []
        self.edges: list[Edge] = []
        self.held: list[Any] = []
        self.made: list[Any] = []
        self.tokens: list[Token] = []
        self._entry, self._known = entry, known
        key: list[Any] = [func]
        try:
            self._add(args, key)
            if kwargs:
                key += kwargs
                self._add(kwargs.values(), key)
        except _Unknown:
            self.key = None
            return
        # What was written into runs operators when it is looked at, as has happened by now.
        key.append(entry.n_done)
        self.key = tuple(key) if self.streams else None

    def _add(self, items: Iterable[Any], key: list[Any]) -> None:
        """Add arguments to a key."""
        for x in items:
            kind = type(x)
            if kind is SHELL:
                inner = x._inner
                if type(inner) is NativeStream:
                    if "edge" not in vars(inner) and later(inner) is not None:
                        raise _Unknown  # it is computed where it is used
                    edge = inner.edge
                    if edge is None or edge.entry is not self._entry or inner.alike[0] is not None:
                        raise _Unknown
                    key += (edge.line, inner.dims, inner._names)
                    self.streams.append(inner)
                elif type(inner) is Deferred:
                    self._add_deferred(inner, key)
                else:
                    raise _Unknown
            elif kind in _NUMBERS:
                key += (kind, x)
            elif kind in _ATOMS:
                key.append(x)
            elif kind is float:
                key.append(x.hex())
            elif kind is tuple or kind is list:
                key += (kind, len(x))
                self._add(x, key)
            elif id(x) in self._known:
                key.append(id(x))
                self.held.append(x)
            elif kind is torch.Tensor or kind is torch.nn.Parameter:
                key += (x.dtype, x.shape, x.requires_grad)
                self.made.append(x)
            elif kind is slice:
                key.append(slice)
                self._add((x.start, x.stop, x.step), key)
            elif kind in _SIZES:
                self.tokens.append(x)
                key.append(kind)
                if kind is not TorchLength:
                    key.append(x.times)
                if kind is not TorchBatch:
                    self._add_length(x if kind is TorchLength else x.length, key)
            else:
                raise _Unknown

    def _add_length(self, x: Any, key: list[Any]) -> None:
        key += (TorchLength, x.plus, len(x.terms))
        for times, atom in x.terms:
            if type(atom) is not Edge:  # what was rounded
                key.append(atom.by)
                self._add_length(atom.length, key)
            else:
                if atom.entry is not self._entry:
                    raise _Unknown
                key += (times, atom.line)
                self.edges.append(atom)

    def _add_deferred(self, x: Deferred, key: list[Any]) -> None:
        """Add what is computed of lengths; one that holds tensors is not known."""
        found = x.__dict__.get("_asked")
        if found is None:
            own, parts = Asked(self._entry, x.func, (), {}, {}), [x.func, x.constants]
            for part in (*x.args, *(p for item in x.kwargs.items() for p in item)):
                if type(part) is Deferred:
                    own._add_deferred(part, parts)
                elif type(part) is Symbolic:
                    parts += (part.roles, part.position, part.kind)
                    own._add((part.length, part.value), parts)
                else:
                    own._add((part,), parts)
            if own.made:
                raise _Unknown
            found = x.__dict__["_asked"] = (tuple(parts), own.edges)
        key.append(found[0])
        self.edges += found[1]


#: What a recording of the function that runs now notes.
_NOTED: ContextVar[Noted | None] = ContextVar("dreamstream_noted", default=None)


def noted(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """Run a function of torch on plain tensors, of which operators get weights."""
    out = function(*args, **kwargs)
    noted = _NOTED.get()
    if noted is not None and isinstance(out, torch.Tensor) and out is not args[0]:
        noted.steps.append((function, args, kwargs, out))
    return out


def looked_at() -> None:
    """Say that what runs now depends on the numbers of a plain tensor, or on more than its arguments."""
    noted = _NOTED.get()
    if noted is not None:
        noted.forget()


def handled() -> None:
    """Say that a function does more than run operators, unless it runs some."""
    noted = _NOTED.get()
    if noted is not None:
        noted.handled = True


def dropping(p: float) -> AbstractContextManager[None]:
    """Let attention that runs meanwhile drop its weights with probability p, of which no operator speaks."""
    if p:
        looked_at()
    return attention.dropping(p)


class Noted(Recording):
    """A recording that also notes what is made of plain tensors.

    Attributes
    ----------
    steps : list of (function, args, kwargs, result)
    handled : bool
        Whether it may do more than run operators where it runs none, as ``requires_grad_`` does.
    """

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked.streams, asked.edges)
        self.asked = asked
        self.steps: list[tuple[Any, tuple[Any, ...], dict[str, Any], torch.Tensor]] = []
        self.handled = False
        self._asked_before = times_asked()
        self._token: Any = None

    def __enter__(self) -> Noted:
        self._token = _NOTED.set(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _NOTED.reset(self._token)

    def place(self, out: Any) -> Place | None:
        """Return the place whose call gave `out`; None where it can't be repeated."""
        if not self._whole or (self.handled and not self._legs):
            return None
        if times_asked() != self._asked_before:  # a declared context has to be asked for in every call
            return None
        try:
            recipe = _Recipe(self.asked, self.steps)
            legs = [(leg, recipe.of(weights)) for leg, weights in zip(self._legs, self._weights)]
            return Place(legs, recipe.steps, recipe.fixed, _Results(self, out).form(out), self.asked.held)
        except _Unknown:
            return None


class _At:
    """In a tree: where something is found in a list."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at


class _Recipe:
    """How the weights of operators come of the tensors that a function was given.

    Attributes
    ----------
    steps : list of (function, args, kwargs)
        Each gives a tensor to a list that begins with those that the function was given; `_At` stands for one.
    fixed : bool
        Whether there are none, as where all weights are there in every call.
    """

    def __init__(self, asked: Asked, noted: Sequence[Any]) -> None:
        self._held = {id(x) for x in asked.held}
        self._places = {id(x): i for i, x in enumerate(asked.made)}
        self._made = {id(step[3]): step for step in noted}
        self._n = len(asked.made)
        self.steps: list[Any] = []
        self.fixed = True

    def of(self, weights: Sequence[Any]) -> Any:
        """Return an operator's weights, with `_At` for those that are made in every call."""
        out = tuple([w if w is None or is_number(w) else self._find(w) for w in weights])
        return out if any(type(w) is _At for w in out) else tuple(weights)

    def _find(self, x: Any) -> Any:
        key = id(x)
        if key in self._held:
            return x
        if key in self._places:
            self.fixed = False
            return _At(self._places[key])
        if key not in self._made:
            raise _Unknown
        function, args, kwargs, _ = self._made[key]
        args, kwargs = (map_leaves(tree, self._argument) for tree in (args, kwargs))
        nested = any(isinstance(x, (list, tuple)) for x in args) or bool(kwargs)
        self.steps.append((function, args, kwargs, nested))
        self._places[key] = self._n + len(self.steps) - 1
        self.fixed = False
        return _At(self._places[key])

    def _argument(self, x: Any) -> Any:
        if isinstance(x, Token) or getattr(x, "is_stream", False):
            raise _Unknown
        return self._find(x) if isinstance(x, torch.Tensor) else x


class _Results:
    """How the results of a call are seen."""

    def __init__(self, recording: Noted, out: Any) -> None:
        self._outputs = [x._inner for x in leaves(out) if isinstance(x, StreamTensor)]
        self._edges = recording.places()
        self._values = recording._values
        self._inputs = recording.asked.streams
        self._given = recording._edges
        self._tokens = recording.asked.tokens

    def form(self, out: Any) -> Any:
        """Return what makes the same of other values."""
        if isinstance(out, StreamTensor):
            return self._of_stream(out._inner)
        if type(out) is tuple or type(out) is list or hasattr(out, "_fields"):
            return _Several(type(out), [self.form(x) for x in out])
        if type(out) in _RESULTS:
            return _Same(out)
        raise _Unknown

    def _of_stream(self, x: Any) -> Any:
        if type(x) is not NativeStream or x.alike[0] is not None:
            raise _Unknown
        if "edge" not in vars(x) and (last := later(x)) is not None:
            if x._view is not last or not last.is_once:
                raise _Unknown
            return _Last(self._seen(last.of), last.count)
        self._require_value(x)
        for i, own in enumerate(self._inputs):
            if own is x:  # or has become what was written into it
                return _Given(i) if x.edge is self._given[i] else _Seen(*self._seen(x), None)
        shared = writing.shared(x, [*self._inputs, *(y for y in self._outputs if y is not x)])
        if shared is NotImplemented or (shared is not None and shared[0] >= len(self._inputs)):
            raise _Unknown
        return _Seen(*self._seen(x), shared if shared is None else self._shared(shared))

    def _shared(self, shared: Any) -> Any:
        at, view = shared
        if view is None:
            return at, None, ()
        found: list[tuple[Any, ...]] = []
        places = {id(x): i for i, x in enumerate(self._tokens)}

        def argument(x: Any) -> Any:
            if type(x) is slice:
                parts = [argument(p) for p in (x.start, x.stop, x.step)]
                return slice(*parts)
            if isinstance(x, Token):
                if id(x) not in places:
                    raise _Unknown
                found.append(())
                return _At(places[id(x)])
            if type(x) in _RESULTS:
                return x
            raise _Unknown

        args, kwargs = (map_leaves(tree, argument) for tree in (view.args, dict(view.kwargs)))
        return at, (view.method, view.put, args, kwargs), bool(found)

    def _require_value(self, x: Any) -> None:
        """Refuse what is computed where it is used: looking at its edge would be a use."""
        if "edge" not in vars(x):
            raise _Unknown

    def _seen(self, x: Any) -> tuple[int, Any, Any]:
        self._require_value(x)
        at = self._edges.get(id(x.edge), -1)
        if at < 0 or x.value is not self._values[at]:
            raise _Unknown
        return at, x.dims, x._names


class _Seen:
    """A stream as it is seen, which may share the memory of an argument."""

    __slots__ = ("at", "dims", "names", "shared")

    def __init__(self, at: int, dims: Any, names: Any, shared: Any) -> None:
        self.at, self.dims, self.names, self.shared = at, dims, names, shared

    def made(self, edges: list[Any], values: list[Any], asked: Asked) -> Any:
        """Return the native tensor."""
        edge = edges[self.at]
        out = NativeStream.inside(values[self.at], self.dims, edge, self.names)
        if self.shared is not None:
            at, how, sized = self.shared
            of = asked.streams[at]
            if how is None:
                writing.unsure(of, out)
            else:
                method, put, args, kwargs = how
                if sized:
                    args, kwargs = (_filled(tree, asked.tokens) for tree in (args, kwargs))
                writing.viewed(of, out, method, put, args, kwargs)
        return out

    def __call__(self, edges: list[Any], values: list[Any], asked: Asked) -> Any:
        return StreamTensor.shell(self.made(edges, values, asked))


class _Given:
    """An argument itself."""

    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, edges: list[Any], values: list[Any], asked: Asked) -> Any:
        return StreamTensor.shell(asked.streams[self.at])


class _Last:
    """The last frames of a result, which are computed where they are used."""

    __slots__ = ("count", "of")

    def __init__(self, of: tuple[int, Any, Any], count: int) -> None:
        (at, dims, names), self.count = of, count
        self.of = _Seen(at, dims, names, None)

    def __call__(self, edges: list[Any], values: list[Any], asked: Asked) -> Any:
        return StreamTensor.shell(last_frames(self.of.made(edges, values, asked), self.count))


class _Same:
    """What is no stream."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, *_: Any) -> Any:
        return self.value


class _Several:
    """A tuple, a named one, or a list of results."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: Any, parts: list[Any]) -> None:
        self.kind, self.parts = kind, parts

    def __call__(self, edges: list[Any], values: list[Any], asked: Asked) -> Any:
        items = [part(edges, values, asked) for part in self.parts]
        return self.kind(*items) if hasattr(self.kind, "_fields") else self.kind(items)


def _filled(tree: Any, found: Sequence[Any]) -> Any:
    """Return a tree with what `_At` stands for."""

    def fill(x: Any) -> Any:
        if type(x) is slice:
            return slice(fill(x.start), fill(x.stop), fill(x.step))
        return found[x.at] if type(x) is _At else x

    return map_leaves(tree, fill)


class Place:
    """What one call of a torch function did.

    Parameters
    ----------
    legs : list of (Leg, weights)
        The operators that ran.
    steps : list
        What makes weights of the tensors that are given; see `_Recipe`.
    fixed : bool
        Whether no weight is made.
    form : callable
        Gives the results, of all edges and their values.
    held : list
        Parameters and buffers by whose identities the place is known.
    """

    __slots__ = ("_fixed", "_form", "_held", "_legs", "_steps")

    def __init__(self, legs: Any, steps: list[Any], fixed: bool, form: Any, held: list[Any]) -> None:
        self._legs, self._steps, self._fixed, self._form, self._held = legs, steps, fixed, form, held

    def again(self, entry: Any, asked: Asked) -> Any:
        """Do the same once more."""
        streams = asked.streams
        if len(streams) == 1:
            edges, values = [streams[0].edge], [streams[0].value]
        else:
            edges, values = [x.edge for x in streams], [x.value for x in streams]
        if asked.edges:
            edges += asked.edges
            values += [None] * len(asked.edges)
        with without_functions():
            made = () if self._fixed else self._made(asked.made)
            for leg, weights in self._legs:
                if made:
                    weights = [made[w.at] if type(w) is _At else w for w in weights]
                given = leg.of(values)
                if len(given) > leg.n_values:
                    given = given[: leg.n_values]
                for value, edge in entry.again(leg, leg.of(edges), given, weights):
                    values.append(value)
                    edges.append(edge)
            return self._form(edges, values, asked)

    def _made(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors that were given, and what is made of them."""
        made = list(given)
        for function, args, kwargs, nested in self._steps:
            if nested:
                made.append(function(*_filled(args, made), **_filled(kwargs, made)))
            else:
                made.append(function(*[made[a.at] if type(a) is _At else a for a in args]))
        return made


#: Stands where a function is not repeated; how many places a forward may have beside a few per operation.
_ANEW, _MOST = object(), 1024


def asked_for(forward: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Asked | None:
    """Return what is asked for; None where nothing is repeated."""
    entry = forward.entry
    if (
        entry.courses is None
        or entry.recording is not None
        or entry.guard is not None
        or forward.drawn is not None
    ):
        return None
    if forward.gradients is not None and forward.gradients.running is not None:
        forward.settle()
        if forward.gradients.running is not None:
            return None
    asked = Asked(entry, func, args, kwargs, forward._parameters)
    return None if asked.key is None else asked


def repeated(entry: Any, asked: Asked | None, run: Callable[..., Any], *given: Any) -> Any:
    """Repeat what a function did when the same was asked for, or run it by ``run(*given)``."""
    if asked is None:
        return run(*given)
    courses = entry.courses
    place = courses.get(asked.key)
    if place is not None:
        return run(*given) if place is _ANEW else place.again(entry, asked)
    with Noted(asked) as recording:
        entry.recording = recording
        try:
            out = run(*given)
        finally:
            entry.recording = None
    if len(courses) > _MOST + 8 * entry.n_done:  # numbers that differ from call to call
        courses.clear()
    courses[asked.key] = recording.place(out) or _ANEW
    return out
