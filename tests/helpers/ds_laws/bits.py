"""The bits of what is streamed, as a hash per model and mode: `python -m ds_laws.bits` prints them as JSON.

Slopes are hashed, too. With the word `batched` nothing is streamed alone, and float32 alone, in an engine where it
runs in one: a quarter of the time.

Run under different instruction sets, with and without OpenBLAS, with any number of threads, the lines must
be equal. Within a process streams in random batches, on two threads, must get what one gets alone and frame by
frame. Sizes are such that kernels run their bodies, their tails and several blocks of a sum.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np

from dreamstream import _core
from dreamstream.operations import OPERATORS

from .case import Array, Case, Input, Rng, normal
from .drive import driver, run, schedule
from .models import MODELS, case as model_case
from .operators import GENERATORS
from .slopes import random_slopes, whole

CASES = Path(__file__).resolve().parents[2] / "c" / "op_cases.def"


def _large(dtype: str) -> list[Case]:
    """Those with the mark BLOCKS of the programs in C: their texts, with random weights."""
    rng, cases = np.random.default_rng(5), list[Case]()
    for name, quoted in re.findall(r"^BLOCKS\((\w+), ([^)]*)\)", CASES.read_text(), flags=re.MULTILINE):
        members = "".join(re.findall(r'"([^"]*)"', quoted)).replace("'", '"')
        said = json.loads(f"{{{members[1:]}}}")
        weights = [
            normal(rng, tuple(shape), dtype) * np.dtype(dtype).type(0.1) for shape in said.get("weights", [])
        ]
        inputs = [Input(tuple(shape), dtype) for _, shape in said["in"]]
        layout = ("B", "L", *range(len(inputs[0].features)))
        reach = 40 if OPERATORS[name].by_position else 12
        cases.append(Case(name, inputs, said.get("attrs", {}), weights, layout, reach=reach))
    return cases


def _bits(y: Array) -> bytes:
    if y.dtype.kind == "f":  # sign and payload of a NaN are the processor's
        y = np.where(np.isnan(y), y.dtype.type(np.nan), y)
    return f"{y.dtype} {y.shape}".encode() + np.ascontiguousarray(y).tobytes()


def _hash(case: Case, mode: str, rng: Rng, single_too: bool) -> str:
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
        if i == "s1" or not single_too:
            continue  # s1 is no other than s0
        cuts = "frames" if i == "long" or mode == "engine" else "random"
        alone = run(single, schedule(case, rng, {i: data[i]}, cuts), {i: data[i]})
        for y, z in zip(batched.frames[i], alone.frames[i], strict=True):
            assert _bits(y) == _bits(z), f"{mode}: in random batches other bits than alone: {case}"
    return text.hexdigest()[:16]


def _slopes_hash(case: Case, rng: Rng) -> str:
    """Of slopes of inputs and weights of two whole streams."""
    driven, outputs = whole(case, [case.stream(rng) for _ in range(2)], record=True)
    text = hashlib.sha256()
    if driven.op.differentiable:
        inputs, weights = driven.backward({r: random_slopes(rng, ys) for r, ys in enumerate(outputs)})
        for slope in (*inputs[0], *inputs[1], *weights):
            text.update(b"" if slope is None else _bits(slope))
    return text.hexdigest()[:16]


def hashes(n_cases: int = 1, single_too: bool = True) -> dict[str, str]:
    """Hashes of models, of large cases, and of random cases of every operator."""
    out = {}
    for dtype in ("float32", "float64") if single_too else ("float32",):
        cases = [(name, model_case(name, dtype)) for name in MODELS]
        cases += [(f"large {k} {c.name}", c) for k, c in enumerate(_large(dtype))]
        for name in GENERATORS:
            cases += [
                (f"{name} {k}", GENERATORS[name](np.random.default_rng([3, k]), dtype)) for k in range(n_cases)
            ]
        for name, case in cases:
            for mode in case.modes:
                if single_too or mode == "engine" or "engine" not in case.modes:
                    out[f"{name} {dtype} {mode}"] = _hash(case, mode, np.random.default_rng(4), single_too)
            if case.name in GENERATORS:
                out[f"{name} {dtype} slopes"] = _slopes_hash(case, np.random.default_rng(4))
    return out


if __name__ == "__main__":
    found = hashes(single_too="batched" not in sys.argv)
    print(json.dumps({"kernels": _core.config()["kernels"], "hashes": found}))
