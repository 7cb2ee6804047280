"""How the outputs of a torch forward leave it; see `dreamstream.online.outputs`."""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet
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

    def measured(self, x: Any) -> Any:
        """Return lengths that a forward gives back as streams; everything else as it is."""
        if isinstance(x, StreamTensor):
            inner = measured(x._inner)  # which refuses what is no stream
            return x if inner is x._inner else StreamTensor.shell(inner)
        return StreamTensor.shell(measured(x)) if isinstance(x, (Length, Gathered, FirstFrame)) else x

    def inner(self, x: Any) -> Any:
        """Return the native stream that an output is, which must be of this call; None of all else."""
        if not isinstance(x, StreamTensor):
            return None
        inner = self.forward.unwrap(x)
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
        first = self.parts(inner)[0]
        seen = [StreamTensor.from_frames(v, first.dims, meta, starts, first.rate, first.names) for v in values]
        if len(seen) == 1:
            return seen[0]
        real, imag = seen
        return StreamTensor.of(torch.complex(real.tensor(), imag.tensor()), real._info)
