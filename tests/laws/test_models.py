"""Layers and small stacks: how they stream, held against every law, and what they say offline, against torch."""

from __future__ import annotations

import numpy as np
import pytest
from ds_laws import LAWS, MODELS, check, is_fast, n_cases
from ds_laws import models as table
from ds_laws.drive import Eager, alone, leaves, offline, plain


@pytest.mark.parametrize(
    ("law", "name"),
    [pytest.param(law, name, marks=[pytest.mark.fast] * is_fast(law, name)) for law in LAWS for name in MODELS],
)
def test_law(law, name):
    check(law, name, n_cases(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_many_cases(name):
    for index in range(n_cases(name, 10_000)):
        check(list(LAWS)[index % len(LAWS)], name, 1, first=10_000 + index)


# ---------------------------------------------------------------- the offline answer itself
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's own
@pytest.mark.parametrize("name", [n for n, entry in MODELS.items() if entry.torch])
def test_offline_is_torch(name):
    torch = pytest.importorskip("torch")
    entry, case = MODELS[name], table.case(name)
    theirs = entry.make(torch.nn, torch.nn.functional).eval()
    ours = case.model()
    theirs.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in ours.state_dict().items()})
    rng = np.random.default_rng(1)
    data = {f"s{n}": case.data(rng, case.lengths(rng, n) if case.lengths else [n]) for n in (*range(12), 25, 40)}
    if name == "every-second-position":
        data.pop("s40", None)
    dims = alone(Eager(case, rng), {"s": data["s25"]}, rng).dims
    compared = 0
    for arrays in data.values():
        got = offline(case, [arrays], dims, ours)[0]
        if not all(map(len, arrays)):
            assert all(len(y) == 0 or np.isnan(y).all() for y in got), "something comes out of nothing"
            continue
        try:
            with torch.no_grad():
                outputs = leaves(theirs(*[torch.from_numpy(np.array(x)) for x in plain(case, [arrays])]))
        except (RuntimeError, ValueError):  # too short for torch: then nothing comes out
            assert all(len(y) == 0 or np.isnan(y).all() for y in got), [len(a) for a in arrays]
            continue
        compared += 1
        for y, wanted, roles in zip(got, outputs, dims):
            kept = [d for d in roles if d != "B"]
            right = np.take(wanted.numpy(), 0, axis=roles.index("B"))
            right = np.moveaxis(right, kept.index("L"), 0) if "L" in kept else right[None]
            assert y.shape == right.shape
            scale = max(1.0, float(np.abs(right).max(initial=0.0)))
            assert np.abs(y - right).max(initial=0.0) <= 1e-5 * scale
    assert compared >= 5
