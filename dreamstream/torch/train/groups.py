"""Groups of streams whose graphs are joined.

A call joins the graphs of its rows. Streams that shared a call, or shared one with streams that did, are a
*group*: under the full-file variants its gradients are whole when all of its streams have ended. Until then a
backward through what the module returned raises (`guarded`), or the outputs are held back (`Held`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakSet, ref

import numpy as np
import torch
from torch import Tensor

from ...errors import ModeError, StreamIdError, StreamMismatchError
from ...stream.metadata import StreamMetadata
from ..private import graph_task, will_run


# ---------------------------------------------------------------------- groups
@dataclass(frozen=True)
class Part:
    """One stream that a call returned: its frames, and how many of them each row has.

    Attributes
    ----------
    frames : Tensor
        ``(frames of all rows, *features)``.
    lengths : ndarray
        ``(B,)``.
    """

    frames: Tensor
    lengths: Any


@dataclass(frozen=True)
class Held:
    """What one call returned, held back until its group has ended.

    Attributes
    ----------
    ids : tuple of (str or None)
        The rows' streams; None where a stream was given up.
    parts : tuple of Part
        One per stream tensor that the forward returned.
    """

    ids: tuple[str | None, ...]
    parts: tuple[Part, ...]

    def without(self, ids: frozenset[str]) -> Held:
        """Return the same without some streams."""
        return replace(self, ids=tuple(None if i in ids else i for i in self.ids))


@dataclass(frozen=True)
class Group:
    """Streams whose graphs are joined.

    Attributes
    ----------
    roots : frozenset
        What the calls of the group are known by: a new object for each call that joined no older group.
    live, ended : frozenset of str
        Its streams that have not ended, and those that have.
    held : tuple of Held
        Outputs held back, in the order of the calls.
    """

    roots: frozenset[Any]
    live: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    held: tuple[Held, ...] = ()

    def holding(self, outputs: Held) -> Group:
        """Return the group with one more call's outputs held back."""
        return replace(self, held=(*self.held, outputs))

    def without(self, ids: frozenset[str]) -> Group:
        """Return the group without some streams."""
        if ids.isdisjoint(self.live) and ids.isdisjoint(self.ended):
            return self
        held = tuple(h.without(ids) for h in self.held)
        return Group(self.roots, self.live - ids, self.ended - ids, held)


class Groups:
    """All groups of a session that have not ended, or whose outputs were not given out; immutable."""

    def __init__(self, groups: Iterable[Group] = ()) -> None:
        self.groups = tuple(g for g in groups if g.live or (g.held and g.ended))

    @property
    def live(self) -> frozenset[str]:
        """The live streams of all groups."""
        return frozenset().union(*(g.live for g in self.groups))

    @property
    def waiting(self) -> frozenset[str]:
        """The streams that have ended, but not their groups."""
        return frozenset().union(*(g.ended for g in self.groups if g.held))

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
            tuple(h for g in own for h in g.held),
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
class _Owner(Protocol):
    """The session whose groups guard its outputs."""

    @property
    def groups(self) -> Groups: ...


class Guard:
    """Refuses a backward that would go through the outputs of a group that has not ended.

    The first output that a backward reaches looks for all that it will reach, so that no gradient of the module or
    of its inputs has been accumulated when it raises.
    """

    def __init__(self, owner: _Owner) -> None:
        self._owner = ref(owner)  # the graph keeps the guard, and must not keep the session that keeps the graph
        self.exits: WeakSet[Any] = WeakSet()
        self._checked = -1

    def check(self) -> None:
        """Raise ModeError within a backward that comes too early."""
        task = graph_task()
        owner = self._owner()
        if owner is None or task == self._checked:
            return
        early: set[str] = set()
        for group in owner.groups.groups:
            if group.live and not group.live <= early:
                exits = [e for e in list(self.exits) if e.root in group.roots]
                if any(will_run(e) for e in exits):
                    early |= group.live
        if early:
            raise ModeError(
                "backward in mid-file: under full-file-aligned gradients are whole only when every stream that "
                "shared calls with these outputs has ended; end the streams or reset() them first, or train "
                "chunk-wise",
                sorted(early),
            )
        self._checked = task


class _Exit(torch.autograd.Function):
    """The place where frames leave the module."""

    @staticmethod
    def forward(ctx: Any, frames: Tensor, guard: Guard, root: Any) -> Tensor:
        ctx.guard, ctx.root = guard, root
        guard.exits.add(ctx)
        return frames.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.guard.check()
        return grad, None, None


def guarded(frames: Tensor, guard: Guard, group: Group) -> Tensor:
    """Return frames through which no backward goes before their group has ended."""
    if not frames.requires_grad:
        return frames
    out: Tensor = _Exit.apply(frames, guard, next(iter(group.roots)))
    return out


# ---------------------------------------------------------------------- whole files
def delivered(groups: Sequence[Group], n_parts: int) -> tuple[list[str], list[Part]]:
    """Return the streams of ended groups, and all their frames: stream after stream, per part."""
    held = [h for g in groups for h in g.held]
    ids = list(dict.fromkeys(i for h in held for i in h.ids if i is not None))
    if any(len(h.parts) != n_parts for h in held):
        raise ModeError("the forward returned another number of streams than in earlier calls", ids)
    row_of = {i: r for r, i in enumerate(ids)}
    rows = np.array([-1 if i is None else row_of[i] for h in held for i in h.ids], np.int64)
    return ids, [_whole([h.parts[k] for h in held], rows, len(ids)) for k in range(n_parts)]


def _whole(parts: Sequence[Part], rows: Any, n_rows: int) -> Part:
    """Lay the pieces of each row end to end; `rows` says whose each piece is, -1 for nobody's."""
    if len({p.frames.shape[1:] for p in parts}) > 1:
        raise StreamMismatchError("the features of what the forward returns changed from call to call")
    lengths = np.concatenate([p.lengths for p in parts])
    frames = parts[0].frames if len(parts) == 1 else torch.cat([p.frames for p in parts])
    owners = np.repeat(rows, lengths)
    order = np.argsort(owners, kind="stable")[int((owners < 0).sum()) :]
    if not np.array_equal(order, np.arange(len(owners))):
        frames = frames.index_select(0, torch.from_numpy(order).to(frames.device))
    return Part(frames, np.bincount(owners[owners >= 0], minlength=n_rows))


def nothing(frames: Tensor) -> Tensor:
    """Return no frames, of which a loss has a gradient that goes nowhere."""
    none = frames.detach()[:0]
    return none.requires_grad_() if frames.requires_grad else none
