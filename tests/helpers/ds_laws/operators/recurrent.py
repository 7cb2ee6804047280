"""Random cases of recurrent layers along streams and within frames, and of their cells on frames by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..case import Array, Case, Input, Rng, normal, pick
from .drawing import WAITS, along, innermost, lanes, make, maybe, shape

__all__ = ["GENERATORS"]

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
        if not within and not own and rng.random() < 0.3:
            sizes = [out, hidden] if name == "lstm" else [out]
            states = [Input((cells * size,), dtype) for size in sizes]
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


GENERATORS: dict[str, Callable[[Rng, str], Case]] = {
    **{name: along(recurrence(name)) for name in GATES},
    **{f"{name}_within": recurrence(name, True) for name in GATES},
    "lstm_cell": cell("lstm_cell", 2),
    "gru_cell": cell("gru_cell", 1),
    "rnn_cell": cell("rnn_cell", 1),
}
