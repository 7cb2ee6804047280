"""Groups of streams whose tapes are joined, of either front end.

A call joins the tapes of its rows. Streams that shared a call, or shared one with streams that did, are a
*group*: under the full-file variants its gradients are whole when all of its streams have ended. Until then a
backward through what the module returned raises, or the outputs are held back (`HeldBack`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ModeError, StreamIdError, StreamMismatchError
from ..stream.metadata import StreamMetadata

Join = Callable[[Sequence[Any], Any], Any]
"""Lays frames of calls end to end, and then in an order (None: as they are)."""


# ---------------------------------------------------------------------- groups
@dataclass(frozen=True)
class Part:
    """One stream that a call returned: its frames, and how many of them each row has."""

    frames: Any  #: ``(frames of all rows, *features)``.
    lengths: Any  #: ``(B,)``.


@dataclass(frozen=True)
class HeldBack:
    """What one call returned, held back until its group has ended."""

    ids: tuple[str | None, ...]  #: The rows' streams; None where a stream was given up.
    parts: tuple[Part, ...]  #: One per stream tensor that the forward returned.

    def without(self, ids: frozenset[str]) -> HeldBack:
        """Return the same without some streams."""
        return replace(self, ids=tuple(None if i in ids else i for i in self.ids))


@dataclass(frozen=True)
class Group:
    """Streams whose graphs are joined."""

    #: What the calls of the group are known by: a new object for each call that joined no older group.
    roots: frozenset[Any]
    live: frozenset[str] = frozenset()  #: Its streams that have not ended.
    ended: frozenset[str] = frozenset()  #: Those that have.
    held_back: tuple[HeldBack, ...] = ()  #: Outputs held back, in the order of the calls.

    def holding(self, outputs: HeldBack) -> Group:
        """Return the group with one more call's outputs held back."""
        return replace(self, held_back=(*self.held_back, outputs))

    def without(self, ids: frozenset[str]) -> Group:
        """Return the group without some streams."""
        if ids.isdisjoint(self.live) and ids.isdisjoint(self.ended):
            return self
        held = tuple(h.without(ids) for h in self.held_back)
        return Group(self.roots, self.live - ids, self.ended - ids, held)


class Groups:
    """All groups of a session that have not ended, or whose outputs were not given out; immutable."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self.groups = tuple(g for g in groups if g.live or (g.held_back and g.ended))

    @property
    def live(self) -> frozenset[str]:
        """The live streams of all groups."""
        return frozenset().union(*(g.live for g in self.groups))

    @property
    def waiting(self) -> frozenset[str]:
        """The streams that have ended, but not their groups."""
        return frozenset().union(*(g.ended for g in self.groups if g.held_back))

    def without(self, ids: Iterable[str]) -> Groups:
        """Return the groups without some streams: given up, started anew, or cut off from the tape."""
        gone = frozenset(ids)
        return Groups(g.without(gone) for g in self.groups)

    def joined(self, meta: StreamMetadata) -> tuple[Groups, Group]:
        """Return what a call makes of the groups: all others, and the one of its own rows."""
        rows = list(zip(meta.ids, meta.sos.tolist(), meta.eos.tolist()))
        before = self.without(i for i, sos, _ in rows if sos)
        going = frozenset(i for i, sos, _ in rows if not sos)
        own = [g for g in before.groups if not g.live.isdisjoint(going)]
        ended = frozenset(i for i, _, eos in rows if eos)
        group = Group(
            frozenset().union(*(g.roots for g in own)) or frozenset([object()]),
            frozenset(meta.ids).union(*(g.live for g in own)) - ended,
            ended.union(*(g.ended for g in own)),
            tuple(h for g in own for h in g.held_back),
        )
        return Groups(g for g in before.groups if g not in own), group

    def require_new(self, meta: StreamMetadata) -> None:
        """Raise for a stream that starts while outputs of its earlier life are held back."""
        waiting = self.waiting
        early = [i for i, sos in zip(meta.ids, meta.sos) if sos and i in waiting]
        if early:
            live = sorted(frozenset().union(*(g.live for g in self.groups if not g.ended.isdisjoint(early))))
            raise StreamIdError(
                "these streams have ended, but their outputs wait for the end of streams that shared calls with "
                f"them ({', '.join(live) or 'none is left; the next call gives them out'}): use other ids until "
                "then, or reset() these to give the outputs up",
                early,
            )


# ---------------------------------------------------------------------- no gradient before the end
def in_mid_file(ids: Iterable[str]) -> ModeError:
    """Return the error for a backward that comes too early for these streams."""
    return ModeError(
        "backward in mid-file: under full-file-aligned gradients are whole only when every stream that "
        "shared calls with these outputs has ended; end the streams or reset() them first, or train "
        "chunk-wise",
        sorted(ids),
    )


# ---------------------------------------------------------------------- whole files
def delivered(groups: Sequence[Group], n_parts: int, join: Join) -> tuple[list[str], list[Part]]:
    """Return the streams of ended groups, and all their frames: stream after stream, per part."""
    held = [h for g in groups for h in g.held_back]
    ids = list(dict.fromkeys(i for h in held for i in h.ids if i is not None))
    if any(len(h.parts) != n_parts for h in held):
        raise ModeError("the forward returned another number of streams than in earlier calls", ids)
    row_of = {i: r for r, i in enumerate(ids)}
    rows = np.array([-1 if i is None else row_of[i] for h in held for i in h.ids], np.int64)
    return ids, [_whole([h.parts[k] for h in held], rows, len(ids), join) for k in range(n_parts)]


def _whole(parts: Sequence[Part], rows: Any, n_rows: int, join: Join) -> Part:
    """Lay the pieces of each row end to end; `rows` says whose each piece is, -1 for nobody's."""
    if len({p.frames.shape[1:] for p in parts}) > 1:
        raise StreamMismatchError("the features of what the forward returns changed from call to call")
    lengths = np.concatenate([p.lengths for p in parts])
    owners = np.repeat(rows, lengths)
    order = np.argsort(owners, kind="stable")[int((owners < 0).sum()) :]
    in_order = np.array_equal(order, np.arange(len(owners)))
    frames = join([p.frames for p in parts], None if in_order else order)
    return Part(frames, np.bincount(owners[owners >= 0], minlength=n_rows))
