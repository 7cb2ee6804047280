"""Which kernel an exported operator runs: the operator's, but for what exporters don't follow, as unfolding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ...errors import NotStreamableError
from ..run.kernels import KERNELS, Kernel, Step, Window
from .graph import FunctionalNode
from .loops import recurrent, scan


def frame(step: Step, x: Window) -> Tensor:
    """Return windows of successive frames."""
    a, first = step.attributes, step.first[0]
    starts = (first[:, None] + torch.arange(step.n[0], device=first.device)) * a["step"]
    inner = torch.arange(a["size"], device=starts.device) * a["dilation"]
    frames = x.take((starts[:, :, None] + inner).flatten(1))
    return frames.reshape((*starts.shape, a["size"], *frames.shape[2:]))


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


FORMS: dict[str, Callable[..., Any]] = {
    "lstm": recurrent,
    "gru": recurrent,
    "rnn": recurrent,
    "scan": scan,
    "frame": frame,
    "cumulative_within": cumulative_within,
}


def kernel_of(node: FunctionalNode) -> Kernel:
    """Return the kernel of a node's operator; NotStreamableError is raised where there is none."""
    kernel = KERNELS.get(node.name)
    if kernel is None:
        raise NotStreamableError(f"{node.path or 'the forward'}: {node.name} has no form that can be exported")
    form = FORMS.get(node.name)
    return kernel if form is None else replace(kernel, run=form)
