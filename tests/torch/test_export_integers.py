"""Operators' counts as data, and as operations on tensors: both are what the operators themselves say."""

import numpy as np
import pytest
import torch
from ds_laws import GENERATORS, made
from turns import in_blocks

from dreamstream import _core, dispatch
from dreamstream.errors import DreamStreamError
from dreamstream.torch.export.integers import Counter


def operators_of(name):
    """The operators of some random cases."""
    for index in range(4):
        case, _ = made("values", name, index)
        signatures = [(i.dtype, i.features, i.rate.numerator, i.rate.denominator) for i in case.inputs]
        yield dispatch.operator(name, case.attributes, signatures, case.weights), signatures


@in_blocks("name", GENERATORS, 24)
def test_counts_are_the_operators(name):
    rng = np.random.default_rng(0)
    for op, signatures in operators_of(name):
        frames = np.r_[0:4, rng.integers(0, 40, 56)][:, None].repeat(len(signatures), 1)
        known = frames - rng.integers(0, 5, frames.shape).clip(0, frames)
        known[:, 1:] = known[:, :1]
        ended = rng.random(60) < 0.5
        known = np.where(ended[:, None], frames, known)
        missing = rng.random(frames.shape) < 0.1
        known, frames = np.where(missing, 0, known), np.where(missing, -1, frames)
        pairs = [np.stack([0 * k, 0 * k - 1, k, n], 1) for k, n in zip(known.T, frames.T)]
        wanted = []
        for r in range(60):
            try:
                wanted.append([c[0, 2:] for c in op.counts([p[r : r + 1] for p in pairs], ended[r : r + 1])])
            except DreamStreamError:  # a length that is refused
                wanted.append(None)
        counter = Counter(torch.from_numpy(ended))
        given = [(torch.from_numpy(p[:, 2].copy()), torch.from_numpy(p[:, 3].copy())) for p in pairs]
        found = counter.step(op.integers()[0], given, op.same_counts and len(op.outputs) == 1, op.needs_frames)
        for r, outputs in enumerate(wanted):
            for (k, n), pair in zip(found, outputs or ()):
                assert (int(k[r]), int(n[r])) == tuple(pair), (r, pairs[0][r], ended[r])


def test_what_integers_gives_declare_takes():
    weight = np.zeros((3, 2, 5), np.float32)
    signature = ("float32", (2,), 1, 1)
    options = {"stride": 3, "left": 4, "right": 2, "mode": "reflect"}
    op = dispatch.operator("conv1d", options, [signature], [weight])
    counts, need = op.integers()
    again = _core.Op.declare([signature], op.outputs, counts, need)
    assert again.integers() == (counts, need)
    n = np.arange(30)
    rows = np.stack([n // 2, n // 2, n, n], 1)
    for ended in (np.zeros(30, bool), np.ones(30, bool)):
        a, b = op.counts([rows], ended), again.counts([rows], ended)
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(op.kept([rows], a)[0], again.kept([rows], b)[0])
    with pytest.raises(TypeError, match="integers"):
        op.integers(1)


def test_equal_expressions_are_computed_once():
    op = dispatch.operator("slice", {"start": 2, "step": 3}, [("float32", (), 1, 1)], [])
    n = torch.arange(10)
    counter = Counter()
    once, again = (counter.step(op.integers()[0], [(n, n)], False, op.needs_frames)[0][0] for _ in range(2))
    assert once is again
