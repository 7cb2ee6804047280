"""Recurrent layers over padded rows of any lengths, without looking at the lengths.

Frames behind a row's last don't reach those before, so only what a row carries on is in question. Its h is
that of its last frame. An LSTM's c is held still behind it: one more input, 0 at frames and 1 behind them, with
weights that shut the input gate and open the forget gate all the way: c becomes ``1 * c + 0 * g``, exactly.

ONNX has layers that take lengths; in its graph they stand instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..private import recurrent_function
from ..run.kernels import Step, Window
from ..run.kernels.recurrent import as_rows, begun, of_rows
from .window import rows_of

Layer = tuple[str, int, str]
"""ONNX's name of a layer, the size of h, its activation where that is not the usual one."""

SHUT = 1e4
"""Of a gate: beyond what float32's sigmoid tells from 0 and 1, within what float16 holds."""

ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
"""ONNX's order of gates, by their places in torch's."""


def recurrent(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return every frame's h, and the last h and c, as the kernel of the same operators does."""
    a = step.attributes
    frames, lengths, state = as_rows(step, *windows[0].new(), tuple(state))
    state = begun(step, windows, state)
    per_cell = 2 + 2 * a["bias"] + (1 if a.get("projection") else 0)
    after: list[list[Tensor]] = [[] for _ in state]
    for layer in range(a["layers"]):
        own = weights[layer * per_cell : (layer + 1) * per_cell]
        before = [s[:, layer] for s in state]
        run = _in_onnx if torch.onnx.is_in_onnx_export() else _in_torch
        frames, *now = run(step, frames, lengths, before, own)
        there = (lengths > 0)[:, None]
        for kept, new, old in zip(after, now, before):
            kept.append(torch.where(there, new, old))
    frames, carried = of_rows(step, frames, tuple(torch.stack(layers, 1) for layers in after))
    return (frames, *(s[:, None] for s in carried)), carried


def _in_torch(
    step: Step, frames: Tensor, lengths: Tensor, before: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return ``(B, n, h)`` of one layer, and h, and of an LSTM c, after each row's last frame."""
    w = list(weights)
    starts = [s[None] for s in before]
    options = (bool(step.attributes["bias"]), 1, 0.0, False, False, True)
    last = (lengths - 1).clamp(min=0)[:, None]
    if step.name == "lstm":
        behind = torch.arange(frames.shape[1], device=lengths.device) >= lengths[:, None]
        frames = torch.cat([frames, behind[:, :, None].to(frames.dtype)], 2)
        gates = torch.tensor([-SHUT, SHUT, 0.0, 0.0], dtype=w[0].dtype, device=w[0].device)
        w[0] = torch.cat([w[0], gates.repeat_interleave(w[0].shape[0] // 4)[:, None]], 1)
        y, _, c = recurrent_function("lstm")(frames, starts, w, *options)
        return y, rows_of(y, last)[:, 0], c[0]
    name = f"rnn_{step.attributes['nonlinearity']}" if step.name == "rnn" else step.name
    y, _ = recurrent_function(name)(frames, starts[0], w, *options)
    return y, rows_of(y, last)[:, 0]


def _in_onnx(
    step: Step, frames: Tensor, lengths: Tensor, before: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the same of ONNX's own layers."""
    a = step.attributes
    hidden = weights[1].shape[1]
    parts = [w.unflatten(0, (-1, hidden)) for w in weights]
    w_ih, w_hh, *biases = ([p[i] for i in ORDERS[step.name]] for p in parts)
    if not biases:
        biases = [[w.new_zeros(hidden) for w in w_ih]] * 2
    kind = step.name.upper()
    activation = a["nonlinearity"].capitalize() if step.name == "rnn" else ""
    y, *after = _OnnxLayer.apply(
        frames.transpose(0, 1),
        torch.cat(w_ih)[None],
        torch.cat(w_hh)[None],
        torch.cat([*biases[0], *biases[1]])[None],
        lengths.to(torch.int32),
        (kind, hidden, activation),
        *(s[None] for s in before),
    )
    return y[:, 0].transpose(0, 1), *(s[0] for s in after)


class _OnnxLayer(torch.autograd.Function):
    """ONNX's LSTM, GRU or RNN; what it computes here has the right shapes and nothing else."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, r: Tensor, b: Tensor, lengths: Tensor, layer: Layer, *before: Tensor
    ) -> tuple[Tensor, ...]:
        y = x.new_zeros(x.shape[0], 1, x.shape[1], r.shape[2])
        return y, *(s.clone() for s in before)

    @staticmethod
    def symbolic(g: Any, x: Any, w: Any, r: Any, b: Any, lengths: Any, layer: Layer, *before: Any) -> Any:
        kind, hidden, activation = layer
        options: dict[str, Any] = {"hidden_size_i": hidden}
        if kind == "GRU":
            options["linear_before_reset_i"] = 1
        if activation:
            options["activations_s"] = [activation]
        return g.op(kind, x, w, r, b, lengths, *before, **options, outputs=1 + len(before))
