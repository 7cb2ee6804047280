"""A functional module's call at whose numbers one may look: with windows and kernels of a patched module's.

Counts come from the operators' C integers, as numbers on the host, so that no operation of torch is spent on
them, and windows are slices wherever rows line up. Traces, and calls whose numbers are on another device, compute
counts with torch instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import _core
from ...stream.edge import Counts, Line
from ...stream.place import Operation
from ..private import is_watched
from ..run.calls import Plan, TorchCall
from ..run.kernels.positions import rows_of, traced
from ..run.windows import Columns, EagerWindow
from ..tensor.padding import as_rows, flat, same


def takes_numbers(given: Sequence[Tensor]) -> bool:
    """Return whether a call may look at what it is given: all is in the host's memory, and nothing is recorded."""
    ours = all(type(t) is Tensor and t.is_cpu for t in given) and given[0].numel() > 0
    return ours and not (traced() or is_watched())


class EagerCall(TorchCall):
    """One call of a `FunctionalModule`, with its arguments.

    It stands in the place of a session's states, too: these are among its arguments and results. Every edge keeps
    its frames once, the last ones at the end of a fixed number of columns.
    """

    keeps_frames = False

    def __init__(
        self, module: Any, xs: Any, lengths: Any, sos: Tensor, eos: Tensor, states: Sequence[Tensor]
    ) -> None:
        self.module, self.graph = module, module.graph
        self.ended = np.ascontiguousarray(eos.numpy())
        self.fresh = sos.numpy()  # type: ignore[assignment]
        self.some_end, self.some_fresh, self.device = bool(self.ended.any()), bool(sos.any()), xs[0].device
        self.ids = [f"row {r}" for r in range(len(self.ended))]
        self.keeps_tape = torch.is_grad_enabled()
        self.gathered = self.store = self  # type: ignore[assignment]
        self.index = slice(None)
        frames = np.where(self.fresh, 0, states[0].numpy().T)
        counts = _core.input_counts(frames, [n.numpy() for n in lengths], self.ended)
        self.alike = all(same(c) for each in counts for c in each.T) and same(self.ended) and same(sos.numpy())
        self.widths = [x.shape[port.dims.index("L")] for port, x in zip(module.inputs, xs)]
        self.counts: dict[int, Counts] = dict(zip(self.graph.inputs, counts))
        self.values: dict[int, Tensor] = {}
        for port, e, x, n in zip(module.inputs, self.graph.inputs, xs, lengths):
            self.values[e] = flat(x.permute(port.inward), n.numpy())
        self.kept = dict(zip(module._kept, states[1:]))
        self._windows: dict[tuple[int, bool], Columns] = {}
        try:  # each of calls at the same time, in several threads, has its own
            self._operations = module.operations.pop()
        except IndexError:
            self._operations = {}
        self._carried_before = iter(states[1 + len(self.kept) :])
        carried: list[Tensor] = []
        for j in range(len(self.graph.nodes)):
            carried += self._run(j)
        module.operations.append(self._operations)
        # a view would hold on to all frames of the call
        tails = [self._whole(e, False).tail(self.graph.edges[e].kept).clone() for e in module._kept]
        now = torch.from_numpy(np.where(self.ended[:, None], 0, counts[:, :, 2].T))
        self.states = (now, *tails, *carried)  # type: ignore[assignment]

    # ---------------------------------------------------------------- operators
    def _run(self, j: int) -> list[Tensor]:
        """Run an operator; return what it carries on."""
        node, module = self.graph.nodes[j], self.module
        inputs = [self.counts[e] for e in node.inputs]
        if node.silent:
            self.counts.update(zip(node.outputs, node.op.counts(inputs, self.ended, self.ids)))
            return []
        weights = module._given(j)
        ran = self._operation(j, weights)
        self.n_done, self.node = j + 1, node
        names = module._carried.get(j, [])
        self.carried = [next(self._carried_before) for _ in names]
        self.after = list(self.carried)
        values = [self.values[e] for e in node.inputs[: node.op.n_values]]
        for e, (value, edge) in zip(node.outputs, self._computed(ran, ran.plan, inputs, values, weights)):
            self.values[e], self.counts[e] = value, edge.counts  # type: ignore[assignment]
        return self.after

    def _operation(self, j: int, weights: Sequence[Tensor | None]) -> Operation:
        """Return what calls know of an operator."""
        operations, edges, node = self._operations, self.graph.edges, self.graph.nodes[j]
        if j not in operations:
            lines = [Line((e,), edges[e].rate, edges[e].dtype, edges[e].features) for e in range(len(edges))]
            inputs, outputs = ([lines[e] for e in ends] for ends in (node.inputs, node.outputs))
            ran = Operation(node.op, None, [x.signature for x in inputs], outputs)
            ran.plan = Plan(ran, weights)
            ran.plan.step.live = node.name != "reduce_frames"  # which would carry one tensor more than a graph's
            operations[j] = ran
        return operations[j]

    # ---------------------------------------------------------------- frames that were kept
    def _window(self, i: int, value: Tensor, place: Any, counts: Counts, kept: Any, fills: bool) -> EagerWindow:
        first, back, _, new = place
        e = self.node.inputs[i]
        n = self.graph.edges[e].kept
        if not back:
            return Columns(None, value, first, 0, new, counts, fills)
        if int(counts[:, 0].min()) >= n:  # in mid-stream: of all readers
            return self._whole(e, fills)
        if back > 0:
            return Columns(self.kept[e][:, n - back :], value, first, back, new, counts, fills)
        begins = kept()[i][:, 0]
        width = counts[:, 0] - begins
        at = np.minimum((n - width)[:, None] + np.arange(width.max()), n - 1)
        return EagerWindow(rows_of(self.kept[e], torch.from_numpy(at)), value, begins, counts)

    def _whole(self, e: int, fills: bool) -> Columns:
        """Return a window of all columns that an edge keeps, those before a stream's first frame included."""
        window = self._windows.get((e, fills))
        if window is None:
            counts, n = self.counts[e], self.graph.edges[e].kept
            lengths = counts[:, 2] - counts[:, 0]
            new = int(lengths[0]) if same(lengths) else -1
            window = Columns(self.kept[e], self.values[e], int(counts[0, 0]) - n, n, new, counts, fills)
            self._windows[e, fills] = window
        return window

    # ---------------------------------------------------------------- what operators carry
    def rows(self, key: Any, copy: bool = False) -> Tensor | None:
        """Return a carried tensor as it was before the call."""
        return self.carried[key[2]] if key[2] < len(self.carried) else None

    def write(self, key: Any, rows: Tensor, index: Hashable) -> None:
        """Take a carried tensor as it is now."""
        self.after[key[2]] = rows

    # ---------------------------------------------------------------- for the caller
    def output(self, port: Any, e: int) -> tuple[Tensor, Tensor]:
        """Return an output as the caller has it, and each row's frames."""
        lengths = self.counts[e][:, 2] - self.counts[e][:, 0]
        rule, own = self.module._widths[e], self.graph.edges[e].most(self.widths[0])
        most = self.widths[self.graph.inputs.index(rule[1])] if rule[0] == "input" else own
        y = as_rows(self.values[e], lengths, max(most, int(lengths.max(initial=0))))
        return (y if "L" in port.dims else y[:, 0]).permute(port.outward), torch.from_numpy(lengths)
