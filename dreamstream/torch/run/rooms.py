"""Frames of which all are kept while whole files train: the calls of a stream share their memory.

A call's graph refers to the keys that its queries see, from the first one on. If each call had them in a tensor of
its own, or kept what its queries make of them, memory would grow with the square of the stream's length. So a call
writes its keys behind those before, into a `Room`; graphs hold its beginning, in tensors whose versions don't tell
of what is written behind them. What follows is computed once more in the backward (`kernels/checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class Room:
    """Memory for one stream's frames, twice as long as they were when it was made."""

    def __init__(self, old: Tensor, new: Tensor) -> None:
        dtype = torch.promote_types(old.dtype, new.dtype) if len(old) else new.dtype
        #: How many frames stand in it. A stream that goes on from fewer, as one whose call raised, gets another.
        self.n = len(old)
        self.memory = new.new_empty(2 * (len(old) + len(new)), *new.shape[1:], dtype=dtype)
        self.memory[: self.n] = old

    def takes(self, old: Tensor, new: Tensor) -> bool:
        """Whether new frames may be written behind the old ones."""
        memory, fits = self.memory, len(old) + len(new) <= len(self.memory)
        return self.n == len(old) and fits and (memory.dtype, memory.device) == (new.dtype, new.device)

    def add(self, new: Tensor) -> Tensor:
        """Return all frames, those before and new ones, in a tensor that has a version of its own."""
        self.memory[self.n : self.n + len(new)] = new
        self.n += len(new)
        shape, memory = (self.n, *self.memory.shape[1:]), self.memory
        return memory.new_empty(0).set_(memory.untyped_storage(), 0, shape, memory.stride())


class Grown:
    """Streams' frames from the first one on: per row a tensor ``(frames, *features)`` on the tape, and a room."""

    def __init__(self, frames: Sequence[Tensor], rooms: list[Room]) -> None:
        self.frames, self.rooms = frames, rooms

    def __getitem__(self, rows: slice) -> Tensor:
        """Return rows of a state, ``(B, most, *features)``."""
        return pad_sequence(list(self.frames[rows]), batch_first=True)


def grown(old: Sequence[tuple[Tensor, Room | None] | None], new: Tensor, lengths: Sequence[int]) -> Grown:
    """Return rows that have grown by ``new (frames of all rows, *features)``; None is a row that starts."""
    rooms: list[Room] = []
    none = new.detach()[:0]
    before = [none if row is None else row[0].to(new.device) for row in old]
    frames = _Grown.apply(rooms, [None if row is None else row[1] for row in old], lengths, new, *before)
    return Grown(frames, rooms)


class _Grown(torch.autograd.Function):
    """Every row's old frames and its new ones."""

    @staticmethod
    def forward(
        ctx: Any,
        rooms: list[Room],
        before: Sequence[Room | None],
        lengths: Sequence[int],
        new: Tensor,
        *old: Tensor,
    ) -> Any:
        ctx.n_old = list(map(len, old))
        out = []
        for room, row, come in zip(before, old, new.split(list(lengths))):
            rooms.append(room if room is not None and room.takes(row, come) else Room(row, come))
            out.append(rooms[-1].add(come))
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        new = torch.cat([g[n:] for g, n in zip(gradients, ctx.n_old)])
        return None, None, None, new, *(g[:n] for g, n in zip(gradients, ctx.n_old))
