"""torch's kernels give what the C operators give: every operator, in whole sequences and in ragged chunks."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from ds_laws import GENERATORS, n_cases
from ds_laws.case import DEFINITIONS
from ds_laws.drive import schedule
from ds_laws.operators.norms import far

from dreamstream import _core, dispatch

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch_windows import Online, Plain, tensors

from dreamstream.torch.kernels import KERNELS

NAMES = [o["name"] for o in _core.operators()]
FRAMEWISE = [name for name in NAMES if KERNELS[name].framewise]
WINDOWED = [name for name in NAMES if not KERNELS[name].framewise]

#: Where torch's own float32 loses digits far from zero (it gives the same offline); float64 shows the rest.
CANCELS = {"batch_norm", "group_norm"}


def test_every_operator_has_a_kernel():
    assert set(KERNELS) == set(NAMES)


# ---------------------------------------------------------------------- cases
def case_of(name, dtype, seed):
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    case = GENERATORS[name](rng, dtype)
    if DEFINITIONS[name]["lockstep"]:
        case.skew = 0  # the door brings them together before
    types = [(i.dtype, i.features, i.rate.numerator, i.rate.denominator) for i in case.inputs]
    return case, dispatch.operator(name, case.attributes, types, case.weights), rng


def cases(name, dtype, times=2):
    for seed in range(n_cases(name) * times):
        case, op, rng = case_of(name, dtype, seed)
        if dtype == "float64" or name not in CANCELS or case.inputs[0].draw is not far:
            yield seed, case, op, rng


def calls_of(case, rng, data, style):
    """The schedule's calls: rows, counts of all inputs, which rows end."""
    for rows in schedule(case, rng, data, style):
        if rows:
            cuts = [np.array([r.cuts[k] for r in rows], np.int64) for k in range(len(case.inputs))]
            yield rows, [np.repeat(c, 2, 1) for c in cuts], np.array([r.eos for r in rows])


def parts_of(case, op, data, rows):
    """``[input][row]``: the frames of a call."""
    return [[data[r.id][k][slice(*r.cuts[k])] for r in rows] for k in range(op.n_values)]


def near(got, wanted, bound):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    scale = max(1.0, np.abs(np.where(np.isfinite(b), b, 0)).max(initial=0.0))
    np.testing.assert_allclose(a, b, rtol=0, atol=bound * scale)


# ---------------------------------------------------------------------- values
def compare(driver, case, op, rng, style, bound):
    data = {f"s{i}": case.stream(rng) for i in range(int(rng.integers(1, 6)))}
    weights = [None if w is None else np.asarray(w, order="C") for w in case.weights]
    streams, states = driver(case, op, tensors(case.weights)), {}
    for rows, counts, ended in calls_of(case, rng, data, style):
        parts, ids = parts_of(case, op, data, rows), [r.id for r in rows]
        outputs, old = op.counts(counts, ended, ids), [None if r.sos else states[r.id] for r in rows]
        frames = [np.concatenate(p) for p in parts]
        wanted, new = op.run(frames, counts, outputs, ended, old, weights, False)
        states.update(zip(ids, new or [None] * len(ids)))
        for y, w in zip(streams.call(rows, [tensors(p) for p in parts], counts, ended), wanted, strict=True):
            if y is None:
                assert not len(w)
            else:
                near(y.numpy(), w, bound)


@pytest.mark.filterwarnings("ignore:LSTM with projections", "ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype, bound", [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("name", NAMES)
def test_as_the_c_operator(name, dtype, bound):
    """Call by call, whatever the chunks: the same frames as C gives, in the plain driver and in the bridge's."""
    for seed, case, op, rng in cases(name, dtype):
        style = ("random", "whole", "random", "frames")[seed % 4]
        try:
            with torch.no_grad():
                compare((Plain, Online)[seed // 2 % 2], case, op, rng, style, bound)
        except Exception as error:
            raise AssertionError(f"case {seed}, {style}: {case}\n{error!r}") from error
