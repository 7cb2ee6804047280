"""The operator that a loop over frames becomes: the streams that it reads, and the text of its bodies."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from ..operations import ELEMENTWISE
from ..stream.edge import Edge, Request
from ..stream.place import Recording, repeat
from .operators import run
from .stream_tensor import StreamTensor


class _Read:
    """The streams that a `loops.Loop` reads.

    In a capture, what is larger than what it is made of by single elements, as ``exp(dt[..., None] * A)``, is made
    in the body, where it needs no memory.
    """

    def __init__(self, loop: Any) -> None:
        self._captures = hasattr(loop.entry, "maker")
        self._maker: Any = loop.entry.maker if self._captures else None
        self.edges: list[Edge] = []  #: Of the streams.
        self.values: list[Any] = []  #: Of the streams.
        self.nodes: list[tuple[Request, list[tuple[bool, int]]]] = []  #: What the bodies begin with.
        self._known: dict[Any, tuple[bool, int]] = {}
        self.streams: list[StreamTensor] = []  #: Of these edges; in a call only.
        #: Of each input of the loop, whether a node gives it, and its number among these or among the streams.
        self.at = [self._place(x) for _, x in loop.inputs]

    def _place(self, x: StreamTensor) -> tuple[bool, int]:
        edge: Any = x.edge
        if self._captures:
            made, sources = self._made_of(edge)
            if sum(map(_size, sources)) < _size(edge):
                for each in sources:
                    self._stream(each, None)
                for each in made:
                    self._add(each)
        elif id(edge) not in self._known:
            self.streams.append(x)
        return self._stream(edge, x.value)

    def _made_of(self, edge: Edge) -> tuple[list[Edge], list[Edge]]:
        """Return what operations on single elements that give as many as a value has make of others; and these.

        The former in the order in which they were made, the value last; each once, however often it is read.
        """
        made, sources, waiting = dict[Any, Edge](), dict[Any, Edge](), [edge]
        while waiting:
            x = waiting.pop()
            if x.handle in made or x.handle in sources:
                continue
            request = self._maker(x)
            moves = request is not None and request.name == "reshape"
            if moves or (request is not None and request.name in ELEMENTWISE and _size(x) >= _size(edge)):
                made[x.handle] = x
                waiting += request.edges
            else:
                sources[x.handle] = x
        return [made[handle] for handle in sorted(made)], list(sources.values())

    def _add(self, edge: Edge) -> None:
        """Make a value in the bodies, of what is known there by now."""
        if edge.handle not in self._known:
            request = self._maker(edge)
            self.nodes.append((request, [self._known[e.handle] for e in request.edges]))
            self._known[edge.handle] = (True, len(self.nodes) - 1)

    def _stream(self, edge: Edge, value: Any) -> tuple[bool, int]:
        key = edge.handle if self._captures else id(edge)
        if key not in self._known:
            self._known[key] = (False, len(self.edges))
            self.edges.append(edge)
            self.values.append(value)
        return self._known[key]


def _size(edge: Edge) -> int:
    return math.prod(edge.line.features)


class Program:
    """The text of a loop's bodies, their weights, and the operator that runs them."""

    def __init__(self, loop: Any, outputs: Sequence[Any]) -> None:
        self._loop, self.read = loop, _Read(loop)
        self._carried = list(loop.carried)
        self.weights: list[Any] = [first for _, first in loop.carried.values()]
        self._known = {id(w): i for i, w in enumerate(self.weights) if w is not None}
        #: The nodes that have weights: the body, the node's number, and which weights of the operator they are.
        self._weighing: list[tuple[Any, int, list[int | None]]] = []
        #: Of each output, where among those of the operator it is; what is the same in all rounds is given once.
        self.places: list[int] = []
        self._outputs: list[Any] = []
        numbers: dict[Any, int] = {}
        for key in outputs:
            handles = tuple(r.outputs[key].handle for r in loop.rounds)
            if handles not in numbers:
                numbers[handles] = len(self._outputs)
                self._outputs.append(key)
            self.places.append(numbers[handles])

    def run(self) -> list[StreamTensor]:
        """Run the operator; return its outputs."""
        entry, read, recording = self._loop.entry, self.read, None
        request = Request("scan", {"body": self.text()}, read.edges, read.values, self.weights)
        if self._loop.kept is None:
            made = run(request)
        else:
            before, recording = entry.recording, Recording(read.streams)
            entry.recording = recording
            try:
                made = run(request)
            finally:
                entry.recording = before
        out = [StreamTensor.inside(y, ("B", "L", *range(len(edge.features))), edge) for y, edge in made]
        self._keep(None if recording is None else recording.place_of([], (), out))
        return out

    def _keep(self, place: Any) -> None:
        """Keep what repeats the operator, and nothing of this call."""
        known_as = (lambda _: None) if place is None else self._loop.entry.known_as
        #: The model's own among the weights, by their places.
        self._own = [(i, w) for i, w in enumerate(self.weights) if type(known_as(w)) is str]
        self._place, self._at = place, self.read.at
        del self._loop, self.read, self.weights, self._known

    def again(self, loop: Any) -> list[StreamTensor] | None:
        """Run the operator of the call before on what this one reads; None where that can't be."""
        if self._place is None:
            return None
        weights, read = [loop.carried[key][1] for key in self._carried], _Read(loop)
        for body, at, places in self._weighing:
            for weight, place in zip(body.nodes[at].weights, places):
                if place == len(weights):
                    weights.append(weight)
                elif place is not None and weights[place] is not weight:
                    return None
        same = [i for i, own in self._own if weights[i] is own]
        if read.at != self._at or len(same) != len(self._own):
            return None
        return repeat(self._place, loop.entry, read.streams, weights)

    def _weight(self, weight: Any) -> int | None:
        if weight is None:
            return None
        at = self._known.get(id(weight))
        if at is None:
            at = self._known[id(weight)] = len(self.weights)
            self.weights.append(weight)
        return at

    def _number(self, handle: Any) -> int:
        carried = len(self.read.edges)
        if isinstance(handle, int):
            return self._made(len(self.read.nodes) + self._values[handle])
        kind, key = handle
        return self._read_at(self.read.at[key]) if kind == "input" else carried + self._carried.index(key)

    def _made(self, node: int) -> int:
        """Return the number of what a node gives, by its number among all values that nodes give."""
        return len(self.read.edges) + len(self._carried) + node

    def _read_at(self, at: tuple[bool, int]) -> int:
        return self._made(at[1]) if at[0] else at[1]

    def _node(self, request: Request, inputs: list[int], weights: list[int | None]) -> dict[str, Any]:
        return {
            "op": request.name,
            "attributes": {k: _plain(v) for k, v in request.op.attributes.items()},
            "inputs": inputs,
            "weights": weights,
        }

    def _own_node(self, body: Any, j: int) -> dict[str, Any]:
        request = body.nodes[j]
        weights = [self._weight(w) for w in request.weights]
        if weights:
            self._weighing.append((body, j, weights))
        node = self._node(request, [self._number(e.handle) for e in request.edges], weights)
        return node | ({"note": body.notes[j]} if j in body.notes else {})

    def _body(self, round_: Any) -> dict[str, Any]:
        body, runs = round_.body, sorted(round_.reads(self._loop.carried)[1])
        ends = [*body.firsts[1:], body.n_values]
        #: By the value of a body, its number among those of the nodes that run.
        self._values = {v: i for i, v in enumerate(v for j in runs for v in range(body.firsts[j], ends[j]))}
        nodes = [
            self._node(r, [*map(self._read_at, inputs)], [*map(self._weight, r.weights)])
            for r, inputs in self.read.nodes
        ]
        nodes += [self._own_node(body, j) for j in runs]
        kept = [round_.carried[k].handle if k in round_.carried else ("carried", k) for k in self._carried]
        return {
            "nodes": nodes,
            "carried": [self._number(h) for h in kept],
            "outputs": [self._number(round_.outputs[k].handle) for k in self._outputs],
        }

    def text(self) -> str:
        """Return the attribute `body` of the operator; what the nodes read of weights is gathered on the way."""
        named: dict[str, int] = {}
        carried = []
        for key, (line, _) in self._loop.carried.items():
            name = key[0]
            named[name] = named.get(name, 0) + 1
            unique = name if named[name] == 1 else f"{name}'{named[name]}"
            carried.append({"name": unique, "dtype": line.dtype, "shape": list(line.features)})
        bodies = [self._body(r) for r in self._loop.rounds]
        return json.dumps({"carried": carried, "bodies": bodies}, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return an attribute as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return list(value) if isinstance(value, (tuple, list)) else value
