"""What each call of a torch function did, so that the next call of it at the same place need only repeat it.

The forward of the user runs in every call. What it asks of torch on streams is the same from call to call: the
same function, on edges of the same lines seen with the same dimensions, with equal numbers, lists, slices and
sizes, and with weights that are the same tensors or have the same type and shape. What was asked is the key of a
`Place`. It holds the operators that ran, what torch made of plain tensors for them, and how the results are seen,
and which of them share the memory of an argument. So the native front end is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from ... import _core
from ...array import writing
from ...array.batch_constants import is_constant
from ...array.deferred import Deferred
from ...array.ends import last_frames
from ...array.facts import constant, maker, streams_in
from ...array.scores import Scores
from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.symbolic import Symbolic
from ...stream.context import Context, declared_here
from ...stream.course import Leg, Recording, Replayed
from ...stream.edge import Edge, Line, Request
from ...stream.rules import Token
from ...stream.rules.sums import Unknown
from ...stream.tree import leaves, map_leaves
from ..private import n_modes, without_functions
from ..run.kernels import attention
from ..tensor.stream_tensor import SHELL, STAND_IN, StreamTensor
from .complex_pair import Complex, parts_of
from .keys import ATOMS, NUMBERS, SIZES, Asked, as_bytes, asked_in_body, is_small, key_of_size, paths_to
from .names import SHAPE

#: What a result may hold beside streams.
_RESULTS = (*NUMBERS, float, *ATOMS)


#: Functions of what a tensor is, whatever it holds.
_OF_KIND = frozenset(("dim", "is_complex", "is_floating_point"))
#: What a recording of the function that runs now notes.
_NOTED: ContextVar[Noted | None] = ContextVar("dreamstream_noted", default=None)


def noted(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    """Run a function of torch on plain tensors, of which operators get weights."""
    out = function(*args, **kwargs)
    noted = _NOTED.get()
    if noted is not None and isinstance(out, torch.Tensor) and not (args and out is args[0]):
        noted.steps.append((function, args, kwargs, out))
    return out


def looked_at(tensor: torch.Tensor | None = None) -> None:
    """Say that what runs now depends on the numbers of a plain tensor, or on more than its arguments."""
    noted = _NOTED.get()
    if noted is not None and not (tensor is not None and noted.reads(tensor)):
        noted.forget()


def same(x: torch.Tensor) -> torch.Tensor:
    """Say that a tensor is the same whenever the same is asked for, and return it."""
    noted = _NOTED.get()
    if noted is not None:
        noted.same.append(x)
    return x


def converted(x: Any, wanted: Any, stream: Any) -> None:
    """Say that positions have become a stream, as which they are used in this call from now on."""
    noted, stream._inner.edge.entry.has_converted = _NOTED.get(), True
    if noted is not None:
        noted.converted.append((x, wanted, stream))


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
    same : list of torch.Tensor
        Those that are the same whenever the same is asked for.
    converted : list of (Deferred or Symbolic, dtype, stream)
    handled : bool
        Whether it may do more than run operators where it runs none, as ``requires_grad_`` does.
    read : set of int
        Which of the tensors that were given it read, so that it does the same with the same numbers only.
    """

    def __init__(self, asked: Asked, entry: Any) -> None:
        self.entry = entry
        super().__init__(asked.streams, asked.edges)
        self.asked = asked
        self.steps: list[tuple[Any, tuple[Any, ...], dict[str, Any], torch.Tensor]] = []
        self.same: list[torch.Tensor] = []
        self.converted: list[tuple[Any, Any, Any]] = []
        self.handled = False
        self.read: set[int] = set()
        self._before = [(x, type(x), vars(x)) for x in asked.tokens if not isinstance(x, Token)]
        self._asked_before = len(declared_here()[1])
        self._token: Any = None

    def __enter__(self) -> Noted:
        self._token = _NOTED.set(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _NOTED.reset(self._token)

    def making(self, make: Callable[[Any], Any], weight: Any) -> Any:
        return noted(make, weight)

    def reads(self, tensor: torch.Tensor) -> bool:
        """Note that the numbers of a tensor were read; say whether they follow from what can be in a key."""
        at = next((i for i, x in enumerate(self.asked.tensors) if x is tensor), None)
        if at is not None and is_small(tensor):
            self.read.add(at)
            return True
        made = next((step for step in self.steps if step[3] is tensor), None)
        if made is not None:
            return all(self.reads(x) for x in leaves(made[1:3]) if isinstance(x, torch.Tensor))
        return any(x is tensor for x in _within(self.asked.tokens))

    def place(self, out: Any) -> Place | None:
        """Return the place whose call gave `out`; None where it can't be repeated."""
        of_lengths = isinstance(out, StreamTensor) and type(out._inner) in (Symbolic, Deferred)
        known = self.asked.streams or of_lengths or getattr(self.asked.key[0], "__name__", "") in _OF_KIND
        if not self._whole or ((self.handled or not known) and not self._legs):
            return None
        if any(type(x) is not kind or vars(x) is not held for x, kind, held in self._before):
            return None  # what it was given has become another
        asks = len(declared_here()[1]) > self._asked_before
        func = self.asked.key[0]
        if asks and not (type(func) is tuple and isinstance(func[-1], Context)):
            return None  # what it asks for is no part of the key
        try:
            recipe = _Recipe(self.asked, self.steps, self.same, self.entry)
            weights = [recipe.of(each) for each in self._weights]
            del recipe.entry  # which no place keeps
            legs = tuple(map(_leg, self._legs, self._sources, weights))
            making = None if recipe.fixed else partial(recipe.weights, weights)
            form = (results := _Results(self, out)).form(out)
            if self.converted:
                form = partial(_converting, form, results.converted(self.converted))
            return Place(legs, making, partial(_asking, form) if asks else form, self.asked.by_identity)
        except Unknown:
            return None


def _within(tokens: Iterable[Any]) -> Iterator[Any]:
    """Give what is in deferred values beside others: what tensors among these hold is in their keys."""
    return (x for token in tokens if type(token) is Deferred for _, x in token.leaves())


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

    def __init__(self, asked: Asked, noted: Sequence[Any], same: Sequence[Any], entry: Any) -> None:
        self.entry = entry
        self._tokens: list[Any] = asked.tokens
        self._held = {id(x) for x in (*asked.by_identity, *same)}
        self._places = {id(x): i for i, x in enumerate(asked.made)}
        self._made = {id(step[3]): step for step in noted}
        self._n = len(asked.made)
        self.steps: list[Any] = []
        self.fixed = True

    def of(self, weights: Sequence[Any]) -> Any:
        """Return an operator's weights, with `_At` for those that are made in every call."""
        return tuple(
            [w if w is None else self._array(w) if isinstance(w, np.ndarray) else self._find(w) for w in weights]
        )

    def _array(self, x: Any) -> Any:
        """Return numbers, made of those that were given, as a tensor; what is read of tensors is `looked_at`."""
        if getattr(self.entry, "open_loop", None) is not None:
            return x  # a loop tells its weights apart by identity, in each call as in the first
        return self.entry.session.constant(x, torch.empty(0, device=self.entry.device))

    def _find(self, x: Any) -> Any:
        key = id(x)
        if key in self._held:
            return x
        if key in self._places:
            self.fixed = False
            return _At(self._places[key])
        if key not in self._made:
            if not any(t is x for t in _within(self._tokens)):
                raise Unknown
            self._held.add(id(copy := x.detach().clone()))  # whose numbers are in the key
            return copy
        function, args, kwargs, _ = self._made[key]
        args, kwargs = (map_leaves(tree, self._argument) for tree in (args, kwargs))
        inner = [kwargs, *(x for x in args if isinstance(x, (list, tuple, dict)))]
        nested = any(type(x) is _At for x in leaves(inner))
        self.steps.append((function, args, kwargs, nested))
        self._places[key] = self._n + len(self.steps) - 1
        self.fixed = False
        return _At(self._places[key])

    def weights(self, of: Sequence[Any], given: Sequence[torch.Tensor]) -> list[Any]:
        """Return the weights of operators, in which `_At` stands for those of the tensors that are given."""
        made = list(given)
        for function, args, kwargs, nested in self.steps:
            if nested:
                made.append(function(*_filled(args, made), **_filled(kwargs, made)))
            else:
                made.append(function(*[made[a.at] if type(a) is _At else a for a in args], **kwargs))
        return [[made[w.at] if type(w) is _At else w for w in weights] for weights in of]

    def _argument(self, x: Any) -> Any:
        if isinstance(x, Token) or getattr(x, "is_stream", False):
            raise Unknown
        return self._find(x) if isinstance(x, torch.Tensor) else x


class _Results:
    """How the results of a call are seen."""

    def __init__(self, recording: Noted, out: Any) -> None:
        shells = [x for x in (*leaves(out), *(of[2] for of in recording.converted)) if isinstance(x, StreamTensor)]
        self._outputs = [part for x in shells for part in parts_of(x._inner)]
        self._deferred = any(type(x._inner) is not NativeStream for x in shells)
        self._edges = recording.numbers()
        self._values = recording._values
        self._inputs = recording.asked.streams
        self._given = recording._edges
        self._tokens: list[Any] = recording.asked.tokens
        self._tensors = recording.asked.tensors
        self._reads = recording.reads

    def form(self, out: Any) -> Any:
        """Return what makes the same of other values."""
        if isinstance(out, StreamTensor):
            return self._of_stream(out._inner)
        if type(out) is tuple or type(out) is list or hasattr(out, "_fields"):
            parts = [self.form(x) for x in out]
            return parts if type(out) is tuple else partial(_several, type(out), parts)
        if type(out) in _RESULTS:
            return partial(constant, out)
        if type(out) in SIZES:
            return partial(_size, maker(out, self._given, self._tokens))
        raise Unknown

    def converted(self, found: Sequence[tuple[Any, Any, Any]]) -> list[Any]:
        """Return where among what was given stands what has become a stream, its type, and the stream as seen."""
        if self._deferred:  # it may be found in a result, too
            raise Unknown
        out = []
        for x, wanted, stream in found:
            paths = [(i, *path) for i, given in enumerate(self._tokens) for path in paths_to(x, given)]
            out += [(path, wanted, (*self._seen(stream._inner), None)) for path in paths]
        return out

    def _of_stream(self, x: Any) -> Any:
        if is_constant(x) and self._index(x) is None:
            self._require_read()
            each, axis, rows = x.args
            return partial(_constant, each.detach().clone(), axis, maker(rows, self._given, self._tokens), x.fresh)
        if type(x) in (Scores, Symbolic, Deferred):
            if (at := self._index(x)) is not None:
                return partial(_token, at)
            tensors = [] if type(x) is Scores else self._require_read()
            copies = [t.detach().clone() for t in tensors]
            more = [y for y in streams_in(x) if all(y is not own for own in self._inputs)]
            make = maker(x, [*self._given, *self._inputs, *more], [*self._tokens, *tensors])
            return partial(_deferred, make, [*map(self._seen, more)], copies)
        if type(x) is Complex:
            at = self._index(x)
            return partial(_complex, [*map(self._of_stream, parts_of(x))]) if at is None else partial(_token, at)
        if type(x) is not NativeStream or x.alike[0] is not None:
            raise Unknown
        if "edge" not in vars(x) and (last := x._ends) is not None:
            if x._view is not last or not last.is_once or last.given is not None:
                raise Unknown
            return partial(_made, self._seen(last.of), partial(last_frames, count=last.count))
        self._require_value(x)
        if writing.is_of_constant(x):
            return partial(_made, self._seen(x), writing.of_constant)
        for i, own in enumerate(self._inputs):
            if own is x:  # or has become what was written into it
                return partial(_given, i) if x.edge is self._given[i] else (*self._seen(x), None)
        shared = writing.shared(x, [*self._inputs, *(y for y in self._outputs if y is not x)])
        if shared is NotImplemented or (shared is not None and max(shared[0]) >= len(self._inputs)):
            raise Unknown
        return (*self._seen(x), shared if shared is None else self._shared(shared))

    def _shared(self, shared: Any) -> Any:
        at, view = shared
        if view is None:
            return _Shared(at, None, None)
        edges = self._given[: len(self._inputs)]
        return _Shared(at, (view.method, view.put), maker(view.given(), edges, self._tokens))

    def _index(self, x: Any) -> int | None:
        """Return which of the values that were given a result is."""
        return next((i for i, own in enumerate(self._tokens) if own is x), None)

    def _require_read(self) -> list[torch.Tensor]:
        """Return the tensors that were given, whose numbers a result without streams depends on."""
        if not all(map(self._reads, self._tensors)):
            raise Unknown
        return self._tensors

    def _require_value(self, x: Any) -> None:
        """Refuse what is computed where it is used: looking at its edge would be a use."""
        if "edge" not in vars(x):
            raise Unknown

    def _seen(self, x: Any) -> tuple[int, Any, Any]:
        self._require_value(x)
        at = self._edges.get(id(x.edge), -1)
        if at < 0 or x.value is not self._values[at]:
            raise Unknown
        return at, x.dims, x._names


_EDGE = attrgetter("edge")


class _Shared:
    """Notes that a result shares, or may share, the memory of an argument; see `writing.shared`.

    Parameters
    ----------
    at : list of int
        Which streams' memory: one where it is certain.
    how : (method, put) or None
        How the result is taken of it; None where it isn't certain that they share memory.
    given : callable or None
        Gives the method's arguments, of the edges of streams and of the sizes that were given.
    """

    __slots__ = ("at", "given", "how")

    def __init__(self, at: list[int], how: Any, given: Any) -> None:
        self.at, self.how, self.given = at, how, given

    def __call__(self, out: Any, streams: list[Any], tokens: list[Any]) -> None:
        if self.how is None:
            for at in self.at:
                writing.unsure(streams[at], out)
        else:
            method, put = self.how
            if type(self.given) is partial:  # the same in every call
                args, kwargs = self.given.args[0]
                writing.viewed(streams[self.at[0]], out, method, put, args, kwargs)
            else:
                fill = partial(self.given, [*map(_EDGE, streams)], tokens)
                writing.viewed(streams[self.at[0]], out, method, put, (), {}, fill)


def _given(at: int, edges: Any, values: Any, streams: list[Any], tokens: Any) -> Any:
    """Return one of the streams that were given itself."""
    return StreamTensor.shell(streams[at])


def _complex(parts: list[Any], *given: Any) -> Any:
    """Return a complex stream of its parts."""
    return StreamTensor.shell(Complex(*[REPLAY.result(part, *given)._inner for part in parts]))


def _token(at: int, edges: Any, values: Any, streams: Any, tokens: list[Any]) -> Any:
    """Return what is computed of lengths itself, as it was given."""
    return StreamTensor.shell(tokens[at])


def _size(make: Any, edges: list[Any], values: Any, streams: Any, tokens: list[Any]) -> Any:
    """Return a size, made anew of this call's edges; see `dreamstream.array.facts.maker`."""
    return make(edges, tokens)


def _deferred(
    make: Any,
    seen: Sequence[Any],
    tensors: list[Any],
    edges: list[Any],
    values: list[Any],
    streams: Any,
    tokens: Any,
) -> Any:
    """Return what is deferred, made anew of streams, seen as `seen` says, and of tensors that hold the same."""
    more = map(partial(_stream, edges, values), seen)
    return StreamTensor.shell(make([*edges, *streams, *more], [*(tokens or ()), *tensors] if tensors else tokens))


def _constant(
    each: torch.Tensor, axis: int, rows: Any, fresh: bool, edges: list[Any], values: Any, streams: Any, tokens: Any
) -> Any:
    """Return what every stream has alike, of as many rows as this call has streams."""
    with without_functions():
        own = each.clone() if fresh else each
    return StreamTensor.shell(edges[0].entry.library.of_batch(own, axis, rows(edges, tokens), fresh))


def _made(
    of: tuple[int, Any, Any], make: Any, edges: list[Any], values: list[Any], streams: Any, tokens: Any
) -> Any:
    """Return what a function makes of a result: last frames, which wait for their use, or a constant's rows."""
    return StreamTensor.shell(make(_stream(edges, values, of)))


def _stream(edges: list[Any], values: list[Any], seen: tuple[int, Any, Any]) -> NativeStream:
    """Return a stream as a result was seen."""
    at, dims, names = seen
    return NativeStream.inside(values[at], dims, edges[at], names)


def _asking(form: Any, *given: Any) -> Any:
    """Return a result of attention, which asks for the context that is declared in every call."""
    declared_here()[1].append(True)
    return REPLAY.result(form, *given)


def _converting(
    form: Any, found: list[Any], edges: list[Any], values: Any, streams: Any, tokens: list[Any]
) -> Any:
    """Return a result, and let positions that were given be the streams that they have become."""
    edges[0].entry.has_converted = True
    for (at, *path), wanted, seen in found:
        x = tokens[at]
        for step in path:
            x = step(x)
        known = x.__dict__.setdefault("_streams", {})
        known[edges[0].entry, wanted] = REPLAY.result(seen, edges, values, streams, tokens)
    return REPLAY.result(form, edges, values, streams, tokens)


def _several(kind: Any, parts: list[Any], *given: Any) -> Any:
    """Return a named tuple, or a list, of results."""
    items = [REPLAY.result(part, *given) for part in parts]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def _filled(tree: Any, found: Sequence[Any]) -> Any:
    """Return a tree with what `_At` stands for."""

    def fill(x: Any) -> Any:
        if type(x) is slice:
            return slice(fill(x.start), fill(x.stop), fill(x.step))
        return found[x.at] if type(x) is _At else x

    return map_leaves(tree, fill)


class Place(NamedTuple):
    """What one call of a torch function did; `csrc/python/replay.c` does it again.

    Attributes
    ----------
    legs : tuple
        The operators that ran, each as `_leg` gives it.
    weights : callable or None
        Gives the operators' weights, a list, of the tensors that the function is given; None where they stay.
    result : tuple, list or callable
        ``(edge's number, dims, names, _Shared or None)`` of a stream; a list of those of a tuple; what makes any
        other result, of all edges, their values, and the streams and sizes that were asked about.
    by_identity : list
        Parameters and buffers by whose identities the place is known.
    """

    legs: tuple[Any, ...]
    weights: Callable[[Sequence[torch.Tensor]], list[Any]] | None
    result: Any
    by_identity: list[Any]


def _leg(leg: Leg, at: tuple[int, ...], weights: Sequence[Any]) -> tuple[Any, ...]:
    """Return an operator as `_core.Replay` runs it: its kernel on frames, or what it did with windows."""
    plan, op = leg.plan, leg.op
    own = None, None, leg.lines, None, None, None
    if plan is not None and plan.of_frames:
        own = plan.run, plan.step, leg.lines, None if plan.follows else op.counts, None, None
    elif plan is not None and plan.repeats:
        own = None, None, leg.lines, op.counts, op, plan.done
    return (leg, leg.key, at, leg.n_values, weights, *own)


class Anew:
    """Stands where a function is not repeated.

    Attributes
    ----------
    reads : set of int
        Which of the tensors that it is given it reads: with the same numbers in these it is repeated.
    left : int
        How often it may still meet other numbers.
    """

    def __init__(self, reads: set[int]) -> None:
        self.reads, self.left = reads, 16

    def known_as(self, asked: Asked) -> Any:
        """Return what the function is known as with the numbers that are read."""
        tensors, func = asked.tensors, asked.key[0]
        numbers = tuple([as_bytes(tensors[i]) for i in self.reads])
        return (numbers, *func) if type(func) is tuple else (numbers, func)

    def knows(self, forward: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return what `known_as` does; None where numbers differ from call to call, or can't be in a key."""
        found = REPLAY.ask(forward, func, args, kwargs) if self.reads and self.left else None
        if found is None or not all(is_small(Asked(*found).tensors[i]) for i in self.reads):
            return None
        return self.known_as(Asked(*found))


#: Where nothing is repeated; how many places a forward may have beside a few per operation.
ANEW, _MOST = Anew(set()), 1024


class Repeats:
    """What `_core.Replay` reads of a forward, in slots: see `dreamstream.torch.forward.mode.Forward`."""

    __slots__ = ("_parameters", "depth", "drawn", "entry", "gradients", "watching")


#: The forward that is running, or None.
RUNNING: ContextVar[Any] = ContextVar("dreamstream_forward", default=None)

REPLAY = _core.Replay(
    SHELL, NativeStream, Edge, Line, Replayed, Repeats, Place,
    ATOMS, frozenset((torch.Tensor, torch.nn.Parameter)), STAND_IN.as_subclass,
    without_functions, torch.is_grad_enabled, key_of_size, RUNNING, n_modes, SHAPE,
)  # fmt: skip

#: What torch asks of a forward, a mode: what is done again runs no function of Python.
Repeats.__torch_function__ = REPLAY.method(REPLAY.mode)  # type: ignore[attr-defined]


def operator(name: str) -> Any:
    """Return the method of shells for an operator of Python's, which likewise runs no function of Python."""
    return REPLAY.method(partial(REPLAY.operator, getattr(StreamTensor, name), getattr(torch.Tensor, name)))


def repeated(
    forward: Any, func: Any, args: Any, kwargs: dict[str, Any], run: Callable[..., Any], *given: Any
) -> Any:
    """Repeat what a function did when the same was asked for, or run it by ``run(*given)``."""
    _compute(args)
    _compute(kwargs.values())
    out = REPLAY.call(forward, func, args, kwargs)
    if type(out) is Anew:
        reading, func = out, out.knows(forward, func, args, kwargs)
        out = ANEW if func is None else REPLAY.call(forward, func, args, kwargs)
        if out is NotImplemented:
            reading.left -= 1
    if type(out) is Anew:
        return run(*given)
    return recorded(forward, func, args, kwargs, run, *given) if out is NotImplemented else out


def _compute(items: Iterable[Any]) -> None:
    """Compute the values of streams that were written into; last frames are computed where they are used."""
    for x in items:
        kind = type(x)
        if kind is tuple or kind is list:
            _compute(x)
        elif kind is SHELL:
            for own in parts_of(x._inner):
                if type(own) is NativeStream and not own._by_elements:
                    _ = own.edge


def recorded(
    forward: Any, func: Any, args: Any, kwargs: dict[str, Any], run: Callable[..., Any], *given: Any
) -> Any:
    """Run a function by ``run(*given)``, so that the next call of it at this place can repeat what it did."""
    entry = forward.entry
    if (loop := getattr(entry, "open_loop", None)) is not None:
        return _in_body(forward, loop, asked_in_body(forward, loop.body, func, args, kwargs), run, *given)
    asked = REPLAY.ask(forward, func, args, kwargs)
    if asked is None or asked[0] in entry.courses:
        return run(*given)
    with Noted(Asked(*asked), entry) as recording:
        entry.recording = recording
        try:
            out = run(*given)
        finally:
            entry.recording = None
    courses = entry.courses
    _require_room(courses, entry)
    place, key = recording.place(out) or ANEW, asked[0]
    if recording.read and place is not ANEW and not _has_numbers(func):
        courses[key] = reading = Anew(recording.read)
        key = (reading.known_as(recording.asked), *key[1:])
    courses[key] = place
    return out


def _in_body(forward: Any, loop: Any, asked: Asked | None, run: Callable[..., Any], *given: Any) -> Any:
    """Do what a function did in the body of a loop over frames before, where the same was asked for, or run it."""
    body, entry, courses = loop.body, forward.entry, loop.courses
    if courses is None or asked is None or body.recording is not None or entry.recording is not None:
        return run(*given)
    place = courses.get(asked.key)
    if place is ANEW:
        return run(*given)
    if place is None:
        with Noted(asked, entry) as recording:
            entry.recording = body.recording = recording
            try:
                out = run(*given)
            finally:
                entry.recording = body.recording = None
        _require_room(courses, entry)
        courses[asked.key] = recording.place(out) or ANEW
        return out
    edges = [x.edge for x in asked.streams]
    with without_functions():
        made = None if place.weights is None else place.weights(asked.made)
        for i, (leg, _, at, _, weights, *_) in enumerate(place.legs):
            name, attributes, cid = leg.key
            own = [edges[j] for j in at]
            given = weights if made is None else made[i]
            request = Request(name, attributes, own, [None] * len(own), given, cid=cid, op=leg.op)
            edges += [edge for _, edge in body.run(request)]
        return REPLAY.result(place.result, edges, [None] * len(edges), asked.streams, asked.tokens)


def _require_room(courses: dict[Any, Any], entry: Any) -> None:
    """Forget all places where there are more than a forward has: numbers differ from call to call."""
    if len(courses) > _MOST + 8 * entry.n_done:
        courses.clear()


def _has_numbers(func: Any) -> bool:
    """Whether a function is known as one that reads numbers; see `Anew.known_as`."""
    return type(func) is tuple and type(func[0]) is tuple
