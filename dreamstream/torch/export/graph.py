"""A planned graph as the functional module runs it: operators, edges, and how much these can gain at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from ... import _core
from ...array.operators import operator
from ...engine import Engine
from ...engine.weights import FORMATS
from ...errors import NotStreamableError
from ...operations import row_of
from .integers import Counter, Pair, floored


@dataclass
class FunctionalEdge:
    """One edge of the graph."""

    dtype: str
    features: tuple[int, ...]
    rate: Fraction  #: 0 without a stream axis.
    kept: int  #: Frames kept between calls, the last ones known.
    #: (p, c, q): of T frames of the first input at most ``(p * T + c) // q`` new ones come, the flush included.
    gain: tuple[int, int, int] = (0, 0, 1)

    def most(self, n_frames: int) -> int:
        """Return the most frames that come of so many of the first input."""
        p, c, q = self.gain
        return c // q if p == 0 else (n_frames * p + c) // q


@dataclass
class FunctionalNode:
    """One operator with its edges; `weights` are (name or None, values) or None."""

    name: str
    path: str
    op: _core.Op
    inputs: list[int]
    outputs: list[int]
    weights: list[tuple[str | None, Any] | None]
    silent: bool
    counts: _core.Program
    keeps_counts: bool


@dataclass
class Graph:
    """The whole graph of an engine."""

    nodes: list[FunctionalNode]
    edges: list[FunctionalEdge]
    inputs: list[int]
    outputs: list[int]
    period: int  #: Frames of the first input after which its integers repeat.
    transient: int  #: Frames of the first input from which on they do.

    def pairs(self, counter: Counter, frames: Sequence[torch.Tensor], change: Any = None) -> list[Pair]:
        """Return the counts of every edge from the frames so far of every input; None for what nothing makes.

        ``change(node, edge, pair)`` returns what an operator's output has instead.
        """
        pairs: list[Any] = [None] * len(self.edges)
        for e, pair in zip(self.inputs, counter.start(frames)):
            pairs[e] = pair
        for node in self.nodes:
            inputs = [pairs[e] for e in node.inputs]
            out = counter.step(node.counts, inputs, node.keeps_counts, node.op.needs_frames)
            for e, pair in zip(node.outputs, out):
                pairs[e] = pair if change is None else change(node, e, pair)
        return pairs


def read_graph(engine: Engine) -> Graph:
    """Return the graph of an engine.

    NotStreamableError is raised where a layer keeps more the longer a stream lasts, or its products are narrow.
    """
    data = engine._core.graph()
    edges = [
        FunctionalEdge(dtype, features, Fraction(num, den), -1 if kept is None else kept)
        for (dtype, features, num, den), kept in data["edges"]
    ]
    signatures = [signature for signature, _ in data["edges"]]
    nodes = [_read_node(node, signatures) for node in data["nodes"]]
    narrow = next((node for node in engine._core.nodes if node["products"] in FORMATS[1:]), None)
    if narrow is not None:
        raise NotStreamableError(
            f"{narrow['path'] or 'the forward'}: its products are in {narrow['products']}, which an exported "
            'model has no operator for: load or compile it with products="fp32"'
        )
    for node in nodes:
        if any(edges[e].kept < 0 for e in node.inputs[: node.op.n_values]):
            raise NotStreamableError(
                f"{node.path or 'the forward'}: {node.name} keeps what it has seen until the stream ends; an "
                f"exported model's state has a fixed size: {_remedy(node.name)}"
            )
    period, transient = int(data["period"]), int(data["transient"])
    graph = Graph(nodes, edges, list(data["inputs"]), list(data["outputs"]), period, transient)
    _bound(graph, _moments(engine, transient + 2 * period))
    return graph


def _remedy(name: str) -> str:
    """Return what would have a state of a fixed size in an operator's place."""
    if name == "hold":
        return "give what is given once with every frame, as an input with L"
    if name == "attention":
        return "bound its context, ds.Context(left=64)"
    refusal = row_of(name).whole
    return 'let it stream without unstreamable="buffer"' if refusal is None else refusal.words[1]


def _read_node(node: dict[str, Any], signatures: Sequence[_core.Signature]) -> FunctionalNode:
    arrays = [None if w is None else w[1] for w in node["weights"]]
    op = operator(node["name"], node["attributes"], [signatures[e] for e in node["inputs"]], arrays)
    first, n = node["first_output"], len(op.outputs)
    return FunctionalNode(
        name=node["name"],
        path=node["path"],
        op=op,
        inputs=list(node["inputs"]),
        outputs=list(range(first, first + n)),
        weights=list(node["weights"]),
        silent=node["silent"],
        counts=op.integers()[0],
        keeps_counts=op.same_counts and n == 1,
    )


def _moments(engine: Engine, last: int) -> torch.Tensor:
    """Return ``(moments, inputs)`` frames: all that the inputs' clock admits up to `last` of the first one."""
    rates = [s.rate for s in engine.inputs]
    skew = engine._interface.skew
    rows = torch.arange(last + 1)[:, None]
    for rate in rates[1:]:
        ratio = rate / rates[0]
        about = floored(rows[:, :1] * ratio.numerator, ratio.denominator)
        reach = math.ceil((skew + 1) * rate / min(rates)) + 1
        near = (about + torch.arange(-reach, reach + 1)).clamp(min=0)
        every = torch.cat([rows[:, None].expand(-1, near.shape[1], -1), near[:, :, None]], 2)
        rows = every.flatten(0, 1)
    if len(rates) > 1:
        clock = tuple((r.numerator, r.denominator) for r in rates)
        fits = _core.together(clock, np.ascontiguousarray(rows.numpy()), skew)
        rows = rows[torch.from_numpy(fits)]
    return rows


def _bound(graph: Graph, moments: torch.Tensor) -> None:
    """Fill how many frames each edge can gain: from the least known at a moment to the most at an end."""
    frames = list(moments.unbind(1))
    known = graph.pairs(Counter(), frames)
    ended = graph.pairs(Counter(torch.ones(len(moments), dtype=torch.bool)), frames)
    rate = graph.edges[graph.inputs[0]].rate
    for e, edge in enumerate(graph.edges):
        if known[e] is None:  # of a sync that the plan has removed
            continue
        ratio = edge.rate / rate
        p, q = ratio.numerator, ratio.denominator
        ahead = int((ended[e][0] * q - frames[0] * p).max())
        behind = int((frames[0] * p - known[e][0] * q).max())
        edge.gain = (p, ahead + behind, q)
