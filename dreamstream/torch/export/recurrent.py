"""Recurrent layers over padded rows of any lengths, without looking at the lengths.

They are the kernel's for rows side by side. ONNX has layers that take lengths; in its graph they stand instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..run.kernels import Step, Window
from ..run.kernels.recurrent import as_rows, begun, held, of_rows, split

Layer = tuple[str, int, str]
"""ONNX's name of a layer, the size of h, its activation where that is not the usual one."""

ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
"""ONNX's order of gates, by their places in torch's."""


def recurrent(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return every frame's h, and the last h and c, as the kernel of the same operators does."""
    frames, lengths, state = as_rows(step, *windows[0].new(), tuple(state))
    run = _in_onnx if torch.onnx.is_in_onnx_export() else held
    frames, carried = of_rows(step, *run(step, frames, lengths, begun(step, windows, state), weights))
    return (frames, *(s[:, None] for s in carried)), carried


def _in_onnx(
    step: Step, frames: Tensor, lengths: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the same of ONNX's own layers: every frame's h ``(B, n, h)``, and h and c after each row's last."""
    a, present = step.attributes, (lengths > 0)[:, None]
    own, after = split(step, weights)[0], []
    activation = a["nonlinearity"].capitalize() if step.name == "rnn" else ""
    per_layer = len(own) // a["layers"]
    for layer, before in enumerate(zip(*(s.unbind(1) for s in state))):
        first, hidden = layer * per_layer, own[layer * per_layer + 1].shape[1]
        parts = [w.unflatten(0, (-1, hidden)) for w in own[first : first + per_layer]]
        w_ih, w_hh, *biases = ([p[i] for i in ORDERS[step.name]] for p in parts)
        if not biases:
            biases = [[w.new_zeros(hidden) for w in w_ih]] * 2
        y, *ends = _OnnxLayer.apply(
            frames.transpose(0, 1),
            torch.cat(w_ih)[None],
            torch.cat(w_hh)[None],
            torch.cat([*biases[0], *biases[1]])[None],
            lengths.to(torch.int32),
            (step.name.upper(), hidden, activation),
            *(s[None] for s in before),
        )
        frames = y[:, 0].transpose(0, 1)
        after.append([torch.where(present, new[0], old) for new, old in zip(ends, before)])
    return frames, tuple(torch.stack(parts, 1) for parts in zip(*after))


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
