"""How the edges of a graph move on in calls that all bring equally many frames.

An edge then gains equally many frames in each call of a phase. Each has a *lead*: before a call at clock c it
stands at ``lead + c * rate``. A negative one is a delay. A positive one stands for frames that are there with a
stream's first, such as padding in front: its *early* columns. An edge whose first frames come later than its lead
says, as behind a reflection, *lags* by whole periods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from .graph import FunctionalNode
from .integers import Counter, Pair, floored
from .module import FunctionalModule


@dataclass
class Pace:
    """How an edge moves on."""

    rate: Fraction  #: Frames per frame of the first input; 0 for what is there once, when a stream ends.
    lead: int  #: Where it would stand before the first call.
    stands: list[int]  #: Per phase where it stands at the moment that `Schedule.base` says.
    gains: list[int]  #: Per phase the frames of a call.
    waits: bool  #: Whether frames come out when a stream ends.
    #: Whether early columns are zeros, as what is kept begins with, so that nobody computes them.
    blank: bool = False

    @property
    def early(self) -> int:
        return 0 if self.blank else max(0, self.lead)


class Schedule:
    """What is the same in all calls of a size: how edges move, how many phases there are."""

    def __init__(self, module: FunctionalModule, frames: Sequence[int]) -> None:
        self.module, self.graph, self.frames = module, module.graph, list(frames)
        graph, n = self.graph, frames[0]
        self.ratios = [graph.edges[e].rate / graph.edges[graph.inputs[0]].rate for e in graph.inputs]
        phases = 1
        while phases * n % graph.period:
            phases += 1
        self.n_phases = phases
        self.base = graph.period * (graph.transient // graph.period + 2)
        #: Of masks that edges share, the first column and the one behind the last.
        self.spans: dict[Any, tuple[int, int]] = {}
        #: Whether positions, or streams' totals, are in the graph; known after a call.
        self.counted = self.ended = False
        last = graph.transient + (2 + phases) * graph.period
        # until all that lags goes on evenly, which begins no later than as much again
        self.calls = torch.arange(1, max(2, (last + 3 * graph.transient) // n) + 1) * n
        self.lengths = torch.arange(1, last + 1)
        are_whole = [all((int(t) * r).denominator == 1 for r in self.ratios) for t in self.lengths]
        self.lengths = self.lengths[are_whole]
        moments = torch.tensor([self.base + i * n for i in range(phases + 1)])
        #: Of each edge, periods by which it lags.
        self.lags = [0] * len(graph.edges)
        self.totals = self._known(self.lengths, Counter(torch.ones(self.lengths.shape, dtype=torch.bool)))
        stands = self._known(moments)
        self._lag(self._known(self.calls + self.base), self._known(self.calls, Counter()))
        #: Of each edge, frames known when so many more than the base have come.
        self.later = self._known(self.lengths + self.base)
        self.paces: list[Pace | None] = [None] * len(graph.edges)
        self.used = {e for node in graph.nodes if not node.silent for e in node.inputs} | set(graph.outputs)
        made = [(j, e) for j, node in enumerate(graph.nodes) if not node.silent for e in node.outputs]
        for j, e in [*((-1, e) for e in graph.inputs), *made]:
            self.paces[e] = self._pace(j, e, stands[e])
        module.keep({e: int(n * self._rate(e) * graph.period) for e, n in self._behind().items()})

    def _known(self, frames: Tensor, counter: Counter | None = None, change: Any = None) -> list[Tensor]:
        counter = counter or Counter(lasting=True)
        pairs = self.graph.pairs(counter, [scaled(frames, r) for r in self.ratios], change)
        return [pair if pair is None else pair[0] for pair in pairs]

    def _rate(self, e: int) -> Fraction:
        """Return an edge's frames for one of the first input."""
        return self.graph.edges[e].rate / self.graph.edges[self.graph.inputs[0]].rate

    def _steady(self, e: int, known: Tensor) -> Tensor:
        """Return the counts of an edge that goes on from its start as in mid-stream, from those at the base."""
        rate = self._rate(e)
        return (known - int((self.base + self.lags[e] * self.graph.period) * rate)).clamp(min=0)

    def _lag(self, steady: list[Tensor], surely: list[Tensor]) -> None:
        """Let edges lag as far as it takes for all calls to give as many frames as in mid-stream.

        Outputs give only what is there `surely`, should the stream be a short one.
        """

        def lagging(node: FunctionalNode, e: int, pair: Pair) -> Pair:
            rate = self._rate(e)
            if node.silent or not rate:
                return pair
            known = pair[0].minimum(surely[e]) if e in self.graph.outputs else pair[0]
            missing = int((self._steady(e, steady[e]) - known).max())
            self.lags[e] = max(0, -(-missing // int(rate * self.graph.period)))
            return self._steady(e, steady[e]), pair[1]

        self._known(self.calls, change=lagging)

    def _behind(self) -> dict[int, int]:
        """Return by how many periods readers lag behind what they read, which is kept for them."""
        more: dict[int, int] = {}
        for node in self.graph.nodes:
            for e in () if node.silent else node.inputs[: node.op.n_values]:
                behind = max(self.lags[o] for o in node.outputs) - self.lags[e]
                more[e] = max(more.get(e, 0), behind)
        return more

    def _pace(self, j: int, e: int, stands: Tensor) -> Pace:
        edge, graph, rate = self.graph.edges[e], self.graph, self._rate(e)
        waits = bool((self.totals[e] > self._steady(e, self.later[e])).any())
        if not rate:
            most = edge.gain[1] // edge.gain[2]
            return Pace(rate, 0, [0] * self.n_phases, [most] * self.n_phases, waits)
        at: list[int] = (stands - int(self.lags[e] * graph.period * rate)).tolist()
        lead = at[0] - int(self.base * rate)
        pace = Pace(rate, lead, at[:-1], [b - a for a, b in zip(at, at[1:])], waits)
        if lead > 0 and j >= 0 and e not in graph.outputs:
            pace.blank = self._begins_with_zeros(j, graph.nodes[j], lead)
        return pace

    def _begins_with_zeros(self, j: int, node: FunctionalNode, lead: int) -> bool:
        """Return whether an edge's early frames are zeros: those of padding, or what is made of such ones."""
        module, a = self.module, node.op.attributes
        values = [self.paces[e] for e in node.inputs[: node.op.n_values]]
        if module._kernels[j].framewise:
            if not values or any(c is None or not c.blank or c.lead != lead for c in values):
                return False
            step, edges = module._step(node), self.graph.edges
            zeros = [
                torch.zeros(1, 1, *edges[e].features, dtype=getattr(torch, edges[e].dtype))
                for e in node.inputs[: node.op.n_values]
            ]
            with torch.no_grad():
                out = module._kernels[j].run(step, *zeros, *module._given(j))
            return not any(y.any() for y in (out if isinstance(out, tuple) else (out,)))
        plain = node.name == "pad" and a["mode"] in ("zeros", "constant") and not a["value"] and not node.weights
        return plain and lead <= a["left"]

    def pace(self, e: int) -> Pace:
        out = self.paces[e]
        assert out is not None
        return out

    def described(self, e: int) -> dict[str, Any]:
        """Return what a caller needs to know of an output: its first position, frames, and how many in all."""
        pace = self.pace(e)
        if not pace.rate:
            return {"frames": None, "after": self._settled()}
        return {"frames": pace.gains, "first": pace.lead, "total": self.total_rule(e)}

    def total_rule(self, e: int) -> dict[str, Any]:
        """Return how many frames an edge has of streams of so many: a line, and what is not on it.

        Where most is on none, `short` are all lengths up to one from which on they repeat themselves, `period`.
        """
        rate, lengths, totals = self.pace(e).rate, self.lengths.tolist(), self.totals[e].tolist()
        p, q, period = rate.numerator, rate.denominator, self.graph.period
        more = max(n * q - p * t for t, n in zip(lengths, totals) if t > lengths[-1] - period)
        off = [i for i, (t, n) in enumerate(zip(lengths, totals)) if max(0, (p * t + more) // q) != n]
        short = [[lengths[i], totals[i]] for i in off]
        if not short or lengths[-1] - short[-1][0] >= 2 * period:
            return {"short": short, "line": [p, more, q]}
        return {"short": [list(pair) for pair in zip(lengths, totals)], "period": [period, int(period * rate)]}

    def _settled(self) -> int:
        """Return how many frames behind a stream's last call all operators have seen its end."""
        most = 0
        for pace, totals in zip(self.paces, self.totals):
            if pace is not None and pace.rate:
                ahead = (totals * pace.rate.denominator - self.lengths * pace.rate.numerator).max()
                least = min(
                    Fraction(s) - (self.base + i * self.frames[0]) * pace.rate for i, s in enumerate(pace.stands)
                )
                most = max(most, -((int(least * pace.rate.denominator) - int(ahead)) // pace.rate.numerator))
        return most


def in_all(n: Tensor, short: Any, line: Any = None, period: Any = None) -> Tensor:
    """Return the frames that an edge has of streams of n, by its `Schedule.total_rule`."""
    if not short:
        return _on_line(n, *line)
    lengths, totals = torch.tensor(short).unbind(1)
    table = torch.arange(int(lengths[-1]) + 1)
    if line:
        table = _on_line(table, *line).index_copy(0, lengths, totals)
        return torch.where(n < len(table), table[n.clamp(max=len(table) - 1)], _on_line(n, *line))
    table = table.index_copy(0, lengths, totals)
    times = (floored(n - len(table), period[0]) + 1).clamp(min=0)
    return table[n - times * period[0]] + times * period[1]


def _on_line(n: Tensor, p: int, more: int, q: int) -> Tensor:
    """Return ``(p * n + more) // q``, at least 0."""
    n = n * p + more
    n = n if q == 1 else floored(n, q)
    return n.clamp(min=0) if more < 0 else n


def scaled(n: Tensor, ratio: Fraction) -> Tensor:
    """Return ``n * ratio``, rounded down."""
    n = n * ratio.numerator if ratio.numerator != 1 else n
    return n if ratio.denominator == 1 else floored(n, ratio.denominator)
