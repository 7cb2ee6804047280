"""The body of a loop over frames: an entry that records operations on one frame, and rounds of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import is_
from typing import Any, NoReturn

from ..errors import NotStreamableError
from ..operations.refusals import LOOPS_ELSEWHERE, LOOPS_WHOLE
from ..stream.edge import Edge, Line, Request, lines_of
from ..stream.place import Operation, Replayed
from .frame_numbers import refuse
from .stream_tensor import StreamTensor

#: All values of a body advance together, frame by frame.
FRAME = ("frame",)


class Body(Replayed):
    """The entry of a loop's body: operations on one frame are recorded.

    In the next call the body goes along what it has recorded, and gives the same edges again, so that places
    are found by their lines. From the first operation on that is another one it records anew.
    """

    meta = None
    buffers = False
    buffer_limit: int | None = None
    context_limit: int | None = None
    loop: Any  # a Loop
    library: Any
    has_converted: bool  #: Whether positions have become streams in this round.

    def __init__(self) -> None:
        self.places: dict[Any, Any] | None = None
        self.recording = self.guard = self.body = None
        self.nodes: list[Request] = []
        self.n_done = 0  #: How many of the nodes have run in this round.
        #: What a front end's own arithmetic does beside an operator, by the node.
        self.notes: dict[int, str] = {}
        self.firsts: list[int] = []
        self.n_values = 0
        self.differs = False  #: Whether this round has done something else than the body had recorded.
        #: What a front end has computed of weights in this round, and of which parameters.
        self.computed: list[Any] = []
        self._made: list[list[tuple[Any, Edge]]] = []  # by each node
        self._leaves: dict[Any, Edge] = {}  # of what is read and carried, by handles
        self._note: str | None = None  # of the node that runs now

    def known_input(self, index: int) -> NoReturn:
        """A loop's body has no streams, of whose lengths it could ask."""
        raise NotImplementedError

    def begin(self, loop: Any) -> None:
        """Begin a round."""
        self.loop, self.library = loop, loop.entry.library
        self.n_done, self.differs, self.computed = 0, False, []
        self.has_converted = False
        if loop.places is None:
            self.places = None
        elif self.places is None:
            self.places = {}

    @property
    def does_as_kept(self) -> bool:
        """Whether all that it has done in this round is what it had recorded."""
        return not self.differs and self.n_done == len(self.nodes)

    def cut(self) -> None:
        """Forget the operations behind those of this round."""
        at = self.n_done
        if at < len(self.nodes):
            self.differs, self.n_values = True, self.firsts[at]
            self.notes = {j: note for j, note in self.notes.items() if j < at}
            del self.nodes[at:], self.firsts[at:], self._made[at:]

    def close(self, kept: bool) -> None:
        """Let go of the operations, or, where a later call is to repeat them, of this call."""
        if kept:
            self.loop = None
            for node in self.nodes:
                node.weights = ()
        else:
            self.n_done, self.places = 0, None
            self.nodes.clear()
            self._made.clear()
            self._leaves.clear()

    def known_as(self, weight: Any) -> Any:
        """Return what the script knows a weight by."""
        return self.loop.entry.known_as(weight)

    def misuse(self, message: str, rest: str | None = None) -> Exception:
        """Return the exception for a use that streams can't have."""
        error: Exception = self.loop.entry.misuse(message, rest)
        return error

    def homes_of(self, held: Any) -> list[Any]:
        """Return the places where objects and functions hold values."""
        return list(self.loop.entry.homes_of(held))

    def leaf(self, handle: Any, like: Line) -> Edge:
        """Return the edge of what is read or carried: the same in each call, while frames are like a line's."""
        known = self._leaves.get(handle)
        if known is None or known.line.signature != like.signature:
            line = Line(FRAME, like.rate, like.dtype, like.features)
            known = self._leaves[handle] = Edge(self, line, None, handle)
        return known

    def with_note(self, x: StreamTensor, note: str) -> StreamTensor:
        """Return a frame where gradients end, or of which a front end makes something by arithmetic of its own."""
        if self.recording is not None:
            self.recording.forget()
        self._note = note
        try:
            return x._operate("reshape", {"shape": list(x.features)})
        finally:
            self._note = None

    def node_of(self, value: int) -> int:
        """Return the node that gives a value."""
        return bisect_right(self.firsts, value) - 1

    def run(self, request: Request) -> list[tuple[Any, Edge]]:
        """Record one operation."""
        op, edges = request.op, request.edges
        if any(e.entry is not self for e in edges):
            mixed(e.entry for e in edges)
        if self.loop is None:  # it has ended
            refuse(LOOPS_WHOLE)
        if not op.framewise or getattr(op, "in_python", False):
            refuse(f"{request.name}: {LOOPS_WHOLE.text}")
        out = self._again(op, edges, request.weights)
        if out is None:
            out = self._new(request)
        if self.recording is not None:
            self.recording.add(
                Operation(op, (request.name, request.attributes, request.cid), (), []), request, out
            )
        return out

    def replay(
        self, ran: Operation, edges: Sequence[Edge], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[tuple[Any, Edge]]:
        """Record an operation that ran at this place before."""
        out = self._again(ran.op, edges, weights)
        if out is None:
            name, attributes, cid = ran.key
            out = self._new(Request(name, attributes, edges, values, weights, cid=cid, op=ran.op))
        return out

    def _note_now(self) -> str | None:
        is_off = self.loop.has_gradients and not self.library.has_gradients()
        other = self.library.casts()
        if other != self.loop.casts:
            if is_off:
                refuse("no_grad and autocast, both of which begin in a loop over frames; let one begin before it")
            return self._note or f"cast={other}"
        return self._note or ("no_grad" if is_off else None)

    def _again(self, op: Any, edges: Sequence[Edge], weights: Sequence[Any]) -> list[tuple[Any, Edge]] | None:
        """Return what the operation that is recorded here gave, and note its weights; None if this is another."""
        at = self.n_done
        if at == len(self.nodes):
            return None
        known = self.nodes[at]
        if known.op is not op or not all(map(is_, known.edges, edges)) or self.notes.get(at) != self._note_now():
            self.cut()
            return None
        known.weights, self.n_done = weights, at + 1
        return self._made[at]

    def _new(self, request: Request) -> list[tuple[Any, Edge]]:
        self.differs = True
        if (note := self._note_now()) is not None:
            self.notes[self.n_done] = note
        self.nodes.append(request)
        self.firsts.append(self.n_values)
        out: list[tuple[Any, Edge]] = []
        for line in lines_of(request.op, request.edges, len(self.nodes), FRAME):
            own = Line(FRAME, line.rate, line.dtype, line.features)
            out.append((None, Edge(self, own, None, self.n_values)))
            self.n_values += 1
        self._made.append(out)
        self.n_done += 1
        return out


def in_loop(x: StreamTensor, note: str) -> StreamTensor:
    """Return a frame of a loop's body as the loop's kernel is to compute it; itself in a capture."""
    body = x.edge.entry if x.edge is not None else None
    if not isinstance(body, Body) or hasattr(body.loop.entry, "graph"):
        return x
    if not note:
        raise NotStreamableError.here(
            "an operation",
            " needs the values of frames, which a loop over them computes later; apply it to the whole stream "
            "before or after the loop",
        )
    return body.with_note(x, note)


def mixed(entries: Any) -> None:
    """Refuse operands of a loop's body and of somewhere else; return where none is of a body."""
    found = list(entries)
    bodies = [e for e in found if isinstance(e, Body)]
    if not bodies:
        return
    if all(isinstance(e, Body) for e in found):
        refuse(LOOPS_ELSEWHERE)
    refuse(LOOPS_WHOLE)


class Round:
    """One round of the body."""

    def __init__(self, body: Body, carried: dict[Any, Edge], outputs: dict[Any, Edge], of_one_frame: bool) -> None:
        self.body, self.carried, self.outputs, self.of_one_frame = body, carried, outputs, of_one_frame

    def ends(self) -> Any:
        """Return what it carries on and gives, to be compared with that of the same body in another call."""
        carried = {k: e.handle for k, e in self.carried.items()}
        return carried, {k: e.handle for k, e in self.outputs.items()}, self.of_one_frame

    def operations(self, needed: Any) -> Any:
        """Return what it does, to be compared with what another one does."""
        nodes = [
            (r.name, sorted(r.attributes.items(), key=str), [e.handle for e in r.edges]) for r in self.body.nodes
        ]
        carried = {k: e.handle for k, e in self.carried.items() if k in needed}
        return nodes, carried, {k: e.handle for k, e in self.outputs.items()}, self.body.notes

    def does_as(self, other: Round, needed: Any) -> bool:
        """Whether another round does the same, with the same weights."""
        if self.operations(needed) != other.operations(needed):
            return False
        return all(equal(a, b) for a, b in self._weights_beside(other))

    def has_own_weights_of(self, other: Round) -> bool:
        """Whether it and another round have the very same weights, or compute them of these, not of equal ones."""
        if self.body.computed != other.body.computed:
            return False
        own = self.body.loop.entry.known_as
        return all(a is b for a, b in self._weights_beside(other) if str in (type(own(a)), type(own(b))))

    def _weights_beside(self, other: Round) -> list[tuple[Any, Any]]:
        return [(a, b) for r, s in zip(self.body.nodes, other.body.nodes) for a, b in zip(r.weights, s.weights)]

    def reads(self, carried: Any) -> tuple[set[Any], set[int]]:
        """Return what is read of what is carried, and which nodes run, for the outputs and what is carried on."""
        waiting = [*self.outputs.values(), *(e for k, e in self.carried.items() if k in carried)]
        found: set[Any] = set()
        seen = {j for j, note in self.body.notes.items() if " " in note}  # they draw random numbers
        waiting += [e for j in seen for e in self.body.nodes[j].edges]
        while waiting:
            handle: Any = waiting.pop().handle
            if isinstance(handle, int):
                node = self.body.node_of(handle)
                if node not in seen:
                    seen.add(node)
                    waiting += self.body.nodes[node].edges
            elif handle[0] == "carried":
                found.add(handle[1])
        return found, seen


def equal(a: Any, b: Any) -> bool:
    """Whether two weights, arrays of either front end, hold the same."""
    if a is b:
        return True
    if a is None or b is None or tuple(a.shape) != tuple(b.shape) or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
