"""How the outputs of a forward leave it: as this call's frames, or held back until files have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ModeError
from ..stream.metadata import StreamMetadata
from ..stream.tree import map_fields
from .groups import Group, Groups, HeldBack, Part, delivered


class Outputs:
    """What one call does with its outputs, and what it makes of the groups of streams whose graphs are joined.

    `variant` is how the module trains; `taped` says whether its states stay on the tape. Refused are streams whose
    outputs are held back, where they start anew or the module's mode has changed.
    """

    def __init__(self, call: Any, variant: str, training: bool, taped: bool) -> None:
        self._call = call
        self._groups: Groups | None = None  # chunk by chunk there are none
        self._group: Group | None = None
        self._holds = variant == "full-file-unaligned" and training
        if variant == "chunk-wise-aligned":
            return
        groups = call.session.groups
        if variant == "full-file-unaligned":
            groups.require_new(call.meta)
            _require_one_mode(call.meta, groups, training)
        if self._holds or taped:
            self._groups, self._group = groups.joined(call.meta)
        else:
            self._groups = groups.without(call.ids)

    # ---------------------------------------------------------------- what a front end says
    def parts(self, x: Any) -> tuple[Any, ...] | None:
        """Return the native streams that an output consists of, which must be of this call; None of all else.

        These are two of a complex one, its parts. Lengths become streams.
        """
        raise NotImplementedError

    def frames(self, part: Any) -> Any:
        """Return a stream's frames, on the tape."""
        raise NotImplementedError

    def guarded(self, frames: Any, group: Group) -> Any:
        """Return frames through which no backward goes before their group has ended."""
        raise NotImplementedError

    def cut_off(self, frames: Any) -> Any:
        """Return an evaluation's frames, through which no gradient of whole files goes."""
        return frames

    def join(self, frames: Sequence[Any], order: Any) -> Any:
        """Return the frames of calls end to end, in an order."""
        raise NotImplementedError

    def nothing(self, frames: Any) -> Any:
        """Return no frames, of which a loss has a gradient that goes nowhere."""
        none = frames.detach()[:0]
        return none.requires_grad_() if frames.requires_grad else none

    def outside(self, parts: Any, values: Sequence[Any], meta: Any = None, starts: Any = None) -> Any:
        """Return frames as a tensor outside forwards, with the dimensions that the forward gave it.

        They are this call's of its rows, if not of those of `meta`, each beginning at its entry of `starts`.
        """
        raise NotImplementedError

    # ---------------------------------------------------------------- what leaves
    def given_within(self, found: Sequence[Any]) -> list[Any]:
        """Return what `given` does, with dataclasses opened."""
        streams: list[Any] = []
        for x in found:
            map_fields(x, streams.append)
        left = iter(self.given(streams))
        return [map_fields(x, lambda _: next(left)) for x in found]

    def given(self, found: Sequence[Any]) -> list[Any]:
        """Return what a forward returned as its caller sees it; the call then publishes the groups."""
        of_streams = list(map(self.parts, found))
        after = self._groups
        if self._holds:
            after, seen = self._whole([parts for parts in of_streams if parts is not None])
            leaves = iter(seen)
            out = [x if parts is None else next(leaves) for x, parts in zip(found, of_streams)]
        else:
            out = list(map(self._now, found, of_streams))
            if after is not None and self._group is not None:
                after = Groups((*after.groups, self._group))
        if after is not None and (after.groups or self._call.session.groups.groups):
            self._call.also = ((self._call.session.joined, after),)
        return out

    def _now(self, x: Any, parts: tuple[Any, ...] | None) -> Any:
        """Return this call's frames of an output, and what is no stream as it is."""
        if parts is None:
            return x
        values = list(map(self.frames, parts))
        if self._group is not None:
            values = [self.guarded(v, self._group) for v in values]
        elif self._groups is not None and any(s is not None for s in self._call.old):
            values = list(map(self.cut_off, values))
        return self.outside(parts, values)

    def _whole(self, outputs: Sequence[tuple[Any, ...]]) -> tuple[Groups, list[Any]]:
        """Hold the frames back; return those of the files whose groups have ended."""
        assert self._groups is not None and self._group is not None
        parts = [Part(self.frames(p), p.meta.lengths) for own in outputs for p in own]
        group = self._group.holding(HeldBack(tuple(self._call.ids), tuple(parts)))
        groups = (*self._groups.groups, group)
        ended = [g for g in groups if not g.live]
        if ended:
            ids, whole = delivered(ended, len(parts), self.join)
        else:
            ids, whole = [], [Part(self.nothing(p.frames), p.lengths[:0]) for p in parts]
        left = iter(whole)
        out = []
        for own in outputs:
            own_parts = [next(left) for _ in own]
            meta = StreamMetadata(ids, True, True, own_parts[0].lengths)
            out.append(self.outside(own, [p.frames for p in own_parts], meta, (0,) * len(ids)))
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
