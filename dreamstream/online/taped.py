"""Training of native modules: a session's call that records what its operators do.

An operator's record stands on the tape (`dreamstream.autograd`) with the operator's outputs and, behind these, the
states that it left for each row. Under the full-file variants the next call's record of the same operator has
these states for parents, so that gradients of what a stream kept are handed to the call before; chunk by chunk it
has none. Records refer to arrays and to earlier records alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any
from weakref import ref

import numpy as np

from .. import autograd
from ..array.creation import cat, stack
from ..array.stream_tensor import StreamTensor
from ..array.symbolic import measured
from ..array.tensor import Tensor
from ..array.versions import Contents
from ..errors import ModeError, StreamMismatchError
from ..stream.edge import Edge
from ..stream.metadata import StreamMetadata
from ..stream.place import Operation
from .eager import EagerCall
from .given import Given
from .groups import Group, in_mid_file
from .outputs import Outputs
from .segments import flatten


class _OfState(dict[str, Any]):
    """The gradient of a row's state, array by array, as the state lies; forks add."""

    def __add__(self, other: Any) -> _OfState:
        return _OfState({name: array + other[name] for name, array in self.items()})


class TapedCall(EagerCall):
    """A call in training."""

    hands_on = False  #: Whether gradients of states are handed to the call before.
    anew = False  #: Whether this call computes anew, for all rows, what follows from inputs given once alone.
    renewed: dict[int, Sequence[Any]]  #: What the operator that runs now has kept of these, by input and row.
    replaced: list[Any]
    constants: dict[int, tuple[Any, Any]]  #: By the identity of arrays the tensors whose constants they are.

    def begin(self, module: Any, hands_on: bool) -> None:
        """Say whose parameters these are, and whether gradients of states are handed on."""
        self.module, self.hands_on = ref(module), hands_on
        self.left = []
        if self.fresh:
            self.session.contents.clear()

    def compute(
        self, ran: Operation, edges: Sequence[Edge], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[tuple[Any, Edge]]:
        """Run one operator for all rows in one C call, and record it where something wants a gradient."""
        op, ordinal = ran.op, self.n_done - 1
        old = [s.sources[ordinal] if s is not None and s.sources else None for s in self.old]
        parents = [e.made for e in edges[: len(values)]] + [
            autograd.of_constant(self.constants, w) for w in weights
        ]
        if not autograd.is_grad_enabled():
            parents, old = [None] * len(parents), [None] * len(old)
        wanted = [p is not None for p in parents]
        goes_on = not self.hands_on and any(s is not None for s in self.old)
        if ran.lines[0].static and any(wanted) and goes_on and not self.anew:
            raise ModeError.here(
                f"{op.name}: nobody knows what these streams were given once: what is computed of it would "
                "have its gradient from the first chunk alone; start them anew, or train under a full-file variant"
            )
        self.renewed = {}
        if self.anew and goes_on and not ran.lines[0].static:
            edges, values = self._known_all_along(op, edges, values)
        taped = not op.constant and (any(wanted) or any(p is not None for p in old))
        self.records = taped and op.differentiable
        results = super().compute(ran, edges, values, weights)
        record: Any = None
        if taped:
            back: Any = f"{op.name} has no derivative yet"
            if self.records:
                back = _back(self.answer[2], wanted, len(values), len(results), len(self.ids), self.hands_on)
                if self.renewed:
                    back = self._back_anew(wanted, len(results), self.renewed)
            read = [w for w in weights if id(w) in self.constants]
            n_outputs = len(results) + self.hands_on * len(self.ids)
            record = _OfOperator(op.name, [*parents, *old], back, read, n_outputs)
            record.module = self.module
            record.contents = {id(w): Contents.of(w, self.session.contents) for w in read if self.hands_on}
            for o, (value, edge) in enumerate(results):
                if value.dtype.kind == "f":
                    edge.made = record, o
        if self.hands_on:
            rows = range(len(self.ids))
            self.left.append([None if record is None else (record, len(results) + r) for r in rows])
        return results

    # ---------------------------------------------------------------- what is given once, chunk by chunk
    def given_once(self, n: int, given: Given, edge: Edge) -> Any:
        """Return the values of an input that is given once; chunk by chunk, of all rows in every call.

        So what is computed of it has a gradient in every chunk, as it is with weights as they are now.
        """
        self.anew = not self.hands_on and all(map(len, self.once))
        rows = [i for i, old in zip(self.ids, self.old) if self.anew or old is None]
        known = {i: once[n] for i, once in zip(self.ids, self.once) if once}
        tensors = [given.tensors[i] if i in given.tensors else Tensor(known[i]) for i in rows]
        counts: Any = edge.counts
        if self.anew:
            counts[:, :2] = 0, -1
        if not given.tensors:
            return given.joined([known[i] for i in rows]) if rows else given.stacked(())
        whole = stack(tensors) if given.at is None else cat([t.movedim(given.at, 0) for t in tensors])
        edge.made = autograd.source(whole)
        return whole.constant()

    def _known_all_along(
        self, op: Any, edges: Sequence[Edge], values: Sequence[Any]
    ) -> tuple[Sequence[Edge], Sequence[Any]]:
        """Return the inputs of an operator of frames: what is given once is new to rows that start alone.

        To the others it has been known since they started. What they have kept of it is `renewed` instead: by the
        number of an input its rows' values as they are now.
        """
        edges, values = list(edges), list(values)
        starts = np.array([s is None for s in self.old])
        for i, edge in enumerate(edges):
            if edge.line.static:
                given: Any = edge.counts
                counts = given.copy()
                counts[~starts, :2] = counts[~starts, 2:]
                edges[i] = Edge(self, edge.line, counts)
                edges[i].made = edge.made
                if i < len(values):
                    rows = np.split(values[i], np.cumsum(given[:, 2])[:-1])
                    self.renewed[i] = rows
                    new = [row for row, s in zip(rows, starts) if s]
                    values[i] = np.concatenate(new) if new else values[i][:0]
        inputs: list[Any] = [e.counts for e in edges]
        kept = op.kept(inputs, op.counts(inputs, self.ended, self.ids))
        n_kept = [c[:, 0] - k[:, 0] for c, k in zip(inputs, kept)]
        self.replaced = self._with_renewed(super().before(), n_kept, edges)
        return edges, values

    def before(self) -> list[Any]:
        """Return the rows' states before the operation that is being computed."""
        return self.replaced if self.renewed else super().before()

    def _with_renewed(self, states: list[Any], n_kept: Sequence[Any], edges: Sequence[Edge]) -> list[Any]:
        """Return states, which have so many frames of each input, with those that are `renewed` in their place."""
        for row, state in enumerate(states):
            if state is None:
                continue
            content, at = flatten(state) or b"", 0
            for i, n in enumerate(int(n[row]) for n in n_kept):
                size = n * prod(edges[i].features) * np.dtype(edges[i].dtype).itemsize
                if i in self.renewed and n:
                    new = np.ascontiguousarray(self.renewed[i][row][-n:]).tobytes()
                    content = content[:at] + new + content[at + size :]
                at += size
            states[row] = {"": np.frombuffer(content, np.uint8)} if content else None
        return states

    def _back_anew(self, wanted: Sequence[bool], n_outputs: int, held: Mapping[int, Sequence[Any]]) -> Any:
        """Return what makes gradients of weights and inputs, those of what was held of these among them."""
        known, starts = self.answer[2], [s is None for s in self.old]
        n_values = len(self.answer[2].reads) - n_outputs

        def back(*slopes: Any) -> list[Any]:
            given = [None if g is None else np.ascontiguousarray(g) for g in slopes[:n_outputs]]
            inputs, weights, before = known.backward(given, wanted[:n_values], wanted[n_values:], None, True)
            for i, rows in held.items():
                if not wanted[i]:
                    continue
                at, new = 0, inputs[i]
                parts = []
                for row, start, state in zip(rows, starts, before):
                    own = np.zeros_like(row)
                    if start:
                        own, at = new[at : at + len(row)], at + len(row)
                    elif state is not None and len(kept := state.get(f"kept.{i}", ())):
                        own[-len(kept) :] = kept
                    parts.append(own)
                inputs[i] = np.concatenate(parts)
            return [*inputs, *weights, *[None] * len(starts)]

        return back


def _back(known: Any, wanted: Sequence[bool], n_values: int, n_outputs: int, n_rows: int, kept: bool) -> Any:
    """Return what makes gradients of inputs, weights and states before, of those of outputs and states after."""

    def back(*slopes: Any) -> list[Any]:
        given = [None if g is None else np.ascontiguousarray(g) for g in slopes[:n_outputs]]
        after = list(slopes[n_outputs:]) if any(g is not None for g in slopes[n_outputs:]) else None
        inputs, weights, before = known.backward(given, wanted[:n_values], wanted[n_values:], after, kept)
        states = [None if b is None else _OfState(b) for b in before] if kept else [None] * n_rows
        return [*inputs, *weights, *states]

    return back


class _OfOperator(autograd.Record):
    """What an operator did in a module's forward, whose parameters messages call by their names."""

    __slots__ = ("contents", "module")

    fresh = True
    module: Any
    contents: dict[int, Contents | None]

    def has_changed(self, array: Any, edits: int) -> bool:
        """Return whether an array was written into; parameters by NumPy, too, where whole files are trained."""
        known = self.contents.get(id(array))
        return super().has_changed(array, edits) or (known is not None and not known.are_now)

    def called(self, array: Any) -> str:
        """Return what a weight is called."""
        module = self.module()
        for name, p in () if module is None else module.named_parameters():
            if np.may_share_memory(p.numpy(), array):
                return f"the parameter {name}"
        return super().called(array)


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

    def parts(self, x: Any) -> tuple[Any, ...] | None:
        x = measured(x)
        if not isinstance(x, StreamTensor):
            return None
        if x.edge is None or x.edge.entry is not self._call:
            raise StreamMismatchError("the forward returned a tensor of another call")
        return (x,)

    def _now(self, x: Any, parts: tuple[Any, ...] | None) -> Any:
        if parts is None or self._group is not None or parts[0].edge.made is not None:
            return super()._now(x, parts)
        (inner,) = parts
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
        out = frames[0] if len(frames) == 1 else cat(list(frames), 0)
        return out if order is None else out.index_select(0, Tensor(order))

    def outside(self, parts: Any, values: Sequence[Any], meta: Any = None, starts: Any = None) -> StreamTensor:
        """Return frames as a tensor outside forwards, with the dimensions that the forward gave it."""
        ((inner,), (frames,)) = parts, values
        if meta is None:
            meta, starts = inner.meta, inner.starts
        made = _outside(inner, frames.numpy(), meta, starts)
        out: StreamTensor = autograd.follow(made, autograd.source(frames), "frames")
        return out


def _outside(inner: Any, value: Any, meta: StreamMetadata, starts: Any) -> StreamTensor:
    """Return frames with the dimensions that the forward gave a stream."""
    return StreamTensor._make(value, inner.dims, inner._names, meta, starts, inner._rate, None)
