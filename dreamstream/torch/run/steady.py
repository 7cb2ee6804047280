"""What an operator of windows did, done again in a call in which the windows stand as they stood before.

In mid-stream every call is like the one before, but later: the same number of frames is kept, comes and is made,
and those that are read stand as far before those that are made (`_core.Op.columns` gives the key of that). Then
positions need not be looked at again: what was read are the same columns of what is there. Frames of rows that get
unequally many are laid into columns first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..tensor.padding import Ints, as_rows, flat, to_device
from .kernels import Kernel, Step
from .kernels.registry import as_they_are
from .windows import Columns, columns_of

#: ``fn(call, value, counts, made, *weights)`` gives a value, or one for each output; None where it can't. `counts`
#: are the value's, `made` the first output's.
Repeat = Callable[..., Any]


def steady(
    kernel: Kernel,
    step: Step,
    weights: Sequence[Any],
    kept: tuple[int, int, int, int],
    *,
    rows: int,
    whole: bool,
    lines_up: bool,
) -> Repeat | None:
    """Return what does again what an operator did; None where positions matter.

    Parameters
    ----------
    step
        As in the call that was, with numbers for positions.
    kept : tuple of int
        The position of the first frame that was kept, how many were kept, are kept now, and are new: -1 where rows
        differ in that.
    rows : int
        How many streams are in the call.
    whole : bool
        Whether equally many frames are made of all rows.
    lines_up : bool
        See `Plan.lines_up`.
    """
    if kernel.sees is None or kernel.period(step, weights) != 1 or min(kept[1:3]) < 0:
        return None
    step = replace(step)  # which others fill anew
    begin, n, fill, compute = kernel.sees(step, weights)
    back, tail, new = kept[1:]
    seen, n_features = (begin - kept[0], n, fill), len(step.features[0])
    if new < 0:
        return _of_ragged(back, tail, seen, compute, n_features, lines_up)
    return _of_windows((back, tail, new), seen, compute, n_features, rows, whole)


def _of_windows(
    kept: tuple[int, int, int],
    seen: tuple[int, int, float],
    compute: Callable[..., Tensor],
    n_features: int,
    rows: int,
    whole: bool,
) -> Repeat:
    """Return what reads n columns, from an offset on, of rows that get equally many frames; see `steady`."""
    (back, tail, new), (offset, n, fill) = kept, seen
    width = back + new
    see: Callable[[Tensor], Tensor] | None = None
    if (offset, n) != (0, width):
        see = partial(columns_of, begin=offset, n=n, fill=fill)
        if 0 <= offset <= width - n:
            see = lambda grid: grid.narrow(1, offset, n)  # noqa: E731
    keeps, most, computes = back or tail, max(back, tail), compute is not as_they_are

    def repeat(call: Any, value: Tensor, counts: Any, made: Any, *weights: Any) -> Tensor:
        grid = value.unsqueeze(0) if rows == 1 else value.reshape(rows, new, *value.shape[1:])
        if keeps:
            store, key = call.store, (call.n_done - 1, 0)
            table = store.tensors.get(key) if call.old_rows is not None else None
            if table is not None and (table.shape[1] < most or table.shape[0] < store.n_rows):
                table = None
            if back:
                old = call.gathered.rows(key) if table is None else table[call.old_rows]
                grid = torch.cat((old if old.shape[1] == back else old[:, :back], grid), 1)
            if tail:
                last = grid.narrow(1, width - tail, tail)
                if table is not None and table.shape[1] == tail:
                    table[call.index] = last.detach() if last.requires_grad else last
                else:
                    store.write(key, last, call.index)
        frames = grid if see is None else see(grid)
        out: Tensor = compute(frames, *weights) if computes else frames
        if out.dim() == 1 + n_features:
            return out
        return out.flatten(0, 1) if whole else flat(out, made[:, 2] - made[:, 0])

    return repeat


def _of_ragged(
    back: int,
    tail: int,
    seen: tuple[int, int, float],
    compute: Callable[..., Tensor],
    n_features: int,
    lines_up: bool,
) -> Repeat:
    """Return what reads n columns, from an offset on, of rows that get unequally many frames; see `steady`."""
    offset, n, fill = seen

    def repeat(call: Any, value: Tensor, counts: Any, made: Any, *weights: Any) -> Tensor | None:
        key = call.n_done - 1, 0
        old = call.gathered.rows(key) if back else None
        window = Columns(old, value, 0, back, -1, counts, call.some_end or not lines_up)
        if not (call.keeps_tape or window.is_dense):
            return None
        out = compute(window.run(offset, n, fill), *weights)
        if tail:
            call.store.write(key, window.tail(tail), call.index)
        return out if out.dim() == 1 + n_features else flat(out, made[:, 2] - made[:, 0])

    return repeat


def single(value: Tensor, lengths: Ints) -> Tensor | None:
    """Return the rows that have a frame, on the frames' device, where none has more; else None."""
    rows = np.flatnonzero(lengths)
    return to_device(rows, value.device) if len(rows) == value.shape[0] else None


def carrying(
    kernel: Kernel,
    step: Step,
    weights: Sequence[Any],
    n_carried: int,
    new: int,
    nothing: Sequence[Callable[..., Tensor]],
) -> Repeat:
    """Return what goes on by new frames with what rows carry; see `Kernel.onwards`.

    Parameters
    ----------
    n_carried : int
        How many tensors.
    new : int
        How many frames are new; -1 where rows differ in that.
    nothing : sequence of callable
        What gives no frames, ``fn(like, operands)``, of all outputs but the first.
    """
    assert kernel.onwards is not None
    on, n_features = kernel.onwards(replace(step), weights), len(step.features[0])

    def repeat(call: Any, value: Tensor, counts: Any, made: Any, *weights: Any) -> Any:
        place, gathered, store = call.n_done - 1, call.gathered, call.store
        keys = [(place, "carried", k) for k in range(n_carried)]
        state = []
        for key in keys:
            part = gathered.rows(key, copy=call.keeps_tape)
            if part is None:  # of an older version
                return None
            state.append(part)
        if new >= 0:
            y, after = on(value.reshape(gathered.n_rows, new, *value.shape[1:]), None, weights, state)
        else:
            lengths = counts[:, 2] - counts[:, 0]
            if (rows := single(value, lengths)) is not None:
                own = [s.index_select(0, rows) for s in state]
                y, after = on(value.unsqueeze(1), None, weights, own)
                after = [s.index_copy(0, rows, part) for s, part in zip(state, after)]
            else:
                y, after = on(as_rows(value, lengths), torch.from_numpy(lengths), weights, state)
                y = flat(y, lengths)
        for key, part in zip(keys, after):
            store.write(key, part, call.index)
        if y.dim() != 1 + n_features:
            y = y.flatten(0, 1)
        return (y, *[none(value, (value, *weights)) for none in nothing]) if nothing else y

    return repeat
