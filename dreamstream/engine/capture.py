"""Capture: a model's own forward, run on symbolic streams, becomes a graph.

Every operation goes through the door, so residuals, branches, crops and sizes are captured as they are
written. What depends on data has no value here, and raises `NotStreamableError` with the user's line, as it
does in an online call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

from .. import _core
from ..array.library import NATIVE, Library
from ..array.operators import run
from ..array.stream_tensor import StreamTensor
from ..array.symbolic import as_symbolic, measured
from ..array.versions import checksum
from ..errors import CaptureError, DTypeError, NotStreamableError
from ..online.homes import homes_of
from ..source_line import user_line
from ..stream.edge import Edge, Line, Request, lines_of
from ..stream.rules import entry
from ..stream.rules.sizes import Token
from ..stream.tree import leaves, map_leaves
from ..stream.where import raise_explained
from .source import source_of
from .spec import InputSpec, lengths_in, read_specs

#: Operators that move values and leave them as they are: an output that is cast may be moved by them then.
MOVES = {"reshape", "permute", "expand", "narrow", "pick", "slice", "flip"}


class Capture:
    """One capture: the entry that its tensors belong to.

    `held` has the model's parameters and buffers. `buffers` says whether layers may wait for a stream's end, for
    `buffer_limit` frames at most; attention that keeps all frames may keep `context_limit` of them. `lends` says
    whether the graph has the model's own arrays until it is planned, or copies.
    """

    meta = None
    places: dict[int, Any] | None = None
    library: Library = NATIVE
    explanation: Any = None  # what notes refusals and goes on

    def __init__(
        self,
        held: Mapping[str, Any],
        specs: Sequence[InputSpec],
        buffers: bool,
        buffer_limit: int | None,
        context_limit: int | None = None,
        lends: bool = True,
    ) -> None:
        self.graph = _core.Graph()
        self._lends = lends
        #: By place in memory the arrays that are lent, and their checksums when they were first met.
        self._lent: dict[Any, tuple[Any, int]] = {}
        self._written = False
        self._added: list[tuple[str, tuple[Any, ...]]] = []  # calls of the graph's methods
        #: Keys of the state dict, by where in memory their values lie: an array there with their shape is one.
        self.held = held
        self.names: dict[Any, str] = {}
        for key, array in self.held.items():
            if array.size:
                self.names.setdefault(_place(array), key)
        self.buffers = buffers
        self.guard = self.recording = None
        self.buffer_limit = buffer_limit
        self.context_limit = context_limit
        #: Path of the module, operation and first output of each node.
        self.nodes: list[tuple[str, Request, Edge]] = []
        self.paths: list[str] = []
        self._made: dict[Any, Request] = {}
        #: By edges of the graph the types that a forward sees there, which are narrower than those of operators,
        #: or "complex64". They are given to callers where the edge is an output.
        self.types: dict[Any, str] = {}
        #: Edges whose integers may lie beyond the range of their types, around which they go.
        self.beyond: set[Any] = set()
        self.given: list[str] = []  #: Of each output the type that callers are given.
        #: The line at which a stream becomes float64 first, in which no engine computes.
        self.widened: str | None = None
        self.specs = specs
        self.inputs: list[StreamTensor] = []
        self.misused: NotStreamableError | None = None
        for i, spec in enumerate(specs):
            signature = (spec.dtype, spec.features, spec.rate.numerator, spec.rate.denominator)
            handle = self.add("input", signature)
            if spec.once and spec.rate:
                self.add("memory", handle)
            line = Line(entry(i), spec.rate, spec.dtype, spec.features, static=spec.once)
            edge = Edge(self, line, None, handle)
            self.inputs.append(StreamTensor.inside(None, spec.dims, edge))

    def known_input(self, index: int) -> Edge:
        """Return the edge of an input."""
        return cast(Edge, self.inputs[index].edge)

    def add(self, what: str, *given: Any) -> Any:
        """Add an input, a node or an output to the graph."""
        added = getattr(self.graph, what)(*given)
        self._added.append((what, given))
        return added

    def again(self) -> _core.Graph:
        """Return another graph of the same calls, since an engine takes the one that it is given."""
        graph = _core.Graph()
        for what, given in self._added:
            getattr(graph, what)(*given)
        return graph

    def close(self) -> None:
        """Let go of the model's arrays, which streams that refer to the capture would keep until a collection."""
        self.held, self.nodes, self._added, self._made, self._lent = {}, [], [], {}, {}

    def _weight(self, array: Any, name: str | None) -> Any:
        """Return what the graph gets for a weight: a copy of what the forward has made, and may write into."""
        if array is None or name is None or not self._lends:
            return None if array is None else array.copy()
        found = checksum(array)
        self._written |= self._lent.setdefault(_place(array), (array, found))[1] != found
        return array

    @property
    def was_written(self) -> bool:
        """Whether the forward has written into arrays that are lent, so that it must be run with copies."""
        return self._written or any(checksum(array) != found for array, found in self._lent.values())

    def run(self, request: Request) -> list[tuple[Any, Edge]]:
        """Add one node."""
        name, op, edges = request.name, request.op, request.edges
        if any(e.entry is not self for e in edges):
            raise CaptureError(f"{name}: a tensor of another forward")
        kinds = {self.types.get(e.handle, "") for e in edges}
        if "float16" in kinds and name not in MOVES | {"length", "require"}:
            raise DTypeError.here(
                "a stream becomes float16",
                ", of which more is computed, but an engine computes in float32: leave the cast out, or do it "
                "last, of what is returned; ask compile for narrow weights= or products=",
            )
        if getattr(op, "in_python", False):
            raise CaptureError.here(name, " is declared in Python, which a graph can't hold")
        try:
            names = tuple(self.names.get(_place(w)) for w in request.weights)
            path = self.paths[-1] if self.paths else ""
            if name == "require":  # what is asked of lengths stands in a line of the user's
                path = f"{path} at {user_line().partition(': ')[0]}"
            inputs = [e.handle or 0 for e in edges]
            weights = tuple(map(self._weight, request.weights, names))
            handles = self.add("node", name, dict(request.attributes), inputs, weights, path, names)
        except CaptureError as error:
            raise CaptureError.here(f"{error},", "") from None
        lines = lines_of(op, edges, len(self.nodes), request.cid)
        if self.widened is None and any(line.dtype == "float64" for line in lines):
            self.widened = user_line()
        out = [Edge(self, line, None, handle) for line, handle in zip(lines, handles)]
        self.nodes.append((path, request, out[0]))
        self._made.update((e.handle, request) for e in out)
        if name in MOVES and len(edges) == 1 and kinds != {""}:
            self.types |= dict.fromkeys([e.handle for e in out], *kinds)
            self.beyond |= {e.handle for e in out if edges[0].handle in self.beyond}
        return [(None, e) for e in out]

    def maker(self, edge: Edge) -> Request | None:
        """Return the operation that gives a stream; None for an input."""
        return self._made.get(edge.handle)

    @contextmanager
    def within(self, path: str | None, module: Any) -> Iterator[None]:
        """Note that what follows belongs to a module; None: to the one that runs already."""
        self.paths.append(self.paths[-1] if path is None and self.paths else path or "")
        try:
            yield
        except Exception as error:
            raise_explained(error, self.paths[-1], type(module).__name__)
        finally:
            self.paths.pop()

    def noting(self) -> AbstractContextManager[None]:
        """Within it what is refused is listed, where all that is in the way is asked for."""
        return nullcontext() if self.explanation is None else self.explanation.noting()

    def misuse(self, message: str, rest: str | None = None) -> Exception:
        """Return the exception for a use that streams can't have."""
        self.misused = NotStreamableError.here(message, rest)
        return self.misused

    def homes_of(self, held: Any) -> list[Any]:
        """Return the places where objects and functions hold values."""
        return homes_of(held, functions=True).homes


def _place(array: Any) -> Any:
    """Return what arrays of the same values at the same place in memory have in common."""
    return None if array is None else (array.ctypes.data, array.shape, array.strides, array.dtype.str)


def begun(
    model: Any,
    spec: Any,
    rate: Any,
    dtype: Any,
    buffers: bool,
    buffer_limit: int | None = None,
    context_limit: int | None = None,
    lends: bool = True,
) -> tuple[Capture, Any, tuple[Any, ...], dict[str, Any]]:
    """Return a capture of a model, the model as a source, and what its forward is given.

    `spec`, `rate` and `dtype` are those of :func:`dreamstream.compile`.
    """
    specs, source = read_specs(model, spec, rate, dtype), source_of(model)
    capture = Capture(source.arrays(), specs, buffers, buffer_limit, context_limit, lends)
    capture.library = source.library
    named: dict[str, Any] = {s.name: x for s, x in zip(specs, capture.inputs)}
    named |= {name: as_symbolic(given, named) for name, given in lengths_in(spec).items()}
    args, kwargs = ((), named) if isinstance(spec, Mapping) else ((capture.inputs[0],), {})
    return capture, source, args, kwargs


def captured(model: Any, *options: Any) -> tuple[Capture, Any]:
    """Run the model's forward on symbolic streams; return the capture and what the forward returned.

    The options are those of `begun`.
    """
    capture, source, args, kwargs = begun(model, *options)
    result = source.streamed(capture, args, kwargs)
    if capture.guard is not None:
        raise capture.guard.left()

    result = map_leaves(result, lambda x: as_output(capture, model, x))
    if not leaves(result):
        raise CaptureError(f"the forward of {type(model).__name__} returned no tensor")
    return capture, result


def as_output(capture: Capture, model: Any, x: Any) -> Any:
    """Return what a forward returned as a stream of its capture."""
    x = measured(x)
    if not isinstance(x, StreamTensor) or x.edge is None or x.edge.entry is not capture:
        raise CaptureError(
            f"the forward of {type(model).__name__} returned {_called(x)} that is no stream; an "
            "engine's outputs are computed from its inputs"
        )
    edge = _uncast(capture, x.edge)
    capture.given.append(capture.types.get(x.edge.handle, x.edge.dtype))
    x = x.inside(None, x.dims, edge, x.names)
    return x.in_order() if "B_L" not in x.dims else x


def _uncast(capture: Capture, edge: Edge) -> Edge:
    """Return what was cast to be returned, and maybe moved then, where callers are given the cast of it."""
    request = capture.maker(edge)
    if request is None or len(request.edges) != 1:
        return edge
    own = request.edges[0]
    if request.name == "cast" and edge.dtype in (own.dtype, "float64"):
        return own
    inner = _uncast(capture, own) if request.name in MOVES and edge.dtype == "float64" else own
    if inner is own:
        return edge
    made = run(Request(request.name, request.attributes, [inner], [None], request.weights))
    return made[0][1]


def _called(x: Any) -> str:
    """Return what a user calls a value."""
    return x._what if isinstance(x, Token) else "None" if x is None else f"a value of type {type(x).__name__}"
