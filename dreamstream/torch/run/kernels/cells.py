"""Recurrent cells on frames that know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .registry import Step, framewise

Tensor = torch.Tensor

CELLS: dict[str, Callable[..., Tensor]] = {
    "gru_cell": torch.gru_cell,
    "tanh": torch.rnn_tanh_cell,
    "relu": torch.rnn_relu_cell,
}


@framewise("lstm_cell", "gru_cell", "rnn_cell")
def cell(step: Step, *given: Tensor | None) -> Tensor | tuple[Tensor, ...]:
    """Return every frame's h, and of an LSTM c, from its own before, or from zeros."""
    n_values = len(step.ranks)
    x, *states, w_ih, w_hh = [v for v in given[: n_values + 2] if v is not None]
    lead = x.shape[:-1]
    rows = x.reshape(-1, x.shape[-1])
    hidden = step.features[0][-1]
    before = [s.reshape(-1, hidden) for s in states] or [rows.new_zeros(rows.shape[0], hidden)] * 2
    biases = list(given[n_values + 2 :])
    present = [b for b in biases if b is not None]
    if len(present) == 1:  # torch's fused cells want both or none
        biases = [torch.zeros_like(present[0]) if b is None else b for b in biases]
    if step.name == "lstm_cell":
        h, c = torch.lstm_cell(rows, before, w_ih, w_hh, *biases)
        return h.reshape(*lead, hidden), c.reshape(*lead, hidden)
    function = CELLS[step.attributes.get("nonlinearity", step.name)]
    return function(rows, before[0], w_ih, w_hh, *biases).reshape(*lead, hidden)
