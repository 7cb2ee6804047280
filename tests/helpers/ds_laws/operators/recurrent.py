"""Random cases of recurrent layers along streams and within frames, and of their cells on frames by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick
from ..reference import Arrays, by_lane, no_frames, sigmoid
from .drawing import WAITS, along, innermost, lanes, make, maybe, shape

# ---------------------------------------------------------------- what they compute
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


def by_recurrence(name: str, n_states: int) -> Callable[..., list[Array]]:
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
    sequence = by_recurrence(name, n_states)

    def run(a: dict[str, Any], w: Arrays, *given: Array) -> list[Array]:
        x = given[0]
        if not len(x):
            return [no_frames(*y.shape[1:]) for y in run(a, w, *(np.zeros((1, *g.shape[1:])) for g in given))]
        rows = zip(*(g.reshape(-1, *g.shape[-2:]) for g in given))
        y, *ends = (np.stack(parts) for parts in zip(*(sequence(a, w, *row) for row in rows)))
        lead = x.shape[:-2]
        return [y.reshape(*lead, *y.shape[1:]), *(e.reshape(*lead, *e.shape[2:]) for e in ends)]

    return run


def by_cell(name: str, n_states: int) -> Callable[..., list[Array]]:
    def run(a: dict[str, Any], w: Arrays, x: Array, *state: Array) -> list[Array]:
        w_ih, w_hh, b_ih, b_hh = w
        state = state or (np.zeros((*x.shape[:-1], w_hh.shape[1])),) * n_states
        return list(_step(a, name)(_product(x, w_ih, b_ih), _product(state[0], w_hh, b_hh), state))

    return run


# ---------------------------------------------------------------- random cases
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def recurrence(name: str, within: bool = False) -> Callable[[Rng, str], Case]:
    def draw(rng: Rng, dtype: str) -> Case:
        a: dict[str, Any] = {
            "layers": int(pick(rng, 1, 1, 2, 3)),
            "bias": int(rng.integers(2)),
            "bidirectional": int(rng.random() < (0.6 if within else 0.2)),
        }
        if name == "rnn":
            a["nonlinearity"] = str(pick(rng, "tanh", "relu"))
        if name == "lstm":
            a["projection"] = int(pick(rng, 0, 0, rng.integers(1, 5)))
        n_in, hidden = int(rng.integers(1, 6)), int(rng.integers(1, 7))
        directions = 1 + a["bidirectional"]
        if a.get("projection"):
            hidden += a["projection"]  # torch wants a projection to be smaller
        out, gates = a.get("projection") or hidden, GATES[name] * hidden
        # Where no gate bounds h, weights must: else a rounding error grows with every frame.
        scale = 0.5 / hidden**0.5 if name == "rnn" or a.get("projection") else 1.0
        weights: list[Array | None] = []
        for cell in range(a["layers"] * directions):
            columns = n_in if cell < directions else directions * out
            weights += [normal(rng, (gates, columns), dtype), normal(rng, (gates, out), dtype)]
            weights += [normal(rng, (gates,), dtype) for _ in range(2 * a["bias"])]
            weights += [normal(rng, (out, hidden), dtype)] if a.get("projection") else []
        weights = [w if w is None else (w * scale).astype(dtype) for w in weights]
        cells, states = a["layers"] * directions, []
        own = lanes(rng)
        if (within or not own) and rng.random() < 0.3:
            sizes, lead = [out, hidden] if name == "lstm" else [out], (*own, 1) if within else ()
            states = [Input((*lead, cells * size), dtype) for size in sizes]
        elif rng.random() < 0.5:
            weights += [normal(rng, (cells, out), dtype)]
            weights += [normal(rng, (cells, hidden), dtype)] if name == "lstm" else []
        whole = bool(a["bidirectional"]) and not within
        steps = (int(rng.integers(1, 6)),) if within else ()
        return make(
            rng,
            f"{name}_within" if within else name,
            [Input((*own, *steps, n_in), dtype), *states],
            a,
            weights=weights,
            whole=whole,
            late=WAITS if whole else "",
        )

    return draw


def cell(name: str, states: int) -> Callable[[Rng, str], Case]:
    def draw(rng: Rng, dtype: str) -> Case:
        features = shape(rng, 1)
        hidden = int(rng.integers(1, 7))
        gates = GATES[name.removesuffix("_cell")] * hidden
        state = Input((*features[:-1], hidden), dtype)
        weights = [
            normal(rng, (gates, features[-1]), dtype),
            normal(rng, (gates, hidden), dtype),
            maybe(rng, normal(rng, (gates,), dtype)),
            maybe(rng, normal(rng, (gates,), dtype)),
        ]
        a = {"nonlinearity": str(pick(rng, "tanh", "relu"))} if name == "rnn_cell" else {}
        return make(
            rng,
            name,
            [Input(features, dtype)] + ([state] * states if rng.random() < 0.7 else []),
            a,
            weights=weights,
            **innermost(rng, features),
        )

    return draw


REFERENCES: dict[str, Callable[..., list[Array]]] = {
    "lstm": by_lane(by_recurrence("lstm", 2)),
    "gru": by_lane(by_recurrence("gru", 1)),
    "rnn": by_lane(by_recurrence("rnn", 1)),
    "lstm_within": within("lstm", 2),
    "gru_within": within("gru", 1),
    "rnn_within": within("rnn", 1),
    "lstm_cell": by_cell("lstm", 2),
    "gru_cell": by_cell("gru", 1),
    "rnn_cell": by_cell("rnn", 1),
}
GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    **{name: along(recurrence(name)) for name in GATES},
    **{f"{name}_within": recurrence(name, True) for name in GATES},
    "lstm_cell": cell("lstm_cell", 2),
    "gru_cell": cell("gru_cell", 1),
    "rnn_cell": cell("rnn_cell", 1),
}
