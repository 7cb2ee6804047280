"""Recurrent layers along the stream, and cells on frames that know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...private import recurrent_function
from .positions import there, traced
from .registry import State, Step, Window, framewise, windowed

Tensor = torch.Tensor


GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def _split(step: Step, weights: Sequence[Any]) -> tuple[list[Tensor], list[Any]]:
    """Return the layers' weights as torch wants them, and h0 and c0 where they are given."""
    a = step.attributes
    per_cell = 2 + 2 * a["bias"] + (1 if a.get("projection") else 0)
    n = a["layers"] * (1 + a["bidirectional"]) * per_cell
    return list(weights[:n]), list(weights[n:])


def _before(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> State:
    """Return h, and of an LSTM c, before the first frame of one row: ``(1, layers * directions, size)``."""
    a = step.attributes
    layers, given = _split(step, weights)
    hidden = layers[1].shape[0] // GATES[step.name]
    sizes = [a.get("projection") or hidden, hidden][: 2 if step.name == "lstm" else 1]
    given += [None] * (len(sizes) - len(given))
    n_cells = a["layers"] * (1 + a["bidirectional"])
    return tuple(
        like.new_zeros(1, n_cells, size) if start is None else start[None] for start, size in zip(given, sizes)
    )


def _carried(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> State:
    return () if step.attributes["bidirectional"] else _before(step, weights, like)


@windowed("lstm", "gru", "rnn", carries=_carried)
def recurrent(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return every frame's h, and the last h and c where streams end."""
    x, *given = windows
    at_start = step.first[0] == 0
    begin = tuple(w.run(torch.zeros_like(step.first[0]), 1)[:, 0] for w in given)
    if step.attributes["bidirectional"]:
        assert step.ended is not None
        frames = x.run(step.first[0], step.n[0])
        lengths = torch.where(step.ended, x.known, 0)
        before = tuple(s.expand(frames.shape[0], -1, -1) for s in _before(step, weights, frames))
        before = _begun(before, begin, at_start)
        y, after = _along(step, frames, lengths, before, weights, x.even)
        state = ()
    else:
        frames, lengths = x.new()
        y, after = _along(step, frames, lengths, _begun(state, begin, at_start), weights, x.even)
        state = after
    return (y, *(s[:, None][:, :n] for s, n in zip(after, step.n[1:]))), state


def _begun(state: State, begin: State, at_start: Tensor) -> State:
    """Return the state, of rows at their first frame that which is given as inputs."""
    if not begin:
        return state
    rows = there(at_start, begin[0])[:, None, None]
    return tuple(torch.where(rows, b.reshape(s.shape), s) for b, s in zip(begin, state))


def _along(
    step: Step, frames: Tensor, lengths: Tensor, state: State, weights: Sequence[Any], even: bool
) -> tuple[Tensor, State]:
    """Run all layers over frames ``(B, n, features)``; a row of none keeps its state."""
    n = frames.shape[1]
    if n == 0:
        return frames.new_zeros(frames.shape[0], 0, *step.features[0]), state
    if even if traced() else bool((lengths == n).all()):
        starts = tuple(s.transpose(0, 1).contiguous() for s in state)
        y, *after = _layers(step, (frames,), starts, _split(step, weights)[0], (True,))
        return y, tuple(s.transpose(0, 1) for s in after)
    if _stands_still(step, frames, lengths):
        return _held(step, frames, lengths, state, weights)
    return _packed(step, frames, lengths, state, weights)


def _stands_still(step: Step, frames: Tensor, lengths: Tensor) -> bool:
    """Return whether rows of unequal lengths go faster side by side, each held where it ends.

    On the CPU torch is fast with LSTMs of rows that are equally long, and with nothing else.
    """
    a, plain = step.attributes, step.live and step.name == "lstm" and frames.dtype == torch.float32
    if not plain or a["bidirectional"] or a.get("projection") or frames.device.type != "cpu":
        return False
    return frames.shape[0] * frames.shape[1] <= 3 * int(lengths.sum())


#: Far beyond what else a gate sees: with it a sigmoid is 1, and 0 with its negative.
SURE = 1e30


def _held(
    step: Step, frames: Tensor, lengths: Tensor, state: State, weights: Sequence[Any]
) -> tuple[Tensor, State]:
    """Run the rows of an LSTM side by side; behind a row's frames its cells keep c.

    One more feature is 1 there: it shuts the input gate and opens the forget gate. What h is after a row's last
    frame is seen in the output.
    """
    layers, _ = _split(step, weights)
    per_layer = len(layers) // step.attributes["layers"]
    beyond = (torch.arange(frames.shape[1]) >= lengths[:, None]).unsqueeze(2).to(frames.dtype)
    rows, last, present = torch.arange(len(lengths)), (lengths - 1).clamp(min=0), (lengths > 0)[:, None]
    y, after = frames, []
    for i, (h, c) in enumerate(zip(state[0].unbind(1), state[1].unbind(1))):
        w_ih, *others = layers[i * per_layer : (i + 1) * per_layer]
        gates = w_ih.new_tensor([-SURE, SURE, 0.0, 0.0]).repeat_interleave(w_ih.shape[0] // 4)
        own = [torch.cat([w_ih, gates[:, None]], 1), *others]
        y, _, c = _layers(step, (torch.cat([y, beyond], 2),), (h[None], c[None]), own, (True,))
        after.append((torch.where(present, y[rows, last], h), c[0]))
    h, c = (torch.stack(parts, 1) for parts in zip(*after))
    return y, (h, c)


def _packed(
    step: Step, frames: Tensor, lengths: Tensor, state: State, weights: Sequence[Any]
) -> tuple[Tensor, State]:
    """Run rows of unequal lengths, time after time all that still have a frame, the longest first."""
    n_rows, n = frames.shape[:2]
    order = lengths.argsort(descending=True, stable=True)[: int((lengths > 0).sum())]
    present = torch.arange(n, device=order.device)[:, None] < lengths[order]  # (n, rows)
    places = order * n + torch.arange(n, device=order.device)[:, None]
    at, rows = there(places[present], frames), there(order, frames)
    starts = tuple(s.index_select(0, rows).transpose(0, 1).contiguous() for s in state)
    data = frames.flatten(0, 1).index_select(0, at)
    y, *after = _layers(step, (data, present.sum(1)), starts, _split(step, weights)[0], ())
    y = y.new_zeros(n_rows * n, y.shape[1]).index_copy(0, at, y).unflatten(0, (n_rows, n))
    return y, tuple(s.index_copy(0, rows, new.transpose(0, 1)) for s, new in zip(state, after))


def _layers(
    step: Step, data: tuple[Tensor, ...], starts: State, layers: list[Tensor], behind: tuple[bool, ...]
) -> Any:
    """Call torch's layers; `behind` is what follows for padded frames: that rows come first."""
    a = step.attributes
    name = f"rnn_{a['nonlinearity']}" if step.name == "rnn" else step.name
    given = starts if step.name == "lstm" else starts[0]
    n_layers = starts[0].shape[0] // (1 + a["bidirectional"])
    options = (bool(a["bias"]), n_layers, 0.0, step.training, bool(a["bidirectional"]))
    return recurrent_function(name)(*data, given, layers, *options, *behind)


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
