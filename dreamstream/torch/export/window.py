"""Frames of all rows in padded tensors, by absolute position."""

from __future__ import annotations

import torch
from torch import Tensor

from ..run.kernels.positions import rows_of


class PaddedWindow:
    """What an operator may read of one edge: ``[last frames kept | new frames]`` of every row.

    `kept` ``(B, kept, *features)`` are the last frames before the call, and `fresh` ``(B, n, *features)`` the new
    ones, of which each row's first ``known - before`` are valid. `before`, `known` and `total`, ``(B,)`` int64,
    are the frames known before the call, known now, and in all.
    """

    even = False

    def __init__(self, kept: Tensor | None, fresh: Tensor, before: Tensor, known: Tensor, total: Tensor) -> None:
        self.known, self.before = known, before
        self._total = total
        self._fresh = fresh
        self._frames = fresh if kept is None else torch.cat([kept, fresh], 1)
        self._at = before if kept is None else before - kept.shape[1]
        self._least = self._at.clamp(min=0)  # what is older is asked for in the places of frames that nobody sees

    @property
    def total(self) -> Tensor:
        return self._total.clamp(min=0)

    def run(self, first: Tensor, n: int, fill: float = 0.0) -> Tensor:
        """Return n consecutive frames ``(B, n, *features)`` from the absolute position ``first (B,)`` on.

        Positions before 0 and from known on hold `fill`.
        """
        return self.take(first[:, None] + torch.arange(n, device=first.device), fill)

    def take(self, positions: Tensor, fill: float = 0.0) -> Tensor:
        """Return the frames at absolute ``positions (B, n)``, likewise."""
        hidden = (positions < self._least[:, None]) | (positions >= self.known[:, None])
        index = (positions - self._at[:, None]).masked_fill(hidden, 0)
        frames = rows_of(self._frames, index)
        return hide(frames, hidden, fill)

    def new(self) -> tuple[Tensor, Tensor]:
        """Return this call's frames ``(B, most, *features)``, zeros behind each row's, and how many ``(B,)``."""
        lengths = self.known - self.before
        return zero_behind(self._fresh, lengths), lengths

    def tail(self, n: int) -> Tensor:
        """Return the last n known frames, which are the state after the call."""
        first = (self.known - n - self._at)[:, None]
        return rows_of(self._frames, first + torch.arange(n, device=first.device))


def zero_behind(frames: Tensor, lengths: Tensor) -> Tensor:
    """Return ``(B, n, *features)`` with zeros behind the first ``lengths (B,)`` frames of each row.

    Frames that stay are what Where takes for false, and no condition is negated: of the others, and of conditions
    that it could turn round, ONNX Runtime gives 0 for -0.
    """
    hidden = torch.arange(frames.shape[1], device=frames.device) >= lengths[:, None]
    return hide(frames, hidden, 0)


def hide(frames: Tensor, hidden: Tensor, fill: float) -> Tensor:
    """Return ``(B, n, *features)`` with another value where ``hidden (B, n)`` holds."""
    return frames.masked_fill(hidden.reshape(hidden.shape + (1,) * (frames.dim() - 2)), fill)


def fit(frames: Tensor, n: int) -> Tensor:
    """Return ``(B, n, *features)``: the first frames, zeros behind them where there are fewer."""
    more = frames.new_zeros((frames.shape[0], n, *frames.shape[2:]))
    return torch.cat([frames, more], 1)[:, :n]
