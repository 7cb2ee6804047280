"""Loops over the frames of streams: what the body of such a loop sees, and the operator that the loop becomes.

The body runs on one frame that stands for many: its operations are recorded (`loop_body.Body`), and when it is
known what goes from frame to frame, the loop becomes one operator, `scan`, with a graph for each kind of frame
(`Loop`). The next call goes along the same bodies (`Kept`). How the Python statement is followed stands above
(`array/for_loops.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..autograd import is_grad_enabled, set_grad_enabled
from ..stream.edge import Edge, Line, Request
from .dimension_arguments import numbered
from .frame_numbers import FIRST, FrameNumber, FrameTruth, LoopNumber, refuse
from .loop_body import FRAME, Body, Round, equal, mixed
from .loop_program import Program
from .stream_tensor import StreamTensor

#: How many frames a loop may look back at what it wrote or gathered.
FAR = 8
#: Most rounds of a body: more kinds of frames are a loop whose values change their kind in every frame.
MOST_ROUNDS = FIRST + 1
#: Among how many frames one is looked for that enters an if, before a later one stands for it.
_TRIED = 128


@dataclass(slots=True, eq=False)
class Kept:
    """What a loop did in the call before: its bodies, what their rounds ended with, and the operator it became."""

    bodies: list[Body]
    ends: list[Any]
    program: Program | None = None


class Loop:
    """A loop over frames: what its body reads, kind by kind of frame, and what becomes of it."""

    def __init__(self, length: Any, first: int) -> None:
        terms: Any = getattr(length, "terms", ())
        if len(terms) != 1 or terms[0][0] != 1 or not hasattr(terms[0][1], "entry") or length.plus > 0:
            refuse(
                f"a loop over {length!r}, which are no stream's but for the first and the last ones; "
                "loop over a tensor of these frames, as x[:, ::2]"
            )
        #: The edge whose frames are counted; how many of its first and last ones are left out.
        self.clock: Edge = terms[0][1]
        self.first, self.left_out = first, -length.plus
        if self.clock.line.static:
            refuse("a loop over the frames of an input that is given once")
        self.entry: Any = self.clock.entry
        self.has_gradients, self.casts = bool(self.entry.library.has_gradients()), self.entry.library.casts()
        if isinstance(self.entry, Body) or getattr(self.entry, "open_loop", None) is not None:
            refuse(
                "a loop over frames within another one; keep a fixed number of frames, or use attention with a "
                "context"
            )
        #: What calls before did at places of the forward, None where nothing is repeated; and what they did here.
        self.places: dict[Any, Any] | None = None
        self.kept: Kept | None = None
        self.inputs: list[tuple[Any, StreamTensor]] = []
        #: By what is carried: its place, line and first value.
        self.carried: dict[Any, tuple[Line, Any]] = {}
        self.rounds: list[Round] = []
        self.of_one_frame = False
        #: Variables that its body reads before it has surely assigned them, and whether one of these has no value.
        self.live: tuple[str, ...] = ()
        self.is_unset = False
        #: The ifs that run, with the side that does, of those that only some frames enter.
        self.within: list[tuple[FrameTruth, bool]] = []
        #: Of all rounds that have begun.
        self.bodies: list[Body] = []
        self._body: Body | None = None
        #: What is written into frame by frame, with the first round in which it is, and how far from the loop's
        #: frame the written one is; what it is at this frame; and which frames were read in this round.
        self.written: list[tuple[StreamTensor, int, int]] = []
        self._frames_now: dict[int, StreamTensor] = {}
        self._read: list[tuple[StreamTensor, int]] = []
        #: Streams whose first frame is read in the loop, with what that is carried as.
        self._firsts: list[tuple[StreamTensor, Any]] = []
        #: Operations on whole streams that the body does, with what they gave; which this round has done by now.
        self._beside: list[tuple[Any, list[Edge], list[Any], Any]] = []
        self._done: set[int] = set()
        #: Streams whose frames are read or written.
        self.seen: dict[int, StreamTensor] = {}
        #: Streams of random numbers, by how many a round had asked for before, and what they are like.
        self._drawn: dict[Any, StreamTensor] = {}

    # ------------------------------------------------------------------ rounds
    @property
    def position(self) -> int:
        """The least position of a frame of this round."""
        return self.first + len(self.rounds)

    @property
    def body(self) -> Body:
        """The body of this round; before and behind all rounds one without operations."""
        if self._body is None:
            self._body = Body()
            self._body.begin(self)
        return self._body

    @body.setter
    def body(self, body: Body) -> None:
        self._body = body

    def begin(self) -> FrameNumber:
        """Begin a round."""
        at, kept = len(self.bodies), self.kept
        self.body = body = kept.bodies[at] if kept is not None and at < len(kept.bodies) else Body()
        body.begin(self)
        self.bodies.append(body)
        if self.places is not None:
            self.entry.body = body
        self.of_one_frame = False
        self._frames_now, self._read, self._done, self.within = {}, [], set(), []
        self._n_drawn = 0
        return FrameNumber(self)

    def close(self) -> None:
        """Forget what the rounds did: their operations and edges refer to each other and to the call's frames."""
        if self.places is not None:
            self.entry.body = None
        kept = [] if self.kept is None else self.kept.bodies
        for body in self.bodies:
            body.close(body in kept)
        self.bodies, self._body, self.rounds, self.written = [], None, [], []

    def beside(self, request: Request, run: Callable[[Request], Any]) -> Any:
        """Run an operation on whole streams that stands in the body: once, whatever the number of rounds."""
        asked = (request.name, dict(request.attributes), request.cid)
        edges, weights = [*request.edges], [*request.weights]
        for i, (known, before, given, made) in enumerate(self._beside):
            is_same = i not in self._done and known == asked and _same(before, edges)
            if is_same and len(given) == len(weights) and all(map(equal, given, weights)):
                self._done.add(i)
                return made
        made = run(request)
        self._done.add(len(self._beside))
        self._beside.append((asked, edges, weights, made))
        return made

    def placeholder(
        self, key: Any, like: StreamTensor | None, first: Any = None, line: Line | None = None
    ) -> Edge:
        """Return what stands for something that is carried, in the body."""
        if key not in self.carried:
            edge: Any = None if like is None else like.edge
            self.carried[key] = (line or edge.line, first)
        return self.body.leaf(("carried", key), self.carried[key][0])

    def constant(self, key: Any, first: Any, dtype: str, shape: tuple[int, ...]) -> Edge:
        """Return what stands for something that is carried, and begins as a constant."""
        return self.placeholder(key, None, first, Line(FRAME, self.clock.rate, dtype, shape))

    def end(self, carried: dict[Any, Edge], outputs: dict[Any, Edge]) -> None:
        """End a round with what is carried on, and what is given for its frame."""
        for i, (y, since, at) in enumerate(self.written):
            frame = self.frame(y, at).in_order()
            before: Any = frame.edge
            outputs["written", i] = before
            for k in range(1, min(len(self.rounds) - since, FAR) + 2):
                key = self._slot(i, k, before)
                carried[key], before = before, self.placeholder(key, frame)
        for x, key in self._firsts if not self.rounds else ():
            carried[key] = self.frame(x, -self.first).edge  # type: ignore[assignment]
        for edge in (*carried.values(), *outputs.values()):
            if edge.entry is not self.body:
                mixed([edge.entry, self.body])
        self.body.cut()
        self.rounds.append(Round(self.body, carried, outputs, self.of_one_frame))

    # ------------------------------------------------------------------ what it writes, and reads again
    @staticmethod
    def _slot(i: int, k: int, edge: Any) -> Any:
        """Return what the frame is known by that was written k frames before."""
        return (f"written[{i}]", k, edge.dtype, tuple(edge.features))

    def _place_of(self, x: StreamTensor) -> int | None:
        for i, (y, *_) in enumerate(self.written):
            if y is x:
                return i
        return None

    def write(self, y: StreamTensor, frame: StreamTensor, off: int) -> None:
        """Let a frame be what was written into the frame of `y` that is `off` from the one that the loop is at."""
        i = self._place_of(y)
        self.seen[id(y)] = y
        self._require_begun(off)
        if i is None:
            i = len(self.written)
            if self.position + off < 0:
                refuse(f"a frame before the first is written; let the loop begin at {-off}")
            self._left_out(y, off)
            self.written.append((y, len(self.rounds), off))
            if any(x is y for x, _ in self._firsts):
                refuse("the first frame of what a loop over frames writes; carry it in a variable")
            if any(x is y and before < off for x, before in self._read):
                self.of_one_frame = True
        elif self.written[i][2] != off:
            refuse("a loop over frames writes several frames of one tensor at a time; write one of them in each")
        self._frames_now[i] = frame

    def unwritten(self, round_: Round, i: int) -> Edge:
        """Return the frame of what is written only later, in a round that has ended."""
        self.body = round_.body
        y, _, off = self.written[i]
        return self.input(*self._read_at(y, off)).edge  # type: ignore[return-value]

    def behind(self, x: StreamTensor) -> Any:
        """Return how many more frames a stream has than the loop's clock."""
        return (
            0
            if x.edge is self.clock
            else self.entry.library.length(x.edge) - self.entry.library.length(self.clock)
        )

    def _enters(self, position: int) -> bool:
        """Whether the frame at a position enters the branches that run."""
        return all(truth.at(position) == side for truth, side in self.within)

    def _require_begun(self, off: int) -> None:
        if off < 0 and any(self._enters(p) for p in range(self.position, -off)):
            refuse(f"a frame before the first; ask `if t >= {-off}`")

    def frame(self, x: StreamTensor, off: int) -> StreamTensor:
        """Return the frame of a stream that is `off` from the one that the loop is at."""
        self.seen[id(x)] = x
        self._require_begun(off)
        i = self._place_of(x)
        if i is None:
            self._read.append((x, off))
            return self.input(*self._read_at(x, off))
        _, since, at = self.written[i]
        ago = at - off
        if ago == 0 and i in self._frames_now:
            return self._frames_now[i].with_dims(self._frames_now[i].dims)
        if ago > 0:
            if ago > FAR:
                refuse(f"a frame that the loop wrote {ago} frames before: at most {FAR} are kept")
            if len(self.rounds) - ago >= since:
                like = self.rounds[-1].outputs["written", i]
                edge = self.placeholder(self._slot(i, ago, like), None, None, like.line)
                return StreamTensor.inside(None, numbered([d for d in x.dims if d != "L"]), edge)
            self.of_one_frame = True
        return self.input(*self._read_at(x, off))

    # ------------------------------------------------------------------ what the body reads
    def first_frame(self, x: StreamTensor) -> StreamTensor:
        """Return the first frame of a stream: in the first round its own, carried on to all later ones."""
        if self._place_of(x) is not None:
            refuse("the first frame of what a loop over frames writes; carry it in a variable")
        key = next((k for known, k in self._firsts if known.edge is x.edge and known.dims == x.dims), None)
        if key is None:
            edge: Any = x.edge
            key = (f"first[{len(self._firsts)}]", edge.dtype, tuple(edge.features))
            self._firsts.append((x, key))
            now = self.body
            for round_ in self.rounds[:1]:
                self.body = round_.body
                round_.carried[key] = self.input(*self._read_at(x, -self.first)).edge  # type: ignore[assignment]
            self.body = now
        if not self.rounds:
            self.of_one_frame = True
            return self.frame(x, -self.first)
        line = Line(FRAME, x.edge.rate, x.edge.dtype, x.edge.features)  # type: ignore[union-attr]
        own = self.placeholder(key, None, None, line)
        return StreamTensor.inside(None, numbered([d for d in x.dims if d != "L"]), own)

    def drawn(self, like: Line, make: Callable[[], StreamTensor]) -> StreamTensor:
        """Return this frame of a stream of random numbers; `make` gives it to the first round that asks for it."""
        key = self._n_drawn, like.dtype, like.features
        self._n_drawn += 1
        if key not in self._drawn:
            self._drawn[key] = make()
        return self.frame(self._drawn[key], 0)

    def _read_at(self, x: StreamTensor, off: int) -> tuple[Any, Any]:
        """Return the key of a frame that the loop reads, and what makes the stream of these."""
        return (x.edge, x.value, off), lambda: self.shifted(x.in_order(), off)

    def input(self, key: Any, make: Any) -> StreamTensor:
        """Return the frame of a stream that `make` gives, once for each key."""
        i = 0
        while i < len(self.inputs) and not _same(self.inputs[i][0], key):
            i += 1
        if i == len(self.inputs):
            self.inputs.append((key, self.once(make)))
        stream = self.inputs[i][1]
        dims, edge = tuple([d for d in stream.dims if d != "L"]), stream.edge
        return StreamTensor.inside(None, dims, self.body.leaf(("input", i), edge.line))  # type: ignore[union-attr]

    def once(self, make: Callable[[], Any]) -> Any:
        """Make something of whole streams, which no round makes again: it repeats what the call before did."""
        before, self.entry.places = self.entry.places, self.places
        try:
            return make()
        finally:
            self.entry.places = before

    def positions(self) -> StreamTensor:
        """Return the position of the frame that it is at."""

        def make() -> StreamTensor:
            length = self.entry.library.length(self.clock) - (self.left_out + self.first)
            attributes = {
                "length": length.steps(rises=True),
                "steps": [0, self.first] if self.first else [],
                "to": "int64",
            }
            return StreamTensor._operate_on("positions", attributes, [length.of], [], ("L",))

        return self.input(("positions",), make)

    def entered(self, number: LoopNumber, at: Any) -> Any:
        """Return a number as a tensor; where a frame doesn't enter all ifs that run, the number of one that does.

        So no branch computes with a number that it isn't asked of, as ``if t % 2: h = h / t`` at the first frame:
        gradients would be NaN.
        """
        steady = self.first + MOST_ROUNDS
        last = steady + _TRIED
        for position in range(steady, last + 1) if self.within else ():
            with suppress(ArithmeticError):
                enters = position == last or self._enters(position)
                if enters and not isinstance(own := number.at(position), complex):
                    for truth, side in self.within:
                        at = at.masked_fill((truth.opposite() if side else truth).as_tensor(lambda x: x), own)
                    break
        return at

    def _left_out(self, x: StreamTensor, off: int) -> tuple[int, int]:
        """Return how many frames of a stream lie before and behind those that are `off` from the loop's."""
        more = self.behind(x)
        start, crop = self.first + off, self.left_out - off + (more if isinstance(more, int) else 0)
        if crop < 0:
            refuse(f"a frame behind the last one; let the loop end {-crop} earlier")
        return start, crop

    def shifted(self, x: StreamTensor, off: int) -> StreamTensor:
        """Return the stream whose frame n is the frame of x that is `off` from the n-th of the loop."""
        start, crop = self._left_out(x, off)
        return x._padded(-start, -crop)

    def needed(self) -> set[Any]:
        """Return what has to be carried for what is given."""
        found: set[Any] = set()
        while True:
            more = set().union(*(r.reads(found)[0] for r in self.rounds)) if self.rounds else set()
            if more <= found:
                return found
            found |= more

    def keep_if_same(self, verified: Round) -> None:
        """Let the next call repeat the rounds, if one more did the same with the very same weights."""
        same = self.places is not None and self.rounds[-1].has_own_weights_of(verified)
        self.kept = Kept([r.body for r in self.rounds], [r.ends() for r in self.rounds]) if same else None

    def is_as_kept(self) -> bool:
        """Whether the rounds so far are all that are kept, and did the same as in the call before."""
        kept = self.kept
        if kept is None or len(self.rounds) != len(kept.ends):
            return False
        return [r.ends() for r in self.rounds if r.body.does_as_kept] == kept.ends

    def run(self, outputs: Sequence[Any]) -> dict[Any, StreamTensor]:
        """Run the loop; return the streams of what it gives."""
        if not self.inputs:  # what is written has the loop's frames, too
            for y, _, off in self.written:
                self.input(*self._read_at(y, off))
        if not self.inputs:
            refuse("a loop over frames that reads no frame of a stream")
        kept = self.kept
        with set_grad_enabled(self.has_gradients and is_grad_enabled()):
            made = None if kept is None or kept.program is None else kept.program.again(self)
            if made is None:
                needed = self.needed()
                self.carried = {k: v for k, v in self.carried.items() if k in needed}
                program = Program(self, outputs)
                made = program.run()
                if kept is not None:
                    kept.program = program
            else:
                program = kept.program  # type: ignore[union-attr,assignment]
        return {key: made[at].with_dims(made[at].dims) for key, at in zip(outputs, program.places)}


def _same(known: Sequence[Any], key: Sequence[Any]) -> bool:
    """Whether two keys of inputs are of the same objects and numbers."""
    return len(known) == len(key) and all(a is b or (type(a) is int and a == b) for a, b in zip(known, key))
