"""How the outputs of a torch forward leave it; see `dreamstream.online.outputs`."""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet
from operator import methodcaller, sub
from typing import Any

import torch

from ...array.first_frame import FirstFrame
from ...array.loop_lists import Gathered
from ...array.stream_tensor import StreamTensor as Native
from ...array.symbolic import measured
from ...errors import StreamMismatchError
from ...online.groups import Group
from ...online.outputs import Outputs
from ...stream.rules import Length
from ..forward.complex_pair import Complex
from ..forward.mode import Forward
from ..tensor import StreamTensor
from ..tensor.stream_tensor import SHELL
from .groups import Cut, Exit
from .kept import Versions

_AS_OUTPUT = methodcaller("as_output")


class TorchOutputs(Outputs):
    """What one call does with its outputs."""

    forward: Forward  #: Whose they are; it is set once it has begun.
    #: In training the parameters' versions in this call, and in those whose tapes it goes on with.
    versions: AbstractSet[Versions] = frozenset()

    def parts(self, x: Any) -> tuple[Any, ...] | None:
        inner = getattr(x, "_inner", None) if type(x) is SHELL else x
        if type(inner) is not Native:
            if isinstance(x, StreamTensor):
                inner = self.forward.unwrap(x)  # which refuses what is no stream
            elif not isinstance(x, (Length, Gathered, FirstFrame)):
                return None
            inner = measured(inner)
        parts: tuple[Any, ...] = (inner.real, inner.imag) if isinstance(inner, Complex) else (inner,)
        edge = parts[0].edge
        if edge is None or edge.entry is not self._call:
            raise StreamMismatchError("the forward returned a tensor of another call")
        return tuple(map(_AS_OUTPUT, parts))

    def given(self, found: Sequence[Any]) -> list[Any]:
        x: Any = getattr(found[0], "_inner", None) if len(found) == 1 and type(found[0]) is SHELL else None
        plainly = type(x) is Native and x._view is None and self._groups is None and not self.versions
        if plainly and x.edge is not None and x.edge.entry is self._call:
            return [self.outside((x,), (x.value,))]
        return super().given(found)

    def frames(self, part: Any) -> Any:
        """Return a stream's frames, on the tape."""
        for versions in self.versions:
            versions.watch(part.value)
        return part.value

    def guarded(self, frames: Any, group: Group) -> Any:
        """Return frames through which no backward goes before their group has ended."""
        exits = frames.requires_grad
        return Exit.apply(frames, self._call.session.guard, next(iter(group.roots))) if exits else frames

    def cut_off(self, frames: Any) -> Any:
        """Return frames of an evaluation that refuse a backward."""
        return Cut.apply(frames) if frames.requires_grad else frames

    def join(self, frames: Sequence[Any], order: Any) -> Any:
        """Return the frames of calls end to end, in an order."""
        out = frames[0] if len(frames) == 1 else torch.cat(list(frames))
        return out if order is None else out.index_select(0, torch.from_numpy(order).to(out.device))

    def outside(self, parts: Any, values: Sequence[Any], meta: Any = None, starts: Any = None) -> StreamTensor:
        """Return frames as a tensor outside forwards, with the dimensions that the forward gave it."""
        first, call, rows = parts[0], self._call, meta
        if meta is None:
            before, _, now, _ = first.edge.counts.T.tolist()
            starts, rows = tuple(before), tuple(map(sub, now, before))
        shape, line = values[0].shape, first.edge.line
        key = first.dims, first._names, line, shape, rows
        make = call.outputs.get(key)
        if make is None:
            own, features = first.as_output().meta if meta is None else meta, shape[1:]
            make = StreamTensor.making(first.dims, own, line.rate, first._names, features, call.plain)
            call.outputs[key] = make
        if len(values) == 1:
            return make(values[0], starts)
        real, imag = [make(v, starts) for v in values]
        return StreamTensor.of(torch.complex(real.tensor(), imag.tensor()), real._info)
