"""Recurrent layers along the stream and within frames, and cells on frames that know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...private import recurrent_function
from ...tensor.padding import Ints
from .positions import lanes_as_rows, rows_apart, rows_as_lanes, rows_of, there, traced
from .registry import Onwards, State, Step, Window, framewise, windowed

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def _cell(step: Step) -> str:
    return step.name.removesuffix("_within")


def _per_cell(step: Step) -> int:
    """Return how many weights one layer in one direction has."""
    return 2 + 2 * int(step.attributes["bias"]) + (1 if step.attributes.get("projection") else 0)


def split(step: Step, weights: Sequence[Any]) -> tuple[list[Tensor], list[Any]]:
    """Return the layers' weights as torch wants them, and h0 and c0 where they are given."""
    a = step.attributes
    n = a["layers"] * (1 + a["bidirectional"]) * _per_cell(step)
    return list(weights[:n]), list(weights[n:])


def _before(step: Step, weights: Sequence[Tensor | None], like: Tensor, rows: int = 1) -> State:
    """Return h, and of an LSTM c, before the first frame of rows: ``(rows, layers * directions, size)``."""
    a, name = step.attributes, _cell(step)
    layers, given = split(step, weights)
    hidden = layers[1].shape[0] // GATES[name]
    sizes = [a.get("projection") or hidden, hidden][: 2 if name == "lstm" else 1]
    given += [None] * (len(sizes) - len(given))
    n_cells = a["layers"] * (1 + a["bidirectional"])
    return tuple(
        like.new_zeros(rows, n_cells, size) if start is None else start.expand(rows, *start.shape)
        for start, size in zip(given, sizes)
    )


def lanes_of(step: Step) -> int:
    """Return how many lanes a frame has, each of which goes its own way; 0 where it has no such axis."""
    return step.features[0][0] if step.ranks[0] == 2 else 0


def as_rows(step: Step, frames: Tensor, lengths: Any, state: Sequence[Tensor]) -> tuple[Tensor, Any, State]:
    """Return frames ``(B, n, lanes, features)``, how many they are, and states, with a row for each lane."""
    lanes = lanes_of(step)
    if not lanes:
        return frames, lengths, tuple(state)
    lengths = None if lengths is None else lengths.unsqueeze(1).expand(-1, lanes).flatten()
    return lanes_as_rows(frames), lengths, tuple([s.flatten(0, 1) for s in state])


def of_rows(step: Step, y: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, State]:
    """Return rows ``(B * lanes, n, features)`` and their states as the lanes that they were."""
    lanes = lanes_of(step)
    if not lanes:
        return y, tuple(state)
    return rows_as_lanes(y, lanes), tuple([rows_apart(s, lanes) for s in state])


def _carried(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> State:
    if step.attributes["bidirectional"]:
        return ()
    before = _before(step, weights, like)
    return tuple(s.unsqueeze(1).expand(-1, lanes_of(step), -1, -1) for s in before) if lanes_of(step) else before


def _sees_new_frames_alone(step: Step) -> bool:
    return not step.attributes["bidirectional"] and len(step.frames) == 1


def _onwards(step: Step, weights: Sequence[Any]) -> Onwards:
    """Return what goes on by new frames alone; see `Kernel.onwards`."""
    n, several = len(split(step, weights)[0]), _cell(step) == "lstm"
    run, options = _function(step, n)

    def on(
        frames: Tensor, lengths: Tensor | None, weights: Sequence[Any], state: Sequence[Tensor]
    ) -> tuple[Tensor, Sequence[Tensor]]:
        frames, lengths, state = as_rows(step, frames, lengths, state)
        if lengths is not None:
            return of_rows(step, *_along(step, frames, lengths, state, weights))
        starts = [s.transpose(0, 1).contiguous() for s in state]
        y, *after = run(frames, starts if several else starts[0], weights[:n], *options, True)
        return of_rows(step, y, [s.transpose(0, 1) for s in after])

    return on


@windowed("lstm", "gru", "rnn", carries=_carried, numbers=_sees_new_frames_alone, onwards=_onwards)
def recurrent(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return every frame's h, and the last h and c where streams end."""
    x = windows[0]
    whole = step.attributes["bidirectional"]
    lengths: Tensor | None
    if whole:
        assert step.ended is not None
        frames = x.run(step.first[0], step.n[0])
        lengths = torch.where(step.ended, x.known, 0)
        rows = (frames.shape[0], lanes_of(step)) if lanes_of(step) else (frames.shape[0],)
        state = tuple([s.expand(*rows, *s.shape[1:]) for s in _before(step, weights, frames)])
    else:
        frames, lengths = x.new()
        lengths = None if x.even and frames.shape[1] else lengths
    state = begun(step, windows, state)
    y, after = _onwards(step, weights)(frames, lengths, weights, state)
    return (y, *(s[:, None][:, :n] for s, n in zip(after, step.n[1:]))), () if whole else after


@framewise("lstm_within", "gru_within", "rnn_within")
def within(step: Step, x: Tensor, *more: Any) -> tuple[Tensor, ...]:
    """Return h of every step of every frame, and each frame's last h and c."""
    lead, n = x.shape[:-2], len(step.frames) - 1
    rows = x if len(lead) == 1 else x.reshape(-1, *x.shape[-2:])
    begin, weights = more[:n], more[n:]
    before = _before(step, weights, rows, rows.shape[0])
    starts = [s.transpose(0, 1) for s in [b.reshape(s.shape) for b, s in zip(begin, before)] or before]
    if not traced() and not rows.shape[0]:
        y, ends = rows.new_zeros(0, rows.shape[1], step.features[0][-1]), starts
    else:
        y, *ends = _layers(step, (rows,), starts, split(step, weights)[0], (True,))
    results = y, *(s.transpose(0, 1) for s in ends)
    return results if len(lead) == 1 else tuple(r.reshape(*lead, *r.shape[1:]) for r in results)


def begun(step: Step, windows: Sequence[Window], state: State) -> State:
    """Return the state, of rows at their first frame that which is given as inputs."""
    begin = [w.run(torch.zeros_like(step.first[0]), 1)[:, 0] for w in windows[1:]]
    if not begin:
        return state
    rows = there(step.first[0] == 0, begin[0])[:, None, None]
    return tuple(torch.where(rows, b.reshape(s.shape), s) for b, s in zip(begin, state))


def _along(
    step: Step, frames: Tensor, lengths: Tensor, state: Sequence[Tensor], weights: Sequence[Any]
) -> tuple[Tensor, Sequence[Tensor]]:
    """Run all layers over frames ``(B, n, features)``; a row of none keeps its state."""
    n = frames.shape[1]
    if n == 0:
        return frames.new_zeros(frames.shape[0], 0, step.features[0][-1]), state
    alike = not traced() and bool((lengths == n).all())
    if alike or (n == 1 and not traced()):
        starts = [s.transpose(0, 1) for s in state]
        y, *after = _layers(step, (frames,), starts, split(step, weights)[0], (True,))
        after = [s.transpose(0, 1) for s in after]
        if not alike:
            rows = there(lengths > 0, y)[:, None, None]
            after = [torch.where(rows, new, old) for new, old in zip(after, state)]
        return y, after
    if _stands_still(step, frames, lengths):
        return over_padding(step, frames, lengths, state, weights)
    return _packed(step, frames, lengths, state, weights)


def _stands_still(step: Step, frames: Tensor, lengths: Tensor) -> bool:
    """Return whether rows of unequal lengths go faster side by side, each held where it ends.

    On the CPU torch is fast with LSTMs of rows that are equally long, and with nothing else.
    """
    a, plain = step.attributes, step.live and step.name == "lstm" and frames.dtype == torch.float32
    if not plain or a["bidirectional"] or a.get("projection") or frames.device.type != "cpu":
        return False
    return frames.shape[0] * frames.shape[1] <= 3 * int(lengths.sum())


#: Far beyond what else a gate sees: with it a sigmoid is 1, and 0 with its negative. A graph may become float16.
SURE, SURE_IN_GRAPHS = 1e30, 1e4


def over_padding(
    step: Step, frames: Tensor, lengths: Tensor, state: Sequence[Tensor], weights: Sequence[Any]
) -> tuple[Tensor, State]:
    """Run rows of unequal lengths side by side; nothing is read from the lengths.

    Frames behind a row's last don't reach those before, so only what a row carries on is in question. Its h is
    that of its last frame. An LSTM's c is held still behind it: one more feature, 0 at frames and 1 behind them,
    shuts the input gate and opens the forget gate all the way: c becomes ``1 * c + 0 * g``, exactly.
    """
    layers, _ = split(step, weights)
    per_layer, own = len(layers) // step.attributes["layers"], list(state)
    beyond = torch.arange(frames.shape[1], device=lengths.device) >= lengths[:, None]
    last, present = (lengths - 1).clamp(min=0)[:, None], (lengths > 0)[:, None]
    y, after = frames, []
    for i, before in enumerate(zip(*(s.unbind(1) for s in state))):
        w_ih, *others = layers[i * per_layer : (i + 1) * per_layer]
        if len(before) == 2:
            sure = SURE if step.live else SURE_IN_GRAPHS
            gates = torch.tensor([-sure, sure, 0.0, 0.0], dtype=w_ih.dtype, device=w_ih.device)
            w_ih = torch.cat([w_ih, gates.repeat_interleave(w_ih.shape[0] // 4)[:, None]], 1)
            y = torch.cat([y, beyond.unsqueeze(2).to(y.dtype)], 2)
        y, *own = _layers(step, (y,), [s[None] for s in before], [w_ih, *others], (True,))
        own[0] = rows_of(y, last).transpose(0, 1)
        after.append([torch.where(present, new[0], old) for new, old in zip(own, before)])
    return y, tuple(torch.stack(parts, 1) for parts in zip(*after))


def _packed(
    step: Step, frames: Tensor, lengths: Tensor, state: Sequence[Tensor], weights: Sequence[Any]
) -> tuple[Tensor, State]:
    """Run rows of unequal lengths, time after time all that still have a frame, the longest first."""
    n_rows, n = frames.shape[:2]
    order, places, batches = map(torch.from_numpy, _by_length(lengths.numpy().tobytes(), n))
    at, rows = there(places, frames), there(order, frames)
    starts = tuple(s.index_select(0, rows).transpose(0, 1).contiguous() for s in state)
    data = frames.flatten(0, 1).index_select(0, at)
    y, *after = _layers(step, (data, batches), starts, split(step, weights)[0], ())
    y = y.new_zeros(n_rows * n, y.shape[1]).index_copy(0, at, y).unflatten(0, (n_rows, n))
    return y, tuple(s.index_copy(0, rows, new.transpose(0, 1)) for s, new in zip(state, after))


@lru_cache(maxsize=64)
def _by_length(lengths: bytes, n: int) -> tuple[Ints, Ints, Ints]:
    """Return rows by falling length, where their frames stand in rows of n, by time, and how many then."""
    known = np.frombuffer(lengths, np.int64)
    order = np.argsort(-known, kind="stable")[: np.count_nonzero(known)]
    times = np.arange(n)[:, None]
    present = times < known[order]  # (n, rows)
    return order, (order * n + times)[present], present.sum(1)


def _layers(
    step: Step, data: tuple[Tensor, ...], starts: Sequence[Tensor], layers: list[Tensor], behind: tuple[bool, ...]
) -> Any:
    """Call torch's layers; `behind` is what follows for padded frames: that rows come first."""
    several = _cell(step) == "lstm"
    given = [s.contiguous() for s in starts] if several else starts[0].contiguous()
    run, options = _function(step, len(layers))
    return run(*data, given, layers, *options, *behind)


def _function(step: Step, n_weights: int) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return torch's function of all layers, and what it is given behind their weights."""
    a, name = step.attributes, _cell(step)
    n_layers = n_weights // (_per_cell(step) * (1 + a["bidirectional"]))
    options = (bool(a["bias"]), n_layers, 0.0, step.training, bool(a["bidirectional"]))
    return recurrent_function(f"rnn_{a['nonlinearity']}" if name == "rnn" else name), options


CELLS: dict[str, Any] = {"gru_cell": torch.gru_cell, "tanh": torch.rnn_tanh_cell, "relu": torch.rnn_relu_cell}


def _cell_alone(step: Step, weights: Sequence[Any]) -> Callable[..., Any] | None:
    """Return torch's own cell for frames of rows with a state, where no bias is missing."""
    n_states = 2 if step.name == "lstm_cell" else 1
    if len(step.ranks) != 1 + n_states or set(step.ranks) != {1} or None in weights[:4] or len(weights) != 4:
        return None
    own = CELLS.get(step.attributes.get("nonlinearity", step.name))
    run = own or (lambda x, h, c, *weights: torch.lstm_cell(x, (h, c), *weights))
    return lambda step, x, *given: run(x, *given) if x.dim() == 2 else cell(step, x, *given)


@framewise("lstm_cell", "gru_cell", "rnn_cell", alone=_cell_alone)
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
