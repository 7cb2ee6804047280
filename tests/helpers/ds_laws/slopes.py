"""Operators run and read backwards by themselves: `_core.Op.run` with records, whole or chunk by chunk.

Slopes are gradients of a loss ``sum(g * y)`` over all outputs ``y``, with respect to inputs and weights.
"""

from typing import Any

import numpy as np

from dreamstream import dispatch

from .case import Case, Rng

Array = Any


class Driven:
    """One operator with its weights, and streams that go through it."""

    def __init__(self, case: Case, weights: list[Array | None] | None = None, blas: bool = False) -> None:
        types = [(i.dtype, i.features, i.rate.numerator, i.rate.denominator) for i in case.inputs]
        given = case.weights if weights is None else weights
        self.case, self.blas = case, blas
        self.weights = [None if w is None else np.asarray(w, order="C") for w in given]
        self.op = dispatch.operator(case.name, case.attributes, types, self.weights)
        self.calls: list[tuple[list[int], Any, list[Array]]] = []
        self.frames: dict[int, list[tuple[int, int]]] = {}
        self.states: dict[int, Any] = {}

    def call(self, rows: list[int], parts: list[list[Array]], eos: list[bool], record: bool = True) -> list[Array]:
        """Give these rows' streams new frames of every input; returns every output's new frames per row."""
        n = len(self.case.inputs)
        counts = [np.zeros((len(rows), 4), np.int64) for _ in range(n)]
        for r, (row, new) in enumerate(zip(rows, parts)):
            before = self.frames.get(row, [(0, -1)] * n)
            now = [(k + len(p), k + len(p)) for (k, _), p in zip(before, new)]
            for i in range(n):
                counts[i][r] = *before[i], *now[i]
            self.frames[row] = now
        ended = np.array(eos)
        made = self.op.counts(counts, ended)
        values = [np.ascontiguousarray(np.concatenate([p[i] for p in parts])) for i in range(self.op.n_values)]
        states = [self.states.get(row) for row in rows]
        results = self.op.run(values, counts, made, ended, states, self.weights, self.blas, (), None, record)
        for row, state in zip(rows, results[1]):
            self.states[row] = state
        lengths = [c[:, 2] - c[:, 0] for c in made]
        if record:
            self.calls.append((list(rows), results[2], lengths))
        return [np.split(y, np.cumsum(n)[:-1]) for y, n in zip(results[0], lengths)]

    def backward(
        self, slopes: dict[int, list[Array]], kept: bool = True
    ) -> tuple[dict[int, list[Array]], list[Array]]:
        """Slopes of every stream's inputs and of the weights, for those of every stream's outputs, end to end."""
        left = {row: [len(g) for g in gs] for row, gs in slopes.items()}
        after: dict[int, Any] = {}
        inputs: dict[int, list[list[Array]]] = {row: [[] for _ in range(self.op.n_values)] for row in slopes}
        weights: list[Any] = [w is not None and w.dtype.kind == "f" for w in self.weights]
        for rows, record, lengths in reversed(self.calls):
            given = []
            for o, n in enumerate(lengths):
                parts = [slopes[row][o][left[row][o] - k : left[row][o]] for row, k in zip(rows, n)]
                given.append(np.ascontiguousarray(np.concatenate(parts)))
                for row, k in zip(rows, n):
                    left[row][o] -= k
            states = [after.get(row) for row in rows] if kept else None
            dx, weights, before = record.backward(given, [True] * self.op.n_values, weights, states, kept)
            for r, row in enumerate(rows):
                after[row] = before[r]
                for i, d in enumerate(dx):
                    if d is not None:
                        at = record_counts(record, i)
                        inputs[row][i].insert(0, d[at[r] : at[r + 1]])
        joined = {row: [np.concatenate(p) if p else None for p in parts] for row, parts in inputs.items()}
        return joined, weights


def record_counts(record: Any, i: int) -> Array:
    """Where each row's new frames of input i begin in a record's arrays, and where they end."""
    return np.concatenate([[0], np.cumsum(record.frames(i))])


def random_slopes(rng: Rng, outputs: list[Array]) -> list[Array]:
    """Slopes of these outputs; zeros of those that are not real or not finite."""
    return [
        np.where(np.isfinite(y), rng.standard_normal(y.shape), 0).astype(y.dtype)
        if y.dtype.kind == "f"
        else np.zeros_like(y)
        for y in outputs
    ]


def loss(outputs: list[Array], slopes: list[Array]) -> float:
    """What the slopes are those of."""
    return float(sum((y[g != 0].astype(float) * g[g != 0]).sum() for y, g in zip(outputs, slopes)))


def whole(case: Case, streams: list[list[Array]], weights: list[Array | None] | None = None, record: bool = False):
    """All streams at once from start to end: what drives them, and per stream its outputs."""
    driven = Driven(case, weights)
    rows = list(range(len(streams)))
    outputs = driven.call(rows, streams, [True] * len(rows), record)
    return driven, [[y[r] for y in outputs] for r in rows]


def chunked(case: Case, rng: Rng, streams: list[list[Array]]) -> tuple[Driven, list[list[Array]]]:
    """The same in random chunks of random rows."""
    driven = Driven(case)
    steady = [i.rate.numerator == 0 for i in case.inputs]
    together = case.lockstep and case.name != "sync"
    at = {row: [0] * len(case.inputs) for row in range(len(streams))}
    started: set[int] = set()
    outputs: list[list[list[Array]]] = [[[] for _ in driven.op.outputs] for _ in streams]
    while at:
        rows = [row for row in rng.permutation(list(at)).tolist() if rng.random() < 0.7]
        parts, eos = [], []
        for row in rows:
            full = [len(x) for x in streams[row]]
            steps = [int(rng.choice([0, 1, 1, 2, 3, 7]))] * len(full)
            if not together:
                steps = [int(rng.choice([0, 1, 1, 2, 3, 7])) for _ in full]
            new = [min(a + s, n) for a, s, n in zip(at[row], steps, full)]
            new = [n if s else k for k, n, s in zip(new, full, steady)]
            parts.append([x[a:b] for x, a, b in zip(streams[row], at[row], new)])
            at[row] = new
            eos.append(new == full and rng.random() < 0.6)
        if not rows:
            continue
        started |= set(rows)
        made = driven.call(rows, parts, eos)
        for r, row in enumerate(rows):
            for o, y in enumerate(made):
                outputs[row][o].append(y[r])
            if eos[r]:
                del at[row]
    return driven, [[np.concatenate(p) for p in outs] for outs in outputs]
