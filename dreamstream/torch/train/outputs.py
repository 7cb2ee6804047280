"""How the outputs of a torch forward leave it; see `dreamstream.online.outputs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set as AbstractSet
from typing import Any

import torch

from ...array.first_frame import FirstFrame
from ...array.loop_lists import Gathered
from ...array.symbolic import measured
from ...errors import StreamMismatchError
from ...online.groups import Group
from ...online.outputs import Outputs
from ...stream.metadata import StreamMetadata
from ...stream.rules import Length
from ..forward.complex_pair import Complex
from ..forward.mode import Forward
from ..tensor import StreamTensor
from .groups import Cut, Exit
from .kept import Versions


class TorchOutputs(Outputs):
    """What one call does with its outputs.

    Attributes
    ----------
    forward : Forward
        Whose they are; it is set once it has begun.
    versions : set of Versions
        In training the parameters' versions in this call, and in those whose tapes it goes on with.
    """

    forward: Forward
    versions: AbstractSet[Versions] = frozenset()

    def inner(self, x: Any) -> Any:
        """Return the native stream that an output is, which must be of this call; None of all else.

        Lengths become streams.
        """
        if isinstance(x, StreamTensor):
            inner = measured(self.forward.unwrap(x))  # which refuses what is no stream
        elif isinstance(x, (Length, Gathered, FirstFrame)):
            inner = measured(x)
        else:
            return None
        edge = self.parts(inner)[0].edge
        if edge is None or edge.entry is not self.forward.entry:
            raise StreamMismatchError("the forward returned a tensor of another call")
        return inner

    def parts(self, inner: Any) -> tuple[Any, ...]:
        """Return the real streams that an output consists of."""
        return (inner.real.as_output(), inner.imag.as_output()) if isinstance(inner, Complex) else (inner,)

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

    def outside(self, inner: Any, values: Sequence[Any], meta: StreamMetadata, starts: Any) -> StreamTensor:
        """Return frames as a tensor outside forwards, with the dimensions that the forward gave it."""
        return self._seen(values, self._making(inner, values, meta, False), starts)

    def now(self, inner: Any, values: Sequence[Any]) -> StreamTensor:
        """Return the same of this call's frames; calls that bring the like give as many of the same dimensions."""
        first, call = self.parts(inner)[0], self._call
        counts = first.edge.counts.tolist()
        starts = tuple([before for before, *_ in counts])
        key = first.dims, first._names, first.edge.line, values[0].shape, *[row[2] - row[0] for row in counts]
        make = call.outputs.get(key)
        if make is None:
            make = call.outputs[key] = self._making(inner, values, first.meta, call.plain)
        return self._seen(values, make, starts)

    def _making(self, inner: Any, values: Sequence[Any], meta: StreamMetadata, plain: bool) -> Callable[..., Any]:
        first, features = self.parts(inner)[0], values[0].shape[1:]
        return StreamTensor.making(first.dims, meta, first.rate, first.names, features, plain)

    def _seen(self, values: Sequence[Any], make: Callable[..., Any], starts: Any) -> Any:
        if len(values) == 1:
            return make(values[0], starts)
        real, imag = [make(v, starts) for v in values]
        return StreamTensor.of(torch.complex(real.tensor(), imag.tensor()), real._info)
