"""How the results of a torch function are seen, so that the next call of it makes the same of other values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from ...array import writing
from ...array.batch_constants import is_constant
from ...array.deferred import Deferred
from ...array.ends import last_frames
from ...array.facts import constant, maker, streams_in
from ...array.first_frame import FirstFrame
from ...array.scores import Scores
from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.symbolic import Symbolic
from ...stream.context import declared_here
from ...stream.rules.sums import Unknown
from ...stream.tree import leaves
from ..private import without_functions
from ..tensor.stream_tensor import StreamTensor
from .complex_pair import Complex, parts_of
from .keys import ATOMS, NUMBERS, SIZES, is_put_off, paths_to
from .replay import REPLAY
from .sizes import TensorOfSizes

#: Where the streams and the sizes that were given are among what a result is made of.
_STREAMS, _TOKENS = 2, 3
#: What a result may hold beside streams.
_RESULTS = (*NUMBERS, float, *ATOMS)


class Results:
    """How the results of a call are seen."""

    def __init__(self, recording: Any, out: Any) -> None:
        shells = [x for x in (*leaves(out), *(of[2] for of in recording.converted)) if isinstance(x, StreamTensor)]
        self._outputs = [part for x in shells for part in parts_of(x._inner)]
        self._deferred = any(type(x._inner) not in (NativeStream, Complex) for x in shells)
        self._edges = recording.numbers()
        self._values = recording._values
        self._inputs = recording.asked.streams
        converted = [part for of in recording.converted for part in parts_of(of[2]._inner)]
        self._sources = [*self._inputs, *converted]
        self._given = recording._edges
        self._tokens: list[Any] = recording.asked.tokens
        self._tensors = recording.asked.tensors
        self._held = recording.asked.by_identity
        self._reads = recording.reads
        self.lends, self.lent = list[Any](), list[Any]()  #: Tensors, made in each call, that a result needs.

    def form(self, out: Any) -> Any:
        """Return what makes the same of other values."""
        if isinstance(out, StreamTensor):
            return self._of_stream(out._inner)
        if type(out) in (tuple, list, TensorOfSizes) or hasattr(out, "_fields"):
            parts = [self.form(x) for x in out]
            return parts if type(out) is tuple else partial(_several, type(out), parts)
        if type(out) is FirstFrame:
            return self._first(out)
        if type(out) in _RESULTS:
            return partial(constant, out)
        if type(out) in SIZES:
            size = maker(out, self._given, self._tokens)
            return lambda edges, values, streams, tokens: size(edges, tokens)
        raise Unknown

    def _first(self, x: FirstFrame) -> Any:
        """Return what makes first frames of other values, which may be written into what they were taken of."""
        if (at := self._index(x)) is not None:
            return lambda edges, values, streams, tokens: tokens[at]
        of, index = x.taken_of or (None, ())
        taken = next((i for i, own in enumerate(self._inputs) if own is of), None)
        parts = [(i.start, i.stop, i.step) if type(i) is slice else i for i in leaves(index)]
        if (taken is None) is not (of is None) or not all(type(i) in _RESULTS for i in leaves(parts)):
            raise Unknown
        like = x.of_state(None)  # type: ignore[arg-type]
        return partial(_first, like, self._of_stream(x.stream), taken, index)

    def converted(self, found: Sequence[tuple[Any, Any, Any]]) -> list[Any]:
        """Return where among what was given stands what has become a stream, its type, and the stream as seen."""
        if self._deferred:  # it may be found in a result, too
            raise Unknown
        out = []
        for x, wanted, stream in found:
            paths = [(i, *path) for i, given in enumerate(self._tokens) for path in paths_to(x, given)]
            parts = [(*self._seen(part), None) for part in parts_of(stream._inner)]
            out.append((paths, wanted, parts[0] if len(parts) == 1 else partial(_complex, parts)))
        return out

    def edit(self, out: Any, result: Any, x: Any, amount: Any, edit: Any) -> tuple[int, Any, Any]:
        """Return of which stream, by how much and how the result was padded or cropped in an if."""
        at = next((i for i, own in enumerate(self._inputs) if own is x), None)
        if at is None or getattr(out, "_inner", None) is not result:
            raise Unknown
        return at, maker(amount, self._given, self._tokens), edit

    def _of_stream(self, x: Any) -> Any:
        if (at := self._index(x)) is not None:
            return partial(_given, _TOKENS, at)
        if is_constant(x):
            self._require_read()
            each, axis, rows = x.args
            return partial(_constant, each.detach().clone(), axis, maker(rows, self._given, self._tokens), x.fresh)
        if type(x) in (Scores, Symbolic, Deferred):
            tensors = [] if type(x) is Scores else self._require_read()
            copies = [t.detach().clone() for t in tensors]
            more = [y for y in streams_in(x) if all(y is not own for own in self._inputs)]
            make = maker(x, [*self._given, *self._inputs, *more], [*self._tokens, *tensors])
            return partial(_deferred, make, [*map(self._seen, more)], copies)
        if type(x) is Complex:
            return partial(_complex, [*map(self._of_stream, parts_of(x))])
        if type(x) is not NativeStream:
            raise Unknown
        if is_put_off(x):
            share = None if x._view is x._ends else self._sharing(x)
            return partial(_last, self._of_stream(x._ends.of), x._ends.count, share)
        self._require_value(x)
        if writing.is_of_constant(x):
            return partial(_made, self._seen(x), writing.of_constant)
        for i, own in enumerate(self._inputs):
            if own is x:  # or has become what was written into it
                return partial(_given, _STREAMS, i) if x.edge is self._given[i] else (*self._seen(x), None)
        if (constant := x.alike[1]) is not None:
            if any(t is constant.torch for t in self._held):
                return partial(_alike, self._seen(x), lambda: constant)
            self.lends.append(constant.torch)
            kind, lent = type(constant), self.lent
            return partial(_alike, self._seen(x), lambda: kind(lent.pop()))
        return (*self._seen(x), self._sharing(x))

    def _sharing(self, x: NativeStream) -> Any:
        """Return what notes whose memory a result shares; None where it shares none's."""
        others = [y for y in self._outputs if all(y is not own for own in self._sources)]
        among: list[Any] = [None if y is x else y for y in (*self._sources, *others)]
        shared = writing.shared(x, among)
        if shared is NotImplemented or (shared is not None and max(shared[0]) >= len(self._sources)):
            raise Unknown
        if shared is None:
            return None
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
    """Notes that a result shares, or may share, the memory of an argument; see `writing.shared`."""

    __slots__ = ("at", "given", "how")

    def __init__(self, at: list[int], how: Any, given: Any) -> None:
        #: Which streams' memory: one where it is certain. Those that positions have become come last.
        self.at = at
        #: The method and `put` that take the result of it; None where it isn't certain that they share memory.
        self.how = how
        #: Gives the method's arguments, of the edges of streams and of the sizes that were given.
        self.given = given

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


def _complex(parts: list[Any], *given: Any) -> Any:
    """Return a complex stream of its parts."""
    return StreamTensor.shell(Complex(*[REPLAY.result(part, *given)._inner for part in parts]))


def _given(which: int, at: int, *given: Any) -> Any:
    """Return one of the streams, or of what is computed of lengths, that were given itself."""
    return StreamTensor.shell(given[which][at])


def _first(like: FirstFrame, form: Any, taken: int | None, index: Any, *given: Any) -> Any:
    """Return first frames as a result had them."""
    taken_of = None if taken is None else (given[2][taken], index)
    return like.of_state(REPLAY.result(form, *given)._inner, taken_of)


def _deferred(make: Any, seen: Sequence[Any], tensors: list[Any], *given: Any) -> Any:
    """Return what is deferred, made anew of streams, seen as `seen` says, and of tensors that hold the same."""
    edges, values, streams, tokens = given
    more = map(partial(_stream, edges, values), seen)
    return StreamTensor.shell(make([*edges, *streams, *more], [*(tokens or ()), *tensors] if tensors else tokens))


def _constant(
    each: torch.Tensor, axis: int, rows: Any, fresh: bool, edges: list[Any], values: Any, streams: Any, tokens: Any
) -> Any:
    """Return what every stream has alike, of as many rows as this call has streams."""
    with without_functions():
        own = each.clone() if fresh else each
    return StreamTensor.shell(edges[0].entry.library.of_batch(own, axis, rows(edges, tokens), fresh))


def lending(making: Any, lent: list[torch.Tensor], given: Any) -> list[Any]:
    """Return the weights of operators, and lend the result what it needs besides."""
    *weights, lent[:] = making(given)
    return weights


def _alike(of: Any, constant: Callable[[], Any], edges: Any, values: Any, streams: Any, tokens: Any) -> Any:
    """Return a constant that every frame has, as a stream."""
    out = _stream(edges, values, of)
    out.alike = out.edge, constant()
    return StreamTensor.shell(out)


def _made(of: Any, make: Any, edges: Any, values: Any, streams: Any, tokens: Any) -> Any:
    """Return what a function makes of a result, as a constant's rows."""
    return StreamTensor.shell(make(_stream(edges, values, of)))


def _last(form: Any, count: int, share: Any, *given: Any) -> Any:
    """Return the last frames of a stream, the same that was given if it was; they wait for their use."""
    out = last_frames(REPLAY.result(form, *given)._inner, count)
    if share is not None:
        share(out, *given[2:])
    return StreamTensor.shell(out)


def _stream(edges: list[Any], values: list[Any], seen: tuple[int, Any, Any]) -> NativeStream:
    """Return a stream as a result was seen."""
    at, dims, names = seen
    return NativeStream.inside(values[at], dims, edges[at], names)


def asking(form: Any, *given: Any) -> Any:
    """Return a result of attention, which asks for the context that is declared in every call."""
    declared_here()[1].append(True)
    return REPLAY.result(form, *given)


def editing(form: Any, at: int, amount: Any, edit: Any, edges: Any, values: Any, streams: Any, tokens: Any) -> Any:
    """Return a result that pads or crops a stream in the if that is open, which knows it then."""
    out = REPLAY.result(form, edges, values, streams, tokens)
    edges[0].entry.guard.know(out._inner, streams[at], amount(edges, tokens), edit)
    return out


def converting(form: Any, found: list[Any], edges: list[Any], values: Any, streams: Any, tokens: list[Any]) -> Any:
    """Return a result, and let positions that were given be the streams that they have become."""
    edges[0].entry.has_converted = True
    sources = [*streams]
    for paths, wanted, seen in found:
        stream = REPLAY.result(seen, edges, values, streams, tokens)
        sources += parts_of(stream._inner)
        for at, *path in paths:
            x = tokens[at]
            for step in path:
                x = step(x)
            x.__dict__.setdefault("_streams", {})[edges[0].entry, wanted] = stream
    return REPLAY.result(form, edges, values, sources, tokens)


def _several(kind: Any, parts: list[Any], *given: Any) -> Any:
    """Return a named tuple, or a list, of results."""
    items = [REPLAY.result(part, *given) for part in parts]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)
