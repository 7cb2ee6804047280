"""Recurrent layers, and their cells on frames by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Array, Arrays, by_lane, no_frames, sigmoid

__all__ = ["REFERENCES"]

States = tuple[Array, ...]
Step = Callable[[Array, Array, States], States]


def _lstm(a: Array, b: Array, state: States) -> States:
    """One step of frames ``[...][gates]``: products with x and with h, then (h, c)."""
    i, f, g, o = np.split(a + b, 4, axis=-1)
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def _gru(a: Array, b: Array, state: States) -> States:
    (ar, az, an), (br, bz, bn) = np.split(a, 3, axis=-1), np.split(b, 3, axis=-1)
    n, z = np.tanh(an + sigmoid(ar + br) * bn), sigmoid(az + bz)
    return ((1 - z) * n + z * state[0],)


def _tanh(a: Array, b: Array, state: States) -> States:
    return (np.tanh(a + b),)


def _relu(a: Array, b: Array, state: States) -> States:
    return (np.maximum(a + b, 0),)


def _step(a: dict[str, Any], name: str) -> Step:
    return {"lstm": _lstm, "gru": _gru, "rnn": _relu if a.get("nonlinearity") == "relu" else _tanh}[name]


def _product(x: Array, weight: Array, bias: Array | None) -> Array:
    y = np.einsum("...k,nk->...n", x, weight)
    return y if bias is None else y + bias


def _direction(x: Array, weights: Arrays, bias: bool, state: States, step: Step) -> tuple[Array, States]:
    """One layer in one direction: its outputs and its last state."""
    w_ih, w_hh, *rest = weights
    b_ih, b_hh = rest[:2] if bias else (None, None)
    w_hr = rest[-1] if len(rest) % 2 else None
    out = []
    for frame in x:
        state = step(_product(frame, w_ih, b_ih), _product(state[0], w_hh, b_hh), state)
        if w_hr is not None:
            state = (w_hr @ state[0], *state[1:])
        out.append(state[0])
    return np.array(out), state


def recurrence(name: str, n_states: int) -> Callable[..., list[Array]]:
    def run(a: dict[str, Any], w: Arrays, x: Array, *before: Array) -> list[Array]:
        projection = a.get("projection", 0)
        per_cell, directions = 2 + 2 * a["bias"] + (projection > 0), 1 + a["bidirectional"]
        cells = a["layers"] * directions
        hidden = len(w[per_cell - 1][0]) if projection else w[1].shape[1]
        sizes = [projection or hidden, hidden][:n_states]
        if not len(x):
            return [no_frames(directions * sizes[0]), *(no_frames(cells, n) for n in sizes)]
        own = [b[0].reshape(cells, -1) for b in before if len(b)]
        given = [*w[cells * per_cell :], *own, *[None] * n_states]
        first = [np.zeros((cells, n)) if s is None else s for n, s in zip(sizes, given)]
        ends = [np.zeros((cells, n)) for n in sizes]
        for layer in range(a["layers"]):
            parts = []
            for d in range(directions):
                k = layer * directions + d
                y, state = _direction(
                    x[::-1] if d else x,
                    w[k * per_cell : (k + 1) * per_cell],
                    bool(a["bias"]),
                    tuple(s[k] for s in first),
                    _step(a, name),
                )
                parts.append(y[::-1] if d else y)
                for end, s in zip(ends, state):
                    end[k] = s
            x = np.concatenate(parts, axis=1)
        return [x, *(end[None] for end in ends)]

    return run


def within(name: str, n_states: int) -> Callable[..., list[Array]]:
    """Each frame ``[steps][...]``, and each lane of one, is a sequence of its own."""
    sequence = recurrence(name, n_states)

    def run(a: dict[str, Any], w: Arrays, x: Array) -> list[Array]:
        if not len(x):
            return [no_frames(*y.shape[1:]) for y in run(a, w, np.zeros((1, *x.shape[1:])))]
        rows = x.reshape(-1, *x.shape[-2:])
        y, *ends = (np.stack(parts) for parts in zip(*(sequence(a, w, row) for row in rows)))
        lead = x.shape[:-2]
        return [y.reshape(*lead, *y.shape[1:]), *(e.reshape(*lead, *e.shape[2:]) for e in ends)]

    return run


def cell(name: str, n_states: int) -> Callable[..., list[Array]]:
    def run(a: dict[str, Any], w: Arrays, x: Array, *state: Array) -> list[Array]:
        w_ih, w_hh, b_ih, b_hh = w
        state = state or (np.zeros((*x.shape[:-1], w_hh.shape[1])),) * n_states
        return list(_step(a, name)(_product(x, w_ih, b_ih), _product(state[0], w_hh, b_hh), state))

    return run


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "lstm": by_lane(recurrence("lstm", 2)),
    "gru": by_lane(recurrence("gru", 1)),
    "rnn": by_lane(recurrence("rnn", 1)),
    "lstm_within": within("lstm", 2),
    "gru_within": within("gru", 1),
    "rnn_within": within("rnn", 1),
    "lstm_cell": cell("lstm", 2),
    "gru_cell": cell("gru", 1),
    "rnn_cell": cell("rnn", 1),
}
