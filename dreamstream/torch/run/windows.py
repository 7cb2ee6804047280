"""The frames that an operation may read in eager mode: what was kept of them, and the new ones."""

from __future__ import annotations

from functools import lru_cache

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
    """

    def __init__(self, kept: Tensor | None, new: Tensor, first: Ints, counts: Ints) -> None:
        self._kept, self._new = kept, new
        self._first, self._counts = first, counts
        self._columns: dict[float, Tensor] | None = None
        self.even = same(self._lengths)
        if len(first) and same(counts[:, 0] - first):
            self._n_kept, self._columns = int(counts[0, 0] - first[0]), {}
        self._pieces: tuple[Tensor, Ints, Ints] | None = None

    def _grid(self, fill: float) -> Tensor:
        """Return ``(B, kept and new, *features)``, `fill` behind each row's: rows have kept equally many."""
        assert self._columns is not None
        grid = self._columns.get(fill)
        if grid is None:
            grid = as_rows(self._new, self._lengths, None, fill)
            if self._n_kept:
                assert self._kept is not None
                grid = torch.cat([self._kept[:, : self._n_kept], grid], 1)
            self._columns[fill] = grid
        return grid

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
        assert not isinstance(first, int)
        if self._columns is not None:
            offsets = first.numpy() - self._first
            if same(offsets):
                return _columns(self._grid(fill), int(offsets[0]), n, fill)
        return self.take(first[:, None] + torch.arange(n), fill)

    def tail(self, lengths: Ints) -> Tensor:
        """Return the last frames of every row, ``(B, most, *features)``; what follows fewer may be anything."""
        n, known = int(lengths.max()), self._counts[:, 2]
        if self._columns is None or not same(lengths):
            return self.run(torch.from_numpy(known - lengths), n)
        grid = self._grid(0.0)
        index = _last(self._lengths.tobytes(), self._n_kept, grid.shape[1], n)
        there = to_device(index, grid.device)
        return grid.flatten(0, 1).index_select(0, there).reshape(len(lengths), n, *grid.shape[2:])

    def take(self, positions: Tensor, fill: float = 0.0) -> Tensor:
        return self._frames(np.arange(len(self._first))[:, None], positions.numpy(), fill)

    def joined(self, first: Tensor, lengths: Tensor, fill: float = 0.0) -> Tensor:
        n = lengths.numpy()
        if np.array_equal(n, self._lengths) and np.array_equal(first.numpy(), self._counts[:, 0]):
            return self._new
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


@lru_cache(maxsize=256)
def _last(lengths: bytes, n_kept: int, width: int, n: int) -> Ints:
    """Return where the last n frames of every row stand in a grid that begins with what was kept."""
    ends = n_kept + np.frombuffer(lengths, np.int64)
    index: Ints = (ends + width * np.arange(len(ends)))[:, None] + np.arange(-n, 0)
    return index.ravel()


class EvenWindow(EagerWindow):
    """A window where all rows stand at the same place, so that positions are numbers.

    Parameters
    ----------
    kept, new, counts
        See `EagerWindow`.
    begin : int
        Position of the first frame that was kept.
    place : list of int
        The counts of every row.
    """

    even = True

    def __init__(self, kept: Tensor | None, new: Tensor, begin: int, counts: Ints, place: list[int]) -> None:
        self._new, self._counts = new, counts
        self._kept, self._begin = kept, begin
        rows, before = len(counts), place[0]
        grid = new.reshape(rows, place[2] - before, *new.shape[1:]) if rows != 1 else new.unsqueeze(0)
        if before > begin:
            assert kept is not None
            width = before - begin
            grid = torch.cat([kept if kept.shape[1] == width else kept[:, :width], grid], 1)
        self._frames_of_rows = grid
        self._pieces = None

    @property
    def _first(self) -> Ints:  # type: ignore[override]
        return np.full(len(self._counts), self._begin)

    def run(self, first: Tensor | int, n: int, fill: float = 0.0) -> Tensor:
        if not isinstance(first, int):
            positions = first.numpy()
            if not same(positions):
                return self.take(first[:, None] + torch.arange(n), fill)
            first = int(positions[0])
        return _columns(self._frames_of_rows, first - self._begin, n, fill)


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
