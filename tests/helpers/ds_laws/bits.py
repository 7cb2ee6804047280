"""The bits of what is streamed, as a hash per model and mode: `python -m ds_laws.bits` prints them as JSON.

Run under different instruction sets, with and without OpenBLAS, with any number of threads, the lines must
be equal. Within a process streams in random batches, on two threads, must get what one gets alone and frame by
frame. Sizes are such that kernels run their bodies, their tails and several blocks of a sum.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from dreamstream import _core

from .case import Array, Case, Input, Rng, normal
from .drive import driver, run, schedule
from .models import MODELS, case as model_case
from .operators import GENERATORS

__all__ = ["hashes"]


def _large(dtype: str) -> list[Case]:
    """Products beyond one block of 256 along the sum, and vectors with a tail."""

    def weights(*shapes: tuple[int, ...]) -> list[Any]:
        rng = np.random.default_rng(5)
        return [normal(rng, s, dtype) * np.dtype(dtype).type(0.1) for s in shapes]

    def conv(groups: int, n_in: int, n_out: int, kernel: int, **more: Any) -> Case:
        a = {"stride": 1, "dilation": 1, "groups": groups, "left": 0, "right": 0, "mode": "zeros", **more}
        return Case(
            "conv1d",
            [Input((n_in,), dtype)],
            a,
            weights((n_out, n_in // groups, kernel), (n_out,)),
            ("B", "L", 0),
            reach=12,
        )

    def recurrence(name: str, gates: int, **more: Any) -> Case:
        """Two layers of 70 units."""
        n, out, shapes = gates * 70, more.get("projection") or 70, list[tuple[int, ...]]()
        for columns in (33, out):
            shapes += [(n, columns), (n, out), (n,), (n,)] + [(out, 70)] * (out < 70)
        a = {"layers": 2, "bias": 1, "bidirectional": 0, **more}
        return Case(name, [Input((33,), dtype)], a, weights(*shapes), rows)

    def cell(name: str, gates: int, states: int, **more: Any) -> Case:
        n, state = gates * 70, Input((70,), dtype)
        shapes = ((n, 300), (n, 70), (n,), (n,))
        return Case(name, [Input((300,), dtype)] + [state] * states, more, weights(*shapes), rows)

    group = {"groups": 4, "eps": 1e-5, "over": "frame"}
    rows = ("B", "L", 0)
    return [
        Case("linear", [Input((700,), dtype)], {}, weights((131, 700), (131,)), rows),
        conv(1, 80, 61, 7, stride=2, left=3, right=3),
        conv(67, 67, 67, 9, left=4, right=4),
        conv(4, 64, 96, 5, dilation=2, left=4, right=4, mode="replicate"),
        recurrence("lstm", 4, projection=0),
        recurrence("lstm", 4, projection=19),
        recurrence("gru", 3),
        recurrence("rnn", 1, nonlinearity="tanh"),
        recurrence("rnn", 1, nonlinearity="relu"),
        cell("lstm_cell", 4, 2),
        cell("gru_cell", 3, 1),
        cell("rnn_cell", 1, 1, nonlinearity="tanh"),
        Case("layer_norm", [Input((515,), dtype)], {"axes": 1, "eps": 1e-5}, weights((515,), (515,)), rows),
        Case("softmax", [Input((515,), dtype)], {}, [], rows),
        Case("rms_norm", [Input((515,), dtype)], {"axes": 1, "eps": 1e-6}, weights((515,)), rows),
        Case("group_norm", [Input((33, 20), dtype)], group, weights((20,), (20,)), ("B", "L", 0, 1)),
        Case("reduce_frames", [Input((5,), dtype)], {"kind": "mean"}, [], rows, reach=40),
    ]


def _bits(y: Array) -> bytes:
    return f"{y.dtype} {y.shape}".encode() + np.ascontiguousarray(y).tobytes()


def _hash(case: Case, mode: str, rng: Rng) -> str:
    data = {f"s{i}": case.stream(rng) for i in range(2)}
    data["long"] = case.data(
        rng, case.lengths(rng, 3 * case.reach) if case.lengths else [3 * case.reach + 9] * len(case.inputs)
    )
    threads = {"threads": 2} if mode == "engine" else {}
    batched = run(driver(mode, case, rng, **threads), schedule(case, rng, data), data)
    text = hashlib.sha256()
    single = driver(mode, case, rng)
    for i in sorted(data):
        for y in batched.frames[i]:
            text.update(_bits(y))
        if i == "s1":
            continue  # no other than s0
        cuts = "frames" if i == "long" or mode == "engine" else "random"
        alone = run(single, schedule(case, rng, {i: data[i]}, cuts), {i: data[i]})
        for y, z in zip(batched.frames[i], alone.frames[i], strict=True):
            assert _bits(y) == _bits(z), f"{mode}: in random batches other bits than alone: {case}"
    return text.hexdigest()[:16]


def hashes(n_cases: int = 1) -> dict[str, str]:
    """Hashes of models, of large cases, and of random cases of every operator."""
    out = {}
    for dtype in ("float32", "float64"):
        cases = [(name, model_case(name, dtype)) for name in MODELS]
        cases += [(f"large {k} {c.name}", c) for k, c in enumerate(_large(dtype))]
        for name in GENERATORS:
            cases += [
                (f"{name} {k}", GENERATORS[name](np.random.default_rng([3, k]), dtype)) for k in range(n_cases)
            ]
        for name, case in cases:
            for mode in case.modes:
                out[f"{name} {dtype} {mode}"] = _hash(case, mode, np.random.default_rng(4))
    return out


if __name__ == "__main__":
    print(json.dumps({"kernels": _core.config()["kernels"], "hashes": hashes()}))
