"""The frames that an operation may read in eager mode: what was kept of them, and the new ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from ..tensor.padding import as_rows, runs, same, to_device

Ints = npt.NDArray[np.int64]


class EagerWindow:
    """One input of one operation; see `dreamstream.torch.kernels.Window`.

    Parameters
    ----------
    kept : Tensor or None
        ``(B, width, *features)``: what was kept, each row from its first column on; None: nothing.
    new : Tensor
        ``(frames of all rows, *features)``.
    first : ndarray
        ``(B,)``: absolute position of the first frame that was kept.
    counts : ndarray
        ``(B, 4)``: of the input.
    alike : bool
        Whether all rows are known to stand at the same place.
    """

    def __init__(self, kept: Tensor | None, new: Tensor, first: Ints, counts: Ints, alike: bool = False) -> None:
        self._kept, self._new = kept, new
        self._first, self._counts = first, counts
        self._grid: Tensor | None = None
        self.even = alike or same(self._lengths)
        if self.even and len(first) and (alike or same(counts[:, 0] - first)):
            before, _, now, _ = counts[0].tolist()
            begin = self._begin = int(first[0])
            self._grid = new.reshape(len(first), now - before, *new.shape[1:])
            if before > begin:
                assert kept is not None
                self._grid = torch.cat([kept[:, : before - begin], self._grid], 1)
        self._pieces: tuple[Tensor, Ints, Ints] | None = None

    @property
    def _lengths(self) -> Ints:
        return self._counts[:, 2] - self._counts[:, 0]

    @property
    def known(self) -> Tensor:
        return torch.from_numpy(self._counts[:, 2])

    @property
    def total(self) -> Tensor:
        return torch.from_numpy(self._counts[:, 3].clip(0))

    @property
    def before(self) -> Tensor:
        return torch.from_numpy(self._counts[:, 0])

    def new(self) -> tuple[Tensor, Tensor]:
        return as_rows(self._new, self._lengths), torch.from_numpy(self._lengths)

    def run(self, first: Tensor | int, n: int, fill: float = 0.0) -> Tensor:
        if isinstance(first, int):
            assert self._grid is not None
            return _columns(self._grid, first - self._begin, n, fill)
        if self._grid is not None:
            offsets = first.numpy() - self._first
            if same(offsets):
                return _columns(self._grid, int(offsets[0]), n, fill)
        return self.take(first[:, None] + torch.arange(n), fill)

    def take(self, positions: Tensor, fill: float = 0.0) -> Tensor:
        return self._frames(np.arange(len(self._first))[:, None], positions.numpy(), fill)

    def joined(self, first: Tensor, lengths: Tensor, fill: float = 0.0) -> Tensor:
        n = lengths.numpy()
        return self._frames(np.repeat(np.arange(len(n)), n), runs(first.numpy(), n), fill)

    def _frames(self, rows: Ints, at: Ints, fill: float) -> Tensor:
        """Return the frames of rows at positions; both broadcast to the same shape."""
        source, kept_base, new_base = self._source()
        shape = (*at.shape, *source.shape[1:])
        if not len(source):
            return source.new_full(shape, fill)
        before, _, known, _ = self._counts.T
        index = at + np.where(at < before[rows], kept_base[rows], new_base[rows])
        valid = (at >= self._first[rows]) & (at < known[rows])
        there = to_device(np.where(valid, index, 0).ravel(), source.device)
        frames = source.index_select(0, there).reshape(shape)
        if valid.all():
            return frames
        hidden = ~valid.reshape(*at.shape, *(1,) * (source.ndim - 1))
        return frames.masked_fill(to_device(hidden, source.device), fill)

    def row(self, r: int, ended: bool) -> tuple[Tensor, int, int | None]:
        """Return one row's frames, the position of the first of them, and its total if it has ended."""
        first, (before, _, now, total) = int(self._first[r]), self._counts[r].tolist()
        begin = int(self._lengths[:r].sum())
        frames = self._new[begin : begin + now - before]
        if before > first:
            assert self._kept is not None
            frames = torch.cat([self._kept[r, : before - first], frames])
        return frames, first, total if ended else None

    def _source(self) -> tuple[Tensor, Ints, Ints]:
        """Return all frames in one piece, and for every row what to add to a position, kept or new."""
        if self._pieces is None:
            starts = np.cumsum(self._lengths) - self._lengths
            if self._kept is None:
                self._pieces = self._new, starts, starts - self._counts[:, 0]
            else:
                rows, width = self._kept.shape[:2]
                kept = self._kept.reshape(rows * width, *self._kept.shape[2:])
                self._pieces = (
                    torch.cat([kept, self._new]),
                    np.arange(rows) * width - self._first,
                    rows * width + starts - self._counts[:, 0],
                )
        return self._pieces


def _columns(grid: Tensor, begin: int, n: int, fill: float) -> Tensor:
    """Return columns begin .. begin + n of ``(B, width, *features)``, `fill` where there are none."""
    width = grid.shape[1]
    low, high = max(begin, 0), min(begin + n, width)
    if low >= high:
        return grid.new_full((grid.shape[0], n, *grid.shape[2:]), fill)
    part = grid if (low, high) == (0, width) else grid[:, low:high]
    left, right = low - begin, begin + n - high
    if not left and not right:
        return part
    return F.pad(part, (0, 0) * (grid.ndim - 2) + (left, right), value=fill)
