"""What a call need not find out again that brings frames as the call before did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import _core
from ...array.dtypes import name_of, nominal
from ...array.stream_tensor import StreamTensor as Native
from ...online.given import Given
from ...online.segments import StreamState
from ...stream.metadata import StreamMetadata
from ...stream.rules import require_same_streams
from ..forward.constants import HALF
from ..private import without_subclass
from ..tensor import StreamTensor
from ..tensor.padding import unpadding
from .calls import Mode, TorchCall


class Form(NamedTuple):
    """What of an input says how its frames arrive."""

    dtype: torch.dtype
    shape: torch.Size
    device: torch.device
    names: Any
    rate: Fraction
    meta: StreamMetadata


def _forms(tensors: Sequence[StreamTensor]) -> list[Form]:
    with without_subclass():
        infos = [x._info for x in tensors]
        return [Form(x.dtype, x.shape, x.device, i.names, i.rate, i.meta) for x, i in zip(tensors, infos)]


class Arrival:
    """How the frames of a call arrive, and of those that follow it and bring the like.

    It serves calls that get as many frames of the same streams as the one before, in tensors of the same names,
    rates, sizes, types and device, in the same mode, where no stream begins or ends, and where nothing but such a
    call has changed the session since (`Session.publish` forgets it). What `serves` compares is all that such a
    call need look at of its inputs. It is spared how names and sizes say where frames are, types and ids, whether
    streams are live, where their states are (two rows of a table take turns), and how outputs are made of frames.

    Parameters
    ----------
    tensors : sequence of StreamTensor
    mode : Mode

    Raises
    ------
    StreamMismatchError
        Inputs of different streams.
    """

    def __init__(self, tensors: Sequence[StreamTensor], mode: Mode) -> None:
        self._forms, self._mode = _forms(tensors), mode
        infos = [x._info for x in tensors]
        self.meta = infos[0].meta
        if len(tensors) > 1:
            require_same_streams([i.meta for i in infos])
        self._plain = mode.plain and self._forms[0].device.type == "cpu"
        self._rates, self._restart = tuple([i.rate for i in infos]), True in [i.restart for i in infos]
        self._lengths = [i.meta.lengths for i in infos]
        self._dims = [(i.dims, i.names) for i in infos]
        #: What gives each input's frames, and whether modules of float32 take these wider, which is exact.
        self._frames = [unpadding(i, x.shape, mode.plain) for i, x in zip(infos, self._forms)]
        self._widened = [mode.single and x.dtype in HALF for x in self._forms]
        self._types: list[tuple[str, tuple[int, ...]]] = []
        self._outputs: dict[Any, Any] = {}  # what makes outputs of frames; see `TorchOutputs.outside`
        #: The last call that others may follow, and the last whose states the session has been given.
        self.last: TorchCall | None = None
        self._settled: TorchCall | None = None

    def serves(self, tensors: Sequence[StreamTensor], mode: Mode) -> bool:
        """Whether it is right for the next call; see above."""
        return self._mode == mode and self._forms == _forms(tensors)

    def frames(self, tensors: Sequence[StreamTensor]) -> list[Tensor]:
        """Return each input's frames."""
        values = [frames(x) for frames, x in zip(self._frames, tensors)]
        if True in self._widened:
            values = [v.float() if wide else v for v, wide in zip(values, self._widened)]
        return values

    def call(
        self,
        session: Any,
        values: Sequence[Tensor],
        device: torch.device,
        names: Callable[[], Mapping[int, str]],
        given: Sequence[Given],
        inputs: Callable[[], Sequence[str]],
    ) -> TorchCall:
        """Begin the call; `inputs` gives the names of its inputs, where they are wrong."""
        last = self.last
        if last is not None:
            counts = _core.input_counts(last.input_counts, self._lengths, self.meta.eos)
            session.require_together(session.rates, counts, self.meta.ids)
            return last.following(None if self._mode.taped else self, counts)
        call = session.admit(self.meta, self._rates, self._lengths, self._restart, names, TorchCall, given)
        call.kinds = [(str(v.dtype), v.shape[1:]) for v in values]
        if call.kinds != session.kinds:
            call.require_kinds(inputs())
        self._types = [(name_of(nominal(v.dtype)), tuple(v.shape[1:])) for v in values]
        call.prepare(device, self._mode, self._plain, self._outputs)
        call.begin()
        return call

    def inside(self, call: TorchCall, values: Sequence[Tensor]) -> list[Native]:
        """Return the inputs as the forward sees them."""
        edges = [call.input_edge(n, *kind) for n, kind in enumerate(self._types)]
        return [Native.inside(v, dims, e, names) for v, (dims, names), e in zip(values, self._dims, edges)]

    def follow(self, call: TorchCall) -> None:
        """Let calls that bring the like follow one that has succeeded."""
        if self.last is call or (
            self.last is None and (call.given or not call.ids or self.meta.any_starting_or_ending)
        ):
            return
        if call.keeps_tape:
            call.let_go()
        self.last = self._settled = call  # its states have been published
        call.session.arrival = self

    def settle(self) -> None:
        """Give the streams the states that the last call has left."""
        last = self.last
        if last is not None and last is not self._settled:
            frames = zip(*last.input_counts[:, :, 2].tolist())
            last.session.settle(dict(zip(last.ids, map(StreamState, frames, last.states()))))
            self._settled = last
