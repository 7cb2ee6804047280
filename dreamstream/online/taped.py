"""Training of native modules: a session's call that records what its operators do.

An operator's record stands on the tape (`dreamstream.autograd`) with the operator's outputs and, behind these, the
states that it left for each row. Under the full-file variants the next call's record of the same operator has
these states for parents, so that gradients of what a stream kept are handed to the call before; chunk by chunk it
has none. Records refer to arrays and to earlier records alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

import numpy as np

from .. import autograd
from ..array.stream_tensor import StreamTensor
from ..array.tensor import Tensor
from ..errors import ModeError, StreamMismatchError
from ..stream.course import Leg
from ..stream.edge import Edge
from ..stream.metadata import StreamMetadata
from .eager import EagerCall
from .groups import Group, in_mid_file
from .outputs import Outputs


class _OfState(dict[str, Any]):
    """The gradient of a row's state, array by array, as the state lies; forks add."""

    def __add__(self, other: Any) -> _OfState:
        return _OfState({name: array + other[name] for name, array in self.items()})


class TapedCall(EagerCall):
    """A call in training.

    Attributes
    ----------
    hands_on : bool
        Whether gradients of states are handed to the call before.
    noted : dict
        By the identity of arrays the tensors whose constants they are.
    """

    hands_on = False
    noted: dict[int, tuple[Any, Any]]

    def begin(self, hands_on: bool, noted: dict[int, tuple[Any, Any]]) -> None:
        """Say whether gradients of states are handed on, and where it is noted whose constants arrays are."""
        self.hands_on, self.noted = hands_on, noted
        self.left = []

    def compute(
        self, leg: Leg, edges: Sequence[Edge], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[tuple[Any, Edge]]:
        """Run one operator for all rows in one C call, and record it where something wants a gradient."""
        op, ordinal = leg.op, self.n_done - 1
        old = [s.places[ordinal] if s is not None and s.places else None for s in self.old]
        parents = [e.made for e in edges[: len(values)]] + [autograd.of_constant(self.noted, w) for w in weights]
        wanted = [p is not None for p in parents]
        if leg.lines[0].static and any(wanted) and not self.hands_on and any(s is not None for s in self.old):
            raise ModeError.here(
                f"{op.name}: what is computed of an input that is given once would have its gradient from the "
                "first chunk alone; train such weights under a full-file variant, or give them requires_grad=False"
            )
        taped = not op.constant and (any(wanted) or any(p is not None for p in old))
        self.records = taped and op.differentiable
        results = super().compute(leg, edges, values, weights)
        record: Any = None
        if taped:
            back: Any = f"{op.name} has no derivative yet"
            if self.records:
                back = _back(self.ran[2], wanted, len(values), len(results), len(self.ids), self.hands_on)
            read = [w for w in weights if id(w) in self.noted]
            n_outputs = len(results) + len(self.ids)
            record = autograd.Record(op.name, [*parents, *old], back, read, n_outputs)
            for o, (value, edge) in enumerate(results):
                if value.dtype.kind == "f":
                    edge.made = record, o
        if self.hands_on:
            rows = range(len(self.ids))
            self.left.append([None if record is None else (record, len(results) + r) for r in rows])
        return results


def _back(known: Any, wanted: Sequence[bool], n_values: int, n_outputs: int, n_rows: int, kept: bool) -> Any:
    """Return what makes gradients of inputs, weights and states before, of those of outputs and states after."""

    def back(*slopes: Any) -> list[Any]:
        given = [None if g is None else np.ascontiguousarray(g) for g in slopes[:n_outputs]]
        after = list(slopes[n_outputs:]) if any(g is not None for g in slopes[n_outputs:]) else None
        inputs, weights, before = known.backward(given, wanted[:n_values], wanted[n_values:], after, kept)
        states = [None if b is None else _OfState(b) for b in before] if kept else [None] * n_rows
        return [*inputs, *weights, *states]

    return back


class _Exit(autograd.Record):
    """The place where frames leave the module: no backward goes through it before its group has ended."""

    __slots__ = ("_owner", "_roots")

    def __init__(self, place: Any, session: Any, group: Group) -> None:
        super().__init__("what a module returned", [place], lambda g: [g])
        self._owner, self._roots = ref(session), group.roots

    def check(self) -> None:
        """Raise ModeError where the group is live."""
        super().check()
        owner = self._owner()
        groups = () if owner is None else owner.groups.groups
        live = frozenset().union(*(g.live for g in groups if not g.roots.isdisjoint(self._roots)))
        if live:
            raise in_mid_file(live)


class NativeOutputs(Outputs):
    """What one call does with its outputs."""

    def inner(self, x: Any) -> Any:
        """Return the native stream that an output is, which must be of this call; None of all else."""
        if not isinstance(x, StreamTensor):
            return None
        if x.edge is None or x.edge.entry is not self._call:
            raise StreamMismatchError("the forward returned a tensor of another call")
        return x

    def _now(self, x: Any, inner: Any) -> Any:
        if inner is None or self._group is not None or inner.edge.made is not None:
            return super()._now(x, inner)
        return _outside(inner, inner.value, inner.meta, inner.starts)  # nothing of it is on a tape

    def frames(self, part: Any) -> Tensor:
        """Return a stream's frames, on the tape."""
        out: Tensor = autograd.follow(Tensor._plain(part.value), part.edge.made, "frames")
        return out

    def guarded(self, frames: Any, group: Group) -> Any:
        """Return frames through which no backward goes before their group has ended."""
        place = autograd.source(frames)
        out = Tensor._plain(frames.numpy())
        return out if place is None else autograd.follow(out, (_Exit(place, self._call.session, group), 0), "")

    def join(self, frames: Sequence[Any], order: Any) -> Any:
        """Return the frames of calls end to end, in an order."""
        from ..array.creation import cat

        out = frames[0] if len(frames) == 1 else cat(list(frames), 0)
        return out if order is None else out.index_select(0, Tensor(order))

    def nothing(self, frames: Any) -> Any:
        """Return no frames, of which a loss has a gradient that goes nowhere."""
        none = frames.detach()[:0]
        return none.requires_grad_() if frames.requires_grad else none

    def outside(self, inner: Any, values: Sequence[Any], meta: StreamMetadata, starts: Any) -> StreamTensor:
        """Return frames as a tensor outside forwards, with the dimensions that the forward gave it."""
        (frames,) = values
        made = _outside(inner, frames.numpy(), meta, starts)
        out: StreamTensor = autograd.follow(made, autograd.source(frames), "frames")
        return out


def _outside(inner: Any, value: Any, meta: StreamMetadata, starts: Any) -> StreamTensor:
    """Return frames with the dimensions that the forward gave a stream."""
    return StreamTensor._make(value, inner.dims, inner._names, meta, starts, inner._rate, None)
