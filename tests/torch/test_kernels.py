"""torch's kernels give what the C operators give: every operator, whole sequences and ragged chunks."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from ds_laws import GENERATORS, n_cases
from ds_laws.case import DEFINITIONS
from ds_laws.drive import schedule

from dreamstream import _core, dispatch

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch_windows import Streams, counts_of

from dreamstream.torch.kernels import KERNELS

NAMES = [o["name"] for o in _core.operators()]


def test_every_operator_has_a_kernel():
    assert set(KERNELS) == set(NAMES)


def case_of(name, dtype, seed):
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    case = GENERATORS[name](rng, dtype)
    if DEFINITIONS[name]["lockstep"]:
        case.skew = 0  # the door brings them together before
    types = [(i.dtype, i.features, i.rate.numerator, i.rate.denominator) for i in case.inputs]
    op = dispatch.operator(name, case.attributes, types, case.weights)
    return case, op, rng


def tensors(arrays):
    return [None if a is None else torch.from_numpy(np.array(a, order="C")) for a in arrays]


def calls_of(case, rng, data, style):
    """The schedule's calls as ids, cuts, counts and ended."""
    for call in schedule(case, rng, data, style):
        if call:
            ended = np.array([r.eos for r in call])
            cuts = [[r.cuts[k] for r in call] for k in range(len(case.inputs))]
            counts = [counts_of(*zip(*c), ended) for c in cuts]
            yield [r.id for r in call], cuts, counts, ended


def near(got, wanted, bound):
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.where(np.isfinite(b), b, 0)
    np.testing.assert_allclose(a, b, rtol=0, atol=bound * max(1.0, np.abs(finite).max(initial=0.0)))


@pytest.mark.parametrize("dtype, bound", [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("name", NAMES)
def test_as_the_c_operator(name, dtype, bound):
    """Call by call, whatever the chunks: the same frames as C gives."""
    for seed in range(n_cases(name) * 2):
        case, op, rng = case_of(name, dtype, seed)
        data = {f"s{i}": case.stream(rng) for i in range(int(rng.integers(1, 6)))}
        style = ("whole", "frames", "random", "random")[seed % 4]
        streams, states = Streams(op, tensors(case.weights), tuple(len(i.features) for i in case.inputs)), {}
        weights = [None if w is None else np.asarray(w, order="C") for w in case.weights]
        with torch.no_grad():
            for ids, cuts, counts, ended in calls_of(case, rng, data, style):
                outputs = op.counts(counts, ended, ids)
                parts = [[data[i][k][a:b] for i, (a, b) in zip(ids, c)] for k, c in enumerate(cuts)]
                parts = parts[: op.n_values]
                old = [states.get(i) for i in ids]
                wanted, new = op.run(
                    [np.concatenate(p) for p in parts], counts, outputs, ended, old, weights, False
                )
                states.update(zip(ids, new or [None] * len(ids)))
                got = streams.call(ids, [tensors(p) for p in parts], counts, ended)
                for k, rows in enumerate(got):
                    if rows[0] is not None:
                        try:
                            near(torch.cat(list(rows)).numpy(), wanted[k], bound)
                        except AssertionError as e:
                            raise AssertionError(f"case {seed}: {case}\n{e}") from e
                    else:
                        assert not len(wanted[k])
