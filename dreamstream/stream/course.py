"""What one passage through the door did, so that the next call at the same place of the script need only repeat it.

A forward runs the same operations in every call. The first call finds the operators, checks dimensions, brings
together what progresses differently; the `Course` that it leaves behind says which operators ran on what. It serves
as long as the same is asked for: the same operation, on edges of the same lines, seen with the same dimensions,
with the same arrays as weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from .edge import Edge, Line, Request

__all__ = ["Course", "Recording", "Leg"]

_SEEN = attrgetter("edge.line", "dims", "_names")
_ENTRY = attrgetter("edge.entry")


class Leg:
    """One operator of a script.

    Attributes
    ----------
    op : _core.Op
    key : tuple
        What the script knows it by.
    lines : list of Line
        One per output.
    of : callable
        Gives what it works on, of all edges of its course (or of their values): the inputs, then what earlier
        legs made.
    weighs : bool
        Whether the course's weights are its own.
    plan : object
        What an entry's arithmetic wants to find again.
    """

    __slots__ = ("key", "lines", "n_values", "of", "op", "plan", "weighs")

    def __init__(self, op: Any, key: Any, lines: list[Line]) -> None:
        self.op = op
        self.key = key
        self.lines = lines
        self.n_values: int = op.n_values
        self.of: Callable[[list[Any]], Sequence[Any]]
        self.weighs = False
        self.plan: Any = None


class Recording:
    """What happens between an operation's arrival at the door and its results.

    Parameters
    ----------
    inputs : sequence of StreamTensor
        Inside one forward.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._edges = [x.edge for x in inputs]
        self._values = [x.value for x in inputs]
        self._legs: list[Leg] = []
        self._weights: Sequence[Any] = ()
        self._whole = True

    def add(self, leg: Leg, request: Request, results: Sequence[tuple[Any, Edge]]) -> None:
        """Note a leg that ran."""
        places = {id(e): i for i, e in enumerate(self._edges)}
        sources = [places.get(id(e), -1) for e in request.edges]
        known = all(i >= 0 for i in sources) and not (request.weights and self._weights)
        if not known or any(self._values[i] is not v for i, v in zip(sources, request.values)):
            self._whole = False
            return
        last = sources[-1]
        leg.of = itemgetter(*sources) if len(sources) > 1 else itemgetter(slice(last, last + 1))
        leg.weighs = bool(request.weights)
        self._weights = request.weights or self._weights
        self._legs.append(leg)
        for value, edge in results:
            self._values.append(value)
            self._edges.append(edge)

    def course(
        self,
        name: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Any],
        weights: Sequence[Any],
        dims: Any,
        outputs: Sequence[Any],
    ) -> Course | None:
        """Return the course that led to these outputs; None where it can't be repeated."""
        places = {id(e): i for i, e in enumerate(self._edges)}
        leaves = [(places.get(id(y.edge), -1), y.dims, y._names) for y in outputs]
        if not self._whole or any(i < 0 for i, _, _ in leaves) or any(w is not None and w.is_stream for w in weights):
            return None
        course = object.__new__(Course)
        course.name, course.attributes, course.dims = name, dict(attributes), dims
        course.seen = list(map(_SEEN, inputs))
        course.held = [None if w is None else w._array for w in weights]
        course.weights = None
        if all(a is b or _is_number(a, b) for a, b in zip(course.held, self._weights)):
            course.weights = self._weights
        course.legs, course.outputs = self._legs, leaves
        return course


def _is_number(held: Any, laid: Any) -> bool:
    """Whether what an operator took is a number that nobody can write to, seen with another shape."""
    return getattr(held, "shape", None) == () and not getattr(getattr(held, "flags", None), "writeable", True)


class Course:
    """One operation at one place of the script.

    Attributes
    ----------
    weights : sequence or None
        As the operator takes them; None where they have to be laid out in every call.
    legs : list of Leg
    outputs : list of (int, dims, names)
        Which edges leave, and how they are seen.
    """

    __slots__ = ("attributes", "dims", "held", "name", "outputs", "seen", "legs", "weights")

    name: str
    attributes: dict[str, Any]
    dims: Any
    seen: list[tuple[Any, ...]]
    held: list[Any]
    weights: Sequence[Any] | None
    legs: list[Leg]
    outputs: list[tuple[int, Any, Any]]

    def fits(
        self,
        name: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Any],
        weights: Sequence[Any],
        dims: Any,
    ) -> bool:
        """Whether the same is asked for again."""
        try:
            return (
                name == self.name
                and attributes == self.attributes
                and dims == self.dims
                and list(map(_SEEN, inputs)) == self.seen
                and len(weights) == len(self.held)
                and all([a is (w if w is None else w._array) for w, a in zip(weights, self.held)])
                and (len(inputs) == 1 or len(set(map(id, map(_ENTRY, inputs)))) == 1)
            )
        except AttributeError:  # a plain tensor, or a stream for a weight
            return False
