"""Operators declared in Python on torch's values: each stream's window by itself, in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import _core
from ...array.stream_tensor import StreamTensor as Native
from ...errors import ModeError, ShapeError
from ...online.declared import Op, Window, set_foreign
from ...stream.edge import Request
from ..forward.running import current
from ..tensor import StreamTensor
from ..tensor.padding import as_rows
from .kernels import Kernel, Step
from .windows import EagerWindow


class _Bound:
    """A declared operator for given inputs: what a call runs."""

    whole = lockstep = carries = same_counts = False
    in_python = True
    attributes: dict[str, Any] = {}  # noqa: RUF012  (never written to)

    def __init__(self, name: str, core: _core.Op, forward: Callable[..., Any]) -> None:
        self.name, self.forward = name, forward
        self.outputs, self.n_values = core.outputs, core.n_values
        self.counts, self.kept, self.columns = core.counts, core.kept, core.columns
        self.kernel = Kernel(self._run, False)

    def _run(self, step: Step, *windows: EagerWindow) -> Tensor:
        assert step.ended is not None
        lengths = np.zeros(len(step.ended), np.int64)
        parts = []
        first, now = step.first[0].tolist(), step.last[0].tolist()
        for r, (m0, m1) in enumerate(zip(first, now)):
            lengths[r] = m1 - m0
            if m1 > m0:
                seen = [w.row(r, bool(step.ended[r])) for w in windows]
                parts.append(self._checked(self.forward(*(Window(*s) for s in seen), m0, m1), step, m0, m1))
        return as_rows(torch.cat(parts), lengths)

    def _checked(self, made: Any, step: Step, m0: int, m1: int) -> Tensor:
        expected = (m1 - m0, *step.features[0])
        if not isinstance(made, Tensor) or tuple(made.shape) != expected:
            got = tuple(made.shape) if hasattr(made, "shape") else type(made).__name__
            raise ShapeError(f"{self.name}: forward returned {got} for frames {m0} to {m1}, expected {expected}")
        return made


def _apply(op: Op, inputs: Sequence[Any]) -> Any:
    """Apply a declared operator to torch tensors: streams inside a forward, or plain ones ``(B, ..., L)``."""
    streams = [x for x in inputs if isinstance(x, StreamTensor)]
    if not streams:
        return _offline(op, inputs)
    if len(streams) != len(inputs) or any(x._inner is None for x in streams):
        raise ModeError(f"{op.name} works on streams inside an online module, or on plain tensors")
    forward = current()
    natives = [forward.unwrap(x).in_order() for x in streams]
    return StreamTensor.shell(_inside(op, natives))


def _inside(op: Op, natives: Sequence[Native]) -> Native:
    edges = [x.edge for x in natives if x.edge is not None]
    bound = _Bound(op.name, op.core([e.signature for e in edges]), op.forward)
    ((value, edge),) = edges[0].entry.run(Request(op.name, {}, edges, [x.value for x in natives], op=bound))
    return natives[0].made(value, edge)


def _offline(op: Op, inputs: Sequence[Tensor]) -> Tensor:
    frames = [x.movedim(-1, 1) for x in inputs]
    if any(x.ndim < 2 for x in frames):
        raise ShapeError(f"{op.name}: expected (B, ..., L), got {[tuple(x.shape) for x in inputs]}")
    core = op.core([("float32", tuple(x.shape[2:]), 1, 1) for x in frames])
    counts = [np.array([[0, -1, x.shape[1], x.shape[1]]], np.int64) for x in frames]
    (out,) = core.counts(counts, np.ones(1, bool))
    n = int(out[0, 2])
    rows = [op.forward(*(Window(x[r], 0, x.shape[1]) for x in frames), 0, n) for r in range(len(frames[0]))]
    return torch.stack(rows).movedim(1, -1) if n else inputs[0].new_zeros(len(rows), *core.outputs[0][1], 0)


set_foreign(torch.Tensor, _apply)
