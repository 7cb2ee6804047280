"""What an operator of windows did, done again in a call in which the windows stand as they stood before.

In mid-stream every call is like the one before, but later: the same number of frames is kept, comes and is made,
and those that are read stand as far before those that are made (`_core.Op.columns` gives the key of that). Then
positions need not be looked at again: what was read are the same columns of what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .kernels import Kernel, Step
from .kernels.registry import as_they_are
from .windows import columns_of


def steady(
    kernel: Kernel, step: Step, weights: Sequence[Any], rows: int, kept: tuple[int, int, int, int]
) -> Callable[..., Tensor] | None:
    """Return what does again what an operator did, ``fn(call, value, *weights)``; None where positions matter.

    Parameters
    ----------
    step
        As in the call that was, with numbers for positions.
    rows : int
        How many streams are in the call.
    kept : tuple of int
        The position of the first frame that was kept, how many were kept, are kept now, and are new.
    """
    if kernel.sees is None or kernel.period(step, weights) != 1:
        return None
    step = replace(step)  # which others fill anew
    first, back, tail, new = kept
    begin, n, fill, compute = kernel.sees(step, weights)
    offset, width = begin - first, back + new
    seen = None if (offset, n) == (0, width) else partial(columns_of, begin=offset, n=n, fill=fill)
    if seen is not None and 0 <= offset <= width - n:
        seen = partial(torch.narrow, dim=1, start=offset, length=n)
    keeps, most = back or tail, max(back, tail)
    n_features, computes = len(step.features[0]), compute is not as_they_are

    def repeat(call: Any, value: Tensor, *weights: Any) -> Tensor:
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
        frames = grid if seen is None else seen(grid)
        out: Tensor = compute(frames, *weights) if computes else frames
        return out if out.dim() == 1 + n_features else out.flatten(0, 1)

    return repeat
