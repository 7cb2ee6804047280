"""Change of a stream's rate by a fraction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .positions import run_from, there
from .registry import Step, Window, windowed


@windowed("resample")
def resample(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the sums over each phase's taps.

    A phase's taps lie within `half` of its output. They are gathered, and the kernel's structural zeros meet
    no frame: what stands there may not have come yet.
    """
    a, (x,), (kernel,) = step.attributes, windows, weights
    orig, new, half, width = a["orig"], a["new"], a["half"], a["width"]
    centres = torch.arange(new) * orig
    begin = -((half - centres) // new)  # of a phase's taps, from where its block of `orig` frames begins
    taps = begin[:, None] + torch.arange(2 * half // new + 1)
    used = taps <= ((centres + half) // new)[:, None]

    block = step.first[0] // new
    n = (step.n[0] + new - 2) // new + 1
    low, span = -(half // new), (new - 1) * orig // new + 2 * half // new + 2
    frames = x.run(block * orig + low, (n - 1) * orig + span)
    n_rows, features = frames.shape[0], frames.shape[2:]
    at = (torch.arange(n)[:, None, None] * orig + taps - low).flatten()
    seen = frames.flatten(2).index_select(1, there(at, frames)) if features else frames[:, at, None]
    seen = seen.reshape(n_rows, n, *taps.shape, -1)
    seen = torch.where(there(used, frames)[..., None], seen, 0)
    factors = kernel[:, 0].gather(1, there((taps + width).clamp(max=kernel.shape[2] - 1), kernel))
    y = torch.einsum("bqptf,pt->bqpf", seen, factors).flatten(1, 2)
    y = run_from(y, step.first[0] - block * new, step.n[0])
    return (y.reshape(n_rows, -1, *features),), state
