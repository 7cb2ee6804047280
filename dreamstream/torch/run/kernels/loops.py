"""Loops over frames: the graphs of their bodies, run by the kernels of their operators."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .... import _core
from ....array.dtypes import name_of, nominal
from .pointwise import TYPES
from .positions import extent, there, traced
from .registry import KERNELS, Onwards, State, Step, Window, windowed

Signature = tuple[str, tuple[int, ...], int, int]
#: What a node runs, what picks its operands of all values, and where what it gives stands among these.
Call = tuple[Callable[..., Any], Callable[[list[Any]], Sequence[Any]], Any]


class _Shaped(NamedTuple):
    """A weight's type and shape, which its operator is made by."""

    dtype: str
    shape: tuple[int, ...]


class _Node:
    """One operator of a body."""

    def __init__(self, node: dict[str, Any], values: list[Signature], weights: Sequence[Any]) -> None:
        self.inputs, self.weights = node["inputs"], node["weights"]
        attributes = {k: _number(v) for k, v in node["attributes"].items()}
        signatures, first = [values[i] for i in self.inputs], len(values)
        own = [None if w is None else _Shaped(*weights[w]) for w in self.weights]
        op = _core.Op(node["op"], attributes, signatures, own)
        frames = tuple(features for _, features, _, _ in signatures)
        self.step = Step(op.name, op.attributes, frames, tuple(y[1] for y in op.outputs), live=True)
        kernel, self.has_note = KERNELS[op.name], "note" in node
        run = (kernel.alone and not traced() and kernel.alone(self.step, own)) or kernel.run
        self.run = partial(_run_noted, node["note"], run, self.step) if self.has_note else partial(run, self.step)
        values += op.outputs
        self.gives = range(first, len(values))

    def call(self, n_values: int) -> Call:
        """Return how it runs on a list of all values, with all weights and None behind them."""
        at = (*self.inputs, *(-1 if w is None else n_values + w for w in self.weights))
        pick: Any = itemgetter(*at) if len(at) > 1 else itemgetter(slice(at[0], at[0] + 1))
        first, *more = self.gives
        return self.run, pick, slice(first, first + 1 + len(more)) if more else first


def _run_noted(note: str, run: Any, step: Step, *values: Any) -> Any:
    """Compute what torch does beside an operator: gradients that end here, other types, what is dropped."""
    if note.startswith("cast="):
        dtype = getattr(torch, note.rpartition(".")[2], None)
        with torch.autocast(values[0].device.type, dtype, enabled=dtype is not None):
            return run(step, *values)
    if note == "float":
        return values[0].float()
    if note == "no_grad":
        with torch.no_grad():
            return run(step, *values)
    name, _, p = note.partition(" ")
    return values[0].detach() if name == "detach" else getattr(torch, name)(values[0], float(p), True)


def _number(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value


class _Body:
    """What becomes of a frame of one kind.

    What does not depend on what is carried is computed before the steps, for all frames at once, and what nothing
    that is carried depends on behind them. What has a note is of the steps: random numbers are drawn in the order
    of the plain loop.
    """

    def __init__(
        self,
        body: dict[str, Any],
        given: Sequence[Signature],
        carried: Sequence[Signature],
        weights: Sequence[Any],
    ) -> None:
        values = [*given, *carried]
        self.nodes = [_Node(node, values, weights) for node in body["nodes"]]
        self.carried, self.outputs = body["carried"], body["outputs"]
        self.gives = [values[i] for i in self.outputs]
        self._n, self._state = len(values), slice(len(given), len(given) + len(carried))
        state = range(len(given), len(given) + len(carried))
        depends, needed = set(state), set(self.carried)
        for node in self.nodes:
            if node.has_note or not depends.isdisjoint(node.inputs):
                depends.update(node.gives)
        for node in reversed(self.nodes):
            if node.has_note or not needed.isdisjoint(node.gives):
                needed.update(node.inputs)
        steps = [n for n in self.nodes if n.gives[0] in depends and (n.has_note or not needed.isdisjoint(n.gives))]
        before = [n for n in self.nodes if n.gives[0] not in depends]
        after = [n for n in self.nodes if n not in steps and n not in before]
        own = {i for n in steps for i in n.gives} | {*state}
        self._kept = [*(own & {*self.outputs, *(i for n in after for i in n.inputs)})]
        self._cut = [*({*self.carried, *(i for n in steps for i in n.inputs)} - own)]
        self._all, self._before, self._steps, self._after = (
            [n.call(self._n) for n in nodes] for nodes in (self.nodes, before, steps, after)
        )

    def _values(
        self, given: Sequence[Tensor], state: Sequence[Tensor], weights: Sequence[Any], training: bool
    ) -> list[Any]:
        """Return all values, of which some are there, the weights behind them, and None."""
        for node in self.nodes:
            node.step.training = training
        values = [*given, *state]
        return [*values, *[None] * (self._n - len(values)), *weights, None]

    def run(
        self, given: Sequence[Tensor], state: Sequence[Tensor], weights: Sequence[Any], training: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return what one frame of some rows gives, and what is carried on."""
        values = self._values(given, state, weights, training)
        _do(self._all, values)
        return [values[i] for i in self.outputs], [values[i] for i in self.carried]

    def run_all(
        self, given: Sequence[Tensor], state: Sequence[Tensor], weights: Sequence[Any], training: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the same of frames that follow each other, ``(rows, frames, ...)``."""
        values = self._values(given, state, weights, training)
        _do(self._before, values)
        cut = [(i, values[i].unbind(1)) for i in self._cut]
        kept: list[tuple[int, list[Tensor]]] = [(i, []) for i in self._kept]
        now = [*values]
        for t in range(given[0].shape[1]):
            for i, frames in cut:
                now[i] = frames[t]
            _do(self._steps, now)
            for i, own in kept:
                own.append(now[i])
            now[self._state] = [now[i] for i in self.carried]
        for i, own in kept:
            values[i] = torch.stack(own, 1) if len(own) > 1 else own[0].unsqueeze(1)
        _do(self._after, values)
        return [values[i] for i in self.outputs], now[self._state]


def _do(calls: Sequence[Call], values: list[Any]) -> None:
    for run, pick, at in calls:
        values[at] = run(*pick(values))


@lru_cache(maxsize=256)
def _program(
    text: str, given: tuple[Signature, ...], weights: tuple[Any, ...], _traced: bool
) -> tuple[list[Signature], list[_Body]]:
    loop = json.loads(text)
    carried = [(c["dtype"], tuple(c["shape"]), 1, 1) for c in loop["carried"]]
    return carried, [_Body(b, given, carried, weights) for b in loop["bodies"]]


def _kind(x: Tensor | None) -> Any:
    return None if x is None else (name_of(nominal(x.dtype)), tuple(map(int, x.shape)))


def _carried(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> State:
    """Return what is carried before the first frame of one row."""
    made = []
    for carried, first in zip(json.loads(step.attributes["body"])["carried"], weights):
        if first is None:
            dtype = like.dtype if carried["dtype"] == name_of(nominal(like.dtype)) else TYPES[carried["dtype"]]
            made.append(torch.zeros(1, *carried["shape"], dtype=dtype, device=like.device))
        else:
            made.append(first[None])
    return tuple(made)


def bodies_of(step: Step, frames: Sequence[Tensor], weights: Sequence[Any]) -> list[_Body]:
    """Return the bodies of a loop over the frames of inputs ``(rows, frames, ...)``."""
    # Also where torch traces sizes these are numbers: a traced size may not enter an autograd Function.
    signatures = tuple((name_of(nominal(x.dtype)), tuple(map(int, x.shape[2:])), 1, 1) for x in frames)
    return _program(step.attributes["body"], signatures, tuple(map(_kind, weights)), traced())[1]


def _onwards(step: Step, weights: Sequence[Any]) -> Onwards | None:
    """Return what runs rows that all have as many frames, none of them a stream's first; see `Kernel.onwards`."""
    bodies = json.loads(step.attributes["body"])["bodies"]
    if len(bodies) > 2:  # of which the second to last may be that of a later frame
        return None

    known: list[_Body] = []  # for frames and weights of the types and shapes by which the operator is known

    def on(frames: Sequence[Tensor], _: Any, weights: Sequence[Any], state: Sequence[Tensor]) -> Any:
        if not known:
            known[:] = bodies_of(step, frames, weights)
        return known[-1].run_all(frames, state, weights, step.training)

    return on


@windowed("scan", carries=_carried, onwards=_onwards, all_outputs=True)
def scan(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: State) -> Any:
    """Run a body frame after frame, over all rows that have one left."""
    parts = [w.new() for w in windows]
    frames = [x for x, _ in parts]
    bodies = bodies_of(step, frames, weights)
    if not step.live or traced():
        return _masked(step, bodies, frames, parts[0][1], weights, state)
    lengths: list[int] = parts[0][1].tolist()
    firsts: list[int] = step.first[0].tolist()
    most = max(lengths, default=0)
    if len(set(lengths)) <= 1 and len({min(f, len(bodies)) for f in firsts}) == 1:
        made, after = [], list(state)
        for t in range(most):
            kind = firsts[0] + t
            end = most if kind >= len(bodies) - 1 else t + 1
            body = bodies[min(kind, len(bodies) - 1)]
            ys, after = body.run_all([x[:, t:end] for x in frames], after, weights, step.training)
            made.append(ys)
            if end == most:
                break
        whole = [ys[0] if len(ys) == 1 else torch.cat(ys, 1) for ys in zip(*made)]
        return tuple(whole) if made else _nothing(step), tuple(after)
    return _ragged(step, bodies, frames, lengths, firsts, weights, state)


def _nothing(step: Step) -> tuple[None, ...]:
    return (None,) * len(step.features)


def _masked(
    step: Step,
    bodies: list[_Body],
    frames: Sequence[Tensor],
    lengths: Tensor,
    weights: Sequence[Any],
    state: State,
) -> Any:
    """Run all rows as often as the longest has frames, and choose; no number is read from a tensor."""
    made, after = [], list(state)
    place, lengths = there(step.first[0], frames[0]), there(lengths, frames[0])
    for t in range(min(extent(x, 1) for x in frames)):  # inputs may be padded to different widths
        ys, after = one_step(step, bodies, [x[:, t] for x in frames], place + t, lengths > t, weights, after)
        made.append(ys)
    if made:
        return tuple(torch.stack(ys, 1) for ys in zip(*made)), tuple(after)
    rows = frames[0].shape[0]
    return tuple(
        frames[0].new_zeros(rows, 0, *features, dtype=TYPES[dtype]) for dtype, features, *_ in bodies[0].gives
    ), tuple(after)


def one_step(
    step: Step,
    bodies: list[_Body],
    frames: Sequence[Tensor],
    place: Tensor,
    there: Tensor,
    weights: Sequence[Any],
    state: Sequence[Tensor],
) -> tuple[list[Tensor], list[Tensor]]:
    """Return what one frame of all rows gives at these positions, and what the rows carry on that have one."""
    results = [body.run(frames, state, weights, step.training) for body in bodies]
    ys, new = results[-1]
    for b, (first, kept) in enumerate(results[:-1]):
        ys = [_where(place == b, y, z) for y, z in zip(first, ys)]
        new = [_where(place == b, y, z) for y, z in zip(kept, new)]
    return ys, [_where(there, y, z) for y, z in zip(new, state)]


def _where(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(rows.reshape(-1, *(1,) * (yes.dim() - 1)), yes, no)


def _ragged(
    step: Step,
    bodies: list[_Body],
    frames: Sequence[Tensor],
    lengths: list[int],
    firsts: list[int],
    weights: Sequence[Any],
    state: State,
) -> Any:
    """Run rows of unequal lengths, or at different places: at each step those that take the same body."""
    after, n_rows = [*state], len(lengths)
    made: list[list[Tensor]] = []
    places: list[int] = []  # of what was made, in which order rows have it
    begins = [0, *accumulate(lengths)]
    for t in range(max(lengths, default=0)):
        kinds: dict[int, list[int]] = {}
        for r, n in enumerate(lengths):
            if t < n:
                kinds.setdefault(min(firsts[r] + t, len(bodies) - 1), []).append(r)
        for kind, some in kinds.items():
            given = [x[:, t] for x in frames]
            if len(some) == n_rows:
                ys, after = bodies[kind].run(given, after, weights, step.training)
            else:
                at = torch.tensor(some, device=frames[0].device)
                given, before = ([x.index_select(0, at) for x in of] for of in (given, after))
                ys, own = bodies[kind].run(given, before, weights, step.training)
                after = [s.index_copy(0, at, part) for s, part in zip(after, own)]
            made.append(ys)
            places += [begins[r] + t for r in some]
    if not made:
        return _nothing(step), tuple(after)
    order = torch.tensor(sorted(range(len(places)), key=places.__getitem__), device=frames[0].device)
    return tuple(torch.cat(ys).index_select(0, order) for ys in zip(*made)), tuple(after)
