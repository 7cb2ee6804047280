"""What a call did at one place of the script, so that the next call there need only repeat it.

A forward runs the same operations in every call. The first call finds the operators, checks dimensions, brings
together what progresses differently; the `Place` that it leaves behind says which operators ran on what. It
serves as long as the same is asked for: the same operation, on edges of the same lines, seen with the same
dimensions, with the same arrays as weights, or with ones of the same types and shapes that every call makes anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

from .edge import Edge, Line, Request

#: What of a stream inside a forward decides which operators run on it: the same objects in every call.
seen = attrgetter("edge.line", "dims", "_names")

_EDGE, _VALUE, _ENTRY = attrgetter("edge"), attrgetter("value"), attrgetter("edge.entry")


class Replayed:
    """What `_core.Replay` reads of a call, or of the body of a loop over frames, in slots.

    See `dreamstream.online.session.Call` and `dreamstream.array.loop_body.Body`, which is a call's `body` while
    one runs.
    """

    __slots__ = (
        "body", "ended", "fail_at", "guard", "ids", "keeps_tape", "n_done", "over", "places", "recording",
        "script",
    )  # fmt: skip


class Operation:
    """One operator that ran at a place, and runs again there, and where it finds its inputs."""

    __slots__ = ("key", "lines", "n_values", "op", "pick", "plan", "signatures", "takes_weights")

    def __init__(self, op: Any, key: Any, signatures: Sequence[Any], lines: list[Line]) -> None:
        self.op = op
        self.key = key  #: What the script knows it by.
        self.lines = lines  #: One per output.
        self.signatures = signatures  #: One per input, as the engine wants them.
        self.n_values: int = op.n_values
        #: Picks its inputs out of all edges of its place (or of their values): the place's inputs, then what
        #: earlier operators made.
        self.pick: Callable[[list[Any]], Sequence[Any]]
        self.takes_weights = False  #: Whether the place's weights are its own.
        self.plan: Any = None  #: What whoever computes its values keeps from call to call.


class Recording:
    """What happens between an operation's arrival at the door, on streams of one forward, and its results."""

    def __init__(self, inputs: Sequence[Any], edges: Sequence[Edge] = ()) -> None:
        self._edges = [*(x.edge for x in inputs), *edges]
        self._values = [*(x.value for x in inputs), *(None for _ in edges)]
        self._operations: list[Operation] = []
        self._weights: list[Sequence[Any]] = []
        self._sources: list[tuple[int, ...]] = []
        self._whole = True

    def add(self, ran: Operation, request: Request, results: Sequence[tuple[Any, Edge]]) -> None:
        """Append an operator that ran."""
        numbers = self.numbers()
        sources = tuple([numbers.get(id(e), -1) for e in request.edges])
        if min(sources) < 0 or any(self._values[i] is not v for i, v in zip(sources, request.values)):
            self._whole = False
            return
        last = sources[-1]
        ran.pick = itemgetter(*sources) if len(sources) > 1 else itemgetter(slice(last, last + 1))
        ran.takes_weights = bool(request.weights)
        self._weights.append(request.weights)
        self._operations.append(ran)
        self._sources.append(sources)
        for value, edge in results:
            self._values.append(value)
            self._edges.append(edge)

    def numbers(self) -> dict[int, int]:
        """Return the first place of each edge among all, by its id."""
        last = len(self._edges) - 1
        return {id(e): last - i for i, e in enumerate(reversed(self._edges))}

    def forget(self) -> None:
        """Make no place of what ran: a repeat would have the weights that were computed of those given now."""
        self._whole = False

    def edited(self, result: Any, x: Any, amount: Any, edit: Callable[[Any, Any], Any]) -> None:
        """Hear that a stream was padded or cropped in an if that only some streams enter (`rules.branches`)."""
        self.forget()

    def making(self, make: Callable[[Any], Any], weight: Any) -> Any:
        """Return what an operator gets in the place of a weight that was given."""
        self.forget()
        return make(weight)

    def place_of(
        self, asked: list[Any], held: Sequence[Any], outputs: Sequence[Any], known_as: list[Any] | None = None
    ) -> Place | None:
        """Return the place that led to these outputs; None where it can't be repeated.

        Another passage asks for the same where its list is equal to `asked`. `held` are the weights that are there
        in every call, None for one that is made anew, and `known_as` is what the script knows them by.
        """
        numbers = self.numbers()
        leaves = [(numbers.get(id(y.edge), -1), y.dims, y._names) for y in outputs]
        if not self._whole or any(
            i < 0 or y.value is not self._values[i] for (i, _, _), y in zip(leaves, outputs)
        ):
            return None
        weighing = [weights for weights in self._weights if weights]
        if len(weighing) > 1:
            return None
        (weights,) = weighing or ((),)
        fixed = all(w is None or any(w is h for h in held) or is_number(w) for w in weights)
        return Place(asked, held, weights if fixed else None, self._operations, leaves, known_as)


def is_number(weight: Any) -> bool:
    """Whether an operator took a number that nobody can write to."""
    return getattr(weight, "size", 0) == 1 and not getattr(getattr(weight, "flags", None), "writeable", True)


def same_entry(inputs: Sequence[Any]) -> bool:
    """Whether streams belong to one run of a forward."""
    return len(inputs) == 1 or len(set(map(id, map(_ENTRY, inputs)))) == 1


@dataclass(slots=True, eq=False)
class Place:
    """The operators that ran at one place of the script, to be run again by the next call."""

    asked: list[Any]  #: See `Recording.place_of`, as of `held` and `known_as`.
    held: Sequence[Any]
    weights: Sequence[Any] | None  #: As the operator takes them; None where they are laid out in every call.
    operations: list[Operation]
    outputs: list[tuple[int, Any, Any]]  #: Which edges leave, and how they are seen.
    known_as: list[Any] | None = None


def repeat(place: Place, entry: Any, inputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """Run the operators of a place again, and return their outputs."""
    edges, values = list(map(_EDGE, inputs)), list(map(_VALUE, inputs))
    for ran in place.operations:
        own, given = ran.pick(edges), ran.pick(values)
        for value, edge in entry.replay(ran, own, given[: ran.n_values], weights if ran.takes_weights else ()):
            values.append(value)
            edges.append(edge)
    make = type(inputs[0]).inside
    return [make(values[i], dims, edges[i], names) for i, dims, names in place.outputs]


def as_before(entry: Any, asked: list[Any], inputs: Sequence[Any], find: Callable[[], list[Any]]) -> list[Any]:
    """Repeat what the call before did here where it asked the same without weights; else `find`, and note it."""
    places = entry.places
    if places is None or entry.recording is not None:
        return find()
    at = entry.n_done
    place = places.get(at)
    if place is not None and place.asked == asked and same_entry(inputs):
        return repeat(place, entry, inputs, ())
    entry.recording = recording = Recording(inputs)
    try:
        outputs = find()
    finally:
        entry.recording = None
    place = recording.place_of(asked, (), outputs)
    if place is not None:
        places[at] = place
    return outputs
