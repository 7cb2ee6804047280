"""The session: what the streams of one online module remember, and the call that runs on them.

It knows integers, ids and the order of operations, not values: states are whatever the caller's
arithmetic hands over, one per operation and row, and are never written to. A call's new states are
written aside; :meth:`Session.commit` publishes all of them by one assignment, so that any exception
before it, the user's own and KeyboardInterrupt included, loses nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from .. import _core
from ..array.dtypes import nominal
from ..array.library import NATIVE, Library
from ..array.versions import Contents, version_of
from ..errors import (
    DreamStreamError,
    DTypeError,
    ModeError,
    NotStreamableError,
    ShapeError,
    StreamIdError,
    StreamMismatchError,
)
from ..source_line import user_line
from ..stream.edge import Counts, Edge, Lines, Request
from ..stream.metadata import StreamMetadata
from ..stream.place import Operation, Place, Recording, Replayed
from ..stream.rules import require_equal_rates
from ..stream.where import RETURNED
from .draws import Draws, mixed
from .given import Given, Kind, Static, take_given
from .groups import Groups
from .homes import homes_of
from .segments import StreamState, flatten
from .slots import Slot, Transaction

C = TypeVar("C", bound="Call")

MOST_PREPARED = 1 << 28
"""Bytes of prepared weights that a session keeps; operations beyond it prepare theirs in every call."""
LEAST_VERSIONED = 1 << 15
"""Bytes of prepared weights from which on versions are asked for: smaller ones are compared in less time."""

Key = tuple[Any, ...]
"""What an operation was: its name, attributes, weights and the lineage of its inputs."""


class Session:
    """The streams of one outermost online module.

    `skew` is by how many frames of the slowest input the inputs of one stream may be apart. `buffers` says whether
    layers may wait for a stream's end, for `buffer_limit` frames at most; attention that keeps all frames may keep
    `context_limit` of them.
    """

    def __init__(
        self,
        skew: int = 0,
        buffers: bool = False,
        buffer_limit: int | None = None,
        context_limit: int | None = None,
    ) -> None:
        self.options = (skew, buffers, buffer_limit, context_limit)
        self.skew = skew
        self.buffers = buffers
        self.buffer_limit = buffer_limit
        self.context_limit = context_limit
        self.script: list[Key] = []
        self.places: dict[int, Place] = {}
        self.facts: dict[Any, Any] = {}  # of what a forward computes of lengths (`dreamstream.array.facts`)
        self.lines = Lines()
        self.ran: dict[int, Operation] = {}  #: Those without weights that no place has, by number.
        self.rates: tuple[Fraction, ...] = ()
        self.given: dict[str, Any] = {}  # inputs that live streams were given once, with the kind of their values
        self.kinds: Sequence[Kind] = ()  # of the frames of live streams, by input
        self.held: Any = None  # what the module holds besides
        self.arrivals: Any = None  # of the last call, until anything else is published
        self.joined = Slot(Groups())
        self.draws = Draws()
        self._slots: dict[str, Slot] = {}
        self._dirty = False  # a commit was cut off before the ended streams were taken out
        self._lock = threading.Lock()
        self._prepared: dict[int, _core.Prepared] = {}
        self.contents: dict[int, Contents] = {}  # of parameters that the tapes of live streams read

    # ---------------------------------------------------------------- streams
    @property
    def live_ids(self) -> list[str]:
        """Streams that have started and not ended."""
        # as a list first: another thread may be adding streams
        return [i for i, slot in list(self._slots.items()) if slot.current() is not None]

    @property
    def is_live(self) -> bool:
        """Whether some stream is."""
        return bool(self._slots) and any(s.current() is not None for s in list(self._slots.values()))

    def hold(self, ids: Sequence[str] = ()) -> AbstractContextManager[object]:
        """Return what keeps the session for one thread: ``with session.hold(ids): ...``.

        Entering it raises StreamBusyError where another thread has it. No exception, KeyboardInterrupt
        included, can come between taking it and giving it back.
        """
        return _core.Hold(self._lock, ids)

    def reset(self, ids: Iterable[str] | None = None) -> None:
        """Forget streams, or all."""
        with self.hold():
            if self._dirty:
                self._tidy()
            known = self.known_ids
            gone = known if ids is None else [ids] if isinstance(ids, str) else list(ids)
            unknown = [i for i in gone if i not in known]
            if unknown:
                raise StreamIdError("no such streams are live", unknown)
            self.publish(dict.fromkeys(gone), ((self.joined, self.groups.without(gone)),))

    @property
    def groups(self) -> Groups:
        """The streams whose tapes are joined."""
        return self.joined.current()

    @property
    def known_ids(self) -> list[str]:
        """Streams that can be forgotten."""
        return list(dict.fromkeys((*self.live_ids, *sorted(self.groups.waiting))))

    def state_of(self, stream_id: str) -> StreamState | None:
        """Return a stream's state, or None."""
        if self.arrivals is not None:
            self.arrivals.settle()
        slot = self._slots.get(stream_id)
        return None if slot is None else slot.current()

    def publish(self, states: Mapping[str, StreamState | None], also: Sequence[tuple[Slot, Any]] = ()) -> None:
        """Let all of these states hold from now on (None: the stream has ended), or none of them.

        `also` holds slots of other things, with what they hold from now on.
        One assignment does it. What is interrupted before it leaves no trace but dead entries, and what
        is interrupted after it, entries of ended streams; the next call takes them out.
        """
        if self.arrivals is not None:
            self.arrivals.settle()
        if self._dirty:
            self._tidy()
        transaction, self.arrivals = Transaction(), None
        self._dirty = True
        for stream_id, new in states.items():
            slot = self._slots.get(stream_id) or Slot()
            slot.prepare(transaction, new)
            self._slots[stream_id] = slot
        for slot, new in also:
            slot.prepare(transaction, new)
        transaction.committed = True
        for slot, _ in also:
            slot.settle()
        self._settle(states)

    def let_have(self, states: Mapping[str, StreamState]) -> None:
        """Let live streams have these states, which hold already; see `Call.follows`."""
        self._slots.update({stream_id: Slot(state) for stream_id, state in states.items()})

    def _settle(self, ids: Iterable[str]) -> None:
        for i in ids:
            if not self._slots[i].settle():
                del self._slots[i]
        self._dirty = False

    def _tidy(self) -> None:
        self._settle(list(self._slots))

    def take_given(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kind: type[Given] = Given
    ) -> tuple[tuple[Any, ...], dict[str, Any], list[Given]]:
        """Return a call's arguments, and what among them is given once; see `given.take_given`."""
        known = self.given if self.given and self.is_live else {}
        if not known and Static not in map(type, (*args, *kwargs.values())):
            return args, kwargs, []
        return take_given(module, args, kwargs, known, kind)

    # ---------------------------------------------------------------- weights
    def prepared(self, ordinal: int, op: Any, weights: Sequence[Any]) -> _core.Prepared | None:
        """Return what keeps the prepared weights of an operation, None where nothing is kept."""
        if not isinstance(op, _core.Op) or not op.prepared_bytes:
            return None
        kept = self._prepared.get(ordinal)
        if kept is None or kept.op is not op:
            self._prepared.pop(ordinal, None)
            if sum(k.op.prepared_bytes for k in self._prepared.values()) > MOST_PREPARED:
                return None
            kept = self._prepared[ordinal] = _core.Prepared(op)
        kept.expect(version_of(weights) if op.prepared_bytes >= LEAST_VERSIONED else None)
        return kept

    # ---------------------------------------------------------------- calls
    def admit(
        self,
        meta: StreamMetadata,
        rates: tuple[Fraction, ...],
        lengths: Sequence[Any],
        restart: bool,
        names: Callable[[], Mapping[int, str]],
        kind: type[C],
        given: Sequence[Given] = (),
    ) -> C:
        """Check ids and progress, and begin a call of this kind; the session must have been entered.

        `given` are the inputs that come once, behind all others; they have rate 0. `names` gives the names of
        parameters by the identity of what holds their values; it is asked where an operation is not the one that
        was there before.
        """
        if self._dirty:
            self._tidy()
        ids = meta.ids
        starts = meta.sos.tolist()
        states = [None if sos else self.state_of(i) for i, sos in zip(ids, starts)]
        unknown = [i for i, s, sos in zip(ids, states, starts) if not sos and s is None]
        if unknown:
            raise StreamIdError("no such streams are live, and these chunks do not start one (sos)", unknown)
        live = any(starts) and [i for i, sos in zip(ids, starts) if sos and self.state_of(i) is not None]
        if live and not restart:
            raise StreamIdError("sos, but these streams are live already (restart=True starts them anew)", live)
        moving, kinds = len(rates), {}
        for each in given:
            each.check(ids, starts)
            rates, lengths = (*rates, each.rate), [*lengths, each.lengths(ids)]
            kinds[each.name] = each.kind
        fresh = not (any(states) or self.is_live)
        if not fresh and (rates != self.rates or list(self.given) != list(kinds)):
            raise StreamMismatchError(
                f"the inputs' number or rates changed while streams are live: {self.rates} before, {rates} now"
            )
        before = np.array([[0] * len(rates) if s is None else s.frames for s in states], np.int64)
        counts = _core.input_counts(before.reshape(-1, len(rates)).T, lengths, meta.eos)
        self.require_together(rates[:moving], counts, ids)
        call = kind(self, meta, rates, counts, states, [] if fresh else self.script, fresh, names)
        call.moving = moving
        call.given = kinds
        return call

    def require_together(self, rates: Sequence[Fraction], counts: Counts, ids: Sequence[str]) -> None:
        """Refuse inputs of these rates, the first of those that are counted, that the skew doesn't allow."""
        if len(rates) < 2 or not ids:
            return
        numbers = tuple((r.numerator, r.denominator) for r in rates)
        fits = _core.together(numbers, np.ascontiguousarray(counts[: len(rates), :, 2].T), self.skew)
        if not fits.all():
            raise StreamMismatchError(
                "the inputs are further apart than the skew allows", [i for i, f in zip(ids, fits) if not f]
            )

    def commit(self, call: Call) -> None:
        """Publish a call's states: the last assignment but the tidying up does it."""
        if call.n_done != len(call.script):
            raise ModeError(
                f"the forward ran {call.n_done} streaming operations, but {len(call.script)} while these "
                "streams were live; its course must not depend on data"
            )
        if call.guard is not None:
            raise call.guard.left()
        call.over = True
        if call.follows is not None and call.keys is None and not call.also:
            call.follows.last = call
        else:
            self._publish(call)
        for change in call.afterwards:
            change()

    def _publish(self, call: Call) -> None:
        states = call.states()
        sources = list(zip(*call.left)) if call.left else [()] * len(call.ids)
        new: dict[str, StreamState | None] = {}
        frames = list(zip(*call.input_counts[:, :, 2].tolist()))
        for row, (stream_id, ended) in enumerate(zip(call.ids, call.ended.tolist())):
            key = call.keys[row] if call.keys else None
            once = call.once[row] if call.once else ()
            new[stream_id] = None if ended else StreamState(frames[row], states[row], sources[row], key, once)
        self.script, self.rates, self.given = call.script, call.rates, call.given  # while streams are live
        self.kinds = call.kinds
        if call.keys is not None:
            self.draws.started([i for i, s in zip(call.ids, call.old) if s is None or s.key is None])
        self.publish(new, (*call.also, (call.done, True)))

    # ---------------------------------------------------------------- bytes and copies
    def to_parts(self, states: Any) -> list[bytes | None]:
        """Return a stream's states as bytes, one piece per operation that has any."""
        return [flatten(s) for s in states]

    def from_parts(self, parts: Sequence[bytes | None]) -> Any:
        """Return a stream's states, given as `to_parts` gives them: each as one array without a name."""
        return tuple({"": np.frombuffer(p, np.uint8)} if p else None for p in parts)

    def copied(self, states: Any) -> Any:
        """Return a stream's states for another session: where they are never written to, themselves."""
        return states

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        out = type(self)(*self.options)
        with self.hold():
            out.script, out.rates, out.given = list(self.script), self.rates, dict(self.given)
            out.kinds = self.kinds
            out.draws = self.draws.copy()
            live = {i: self.state_of(i) for i in self.live_ids}
            out.publish(
                {i: StreamState(s.frames, self.copied(s.states), (), s.key, s.once) for i, s in live.items() if s}
            )
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self.options)


class Call(Replayed):
    """One call of an online module: the entry that its tensors belong to.

    Holds the streams' states before (never written to), the new ones as they come, and how far the
    script has been followed. Arithmetic on values is the subclass's or the caller's (`advance`).
    """

    library: Library = NATIVE
    misused: NotStreamableError | None = None
    _named: Mapping[int, str] | None = None
    keys: list[int] | None = None  #: By which the rows draw, once one has drawn.
    _drawn = 0, 0  # the place of the last that drew, and how many did so there
    kinds: Sequence[Kind] = ()
    also: Sequence[tuple[Slot, Any]] = ()  #: What else its commit publishes.
    #: What has the call before, whose `last` this one becomes: its states are then made when they are asked for.
    follows: Any = None

    def __init__(
        self,
        session: Session,
        meta: StreamMetadata,
        rates: tuple[Fraction, ...],
        counts: Counts,
        states: Sequence[StreamState | None],
        script: list[Key],
        fresh: bool,
        names: Callable[[], Mapping[int, str]],
    ) -> None:
        self.session = session
        self.buffers = session.buffers
        self.guard: Any = None
        self.body: Any = None
        self.buffer_limit = session.buffer_limit
        self.context_limit = session.context_limit
        self.meta = meta
        self.ids = meta.ids
        self.ended = meta.eos
        self.rates = rates
        self.input_counts = counts  # (inputs, rows, 4)
        self.old = states
        self.script = script
        self.fresh = fresh
        self.places: dict[int, Any] | None = session.places
        self.facts = session.facts
        self.recording: Recording | None = None
        self._names = names
        self.new: list[Sequence[Any]] = []
        self.left: list[Sequence[Any]] = []  # per operation where gradients of the rows' states go, if anywhere
        self.n_done = 0
        self.afterwards: list[Callable[[], None]] = []  # what changes when the call has succeeded
        self.over = False  # the forward has returned
        self.given: dict[str, Any] = {}  # see Session.given
        self.moving = len(rates)  # inputs before those that are given once
        self.once: list[Sequence[Any]] = []  # per row their values
        self.done = Slot(False)
        self.fail_at: int | None = None

    def require_kinds(self, names: Sequence[str]) -> None:
        """Refuse inputs of types that no operator takes, or other than those of live streams (DTypeError)."""
        for kind, _ in self.kinds:
            try:
                nominal(kind)
            except DTypeError as error:
                error.concern(self.ids)
                raise
        if self.fresh:
            return
        for name, (now, _), (before, _) in zip(names, self.kinds, self.session.kinds):
            if now != before:
                raise DTypeError(
                    f"input {name}: the streams that are live have {before}, and these chunks {now}", self.ids
                )

    def explain(self, error: Exception) -> None:
        """Name the rows in an error of a forward whose inputs are not like those that it has taken before.

        Before it has taken any, all rows of a first call may be of a wrong type or shape.
        """
        blamed = DreamStreamError if self.session.kinds else (DTypeError, ShapeError)
        if self.kinds != self.session.kinds and isinstance(error, blamed) and not error.ids:
            error.concern(self.ids)

    def input_edge(self, index: int, dtype: str, features: tuple[int, ...]) -> Edge:
        """Return the edge of one input."""
        static = index >= self.moving
        line = self.session.lines.of_input(index, self.rates[index], dtype, features, static)
        return Edge(self, line, self.input_counts[index])

    def known_input(self, index: int) -> Edge:
        """Return an edge of an input that the forward has."""
        return Edge(self, self.session.lines.inputs[index], self.input_counts[index])

    @property
    def committed(self) -> bool:
        """Whether its states hold."""
        return bool(self.done.current()) or (self.follows is not None and self.follows.last is self)

    def misuse(self, message: str, rest: str | None = None) -> Exception:
        """Return the exception for a use that streams can't have."""
        self.misused = NotStreamableError.here(message, rest)
        return self.misused

    def homes_of(self, held: Any) -> list[Any]:
        """Return the places where objects and functions hold values."""
        return homes_of(held, functions=True).homes

    # ---------------------------------------------------------------- one operation
    def run(self, request: Request) -> list[tuple[Any, Edge]]:
        """Run an operation that is new at this place of the script, or not known to be the one of before."""
        name, op, edges = request.name, request.op, request.edges
        for e in edges:
            if e.entry is not self:
                raise StreamMismatchError.here(f"{name}: a tensor of another forward")
        read = [e.rate for e in edges[: op.n_values] if e.line.static == edges[0].line.static]
        if any(rate != read[0] for rate in read):
            require_equal_rates(read, f"{name} at {user_line()}")
        key = self._key(request)
        if name == "require" and key in self.script[: self.n_done]:  # it is checked already
            return []
        self._follow(key)
        lines = self.session.lines.of(op, edges, self.n_done - 1, request.cid, key)
        anew = (
            self.recording is not None or request.weights
        )  # a place has an operation of its own, as have weights
        ran = None if anew else self.session.ran.get(self.n_done)
        if ran is None or ran.op is not op or ran.lines is not lines:
            ran = Operation(op, key, [e.signature for e in edges], lines)
            if not anew:
                self.session.ran[self.n_done] = ran
        try:
            results = self.compute(ran, edges, request.values[: op.n_values], request.weights)
        except Exception:
            self._step_back()
            raise
        if self.recording is not None:
            self.recording.add(ran, request, results)
        return results

    def replay(
        self, ran: Operation, edges: Sequence[Edge], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[tuple[Any, Edge]]:
        """Run an operation of a place again."""
        ordinal, script = self.n_done, self.script
        if ordinal < len(script) and script[ordinal] is ran.key and not self.over and ordinal != self.fail_at:
            self.n_done = ordinal + 1
        else:
            self._follow(ran.key)
        try:
            return self.compute(ran, edges, values, weights)
        except Exception:
            self._step_back()
            raise

    def compute(
        self, ran: Operation, edges: Sequence[Edge], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[tuple[Any, Edge]]:
        """Return the outputs' values and edges, and `record` the states. Whoever computes values defines it."""
        raise NotImplementedError(f"{type(self).__name__} does not compute values")

    def _key(self, request: Request) -> Key:
        attrs = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in request.attributes.items()))
        named = tuple(self.known_as(w) for w in request.weights)
        return (request.name, attrs, named, tuple(e.cid for e in request.edges))

    def known_as(self, weight: Any) -> Any:
        """Return what the script knows a weight by: a name where it is the module's, else its type and shape."""
        if weight is None:
            return None
        if self._named is None:
            self._named = self._names()
        return self._named.get(id(weight)) or (str(weight.dtype), tuple(weight.shape))

    def _follow(self, key: Key) -> None:
        """Go one step along the script, or write it where no stream is live."""
        if self.over:
            raise ModeError.here(_describe(key), f": {RETURNED}")
        ordinal = self.n_done
        if ordinal < len(self.script):
            known = self.script[ordinal]
            if known is not key and known != key:
                raise ModeError.here(
                    f"operation {ordinal}",
                    f" is {_describe(key)}, but was {_describe(known)} while these streams were live; the "
                    "forward's course must not depend on data",
                )
            self.script[ordinal] = key  # the same object for the next call
        elif not self.fresh:
            raise ModeError.here(
                f"operation {ordinal}",
                f", {_describe(key)}, is new while streams are live; the forward's course must not depend on data",
            )
        else:
            self.script.append(key)
        self.n_done += 1
        if ordinal == self.fail_at:
            raise KeyboardInterrupt

    def _step_back(self) -> None:
        """Let an operation that failed be none of the script, should the forward go on without it."""
        self.n_done -= 1
        if self.fresh and self.n_done == len(self.script) - 1:
            del self.script[self.n_done]

    def counts_once(self, op: Any, inputs: Sequence[Counts]) -> tuple[list[Counts], Any]:
        """Return the counts of the outputs of an operation on what is given once, and which rows end for it: all.

        What follows from what is given once has ended with the call in which it is given.
        """
        ended = np.ones(len(self.ids), bool)
        whole = [c.copy() for c in inputs]
        for c in whole:
            c[:, :2] = 0, -1
        outputs = op.counts(whole, ended, self.ids)
        there = np.any([c[:, 0] > 0 for c in inputs], 0)
        begun = np.all([c[:, 1] >= 0 for c in inputs], 0)
        for c in outputs:
            c[there, :2] = c[there, 2:]
            c[begun, 1] = c[begun, 3]
        return outputs, ended

    def draw_keys(self) -> Any:
        """Return a key per row for what is drawn here, at this place of the forward."""
        if self.keys is None:
            known = [None if s is None else s.key for s in self.old]
            self.keys = self.session.draws.keys(self.ids, known, not self.session.is_live, self.library.draw)
        at, n = self._drawn
        self._drawn = (at, n + 1) if at == self.n_done else (self.n_done, 1)
        return mixed(np.array(self.keys, np.uint64), (self.n_done << 16) + self._drawn[1])

    def before(self) -> list[Any]:
        """Return the rows' states before the operation that is being computed."""
        n = self.n_done - 1
        return [None if s is None else s.states[n] for s in self.old]

    def states(self) -> Sequence[Any]:
        """Return what each row remembers after all operations."""
        return list(zip(*self.new)) if self.new else [()] * len(self.ids)

    def record(self, states: Sequence[Any] | None) -> None:
        """Add the rows' states after the operation that is being computed."""
        self.new.append([None] * len(self.ids) if states is None else states)
        if len(self.new) != self.n_done:
            raise DreamStreamError("an operation's states were not recorded")


def _describe(key: Key) -> str:
    name, attrs, weights, _ = key
    given = ", ".join(f"{k}={v}" for k, v in attrs)
    named = [w for w in weights if isinstance(w, str)]
    return f"{name}({given})" + (f" of {', '.join(named)}" if named else "")
