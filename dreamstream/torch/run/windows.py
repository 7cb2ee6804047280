"""The frames that an operation may read in eager mode: what was kept of them, and the new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..tensor.padding import as_rows, runs, same, to_device
from .kernels.positions import extent

Ints = npt.NDArray[np.int64]
Parts = tuple[Callable[..., "EagerWindow"], Sequence[Tensor | None]]


class EagerWindow:
    """One input of one operation; see `Window` in `kernels/registry.py`.

    `kept` ``(B, width, *features)`` is what was kept, each row from its first column on, and `first` ``(B,)`` the
    absolute position of the first frame that was. `new` ``(frames of all rows, *features)`` are the new frames,
    and `counts` ``(B, 4)`` those of the input.
    """

    def __init__(self, kept: Tensor | None, new: Tensor, first: Ints, counts: Ints) -> None:
        self._kept, self._new = kept, new
        self._first, self._counts = first, counts
        self.even = same(self._lengths)
        self._pieces: tuple[Tensor, Ints, Ints] | None = None

    @cached_property
    def _lengths(self) -> Ints:
        return self._counts[:, 2] - self._counts[:, 0]

    @property
    def is_dense(self) -> bool:
        """Whether no more than half of the new frames' columns stand behind rows."""
        lengths = self._lengths
        return self.even or len(lengths) * max(lengths.tolist()) <= 2 * self._new.shape[0]

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
        return self.take(first[:, None] + torch.arange(n), fill)

    def tail(self, lengths: Ints | int) -> Tensor:
        """Return the last frames of every row, ``(B, most, *features)``; what follows fewer may be anything."""
        most = lengths if isinstance(lengths, int) else int(lengths.max())
        return self.run(torch.from_numpy(self._counts[:, 2] - lengths), most)

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

    def parts(self) -> Parts:
        """Return what makes such a window of tensors, and these."""
        return partial(EagerWindow, first=self._first, counts=self._counts), (self._kept, self._new)

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
@torch.inference_mode(False)
def _last(lengths: bytes, n_kept: int, width: int, n: int, device: torch.device) -> Tensor:
    """Return where the last n frames of every row stand in a grid that begins with what was kept."""
    ends = n_kept + np.frombuffer(lengths, np.int64)
    index: Ints = (ends + width * np.arange(len(ends)))[:, None] + np.arange(-n, 0)
    return to_device(index.ravel(), device)


class Columns(EagerWindow):
    """A window of rows that have kept equally many frames: these, and behind them each row's new ones.

    `first` is the position of what the first row has kept; every row has kept `n_kept` frames and has `n_new` new
    ones, -1 where that differs. `fills` is whether what stands behind a row's new frames is read, as where a
    stream ends.
    """

    def __init__(
        self, kept: Tensor | None, new: Tensor, first: int, n_kept: int, n_new: int, counts: Ints, fills: bool
    ) -> None:
        self._kept, self._new, self._counts = kept, new, counts
        self.even, self._begin, self._n_kept = n_new >= 0, first, n_kept
        self._fills, self._pieces = fills, None
        self._grids: dict[float, Tensor] = {}
        if self.even:
            rows = len(counts)
            grid = new.reshape(rows, n_new, *new.shape[1:]) if rows != 1 else new.unsqueeze(0)
            self._grids[0.0] = self._behind_kept(grid)

    @property
    def _first(self) -> Ints:  # type: ignore[override]
        return self._counts[:, 0] - self._n_kept

    def parts(self) -> Parts:
        n_new = int(self._lengths.max(initial=0)) if self.even else -1
        make = partial(Columns, first=self._begin, n_kept=self._n_kept, n_new=n_new, counts=self._counts)
        return partial(make, fills=self._fills), (self._kept, self._new)

    def _behind_kept(self, grid: Tensor) -> Tensor:
        n, kept = self._n_kept, self._kept
        if not n:
            return grid
        assert kept is not None
        return torch.cat([kept if kept.shape[1] == n else kept[:, :n], grid], 1)

    def _grid(self, fill: float) -> Tensor:
        """Return ``(B, kept and new, *features)``, `fill` behind each row's."""
        if self.even or not self._fills:
            fill = 0.0
        grid = self._grids.get(fill)
        if grid is None:
            grid = as_rows(self._new, self._lengths, None, fill if self._fills else None)
            grid = self._grids[fill] = self._behind_kept(grid)
        return grid

    def run(self, first: Tensor | int, n: int, fill: float = 0.0) -> Tensor:
        """A number is the position of the first row, where the others begin at the same column."""
        if isinstance(first, int):
            offset = first - self._begin
            if self.even and 0 <= offset <= (grid := self._grids[0.0]).shape[1] - n:
                return grid if n == grid.shape[1] else grid[:, offset : offset + n]
        else:
            offsets = first.numpy() - self._first
            if not len(offsets) or not same(offsets):
                return self.take(first[:, None] + torch.arange(n), fill)
            offset = int(offsets[0])
        return columns_of(self._grid(fill), offset, n, fill)

    def new(self) -> tuple[Tensor, Tensor]:
        if self._n_kept or not self.even:
            return super().new()
        return self._grids[0.0], torch.from_numpy(self._lengths)

    def tail(self, lengths: Ints | int) -> Tensor:
        if not isinstance(lengths, int):
            return super().tail(lengths)
        n = lengths
        if self.even:
            grid = self._grids[0.0]
            return grid[:, grid.shape[1] - n :]
        grid = self._grid(0.0)
        there = _last(self._lengths.tobytes(), self._n_kept, grid.shape[1], n, grid.device)
        return grid.flatten(0, 1).index_select(0, there).reshape(-1, n, *grid.shape[2:])


class AllFrames(Columns):
    """A window of rows of which every frame is kept: of each row ``(frames, *features)``."""

    def __init__(self, *rows: Tensor, counts: Ints) -> None:
        whole = counts * (0, 1, 1, 1)
        lengths = whole[:, 2]
        n_new = int(lengths.max(initial=0)) if same(lengths) else -1
        super().__init__(None, rows[0] if len(rows) == 1 else torch.cat(rows), 0, 0, n_new, whole, True)
        self._rows, self._given = rows, counts

    @property
    def before(self) -> Tensor:
        return torch.from_numpy(self._given[:, 0])

    def parts(self) -> Parts:
        return partial(AllFrames, counts=self._given), self._rows


def columns_of(grid: Tensor, begin: int, n: int, fill: float) -> Tensor:
    """Return columns begin .. begin + n of ``(B, width, *features)``, `fill` where there are none."""
    rows, width = extent(grid, 0), extent(grid, 1)
    low, high = max(begin, 0), min(begin + n, width)
    if low >= high:
        return grid.new_full((rows, n, *grid.shape[2:]), fill)
    part = grid if (low, high) == (0, width) else grid[:, low:high]
    if high - low == n:
        return part
    ends = [grid.new_full((rows, m, *grid.shape[2:]), fill) for m in (low - begin, begin + n - high) if m]
    return torch.cat([*ends[: low > begin], part, *ends[low > begin :]], 1)
