"""Eager online mode of torch modules: a session's call whose values torch computes.

Which frames there are, which are kept and which leave come from the operators' C integers; values and states
are torch tensors on the module's device. No operation loops over streams, but for those that keep every frame, and
no number is read back from the device.
"""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...array.chunk_values import Naming, check_dense, read_chunk
from ...array.dtypes import name_of, nominal
from ...array.library import Library
from ...array.stream_tensor import StreamTensor as Native
from ...online.given import Given
from ...online.session import Call, Session
from ...online.slots import Slot
from ...stream.edge import Counts, Edge, Line
from ...stream.place import Operation
from ..forward.constants import NARROW, Constant, constant_of, dtype_of
from ..forward.library import TORCH
from ..private import without_functions
from ..tensor.padding import flat, same, to_device
from ..train.groups import Guard
from .kernels import KERNELS, Kernel, Step
from .kernels.attention import drops, recomputed
from .rooms import grown
from .state_bytes import from_bytes, to_bytes
from .steady import SteadyWindows, carrying, of_positions
from .tables import Gathered, Record, Table, row_of, state_row_of
from .windows import AllFrames, Columns, EagerWindow


class TorchSession(Session):
    """A session whose streams' states are places in tables or records of torch tensors."""

    real: torch.dtype | None = None  # torch's default in the call before
    has_loose = False  #: Whether a forward of it has computed something of lengths.

    def __init__(self, *options: Any, **named: Any) -> None:
        super().__init__(*options, **named)
        self.table = Table()
        self.constants: dict[Any, tuple[Any, Tensor]] = {}
        self.parameters: dict[int, Constant] = {}  # as operators know them
        self._named: list[Any] = []
        self.guard = Guard(self)
        self.tried: set[Any] = set()  # where Functions of the user were found to be right
        self.warned = 0  # calls that warned of random numbers

    def know(self, tensors: Sequence[Tensor]) -> None:
        """Learn the parameters; forget what the calls before did if they are no longer what they were."""
        named = [(id(t), t.dtype, t.shape) for t in tensors]
        if named != self._named:
            self._named = named
            self.places.clear()
            self.parameters = {id(t): constant_of(t) for t in tensors}

    def constant(self, array: Any, like: Tensor) -> Tensor:
        """Return an array that serves as a weight as a tensor on the device, converted once."""
        # An array is known by its identity; one of a single number, which is often made in every call, by that.
        key = id(array) if array.size > 1 else (array.dtype.str, array.shape, array.tobytes())
        known = self.constants.get(key)
        if known is None or known[1].device != like.device:
            with torch.inference_mode(False):  # it may serve in training later
                tensor = torch.from_numpy(np.array(array))
                if array.ndim:  # a number stays on the host: it meets tensors of any device
                    tensor = tensor.to(like.device)
            if array.ndim:
                if len(self.constants) > 64:
                    self.constants.clear()
                self.constants[key] = (array, tensor)
            return tensor
        return known[1]

    def to_parts(self, states: Any) -> list[bytes | None]:
        return to_bytes(row_of(states), len(self.script))

    def from_parts(self, parts: Sequence[bytes | None]) -> Any:
        return state_row_of(from_bytes(parts))

    def copied(self, states: Any) -> Any:
        return state_row_of(row_of(states))


class TorchGiven(Given):
    """An input that is given once, of torch's tensors."""

    def _read(self, stream_id: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return torch.from_numpy(np.array(read_chunk(value, self.wanted, (stream_id,))))
        with Naming(self.wanted.name, (stream_id,)):
            check_dense(value)
            nominal(value.dtype)  # which refuses what operators don't take
        return value

    def _type_of(self, value: Any) -> str:
        return name_of(nominal(value.dtype))

    def joined(self, rows: list[Any]) -> Any:
        at = self.at
        if at is None:
            return torch.stack(rows)
        return torch.cat([row.movedim(at, 0) for row in rows])

    def _nothing(self) -> Any:
        dtype, features = self.kind_of_frame()
        return torch.zeros((0, *features), dtype=dtype_of(dtype))


class Mode(NamedTuple):
    """What besides its frames decides how a call runs."""

    taped: bool  #: Whether states stay on the tape.
    detach: bool  #: Whether they are cut off from it.
    #: Whether nobody takes notice of how values are computed: no gradient is recorded, and no mode sees it.
    plain: bool = False
    single: bool = False  #: Whether the module's parameters are float32, so that narrower frames become float32.


class TorchCall(Call):
    """A call that computes torch tensors ``[frames of all rows][features...]``."""

    session: TorchSession
    library: Library = TORCH
    keeps_tape: bool  #: Whether states go into records, for training.
    keeps_frames = True  #: Whether every operator keeps the frames that it will read again.
    plain = False  #: Whether values are memory of the processor, of which nothing but the call takes notice.
    has_converted = False  #: Whether positions have become streams in it.
    store: Table | Record

    def prepare(self, device: torch.device, mode: Mode, plain: bool, outputs: dict[Any, Any]) -> None:
        """Say where and how this call computes, and those that follow it; `plain` is the attribute.

        `outputs` is what makes outputs of frames, as far as it is known.
        """
        self.device, self.mode, self.outputs, session = device, mode, outputs, self.session
        self.parameters = session.parameters
        self.keeps_tape, self.plain = mode.taped, plain
        if self.fresh or session.table.device != device:  # the module may have been moved
            session.table = Table(device)
        self.store = session.table
        self.some_end = True in self.ended.tolist()
        self.prepared = {name: value for name, value in vars(self).items() if name != "old"}

    def next_call(self, follows: Any, counts: Any, prepared: dict[str, Any]) -> TorchCall:
        """Return the call that goes on with this one's streams, and has what was `prepared` for the like of it."""
        call: Any = object.__new__(TorchCall)
        call.__dict__, call.prepared = prepared.copy(), prepared
        if prepared is self.prepared:
            call.alike = self.alike
        call.input_counts, call.follows, call.done, call.afterwards = counts, follows, Slot(False), []
        call.ids, call.ended, call.keeps_tape = self.ids, self.ended, self.keeps_tape
        call.places, call.script = self.session.places, self.session.script
        call.body = call.fail_at = call.guard = call.recording = None
        call.n_done, call.over = 0, False
        before = self.gathered
        # Two rows of a table take turns: then the next call writes where this one has read.
        call.begin(self.written, before if before.store is self.store and not self.keeps_tape else None)
        return call

    def begin(self, before: Gathered | None = None, behind: Gathered | None = None) -> None:
        """Find where the rows' states are, and where they go."""
        session = self.session
        if session.real is not (real := torch.get_default_dtype()):  # what lengths say has another type
            session.real = real
            session.places.clear()
        if self.keeps_tape:
            self.store = Record(self.mode.detach)
        if before is None:
            before = Gathered([None if s is None else s.states for s in self.old], self.device)
        self.gathered: Gathered = before
        self.written: Gathered = behind or Gathered(self.store.next_rows(before.places), self.device)
        self.index = self.written.index
        #: The rows of `store` with the states before the call, None where they are elsewhere (see `Table`).
        self.old_rows = before.run_in(self.store)

    @cached_property
    def old(self) -> Sequence[Any]:  # type: ignore[override]
        """The rows' states before the call, where it has not got them."""
        return list(map(self.session.state_of, self.ids))

    @cached_property
    def alike(self) -> bool:
        """Whether all rows stand at the same place, now and before: then they do so at every operation."""
        if len(self.ids) == 1:
            return True
        counts = (*self.input_counts[:, :, 0], *self.input_counts[:, :, 2], self.ended)
        return bool(self.ids) and all(map(same, counts)) and same(self.gathered.fresh)

    def on_tape(self, now: Any) -> AbstractSet[Any]:
        """Return the versions of the parameters that the tape was made with: of now, and of its earlier calls."""
        versions = self.gathered.versions | {now}
        if isinstance(self.store, Record) and not self.store.detach:
            self.store.versions = versions
        return versions

    def states(self) -> Sequence[Any]:
        """Return where each row's state is after the call."""
        return self.written.places

    def give(self, index: int, given: Given, device: torch.device) -> Native:
        """Return an input that is given once as the forward sees it.

        In training every call gives it anew, so that what is computed from it has a gradient in every chunk.
        """
        edge = self.input_edge(index, *given.kind_of_frame())
        counts: Any = edge.counts
        self._follow(("given", (), (), (edge.cid,)))
        key = (self.n_done - 1, 0)
        value = given.stacked(self.ids).to(device)
        window = EagerWindow(self.gathered.rows(key), value, np.zeros(len(counts), np.int64), counts)
        rows = window.run(torch.zeros(len(counts), dtype=torch.int64), int(counts[:, 2].max(initial=0)))
        self.store.write(key, rows, self.index)
        if self.keeps_tape:
            value = flat(rows, counts[:, 2])
            counts[:, 0] = 0
        return Native.inside(value, given.dims, edge)

    def compute(
        self, ran: Operation, edges: Sequence[Edge], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[tuple[Any, Edge]]:
        """Run one operator for all rows."""
        plan = ran.plan
        if plan is None:
            plan = ran.plan = Plan(ran, weights)
        with without_functions():  # kernels see plain tensors only
            return self._computed(ran, plan, list(map(_COUNTS, edges)), values, weights)

    def _computed(
        self, ran: Operation, plan: Plan, inputs: list[Any], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[tuple[Any, Edge]]:
        """Run one operator: its counts, then its kernel."""
        ended = self.ended
        # `hold` repeats what is given once (input 0) for the frames of input 1. In training that is given anew in
        # every call (`give`), so that its own counts say nothing of how many frames there were before.
        if plan.holds and self.keeps_tape:
            outputs = [inputs[1]]
        elif ran.lines[0].static:
            outputs, ended = self.counts_once(ran.op, inputs)
        else:
            outputs = ran.op.counts(inputs, ended, self.ids)
        columns: Any = None
        moves = False
        if not plan.framewise and not ran.lines[0].static:
            *columns, key = ran.op.columns(inputs, outputs, ended)
            moves = plan.shift == columns[1][0][2]  # its frames are the new ones, in other places
            if moves and not columns[0][0][2]:
                plan.keep(self.keeps_tape, key, None)
                return [(values[0], Edge(self, ran.lines[0], outputs[0]))]
        like = values[0] if values else torch.empty(0, device=self.device)
        if plan.arrays:
            weights = [self.session.constant(w, like) if isinstance(w, np.ndarray) else w for w in weights]
        if not plan.framewise:
            results: Any = None
            if columns and plan.carries and self.keeps_frames and (again := plan.done[self.keeps_tape].get(key)):
                results = again(self, values if len(values) > 1 else like, inputs[0], outputs[0], *weights)
            if results is None:
                # Frames that only move lie in the same columns wherever rows stand, if all get equally many.
                goes_along = moves and self.keeps_frames and min(columns[0][0][1:]) >= 0
                lines_up = plan.lines_up or (goes_along and plan.numbers)
                given = ran, plan, inputs, outputs, values, weights, like, ended
                results = self._windowed(*given, columns, lines_up)
                if columns and plan.repeats and key not in plan.done[self.keeps_tape]:
                    again = self._learnt(ran, plan, outputs[0], weights, columns, moves, lines_up)
                    if again is not None:
                        plan.keep(self.keeps_tape, key, again)
        elif values and not like.shape[0]:
            kinds = _types_of_none(plan, ran.lines, values, weights)
            results = [_nothing(line, like, (*values, *weights), kind) for line, kind in zip(ran.lines, kinds)]
        else:
            at = plan.checked
            if at is not None and values[at].device.type == "cpu":
                ran.op.check_values(values[at].detach().long().contiguous().numpy(), inputs[at], self.ids)
            plan.step.training = self.keeps_tape
            results = plan.run(plan.step, *values, *weights)
        if len(outputs) == 1:
            value = results if isinstance(results, Tensor) else results[0]
            return [(value, Edge(self, ran.lines[0], outputs[0]))]
        return [(y, Edge(self, line, c)) for y, line, c in zip(results, ran.lines, outputs)]

    def _learnt(
        self,
        ran: Operation,
        plan: Plan,
        made: Counts,
        weights: Sequence[Any],
        columns: Any,
        moves: bool,
        lines_up: bool,
    ) -> Any:
        """Return what does again what an operator of one window has done, where a later call can; else None."""
        places, outputs, lined_up = columns
        step, numbers = plan.step, plan.numbers if self.alike else lined_up and lines_up
        if not (ran.n_values or any(step.n)):  # of lengths alone, before streams end
            return lambda call, *_: [_nothing(line, torch.empty(0, device=call.device), ()) for line in ran.lines]
        if not (self.keeps_frames and outputs[0][1]):
            return None
        if not places:
            return of_positions(plan.kernel, step) if plan.kernel.of_positions else None
        kept = places[0]
        if plan.kernel.carries is None:
            numbers = numbers and isinstance(step.first[0], int)
            if not (numbers and SteadyWindows.are_repeated(plan.kernel, step, weights, kept, moves)):
                return None
            return SteadyWindows(plan.kernel, step, weights, kept, made, lines_up).repeat
        begins = self.gathered.some_fresh or (made[:, 0] == 0).any()
        if not plan.carries or begins or (any(step.n[1:]) and not plan.kernel.all_outputs):
            return None
        nothing = [partial(_nothing, line) for line in ran.lines[1:]]
        return carrying(plan.kernel, step, weights, plan.n_carried or 0, kept[3], nothing)

    def _windowed(
        self,
        ran: Operation,
        plan: Plan,
        inputs: Sequence[Counts],
        outputs: Sequence[Counts],
        values: Sequence[Tensor],
        weights: Sequence[Tensor | None],
        like: Tensor,
        ended: Any,
        columns: Any,
        lines_up: bool,
    ) -> Sequence[Tensor]:
        ordinal, kernel, step, alike = self.n_done - 1, plan.kernel, plan.step, self.alike
        step.training, step.device = self.keeps_tape, like.device
        step.keys = self.draw_keys() if drops() and not self.meta.all_starting_and_ending else None
        windows: list[EagerWindow] = []
        static, record = columns is None, self.store
        on_tape = isinstance(record, Record) and not record.detach
        shared = plan.all_kept if on_tape and self.ids and not static else ()
        if static:  # it is given once, runs once, and keeps nothing
            numbers = False
            tails = [0] * len(values)
            windows = [EagerWindow(None, value, c[:, 0], c) for value, c in zip(values, inputs)]
            step.n = [int((c[:, 2] - c[:, 0]).max(initial=0)) for c in outputs]
        else:
            places, made, lined_up = columns
            fills = not lines_up or self.some_end
            kept = partial(ran.op.kept, inputs, outputs)
            for i, (value, place) in enumerate(zip(values, places)):
                if i not in shared:
                    windows.append(self._window(i, value, place, inputs[i], kept, fills))
                    continue
                assert isinstance(record, Record)
                before, _, now, _ = inputs[i].T
                rows = grown(self.gathered.grown((ordinal, i), before), value, (now - before).tolist())
                record.tensors[ordinal, i] = rows
                windows.append(AllFrames(*rows.frames, counts=inputs[i]))
            tails = [tail for _, _, tail, _ in places] if self.keeps_frames else [0] * len(values)
            for i in shared:
                tails[i] = 0
            step.n = [most for _, most, _ in made]
            numbers = plan.numbers if alike else lined_up and lines_up
            if numbers and not alike and not self.keeps_tape:
                numbers = all(w.is_dense for w in windows)
        results: Sequence[Tensor | None] = [None] * len(outputs)
        if kernel.carries is not None or any(step.n):
            if numbers:
                step.first = [first for first, _, _ in made]
            else:
                step.first = [torch.from_numpy(c[:, 0]) for c in outputs]
                step.last = [torch.from_numpy(c[:, 2]) for c in outputs]
                step.total = lambda: torch.from_numpy(inputs[0][:, 3])
                step.ended = torch.from_numpy(ended.copy())
            if kernel.carries is None:
                made = kernel.run(step, *windows, *weights)
                results = made if isinstance(made, tuple) else (made,)
            else:
                carried = self._carried(ordinal, plan, kernel, step, inputs, weights, like, static)
                run = partial(recomputed, kernel.run) if shared and any(step.n) else kernel.run
                results, state = run(step, windows, weights, carried)
                for k, part in enumerate(() if static else state):
                    self.store.write((ordinal, "carried", k), part, self.index)
        for i, (window, tail) in enumerate(zip(windows, tails)):
            if tail:
                if tail < 0:
                    tail = inputs[i][:, 2] - ran.op.kept(inputs, outputs)[i][:, 1]
                    tail[ended] = 0
                self.store.write((ordinal, i), window.tail(tail), self.index)
        out: list[Tensor] = []
        gives_places = str(ran.op.attributes.get("kind")).startswith("arg")
        for line, y, n, c in zip(ran.lines, results, step.n, outputs):
            if y is None or not n:
                kind = None if gives_places or out else like.dtype  # a sort gives places second
                out.append(_nothing(line, like, (*values, *weights), kind))
            elif y.dim() == 1 + len(line.features):
                out.append(y)
            elif alike and y.shape[1] == n:
                out.append(y.flatten(0, 1))
            else:
                out.append(flat(y, c[:, 2] - c[:, 0]))
        return out

    def _window(self, i: int, value: Tensor, place: Any, counts: Counts, kept: Any, fills: bool) -> EagerWindow:
        """Return the frames of input i that may be read; `place`: what `Op.columns` says, `kept`: `Op.kept`."""
        first, back, _, new = place
        old = self.gathered.rows((self.n_done - 1, i)) if back else None
        if back >= 0:
            return Columns(old, value, first, back, new, counts, fills)
        return EagerWindow(old, value, kept()[i][:, 0], counts)

    def _carried(
        self,
        ordinal: int,
        plan: Plan,
        kernel: Kernel,
        step: Step,
        inputs: Sequence[Counts],
        constants: Sequence[Tensor | None],
        like: Tensor,
        static: bool,
    ) -> tuple[Tensor, ...]:
        """Return the carried tensors of all rows: those of new streams are made, the others found.

        In training a stream is new until it has had frames here: what it begins with may be learned.
        """
        assert kernel.carries is not None
        rows, gathered = len(self.ids), self.gathered
        begins, begin = gathered.fresh, static or gathered.some_fresh
        if self.keeps_tape and not static:
            begins = begins | np.logical_and.reduce([c[:, 0] == 0 for c in inputs])
            begin = bool(begins.any())
        made: tuple[Tensor, ...] = ()
        if begin or plan.n_carried is None:
            made = tuple(kernel.carries(step, constants, like))
            plan.n_carried = len(made)
        keys = [(ordinal, "carried", k) for k in range(plan.n_carried)]
        if not begin:
            whole = [f for key in keys if (f := gathered.rows(key, copy=True)) is not None]
            if len(whole) == len(keys):
                return tuple(whole)
        made = tuple(m.expand(rows, *m.shape[1:]) for m in made or kernel.carries(step, constants, like))
        if static or begins.all():
            return made
        fresh = to_device(begins, self.device)
        found = [gathered.rows(key, copy=True) for key in keys]  # None: of an older state
        starts = [fresh.reshape(-1, *(1,) * (m.ndim - 1)) for m in made]
        return tuple(m if f is None else torch.where(at, m, f) for at, m, f in zip(starts, made, found))


_COUNTS = attrgetter("counts")
_NAMES = {torch.float32: "float32", torch.float64: "float64"}


class Plan:
    """What holds of an operation's arithmetic in every call."""

    def __init__(self, ran: Operation, weights: Sequence[Any]) -> None:
        op = ran.op
        self.kernel: Kernel = op.kernel if getattr(op, "in_python", False) else KERNELS[op.name]
        #: By how many frames the output's count is greater than the input's, whose frames it has in mid-stream.
        moves = self.kernel.shift if not len(weights) else None
        self.shift = None if moves is None else moves(op.attributes)
        self.holds = op.name == "hold"
        #: How many tensors it carries from call to call, once that is known.
        self.n_carried: int | None = None
        self.checked = getattr(op, "checked_input", None)
        #: The inputs of which every frame is kept, and read in every call.
        self.all_kept = (1, 2) if op.name == "attention" and op.attributes["left"] < 0 else ()
        self.arrays = any(isinstance(w, np.ndarray) for w in weights)
        frames = tuple(features for _, features, _, _ in ran.signatures[: ran.n_values])
        #: Filled anew in every call.
        self.step = Step(op.name, op.attributes, frames, tuple(line.features for line in ran.lines), live=True)
        self.run, self.framewise = self.kernel.run, self.kernel.framewise
        if self.kernel.alone is not None and (alone := self.kernel.alone(self.step, weights)) is not None:
            self.run, self.framewise = alone, True
        special = self.shift is not None or self.holds or self.checked is not None
        #: Whether it needs frames, and tensors for weights, alone.
        self.of_frames = self.framewise and ran.n_values > 0 and not (special or ran.lines[0].static)
        mode = op.attributes.get("mode", "constant")
        values_given = self.kernel.shift is not None and len(weights) > 0  # as padding has them
        takes = self.kernel.numbers
        self.numbers: bool = takes(self.step) if callable(takes) else takes
        #: Whether rows that stand elsewhere are still one window each of the same columns.
        self.lines_up = self.numbers and mode in ("zeros", "constant") and not values_given
        looks = getattr(op, "needs_frames", False) or getattr(op, "checks", False)
        one_value = ran.n_values == 1 and not ran.lines[0].static
        looks_at_one = one_value and len(ran.lines) == 1 and not self.framewise and self.kernel.carries is None
        #: Whether its outputs have the counts of any of its inputs.
        self.follows = bool(op.same_counts) and not looks
        #: In evaluation and for training, by keys of columns: a `Repeat`, or None where it handed its input on.
        self.done: tuple[dict[bytes, Any], dict[bytes, Any]] = ({}, {})
        moves_one = self.shift is not None and len(ran.lines) == 1
        onwards, takes_all = self.kernel.onwards, self.kernel.all_outputs and not ran.lines[0].static
        serves = takes_all or (one_value and self.numbers)
        #: Whether it goes on by new frames alone; whether what it does follows from columns, where they are known.
        self.carries = serves and onwards is not None and onwards(self.step, weights) is not None
        sees = looks_at_one and self.kernel.sees is not None
        self.repeats = not ran.lines[0].static and (moves_one or self.carries or sees or not ran.n_values)

    def keep(self, taped: bool, key: bytes, what: Any) -> None:
        """Note what it does where columns have this key."""
        if self.repeats:
            done = self.done[taped]
            if len(done) > 64:  # rows, or chunks, of ever other sizes
                done.clear()
            done[key] = what


def _types_of_none(
    plan: Any, lines: Sequence[Line], values: Sequence[Tensor], weights: Sequence[Any]
) -> list[Any]:
    """Return the types of what a framewise kernel gives; None where operators know them."""
    narrow = any(t is not None and t.dtype in NARROW for t in (*values, *weights))
    if not narrow or all(line.dtype != "int64" for line in lines):
        return [None] * len(lines)
    results = plan.run(plan.step, *(v.new_zeros(1, *v.shape[1:]) for v in values), *weights)
    return [y.dtype for y in ([results] if isinstance(results, Tensor) else results)]


def _nothing(
    line: Line, like: Tensor, operands: Sequence[Tensor | None], kind: torch.dtype | None = None
) -> Tensor:
    """Return no frames; on the tape where frames would be, so that a loss over none can be differentiated.

    They are of the type `kind` where that is one of narrow integers.
    """
    features = line.features
    if line.dtype == "int64" and kind in NARROW:
        return like.new_empty(0, *features, dtype=kind)
    if line.dtype == _NAMES.get(like.dtype) and not torch.is_grad_enabled():
        return like.new_empty(0, *features)
    dtype = dtype_of(line.dtype)
    if dtype.is_floating_point:
        reals = [t for t in operands if t is not None and t.is_floating_point()]
        wide = dtype == torch.float64
        dtype = next((t.dtype for t in reals if (t.dtype == torch.float64) == wide), dtype)  # narrower ones stay
        learned = [t.reshape(-1)[:0].to(dtype) for t in reals if t.requires_grad and torch.is_grad_enabled()]
        if learned:  # an optimizer steps those that have a gradient, of zeros too
            return torch.cat(learned).reshape(0, *features)
    return like.new_empty(0, *features, dtype=dtype)
