"""Windows of frames as features, features as frames, and what lies between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F

from .frames import extent, run_from
from .registry import Step, Window, windowed


@windowed("frame", numbers=True)
def frame(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return windows of successive frames."""
    a, (x,) = step.attributes, windows
    span = a["dilation"] * (a["size"] - 1) + 1
    frames = x.run(step.first[0] * a["step"], (step.n[0] - 1) * a["step"] + span)
    return (frames.unfold(1, span, a["step"])[..., :: a["dilation"]].movedim(-1, 2),), state


@windowed("unstack")
def unstack(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the first feature axis of the new frames laid out along the stream."""
    frames, _ = windows[0].new()
    return (frames.flatten(1, 2),), state


@windowed("repeat_frames")
def repeat_frames(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return every new frame several times."""
    frames, _ = windows[0].new()
    return (frames.repeat_interleave(step.attributes["times"], 1),), state


@windowed("overlap_add")
def overlap_add(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return windows laid over each other and added, in double."""
    (x,), hop = windows, step.attributes["step"]
    size = extent(x.new()[0], 2)
    reach = max(size, hop) - 1
    first = -((reach - step.first[0]) // hop)  # the first window that reaches the new frames
    n = (step.n[0] - 1 + reach) // hop + 1
    pieces = x.run(first, n)
    n_rows, shape = pieces.shape[0], pieces.shape[3:]
    columns = pieces.double().reshape(n_rows, n, size, -1).permute(0, 3, 2, 1)  # (B, channels, size, n)
    n_channels = columns.shape[1]
    y = F.fold(columns.flatten(1, 2), (1, (n - 1) * hop + size), (1, size), stride=(1, hop))
    y = F.pad(y.reshape(n_rows, n_channels, -1).transpose(1, 2), (0, 0, 0, max(0, hop - size)))
    y = run_from(y.to(pieces.dtype), step.first[0] - first * hop, step.n[0])
    return (y.reshape(n_rows, -1, *shape),), state
