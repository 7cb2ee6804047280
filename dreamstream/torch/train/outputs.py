"""How the outputs of a forward leave it: as this call's frames, or held back until whole files have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import ModeError, StreamMismatchError
from ...stream.metadata import StreamMetadata
from ..forward.complex_pair import Complex
from ..forward.mode import Forward
from ..run.calls import TorchCall
from ..tensor import StreamTensor
from .groups import Groups, Held, Part, delivered, guarded, nothing


class Outputs:
    """What one call does with its outputs, and what it makes of the groups of streams whose graphs are joined.

    Parameters
    ----------
    call : TorchCall
    variant : str
        How the module trains.
    training, taped : bool
        Whether the module is in training, and whether its states stay on the tape.

    Raises
    ------
    StreamIdError, ModeError
        For streams whose outputs are held back, where they start anew or the module's mode has changed.
    """

    def __init__(self, call: TorchCall, variant: str, training: bool, taped: bool) -> None:
        self._call = call
        self._groups = groups = call.session.groups
        self._holds = variant == "full-file-unaligned" and training
        self._group = None
        if variant == "full-file-unaligned":
            groups.require_new(call.meta)
            _require_one_mode(call.meta, groups, training)
        if variant == "chunk-wise-aligned":
            return
        if self._holds or taped:
            self._groups, self._group = groups.joined(call.meta)
        else:
            self._groups = groups.without(call.ids)

    def given(self, found: Sequence[Any], forward: Forward) -> list[Any]:
        """Return what a forward returned as its caller sees it; the call then publishes the groups."""
        inner = [_checked(x, forward) if isinstance(x, StreamTensor) else None for x in found]
        after = self._groups
        if self._holds:
            after, seen = self._whole([i for i in inner if i is not None])
            leaves = iter(seen)
            out = [x if i is None else next(leaves) for x, i in zip(found, inner)]
        else:
            out = [x if i is None else self._now(i) for x, i in zip(found, inner)]
            if self._group is not None:
                after = Groups((*after.groups, self._group))
        if after.groups or self._call.session.groups.groups:
            self._call.also = ((self._call.session.joined, after),)
        return out

    def _now(self, inner: Any) -> StreamTensor:
        """Return this call's frames."""
        values = [p.value for p in _parts(inner)]
        if self._group is not None:
            guard = self._call.session.guard
            values = [guarded(v, guard, self._group) for v in values]
        first = _parts(inner)[0]
        return _outside(inner, values, first.meta, first.starts)

    def _whole(self, inner: Sequence[Any]) -> tuple[Groups, list[StreamTensor]]:
        """Hold the frames back; return those of the files whose groups have ended."""
        assert self._group is not None
        parts = [Part(p.value, p.meta.lengths) for i in inner for p in _parts(i)]
        own = self._group.holding(Held(tuple(self._call.ids), tuple(parts)))
        groups = (*self._groups.groups, own)
        ended = [g for g in groups if not g.live]
        if ended:
            ids, whole = delivered(ended, len(parts))
        else:
            ids, whole = [], [Part(nothing(p.frames), p.lengths[:0]) for p in parts]
        left = iter(whole)
        out = []
        for i in inner:
            own_parts = [next(left) for _ in _parts(i)]
            meta = StreamMetadata(ids, True, True, own_parts[0].lengths)
            out.append(_outside(i, [p.frames for p in own_parts], meta, (0,) * len(ids)))
        return Groups(g for g in groups if g.live), out


def _require_one_mode(meta: StreamMetadata, groups: Groups, training: bool) -> None:
    held = groups.live
    changed = [i for i, sos in zip(meta.ids, meta.sos) if not sos and (i in held) != training]
    if changed:
        raise ModeError(
            "under full-file-unaligned a stream begins and ends in one mode: "
            + (
                "the first frames of these have been given out already; end or reset() them before train()"
                if training
                else "the outputs of these are held back until they end; end or reset() them before eval()"
            ),
            changed,
        )


def _parts(inner: Any) -> tuple[Any, ...]:
    """Return the real streams that an output consists of."""
    return (inner.real.as_output(), inner.imag.as_output()) if isinstance(inner, Complex) else (inner,)


def _checked(x: StreamTensor, forward: Forward) -> Any:
    """Return the native tensor of an output, which must be of this forward."""
    inner = forward.unwrap(x)
    edge = _parts(inner)[0].edge
    if edge is None or edge.entry is not forward.entry:
        raise StreamMismatchError("the forward returned a tensor of another call")
    return inner


def _outside(inner: Any, values: Sequence[Tensor], meta: StreamMetadata, starts: Any) -> StreamTensor:
    """Return frames as a tensor outside forwards, with the dimensions that the forward gave it."""
    first = _parts(inner)[0]
    seen = [StreamTensor.from_frames(v, first.dims, meta, starts, first.rate, first.names) for v in values]
    if len(seen) == 1:
        return seen[0]
    real, imag = seen
    return StreamTensor.of(torch.complex(real.tensor(), imag.tensor()), real._info)
