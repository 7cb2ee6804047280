"""What a call need not find out again that brings frames as the call before did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ... import _core
from ...array.dtypes import name_of, nominal
from ...online.given import Given
from ...online.segments import StreamState
from ...stream.edge import Edge, Line
from ...stream.metadata import StreamMetadata
from ...stream.rules import require_same_streams
from ..forward.constants import HALF
from ..forward.replay import REPLAY
from ..private import without_functions, without_subclass
from ..tensor import StreamTensor
from ..tensor.padding import unpadding
from .calls import Mode, TorchCall


class Arrivals:
    """The last call of some streams, which others may follow, and how frames of these streams have arrived.

    Those are calls that get frames of the same streams, of the same rates, types and device, in the same mode,
    where no stream begins or ends, and where nothing but such a call has changed the session since
    (`Session.publish` forgets these arrivals). In training nothing that they hold refers to them, so that the
    states on a tape are freed once they are forgotten, and not by a later garbage collection.
    """

    def __init__(self, arrival: Arrival) -> None:
        self.last: Any = None  # a `TorchCall`
        self.known = [arrival]
        #: What is the own of the last call whose states the session has.
        self.settled: Any = None

    def settle(self) -> None:
        """Give the streams the states that the last call has left."""
        last = self.last
        if last is not None and last.done is not self.settled:
            frames = zip(*last.input_counts[:, :, 2].tolist())
            last.session.let_have(dict(zip(last.ids, map(StreamState, frames, last.states()))))
            self.settled = last.done

    def follow(self, call: TorchCall, meta: StreamMetadata) -> None:
        """Let calls that bring the like follow one that has succeeded, with inputs of `meta`."""
        last = self.last
        if last is call or (last is None and (call.given or not call.ids or meta.any_starting_or_ending)):
            return
        if call.keeps_tape:  # the states before it need not stay
            call.gathered = call.written
            vars(call).pop("old", None)
        self.last, self.settled = call, call.done  # its states have been published
        call.session.arrivals = self


class Arrival:
    """How frames of a call arrive, and those of calls that bring as many in tensors of the same names and sizes.

    What `arrived` compares is all that such a call need look at of its inputs. It is spared how names and sizes
    say where frames are, types and ids, whether streams are live, where their states are (two rows of a table take
    turns), and how outputs are made of frames.

    StreamMismatchError is raised for inputs of different streams.
    """

    def __init__(self, tensors: Sequence[StreamTensor], forms: list[Any], mode: Mode) -> None:
        #: Of each tensor its type, shape, device, names, rate, and what is known of its streams.
        self.forms = forms
        self.mode = mode
        dtypes, shapes, devices, *_ = zip(*forms)
        self.device = devices[0] if len(set(devices)) == 1 else None
        self._infos = infos = [x._info for x in tensors]
        self.meta = infos[0].meta
        self._lengths = [i.meta.lengths for i in infos]
        if len(tensors) > 1:
            require_same_streams([i.meta for i in infos])
        self._plain = mode.plain and devices[0].type == "cpu"
        #: Of which edge and value inputs are made, and how they are seen (`_core.Replay.result`).
        self._seen = [(n, i.dims, i.names, None) for n, i in enumerate(infos)]
        self._lines: list[Line] = []
        #: What gives each input's frames, where torch asks no subclass.
        self.frames: list[Any] = [unpadding(i, shape, mode.plain) for i, shape in zip(infos, shapes)]
        for n, dtype in enumerate(dtypes):
            if mode.single and dtype in HALF:  # modules of float32 take these wider, which is exact
                self.frames[n] = lambda x, frames=self.frames[n]: frames(x).float()
        self._outputs: dict[Any, Any] = {}  # what makes outputs of frames; see `TorchOutputs.outside`
        self._prepared: dict[str, Any] = {}  # what its calls have alike

    def first(
        self, session: Any, values: Sequence[Tensor], names: Mapping[int, str], given: Sequence[Given], inputs: Any
    ) -> TorchCall:
        """Begin its first call; `inputs()` gives the names of the inputs, where they are wrong."""
        rates, lengths, restart = zip(*[(i.rate, i.meta.lengths, i.restart) for i in self._infos])
        call = session.admit(self.meta, rates, lengths, True in restart, lambda: names, TorchCall, given)
        call.kinds = [(str(v.dtype), v.shape[1:]) for v in values]
        if call.kinds != session.kinds:
            call.require_kinds(inputs())
        types = [(name_of(nominal(v.dtype)), tuple(v.shape[1:])) for v in values]
        self._lines = [call.input_edge(n, *kind).line for n, kind in enumerate(types)]
        call.prepare(values[0].device, self.mode, self._plain, self._outputs)
        call.begin()
        self._prepared = call.prepared
        return call

    def join(self, arrivals: Arrivals, values: Sequence[Tensor]) -> bool:
        """Be one of the arrivals that are known, if these frames are of the same streams and of the same kinds."""
        last, before = arrivals.last, arrivals.known[0]
        kinds, rates = [(str(v.dtype), v.shape[1:]) for v in values], tuple([i.rate for i in self._infos])
        same = (before.mode, before.meta.ids) == (self.mode, self.meta.ids) and last.device == values[0].device
        if not same or (last.kinds, last.rates) != (kinds, rates) or self.meta.any_starting_or_ending:
            return False
        self._lines = before._lines
        self._prepared = {**last.prepared, "meta": self.meta, "outputs": self._outputs}
        arrivals.known[:] = [self, *arrivals.known[:15]]  # chunks may be of ever other sizes
        return True

    def next(self, arrivals: Arrivals) -> TorchCall:
        """Begin a call that follows the last one."""
        last = arrivals.last
        counts = _core.input_counts(last.input_counts[:, :, 2], self._lengths, self.meta.eos)
        last.session.require_together(last.rates, counts, last.ids)
        call: TorchCall = last.next_call(None if self.mode.taped else arrivals, counts, self._prepared)
        return call

    def inside(self, call: TorchCall, values: list[Tensor]) -> tuple[StreamTensor, ...]:
        """Return the inputs as the forward sees them."""
        edges = [Edge(call, line, counts) for line, counts in zip(self._lines, call.input_counts)]
        with without_functions():
            seen: tuple[StreamTensor, ...] = REPLAY.result(self._seen, edges, values, (), None)
        return seen


def arrived(
    arrivals: Arrivals | None, tensors: Sequence[StreamTensor], mode: tuple[bool, ...]
) -> tuple[Arrival, Arrivals, list[Tensor]]:
    """Return how the frames of a call arrive, the arrivals that it is one of, and each input's frames.

    It is one of the given arrivals where those know it, or it brings frames of the same kinds; else of new ones.

    `mode` has the fields of a `Mode`.
    """
    with without_subclass():
        forms = []
        for x in tensors:
            info = x._info
            forms.append((x.dtype, x.shape, x.device, info.names, info.rate, info.meta._key))
        if arrivals is not None:
            for known in arrivals.known:
                if known.forms == forms and known.mode == mode:
                    return known, arrivals, [frames(x) for frames, x in zip(known.frames, tensors)]
        arrival = Arrival(tensors, forms, Mode(*mode))
        values = [frames(x) for frames, x in zip(arrival.frames, tensors)]
        if arrivals is None or not arrival.join(arrivals, values):
            arrivals = Arrivals(arrival)
        return arrival, arrivals, values
