"""Edges, the values inside a forward without their elements, and requests, the operations on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .. import _core
from ..errors import LocatedError
from ..source_line import user_line
from .rules.lineage import Cid, entry, lineages

#: (rows, 4) int64: known and total before the call, known and total now. A total of -1: there is no such edge,
#: since the stream has not begun, or is too short for it.
Counts = npt.NDArray[np.int64]


class Line:
    """What is the same of an edge in every call."""

    __slots__ = ("cid", "dtype", "facts", "features", "rate", "signature", "source", "static")

    def __init__(
        self,
        cid: Cid,
        rate: Fraction,
        dtype: str,
        features: tuple[int, ...],
        source: tuple[Any, tuple[Line, ...], int] | None = None,
        *,
        static: bool = False,
    ) -> None:
        self.cid = cid  #: Lineage: edges of equal cid have equal counts, always.
        self.rate = rate  #: Frames per frame of the reference clock; 0 without a stream axis.
        self.dtype = dtype
        self.features = features  #: The shape of one frame.
        #: dtype, features and rate as the engine wants them.
        self.signature = (dtype, features, rate.numerator, rate.denominator)
        #: The operation whose output it is, the lines of its inputs, and which output; None for a forward's input.
        self.source = source
        #: Whether it follows from inputs alone that are given once, with the start of a stream.
        self.static: bool = all(line.static for line in source[1]) if source else static
        self.facts: dict[Any, Any] = {}  #: Cache of what was derived for this line, as answers about its length.

    @property
    def alike(self) -> bool:
        """Whether the frame at a position is the same in all streams, as that of a table or of `positions`."""
        if self.source is None:
            return False
        op, lines, _ = self.source
        return op.name in ("table", "positions") or (op.framewise and all(line.alike for line in lines))


def lines_of(op: Any, inputs: Sequence[Edge], ordinal: int, own: Cid | None = None) -> list[Line]:
    """Return the lines of the outputs of a forward's operation number `ordinal`.

    `own` is the first output's lineage, where it is not what the operator makes of the input's.
    """
    cids = lineages(op, inputs[0].cid, ordinal)
    if own is not None:
        cids[0] = own
    lines = tuple([e.line for e in inputs])
    return [
        Line(cid, Fraction(num, den), dtype, features, (op, lines, o))
        for o, (cid, (dtype, features, num, den)) in enumerate(zip(cids, op.outputs))
    ]


class Lines:
    """The lines of a forward's inputs and operations: the same objects from call to call while these don't change.

    Operations that follow on one that runs anew in each call find the same lines, and so are repeated.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, list[Line]]] = {}
        self.inputs: dict[int, Line] = {}

    def of_input(self, index: int, rate: Fraction, dtype: str, features: tuple[int, ...], static: bool) -> Line:
        """Return the line of the input `index`."""
        line = self.inputs.get(index)
        if line is None or (line.rate, line.dtype, line.features, line.static) != (rate, dtype, features, static):
            line = self.inputs[index] = Line(entry(index), rate, dtype, features, static=static)
        return line

    def of(self, op: Any, inputs: Sequence[Edge], ordinal: int, own: Cid | None, key: Any) -> list[Line]:
        """Return the lines of `lines_of`, kept from call to call while the script's `key` and inputs are equal."""
        asked = key, own, op.outputs, [e.line for e in inputs]
        known = self._known.get(ordinal)
        if known is None or known[0] != asked:
            known = self._known[ordinal] = asked, lines_of(op, inputs, ordinal, own)
        return known[1]


class Edge:
    """A value in a forward, without its elements: who computed it, and its counts in this call."""

    __slots__ = ("counts", "entry", "handle", "line", "made")

    def __init__(self, entry: Entry, line: Line, counts: Counts | None = None, handle: int | None = None) -> None:
        self.entry = entry  #: The run of the forward that it belongs to.
        self.line = line  #: What is the same of it in every call; the line's attributes can be read from the edge.
        self.counts = counts  #: None while a graph is captured.
        self.handle = handle  #: The graph's edge while one is captured; else None.
        self.made: Any = None  #: In training: where the gradient of its values goes (`dreamstream.autograd`).

    cid = property(attrgetter("line.cid"))
    rate = property(attrgetter("line.rate"))
    dtype = property(attrgetter("line.dtype"))
    features = property(attrgetter("line.features"))
    signature = property(attrgetter("line.signature"))

    @property
    def may_wait(self) -> bool:
        """Whether layers that need the whole stream may wait for its end; what is given once is whole at once."""
        return self.line.static or self.entry.buffers

    def misuse(self, message: str, rest: str | None = None) -> Exception:
        """Return the exception for a wrong use of a size."""
        return self.entry.misuse(message, rest)

    def require(self, other: Edge, attributes: Mapping[str, Any]) -> None:
        """Refuse streams at whose end the lengths of both don't compare as the operator `require` says."""
        op = _of_lengths("require", tuple(attributes.items()), self.signature, other.signature)
        try:
            self.entry.run(Request("require", attributes, [self, other], [], op=op))
        except LocatedError as error:
            error.at(user_line())
            raise

    def require_frames(self, least: int) -> None:
        """Refuse streams that have fewer frames here at their ends."""
        self.require(self, {"length": (), "other": (), "plus": least, "against": "number", "relation": "ge"})

    def measure(self, attributes: Mapping[str, Any]) -> list[tuple[Any, Edge]]:
        """Return what the operator `length` gives at the end of streams."""
        op = _of_lengths("length", tuple(attributes.items()), self.signature)
        return self.entry.run(Request("length", attributes, [self], [], op=op))


@lru_cache(maxsize=1024)
def _of_lengths(name: str, attributes: Any, *inputs: Any) -> _core.Op:
    return _core.Op(name, dict(attributes), inputs)


@dataclass(slots=True, eq=False)
class Request:
    """One operation inside a forward, and its operands."""

    name: str  #: The operator's.
    attributes: Mapping[str, Any]  #: The operator's.
    edges: Sequence[Edge]  #: One per input.
    values: Sequence[Any]  #: What the entry computes with, one per edge whose values are read.
    weights: Sequence[Any] = ()  #: Constants in the operator's order, None where an optional one is absent.
    _: KW_ONLY
    cid: Cid | None = None  #: Lineage of the output, where it is not what the operator makes of its input's.
    op: Any = None  #: The operator for these attributes, edges and weights; the door finds it.


class Entry(Protocol):
    """One run of a forward on streams: an eager call, or a capture."""

    #: The `Place` of the call before at each place of the script; None where nothing is repeated.
    places: dict[int, Any] | None
    #: The `Recording` of the place that is being made, or None.
    recording: Any
    #: Whether layers that need the whole stream may wait for its end.
    buffers: bool
    #: The most frames that they may wait for, or None.
    buffer_limit: int | None
    #: The most frames that attention may keep where it keeps all, or None.
    context_limit: int | None
    #: The library whose tensors run in the forward (`dreamstream.array.library`).
    library: Any
    #: The ``if`` on a length that is open, whose branch pads or crops only the streams that take it; or None.
    guard: Any

    def run(self, request: Request) -> list[tuple[Any, Edge]]:
        """Run one operator: its outputs' values, each with its edge."""

    def known_input(self, index: int) -> Edge:
        """Return an edge of an input of the forward."""

    def misuse(self, message: str, rest: str | None = None) -> Exception:
        """Return the exception for a use that streams can't have."""

    def homes_of(self, held: Any) -> list[Any]:
        """Return the places where objects and functions hold values (`dreamstream.online.homes`)."""
