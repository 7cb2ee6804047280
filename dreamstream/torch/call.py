"""Eager online mode of torch modules: a session's call whose values torch computes.

Which frames there are, which are kept and which leave come from the operators' C integers; values and states
are torch tensors on the module's device. Nothing here loops over streams, and no number is read back from the
device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..online.session import Call, Session, Slot, StreamState
from ..stream.edge import Counts, Edge
from .constants import dtype_of
from .kernels import KERNELS, Kernel, Step
from .pieces import from_pieces, to_pieces
from .sizes import SIZES
from .store import Gathered, Place, Record, Table, place_of, row_of
from .training import Groups, Guard
from .windows import EagerWindow, flat

__all__ = ["TorchCall", "TorchSession"]

Tensor = torch.Tensor


class TorchSession(Session):
    """A session whose streams' states are places in tables or records of torch tensors."""

    def __init__(self, skew: int = 0, buffers: bool = False, buffer_limit: int | None = None) -> None:
        super().__init__(skew, buffers, buffer_limit)
        self.table = Table()
        self.constants: dict[int, tuple[Any, Tensor]] = {}
        self.joined = Slot(Groups())
        self.guard = Guard(self)

    @property
    def groups(self) -> Groups:
        """The streams whose graphs are joined."""
        groups: Groups = self.joined.current()
        return groups

    @property
    def known_ids(self) -> list[str]:
        return list(dict.fromkeys((*self.live_ids, *sorted(self.groups.waiting))))

    def forgetting(self, ids: Sequence[str]) -> Sequence[tuple[Slot, Any]]:
        return ((self.joined, self.groups.without(ids)),)

    def constant(self, array: Any, like: Tensor) -> Tensor:
        """Return an array that serves as a weight as a tensor on the device, converted once."""
        known = self.constants.get(id(array))
        if known is None or known[1].device != like.device:
            with torch.inference_mode(False):  # it may serve in training later
                tensor = torch.from_numpy(np.array(array))
                if array.ndim:  # a number stays on the host: it meets tensors of any device
                    tensor = tensor.to(like.device)
            if array.ndim:
                if len(self.constants) > 64:
                    self.constants.clear()
                self.constants[id(array)] = (array, tensor)
            return tensor
        return known[1]

    def to_parts(self, states: Any) -> list[bytes | None]:
        return to_pieces(row_of(states), len(self.script))

    def from_parts(self, parts: Sequence[bytes | None]) -> Any:
        return place_of(from_pieces(parts))

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchSession:
        out = TorchSession(self.skew, self.buffers, self.buffer_limit)
        with self.hold():
            out.script, out.rates = list(self.script), self.rates
            live = {i: self.state_of(i) for i in self.live_ids}
            copied = {i: StreamState(s.frames, place_of(row_of(s.states))) for i, s in live.items() if s}
            out.publish(copied)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return (TorchSession, (self.skew, self.buffers, self.buffer_limit))


class TorchCall(Call):
    """A call that computes torch tensors ``[frames of all rows][features...]``.

    Attributes
    ----------
    keeps_tape : bool
        Whether states go into records, for training.
    """

    session: TorchSession
    sizes = SIZES
    keeps_tape = False

    def begin(self, device: torch.device, keeps_tape: bool, detach: bool) -> None:
        """Say where and how this call computes, and find the rows' states.

        With `keeps_tape`, `detach` says whether the states are cut off from the tape.
        """
        self.device = device
        self.keeps_tape = keeps_tape
        if self.fresh or self.session.table.device != device:  # the module may have been moved
            self.session.table = Table(device)
        old: list[Place | None] = [None if s is None else s.states for s in self.old]
        self.gathered = Gathered(old, device)
        self.store: Table | Record = Record(detach) if keeps_tape else self.session.table
        self.places = self.store.places(old)
        rows = np.array([p.row for p in self.places], np.int64)
        self.index = torch.from_numpy(rows).to(device, non_blocking=True)

    def states(self) -> Sequence[Any]:
        """Return where each row's state is after the call."""
        return self.places

    def run(
        self,
        name: str,
        attributes: dict[str, Any],
        op: Any,
        edges: Sequence[Edge],
        values: Sequence[Any],
        weights: Sequence[Any],
    ) -> list[tuple[Any, Edge]]:
        """Run one operator for all rows."""
        counted, out = self.advance(name, attributes, op, edges, weights)
        inputs: list[Counts] = counted  # type: ignore[assignment]
        with torch._C.DisableTorchFunction():  # kernels see plain tensors only
            results = self._computed(op, inputs, out, values[: op.n_values], weights)
        return list(zip(results, out))

    def _computed(
        self,
        op: Any,
        inputs: Sequence[Counts],
        out: Sequence[Edge],
        values: Sequence[Tensor],
        weights: Sequence[Any],
    ) -> Sequence[Tensor]:
        kernel = op.kernel if getattr(op, "in_python", False) else KERNELS[op.name]
        like = values[0] if values else torch.empty(0, device=self.device)
        constants = [
            self.session.constant(w, like) if isinstance(w, np.ndarray) else w for w in weights
        ]
        step = Step(
            op.name,
            op.attributes,
            tuple(v.ndim - 1 for v in values),
            tuple(e.features for e in out),
            training=self.keeps_tape,
        )
        if not kernel.framewise:
            return self._windowed(kernel, step, op, inputs, out, values, constants, like)
        if values and not len(like):
            return [_nothing(e.features, e, like, (*values, *constants)) for e in out]
        results = kernel.run(step, *values, *constants)
        return results if isinstance(results, tuple) else (results,)

    def _windowed(
        self,
        kernel: Kernel,
        step: Step,
        op: Any,
        inputs: Sequence[Counts],
        out: Sequence[Edge],
        values: Sequence[Tensor],
        constants: Sequence[Tensor | None],
        like: Tensor,
    ) -> list[Tensor]:
        ordinal = self.n_done - 1
        after: list[Counts] = [e.counts for e in out]  # type: ignore[misc]
        lengths = [c[:, 2] - c[:, 0] for c in after]
        kept = op.kept(inputs, after)
        windows = []
        for i, value in enumerate(values):
            held = inputs[i][:, 0] - kept[i][:, 0]
            old = self.gathered.rows((ordinal, i)) if held.any() else None
            windows.append(EagerWindow(old, value, kept[i][:, 0], inputs[i]))
        step.n = [int(m.max(initial=0)) for m in lengths]
        outputs: Sequence[Tensor | None] = [None] * len(out)
        if kernel.carries is not None or any(step.n):
            step.first = [torch.from_numpy(c[:, 0]) for c in after]
            step.last = [torch.from_numpy(c[:, 2]) for c in after]
            step.inputs = [torch.from_numpy(c) for c in inputs]
            step.ended = torch.from_numpy(self.ended.copy())
            outputs, state = kernel.run(
                step, windows, constants, self._carried(ordinal, kernel, step, constants, like)
            )
            for k, part in enumerate(state or ()):
                self.store.write((ordinal, "carried", k), part, self.index)
        for i, window in enumerate(windows):
            tail = inputs[i][:, 2] - kept[i][:, 1]
            tail[self.ended] = 0
            if tail.any():
                rows = window.run(torch.from_numpy(inputs[i][:, 2] - tail), int(tail.max()))
                self.store.write((ordinal, i), rows, self.index)
        return [
            flat(y, m) if y is not None and m.any() else _nothing(step.features[o], e, like, (*values, *constants))
            for o, (y, m, e) in enumerate(zip(outputs, lengths, out))
        ]

    def _carried(
        self,
        ordinal: int,
        kernel: Kernel,
        step: Step,
        constants: Sequence[Tensor | None],
        like: Tensor,
    ) -> tuple[Tensor, ...] | None:
        """Return the carried tensors of all rows: those of new streams are made, the others found."""
        if kernel.carries is None:
            return None
        made = kernel.carries(step, constants, like)
        rows = len(self.ids)
        found = [self.gathered.rows((ordinal, "carried", k)) for k in range(len(made))]
        if self.gathered.fresh.all():
            return tuple(m.expand(rows, *m.shape[1:]) for m in made)
        if not self.gathered.fresh.any():
            return tuple(f for f in found if f is not None)
        fresh = torch.from_numpy(self.gathered.fresh).to(self.device, non_blocking=True)
        return tuple(
            torch.where(fresh.reshape(-1, *(1,) * (m.ndim - 1)), m, f)  # type: ignore[arg-type]
            for m, f in zip(made, found)
        )


def _nothing(
    features: tuple[int, ...], edge: Edge, like: Tensor, operands: Sequence[Tensor | None]
) -> Tensor:
    """Return no frames; on the tape where frames would be, so that a loss over none can be differentiated."""
    dtype = dtype_of(edge.dtype)
    if dtype.is_floating_point:
        reals = [t for t in operands if t is not None and t.is_floating_point()]
        wide = dtype == torch.float64
        dtype = next((t.dtype for t in reals if (t.dtype == torch.float64) == wide), dtype)  # narrower ones stay
        for tensor in reals:
            if tensor.requires_grad and torch.is_grad_enabled():
                return tensor.reshape(-1)[:0].reshape(0, *features).to(dtype)
    return like.new_empty(0, *features, dtype=dtype)
