"""A functional module for calls of one size: every row brings exactly so many frames, and nothing else.

How edges move on is in `schedule`: every window begins at the same column in each call of a phase, so that
integers are numbers and a window is a slice. Columns before position 0 of a delayed edge hold nothing, and are set
to zero where a window reads them; early columns are computed in each call before the new ones and taken in the
first only.

Operators that look at absolute positions, or begin and end otherwise than in mid-stream, are given tensors of
positions, made from the number of frames so far, which is then a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...stream.tree import leaves
from ..run.kernels import KERNELS
from ..run.kernels.positions import extent, rows_of
from ..run.windows import columns_of
from .forms import FORMS
from .graph import FunctionalNode
from .integers import UNENDED, Counter
from .schedule import Pace, Schedule, in_all, scaled
from .window import PaddedWindow, hide, zero_behind


class StaticModule(torch.nn.Module):
    """``module(*xs, *totals, *states) -> (*ys, *states)``, for calls of one phase.

    Totals are there if ``schedule.ended``, one ``(B,)`` int64 per input: its frames, once the stream's last call
    has come, `UNENDED` before. The first state is the frames so far of the first input ``(B,)``, if
    ``schedule.counted``. Both are known after a call of any module of the schedule.
    """

    def __init__(self, schedule: Schedule, phase: int) -> None:
        super().__init__()
        self.functional, self.schedule, self.phase = schedule.module, schedule, phase

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Advance every row by a call."""
        left = iter(given)
        inputs = self.functional.inputs
        xs = [next(left) for _ in inputs]
        totals = [next(left) for _ in inputs] if self.schedule.ended else []
        clock = next(left) if self.schedule.counted else None
        call = StaticCall(self, xs, totals, clock, left)
        states = call.states if clock is None else (clock + self.schedule.frames[0], *call.states)
        return (*call.outputs, *states)

    def example(self, n_rows: int) -> tuple[Tensor, ...]:
        """Return arguments of a call: streams that start."""
        schedule = self.schedule
        x, *_, states = self.functional.example(n_rows, schedule.frames[0])
        xs = leaves(x)
        totals = [torch.full((n_rows,), UNENDED, dtype=torch.int64)] * len(xs) if schedule.ended else []
        clock = [torch.zeros(n_rows, dtype=torch.int64)] if schedule.counted else []
        return (*xs, *totals, *clock, *states[1:])


class StaticCall:
    """One call, as values of edges: each early columns and new ones."""

    def __init__(
        self,
        owner: StaticModule,
        xs: Sequence[Tensor],
        totals: Sequence[Tensor],
        clock: Tensor | None,
        states: Iterator[Tensor],
    ) -> None:
        self.module, self.schedule, self.phase = owner.functional, owner.schedule, owner.phase
        self.graph = self.module.graph
        self._clock, self._totals = clock, totals
        #: Frames that the phases before this one bring.
        self._earlier = self.schedule.frames[0] * self.phase
        self.n_rows = extent(xs[0], self.module.inputs[0].dims.index("B"))
        self._made: dict[Any, Tensor] = {}
        self.kept = dict(zip(self.module._kept, states))
        ports = zip(self.module.inputs, self.graph.inputs, xs)
        self.fresh = {e: x.permute(port.inward) for port, e, x in ports}
        self.grids: dict[int, Tensor] = {}
        self.readers: dict[int, list[FunctionalNode]] = {}
        for j, node in enumerate(self.graph.nodes):
            if not node.silent and not self.module._kernels[j].framewise:
                for e in node.inputs[: node.op.n_values]:
                    self.readers.setdefault(e, []).append(node)
        carried: list[Tensor] = []
        for j, node in enumerate(self.graph.nodes):
            if not node.silent:
                carried += self._run(j, node, [next(states) for _ in self.module._carried.get(j, [])])
        self.states = (*(self._tail(e) for e in self.module._kept), *carried)
        self.outputs = [
            (self.fresh[e] if "L" in port.dims else self.fresh[e][:, 0]).permute(port.outward)
            for port, e in zip(self.module.outputs, self.graph.outputs)
        ]

    # ---------------------------------------------------------------- positions, where operators ask for them
    def _once(self, key: Any, make: Any) -> Tensor:
        if key not in self._made:
            self._made[key] = make()
        out: Tensor = self._made[key]
        return out

    @property
    def clock(self) -> Tensor:
        """The frames of the first input before the call, ``(B,)``."""
        self.schedule.counted = True
        if self._clock is None:
            self._clock = torch.zeros(self.n_rows, dtype=torch.int64)
        return self._clock

    def starts(self) -> Tensor:
        """Return which rows' first call this is."""
        return self._once("starts", lambda: self.clock == 0)

    def stand(self, e: int) -> Tensor:
        """Return where an edge stands before the call, negative before a delayed one's first frame."""
        rate = self.schedule.pace(e).rate
        if not rate:
            return self._once("none", lambda: torch.zeros_like(self.clock))
        moved, at = self._moved(rate), self._offset(e)
        return self._once(("stand", rate, at), lambda: moved + at if at else moved)

    def _moved(self, rate: Fraction) -> Tensor:
        """Return the frames at a rate so far; of whole rounds of phases where the clock's are no whole number."""
        less = self._earlier if (self._earlier * rate).denominator > 1 else 0
        return self._once(("moved", rate), lambda: scaled(self.clock - less if less else self.clock, rate))

    def _offset(self, e: int) -> int:
        """Return by how many frames an edge stands ahead of those that its rate has moved."""
        pace = self.schedule.pace(e)
        at, earlier = pace.stands[self.phase] - self.schedule.base * pace.rate, self._earlier * pace.rate
        return int(at - earlier if earlier.denominator == 1 else at)

    def total(self, e: int) -> Tensor:
        """Return the frames of an edge in the whole stream, very many before its last call."""
        self.schedule.ended = True
        if not self._totals:
            self._totals = [torch.full((self.n_rows,), UNENDED, dtype=torch.int64)] * len(self.module.inputs)
        key = self._total_key(e)
        rule = self.schedule.total_rule
        return self._once(
            key, lambda: self._exact_totals[e][0] if key == e else in_all(self._totals[0], **rule(e))
        )

    def _total_key(self, e: int) -> Any:
        """Return what edges of the same totals have alike; of several inputs, the edge itself."""
        return e if len(self.module.inputs) > 1 else repr(self.schedule.total_rule(e))

    @cached_property
    def _exact_totals(self) -> Any:
        ended = torch.ones(self.n_rows, dtype=torch.bool)
        return self.graph.pairs(Counter(ended), list(self._totals))

    def hidden(self, e: int, back: int, n: int, ends: bool) -> Tensor:
        """Return which of n columns hold no frames, the first `back` ones before the edge's new ones.

        Edges of a rate share a mask as wide as all of them together: as wide as it became in an earlier call.
        """
        rate, low = self.schedule.pace(e).rate, self._offset(e) - back
        total = self.total(e) if ends else None
        key = ("hidden", self.phase, rate, self._total_key(e) if ends else None)
        span = self.schedule.spans.setdefault(key, (low, low + n))
        span = self.schedule.spans[key] = min(low, span[0]), max(low + n, span[1])

        def make() -> Tensor:
            at = self._moved(rate)[:, None] + torch.arange(*span)
            return at < 0 if total is None else (at < 0) | (at >= total[:, None])

        return self._once((*key, span), make)[:, low - span[0] : low - span[0] + n]

    # ---------------------------------------------------------------- windows
    def grid(self, e: int) -> Tensor:
        """Return what was kept of an edge and what is new, zeros where its stream has no frames."""
        if e in self.grids:
            return self.grids[e]
        pace, kept, x = self.schedule.pace(e), self.kept.get(e), self.fresh[e]
        if not extent(x, 1):  # masks of no columns are what torch's exporter crashes at
            return x if kept is None else kept
        ends = any(self._sees_end(node) for node in self.readers.get(e, []))
        if ends or (pace.lead < 0 and (kept is not None or self._reaches_back(e))):
            x = hide(x, self.hidden(e, pace.early, extent(x, 1), ends), 0)
        if pace.early:
            early, x = x[:, : pace.early], x[:, pace.early :]
            kept = early if kept is None else self._begun(early, kept)
        self.grids[e] = x if kept is None else torch.cat([kept, x], 1)
        return self.grids[e]

    def _begun(self, early: Tensor, kept: Tensor) -> Tensor:
        """Return what was kept, in a stream's first call the early frames in its place."""
        n_early, n_kept = extent(early, 1), extent(kept, 1)
        both = min(n_early, n_kept)
        starts = self.starts().reshape((-1,) + (1,) * (kept.dim() - 1))
        parts = [torch.where(starts, early[:, n_early - both :], kept[:, n_kept - both :])]
        if n_early != n_kept:
            parts.insert(0, early[:, : n_early - both] if n_early > both else kept[:, : n_kept - both])
        return torch.cat(parts, 1)

    def _reaches_back(self, e: int) -> bool:
        """Return whether a reader's frames begin before the edge's: made of what stands before the first one."""
        lead, rate = self.schedule.pace(e).lead, self.schedule.pace(e).rate
        outputs = [self.schedule.pace(o) for node in self.readers.get(e, []) for o in node.outputs]
        return any(pace.lead * rate > lead * pace.rate for pace in outputs)

    def _sees_end(self, node: FunctionalNode) -> bool:
        """Return whether frames from a stream's end on reach frames that are wanted."""
        paces = [self.schedule.pace(e) for e in node.outputs]
        if KERNELS[node.name].carries is not None and node.name != "attention":
            return any(not c.rate for c, e in zip(paces, node.outputs) if e in self.schedule.used)
        return any(c.waits for c in paces)

    def _tail(self, e: int) -> Tensor:
        grid, n = self.grid(e), self.graph.edges[e].kept
        return grid[:, extent(grid, 1) - n :]

    # ---------------------------------------------------------------- operators
    def _alike(self, j: int, node: FunctionalNode, step: Any) -> bool:
        """Return whether an operator does the same in every call of this phase."""
        pace = self.schedule.pace
        if any(not pace(e).rate for e in (*node.outputs, *node.inputs[: node.op.n_values])):
            return False
        n = self.module._kernels[j].period(step, self.module._given(j))
        every = self.schedule.frames[0] * self.schedule.n_phases
        return n > 0 and all(at * pace(node.outputs[0]).rate % n == 0 for at in (every, self.schedule.base))

    def _run(self, j: int, node: FunctionalNode, carried: list[Tensor]) -> Sequence[Tensor]:
        """Run an operator; return what it carries on."""
        module, kernel = self.module, self.module._kernels[j]
        values, weights = node.inputs[: node.op.n_values], module._given(j)
        paces = [self.schedule.pace(e) for e in node.outputs]
        n = [c.gains[self.phase] + c.early for c in paces]
        step = module._step(node, n=n)
        idle = kernel.carries is None or all(extent(self.fresh[e], 1) == 0 for e in values)
        if idle and not any(k for k, e in zip(n, node.outputs) if e in self.schedule.used):
            out: Any = tuple(self._nothing(e) for e in node.outputs)
        elif kernel.framewise:
            out = kernel.run(step, *(self._beside(node.outputs[0], e, n[0]) for e in values), *weights)
        elif self._alike(j, node, step):
            first = [c.stands[self.phase] - c.early for c in paces]
            if node.name in FORMS or not kernel.numbers:
                step.first = [torch.full((self.n_rows,), at, dtype=torch.int64) for at in first]
            else:
                step.first = first
            ends = self._sees_end(node)
            out = kernel.run(step, *(SteadyWindow(self, e, ends) for e in values), *weights)
        else:
            out, carried = self._anywhere(j, node, step, paces, carried)
        outs = out if isinstance(out, tuple) else (out,)
        self.fresh.update(zip(node.outputs, outs))
        return carried

    def _nothing(self, e: int) -> Tensor:
        """Return no frames of an edge."""
        edge = self.graph.edges[e]
        return torch.zeros((self.n_rows, 0, *edge.features), dtype=getattr(torch, edge.dtype))

    def _beside(self, out: int, e: int, n: int) -> Tensor:
        """Return the n columns of an edge that an operator's output has; early ones not computed are zeros."""
        if self.schedule.lags[e] != self.schedule.lags[out]:
            pace = self.schedule.pace(out)
            return SteadyWindow(self, e, False).run(pace.stands[self.phase] - pace.early, n)
        x = self.fresh[e]
        return columns_of(x, extent(x, 1) - n, n, 0)

    def _anywhere(
        self, j: int, node: FunctionalNode, step: Any, paces: Sequence[Pace], carried: list[Tensor]
    ) -> tuple[Any, list[Tensor]]:
        """Run an operator that looks at positions; one that carries begins at its first new frame."""
        kernel, weights = self.module._kernels[j], self.module._given(j)
        windows = [MovingWindow(self, e, self._sees_end(node)) for e in node.inputs[: node.op.n_values]]
        carries = kernel.carries is not None and node.name != "attention"
        begins = [self.begin(e) if carries else self._at_first(e) for e in node.outputs]
        step.first, step.ended = begins, torch.ones(self.n_rows, dtype=torch.bool)
        step.total = lambda: self.total(node.inputs[0])
        if kernel.carries is None:
            return kernel.run(step, *windows, *weights), carried
        out, carried = kernel.run(step, windows, weights, tuple(carried))
        if not carries:
            return out, carried
        return tuple(self._in_place(e, y) for e, y in zip(node.outputs, out)), carried

    def _at_first(self, e: int) -> Tensor:
        """Return the position of an edge's first column."""
        return self.stand(e) - self.schedule.pace(e).early

    def begin(self, e: int) -> Tensor:
        """Return the position of the first frame that a call brings."""
        pace = self.schedule.pace(e)
        at = self.stand(e)
        if pace.early:
            return torch.where(self.starts(), at - pace.early, at)
        return at.clamp(min=0) if pace.lead < 0 else at

    def shifted(self, e: int) -> Tensor | None:
        """Return by how many columns frames stand behind the first of an edge; None where they never do."""
        pace = self.schedule.pace(e)
        if not pace.rate or not pace.lead or (pace.lead < 0 and pace.gains[self.phase] == 1):
            return None
        return self.begin(e) - self._at_first(e)

    def _in_place(self, e: int, y: Tensor) -> Tensor:
        """Return frames that begin in the first column as the edge's columns."""
        by, n = self.shifted(e), self.schedule.pace(e).gains[self.phase] + self.schedule.pace(e).early
        if by is None:
            return y[:, :n] if extent(y, 1) > n else y
        return rows_of(y, (torch.arange(extent(y, 1)) - by[:, None]).clamp(min=0))


class SteadyWindow:
    """Frames of an edge in mid-stream, by positions from the base on, which are plain numbers."""

    even = True

    def __init__(self, call: StaticCall, e: int, ends: bool) -> None:
        self._call, self._e, self._ends = call, e, ends
        pace = call.schedule.pace(e)
        self._frames = call.grid(e)
        self._new = pace.gains[call.phase]
        self._begin = pace.stands[call.phase] + self._new - extent(self._frames, 1)

    def run(self, first: Any, n: int, fill: float = 0.0) -> Tensor:
        """Return n frames from the position on, which is the same for all rows."""
        low = int(first if isinstance(first, int) else first[0]) - self._begin
        y = columns_of(self._frames, low, n, fill)
        return y if fill == 0 else self._filled(y, low, n, fill)

    def _filled(self, y: Tensor, low: int, n: int, fill: float) -> Tensor:
        back = extent(self._frames, 1) - self._new - low
        if back <= 0 and self._call.schedule.pace(self._e).lead >= 0 and not self._ends:
            return y
        return hide(y, self._call.hidden(self._e, back, n, self._ends), fill)

    def take(self, positions: Tensor, fill: float = 0.0) -> Tensor:
        """Return the frames at positions, which are the same for all rows."""
        at = positions[0].tolist()
        low, high = min(at), max(at)
        frames = self.run(low, high - low + 1, fill)
        index = [i - low for i in at]
        return frames if index == list(range(len(at))) else frames.index_select(1, torch.tensor(index))

    def new(self) -> tuple[Tensor, Tensor]:
        """Return the columns of this call, early ones before the others."""
        x = self._call.fresh[self._e]
        return x, torch.full((extent(x, 0),), extent(x, 1), dtype=torch.int64)


class MovingWindow(PaddedWindow):
    """Frames of an edge by absolute positions."""

    def __init__(self, call: StaticCall, e: int, ends: bool) -> None:
        self._call, self._e = call, e
        pace = call.schedule.pace(e)
        self._frames, self._ends = call.grid(e), ends
        new = pace.gains[call.phase]
        stand = call.stand(e)
        back = extent(self._frames, 1) - new
        self._at = stand - back if back else stand
        self._least = self._at.clamp(min=0)
        self.before = call.begin(e)
        known = stand + new
        known = known.clamp(min=0) if pace.lead < 0 else known
        self.known = known.minimum(call.total(e)) if ends or not pace.rate else known
        self.before = self.before.minimum(self.known) if ends else self.before
        self.even = not ends and pace.lead == 0 and bool(pace.rate)

    @property
    def total(self) -> Tensor:
        return self._call.total(self._e)

    def take(self, positions: Tensor, fill: float = 0.0) -> Tensor:
        """Return the frames at absolute positions; torch's exporter would end at the shape of none."""
        return super().take(positions, fill) if extent(positions, 1) else self._frames[:, :0]

    def new(self) -> tuple[Tensor, Tensor]:
        """Return this call's frames from the first column on, zeros behind them, and how many."""
        x = self._call.fresh[self._e]
        if not extent(x, 1):  # a column of none, for layers that want one
            return x.new_zeros((extent(x, 0), 1, *x.shape[2:])), self.known - self.before
        if self.even:
            return x, torch.full((extent(x, 0),), extent(x, 1), dtype=torch.int64)
        by = self._call.shifted(self._e)
        if by is not None:
            x = rows_of(x, (by[:, None] + torch.arange(extent(x, 1))).clamp(max=extent(x, 1) - 1))
        lengths = self.known - self.before
        return zero_behind(x, lengths), lengths
