"""What an operator of windows did, done again in a call in which the windows stand as they stood before.

In mid-stream every call is like the one before, but later: the same number of frames is kept, comes and is made,
and those that are read stand as far before those that are made (`_core.Op.columns` gives the key of that). Then
positions need not be looked at again: what was read are the same columns of what is there. Frames of rows that get
unequally many are laid into columns first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import _core
from ..tensor.padding import Ints, as_rows, flat, runs, same, to_device
from .kernels import Kernel, Step
from .windows import Columns

#: ``fn(call, value, counts, made, *weights)`` gives a value, or one for each output; None where it can't. `counts`
#: are the value's, `made` the first output's.
Repeat = Callable[..., Any]

#: Elements up to which frames that don't lie one behind the other are copied one by one.
_FEW = 2**12


class SteadyWindows:
    """Reads n columns, from an offset on, of kept and new frames, as an operator did in the call that was.

    `step` is as in that call, with numbers for positions, and `made` ``(rows, 4)`` are the counts of its output.
    `kept` are the position of the first frame that was kept, how many were kept, are kept now, and are new: -1
    where rows differ in that. `lines_up` is whether rows that stand elsewhere are one window each of the same
    columns.
    """

    def __init__(
        self, kernel: Kernel, step: Step, weights: Sequence[Any], kept: Sequence[int], made: Any, lines_up: bool
    ) -> None:
        assert kernel.sees is not None
        step = replace(step)  # which others fill anew
        begin, n, fill, compute = kernel.sees(step, weights)
        first, back, tail, new = kept
        offset, rows = begin - first, len(made)
        self._kept, self._seen = (back, tail, new), (offset, n, fill)
        self._compute: Any = compute
        self._rows, self._made, self._rank = rows, step.n[0], 1 + len(step.features[0])
        self._whole, self._lines_up = new >= 0 and same(made[:, 2] - made[:, 0]), lines_up
        #: Taps, stride and dilation of windows that are laid side by side for ``compute.of_windows``, or None.
        self._laid = compute.windows(rows, weights) if hasattr(compute, "windows") else None
        there = offset >= 0 and (fill == 0.0 if new < 0 else offset + n <= back + new)
        self._room: Tensor | None = None
        columns = rows, back, new, tail, offset, n
        is_copied = there and n > 0 and (back or tail)
        self._window = _core.Window(Tensor, *columns, *(self._laid or ())) if is_copied else None

    @staticmethod
    def are_repeated(kernel: Kernel, step: Step, weights: Sequence[Any], kept: Sequence[int], moves: bool) -> bool:
        """Whether positions don't matter; `moves`: the frames that are made are the new ones, in other places."""
        return kernel.sees is not None and (moves or kernel.period(step, weights) == 1) and min(kept[1:3]) >= 0

    def repeat(self, call: Any, value: Tensor, counts: Any, made: Any, *weights: Any) -> Tensor | None:
        """See `Repeat`."""
        out = self._copied(call, value, counts, weights) if call.plain and self._window is not None else None
        if out is None:
            frames = self._joined(call, value, counts)
            if frames is None:
                return None
            out = self._compute(frames, *weights)
        if out.dim() == self._rank:
            return out
        return out.flatten(0, 1) if self._whole else flat(out, made[:, 2] - made[:, 0])

    def _copied(self, call: Any, value: Tensor, counts: Any, weights: Sequence[Any]) -> Tensor | None:
        """Compute of columns in a tensor of their own, the last ones being kept; None where memory isn't plain."""
        assert self._window is not None
        table = call.store.tensors.get((call.n_done - 1, 0))
        if table is None:
            return None
        if self._laid is None:
            frames = value.new_empty((self._rows, self._seen[1], *value.shape[1:]))
        else:
            frames = self._room_for(value, self._laid[0])
        if value.dim() < 2 or value.numel() > _FEW:
            value = value.contiguous()
        elif value.dim() > 2 and not value.is_contiguous():
            value = value.flatten(1)  # a view, where one axis alone is longer than 1
        if not self._window.take(table, call.old_rows, call.index, value, counts, frames):
            return None
        if self._laid is None:
            return self._compute(frames, *weights)
        out = self._compute.of_windows(frames, *weights)
        return out if self._whole else out.reshape(self._rows, self._made, -1)

    def _room_for(self, value: Tensor, taps: int) -> Tensor:
        """Return where windows are laid; no product is a view of that, so that every call may have the same."""
        room = self._room
        if room is None or room.dtype is not value.dtype:
            room = value.new_empty((self._rows * self._made, value.shape[1] * taps))
            self._room = room if room.numel() <= _FEW else None
        return room

    def _joined(self, call: Any, value: Tensor, counts: Any) -> Tensor | None:
        """Return the columns as torch puts them together, the last ones kept; None where rows are too uneven."""
        (back, tail, new), (offset, n, fill) = self._kept, self._seen
        key = call.n_done - 1, 0
        old = call.gathered.rows(key) if back else None
        window = Columns(old, value, 0, back, new, counts, call.some_end or not self._lines_up)
        if not (call.keeps_tape or window.is_dense):
            return None
        frames = window.run(offset, n, fill)
        if tail:
            call.store.write(key, window.tail(tail), call.index)
        return frames


def of_positions(kernel: Kernel, step: Step) -> Repeat:
    """Return what makes frames anew of where they stand; see `Kernel.of_positions`."""

    def repeat(call: Any, value: Any, counts: Any, made: Any, *weights: Any) -> Any:
        first, last = made[:, 0], made[:, 2]
        at = np.arange(first[0], last[0]) if len(made) == 1 else runs(first, last - first)
        step.first, step.n, step.device = [torch.from_numpy(at)], [1], call.device
        return kernel.run(step, *weights)[:, 0]

    return repeat


def single(value: Tensor, lengths: Ints) -> Tensor | None:
    """Return the rows that have a frame, on the frames' device, where none has more; else None."""
    rows = np.flatnonzero(lengths)
    return to_device(rows, value.device) if len(rows) == value.shape[0] else None


class _Carried:
    """Tensor k of those that rows carry: copied in memory where that is plain, else by torch's functions."""

    _reads: _core.Window | None = None
    _writes: _core.Window | None = None

    def __init__(self, k: int) -> None:
        self._k = k

    def read(self, call: Any) -> Tensor | None:
        """Return what rows carry; None: nobody has it."""
        self._key = key = call.n_done - 1, "carried", self._k
        table = self._table = call.store.tensors.get(key) if call.plain else None
        if table is not None and table.dim() > 1:
            rows, shape = call.gathered.n_rows, table.shape[1:]
            if self._reads is None:
                self._reads = _core.Window(Tensor, rows, shape[0], 0, 0, 0, shape[0])
                self._writes = _core.Window(Tensor, rows, 0, shape[0], shape[0], 0, 0)
                self._none = table.new_empty(0)
            out: Tensor = table.new_empty((rows, *shape))
            if self._reads.take(table, call.old_rows, call.index, self._none, None, out):
                return out
        found: Tensor | None = call.gathered.rows(key, copy=call.keeps_tape)
        return found

    def write(self, call: Any, part: Tensor) -> None:
        """Let rows carry this on."""
        table, index, own = self._table, call.index, self._writes
        if table is None or not own or not own.take(table, index, index, part.contiguous(), None, self._none):
            call.store.write(self._key, part, call.index)


def carrying(
    kernel: Kernel,
    step: Step,
    weights: Sequence[Any],
    n_carried: int,
    new: int,
    nothing: Sequence[Callable[..., Tensor]],
) -> Repeat:
    """Return what goes on by new frames with the `n_carried` tensors of each row; see `Kernel.onwards`.

    `new` frames are new, -1 where rows differ in that. Each ``fn(like, operands)`` of `nothing` gives no frames,
    for all outputs but the first.
    """
    assert kernel.onwards is not None
    on: Any = kernel.onwards(replace(step), weights)
    n_features = len(step.features[0])
    states = [_Carried(k) for k in range(n_carried)]

    def repeat(call: Any, value: Any, counts: Any, made: Any, *weights: Any) -> Any:
        found = [s.read(call) for s in states]
        state = [part for part in found if part is not None]
        if len(state) < n_carried:  # of an older version
            return None
        all_of = kernel.all_outputs
        values, lengths = [value] if isinstance(value, Tensor) else value, counts[:, 2] - counts[:, 0]
        rows = single(values[0], lengths) if new < 0 else None
        if new >= 0 or rows is not None:
            own = state if rows is None else [s.index_select(0, rows) for s in state]
            n = max(new, 1)
            frames = [v.reshape(v.shape[0] // n, n, *v.shape[1:]) for v in values]
            y, after = on(frames if all_of else frames[0], None, weights, own)
            if rows is not None:
                after = [s.index_copy(0, rows, part) for s, part in zip(state, after)]
        elif all_of:
            return None
        else:
            y, after = on(as_rows(value, lengths), torch.from_numpy(lengths), weights, state)
            y = flat(y, lengths)
        for s, part in zip(states, after):
            s.write(call, part)
        if all_of:
            return [each.flatten(0, 1) for each in y]
        if y.dim() != 1 + n_features:
            y = y.flatten(0, 1)
        return (y, *[none(value, (value, *weights)) for none in nothing]) if nothing else y

    return repeat
