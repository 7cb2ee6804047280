"""Which kernel an exported operator runs: the operator's, but for what exporters don't follow.

Those know gathers better than unfolding and folding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...errors import NotStreamableError
from ..run.kernels import KERNELS, Kernel, Step, Window
from ..run.kernels.positions import rows_of
from .graph import FunctionalNode
from .integers import floored
from .loops import recurrent, scan
from .window import PaddedWindow, fit


def frame(step: Step, x: Window) -> Tensor:
    """Return windows of successive frames."""
    a = step.attributes
    starts = _positions(step) * a["step"]
    inner = torch.arange(a["size"], device=starts.device) * a["dilation"]
    frames = x.take((starts[:, :, None] + inner).flatten(1))
    return frames.reshape((*starts.shape, a["size"], *frames.shape[2:]))


def overlap_add(step: Step, x: Window) -> Tensor:
    """Return windows laid over each other and added, in double."""
    hop = step.attributes["step"]
    size = x.new()[0].shape[2]
    reach = -(-size // hop)  # windows over a frame, at most
    positions = _positions(step)
    last = floored(positions, hop)  # the last window over each frame
    first = floored(step.first[0], hop) - (reach - 1)
    pieces = x.run(first, (step.n[0] + hop - 2) // hop + reach)
    flat = pieces.flatten(1, 2)
    y = torch.zeros((), dtype=torch.float64, device=flat.device)
    for back in range(reach):
        inner = positions - (last - back) * hop
        index = (last - back - first[:, None]) * size + inner.clamp(max=size - 1)
        there = (inner < size).reshape(inner.shape + (1,) * (flat.dim() - 2))
        y = y + torch.where(there, rows_of(flat, index), 0).double()
    return y.to(flat.dtype)


def cumulative_within(step: Step, x: Tensor) -> Tensor:
    """Return running reductions along an axis: ONNX, which has running sums alone, reduces a row for each."""
    kind, axis = step.attributes["kind"], step.attributes["axis"] - step.ranks[0]
    if kind in ("sum", "mean") or not torch.onnx.is_in_onnx_export():
        return KERNELS["cumulative_within"].run(step, x)
    n = x.shape[axis]
    places = torch.arange(n)
    seen = places <= places[:, None]
    rows = x.transpose(axis, -1)[..., None, :]
    if kind == "prod" and not x.is_floating_point():  # ONNX Runtime's products of a row don't wrap around
        y, width = x.transpose(axis, -1), 1
        while width < n:
            y = torch.cat([y[..., :width], y[..., width:] * y[..., :-width]], -1)
            width *= 2
    elif kind == "prod":
        y = torch.where(seen, rows, 1).prod(-1)
    elif kind == "logsumexp":
        y = torch.where(seen, rows, -torch.inf).logsumexp(-1)
    else:
        so_far = torch.where(seen, rows, rows[..., :1])  # the first is in all of them
        y = so_far.amax(-1) if kind.endswith("max") else so_far.amin(-1)
        if kind.startswith("arg"):  # the last of equals
            y = torch.where(seen & ((rows == y[..., None]) | (rows != rows)), places, 0).amax(-1)
    return y.transpose(-1, axis)


def softmax_sum(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return sums weighted by scores, which may come in rows of another width than what they weigh."""
    scores, values = windows
    fitted = fit(scores.new()[0], values.new()[0].shape[1])
    aligned = PaddedWindow(None, fitted, scores.before, scores.known, scores.total)
    return KERNELS["softmax_sum"].run(step, (aligned, values), weights, state)


def _positions(step: Step) -> Tensor:
    """Return where the new frames of output 0 stand, ``(B, n)``."""
    first = step.first[0]
    out: Tensor = first[:, None] + torch.arange(step.n[0], device=first.device)
    return out


FORMS: dict[str, Callable[..., Any]] = {
    "lstm": recurrent,
    "gru": recurrent,
    "rnn": recurrent,
    "scan": scan,
    "frame": frame,
    "overlap_add": overlap_add,
    "softmax_sum": softmax_sum,
    "cumulative_within": cumulative_within,
}


def kernel_of(node: FunctionalNode) -> Kernel:
    """Return the kernel of a node's operator.

    Raises
    ------
    NotStreamableError
        Where there is none.
    """
    kernel = KERNELS.get(node.name)
    if kernel is None:
        raise NotStreamableError(f"{node.path or 'the forward'}: {node.name} has no form that can be exported")
    form = FORMS.get(node.name)
    return kernel if form is None else replace(kernel, run=form)
