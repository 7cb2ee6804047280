"""Weights that eager calls keep prepared: never those of yesterday, of another layer, or of another thread."""

import gc
import pickle
from functools import partial

import numpy as np
import pytest
from together import in_threads

import dreamstream as ds
from dreamstream import _core, dispatch, nn
from dreamstream.array.versions import version_of
from dreamstream.online import session

FEATURES = 5


class Twins(nn.Module):
    """Two layers of equal shapes, so of one operator; the first runs twice."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(FEATURES, FEATURES)
        self.b = nn.Linear(FEATURES, FEATURES)
        self.rnn = nn.LSTM(FEATURES, FEATURES, batch_first=True)

    def forward(self, x):
        return self.a(self.b(self.a(x))) + self.rnn(x)[0]


def frames(rng, n):
    return rng.standard_normal((n, FEATURES), dtype=np.float32)


def step(model, x, sos):
    return model(ds.stream_tensor([x], names=("B", "L", None), ids=["s"], sos=sos))["s"].numpy()


def by_numpy(p, at, value):
    p.numpy().flat[at] = value


def by_data(p, at, value):
    p.data.view(-1)[at] = float(value)


def by_sum(p, at, value):
    with ds.no_grad():
        more = np.zeros(p.shape, np.float32)
        more.flat[at] = value - p.numpy().flat[at]
        p += ds.tensor(more)


def by_memory(p, at, value):
    memoryview(p.numpy()).cast("B").cast("f")[at] = float(value)


def by_new_values(p, at, value):
    values = p.numpy().copy()
    p.data = values
    values.flat[at] = value  # which the parameter shares


def by_what_was_held(p, at, value):
    p.held.flat[at] = value  # a view that was taken before the call


@pytest.mark.parametrize(
    "edit", [by_numpy, by_data, by_sum, by_memory, by_new_values, by_what_was_held], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("most, least", [(1 << 28, 0), (1 << 28, 1 << 30), (0, 0)])
def test_edits_are_seen_at_once(rng, monkeypatch, most, least, edit):
    """Whichever element of whichever weight is written to, and back; with memory to keep it or without."""
    monkeypatch.setattr(session, "MOST_PREPARED", most)
    monkeypatch.setattr(session, "LEAST_VERSIONED", least)
    model = ds.patch_module(Twins().eval()).online()
    x = frames(rng, 3)
    first = step(model, x, True)
    for p in model.parameters():
        for at in {0, p.numel() - 1, int(rng.integers(p.numel()))}:
            old = p.numpy().flat[at]
            if edit is by_what_was_held:
                p.held = p.numpy()[...]
                model.reset()
                step(model, x, True)
            edit(p, at, old + 1)
            fresh = Twins().eval()
            fresh.load_state_dict(model.state_dict())
            model.reset()
            changed = step(model, x, True)
            np.testing.assert_array_equal(changed, step(ds.patch_module(fresh).online(), x, True))
            assert (changed != first).any()
            (by_numpy if edit is by_sum else edit)(p, at, old)  # a sum is rounded
            model.reset()
            np.testing.assert_array_equal(step(model, x, True), first)


def test_what_nobody_could_write_to_is_not_compared():
    p = nn.Linear(9, 9).weight
    known = version_of([p._own, None])
    assert known is not None and version_of([p._own, None]) == known
    held = p.detach()
    assert version_of([p._own]) is None  # as long as somebody has its memory
    del held
    assert version_of([p._own]) not in (None, known)
    assert version_of([pickle.loads(pickle.dumps(p)).numpy()]) is None


def test_nobody_has_parameters_behind_compile_and_audit():
    model, spec = Twins().eval(), ("B", "L", FEATURES)
    gc.disable()
    try:
        ds.audit(model, spec)
        for weights in ("fp32", "int8"):
            engine = ds.compile(model, spec, weights=weights)
        assert all(version_of([p._own]) is not None for p in model.parameters())
        del engine
    finally:
        gc.enable()


def test_nan_is_not_taken_for_equal(rng):
    model = ds.patch_module(nn.Linear(FEATURES, 2).eval()).online()
    x = frames(rng, 2)
    first = step(model, x, True)
    model.weight.numpy()[1, 3] = np.nan
    for _ in range(2):
        assert np.isnan(step(model, x, False)[:, 1]).all()
    model.weight.numpy()[1, 3] = 0
    assert np.isfinite(step(model, x, False)).all() and np.isfinite(first).all()


def test_only_for_its_own_operator(rng):
    x, w, v = frames(rng, 1), frames(rng, FEATURES), frames(rng, FEATURES)
    op, other = (
        dispatch.operator("linear", {}, [("float32", (n,), 1, 1)], [w[:, :n], None]) for n in (FEATURES, 2)
    )
    counts = [np.array([[0, 0, 1, 1]])]

    def run(weight, *more):
        return op.run([x], counts, counts, np.ones(1, bool), None, [weight, None], False, (), *more)[0][0]

    kept = _core.Prepared(op)
    assert kept.op is op
    for weight in (w, w, v, v, w):
        np.testing.assert_array_equal(run(weight, kept), run(weight))
    for wrong in (_core.Prepared(other), None, "kept"):
        np.testing.assert_array_equal(run(w, wrong), run(w))
    for wrong in ((), (1,), (op, op)):
        with pytest.raises(TypeError):
            _core.Prepared(*wrong)


def test_threads_that_share_it(rng):
    """One of them has it, the others prepare their own: all get what belongs to their weights."""
    n = 300
    x = rng.standard_normal((4, n), dtype=np.float32)
    weights = [rng.standard_normal((n, n), dtype=np.float32) for _ in range(4)]
    op = dispatch.operator("linear", {}, [("float32", (n,), 1, 1)], [weights[0], None])
    counts, ended = [np.array([[0, 0, 4, 4]])], np.ones(1, bool)
    kept = _core.Prepared(op)
    wanted = [op.run([x], counts, counts, ended, None, [w, None], False)[0][0] for w in weights]

    def work(k):
        for _ in range(50):
            y = op.run([x], counts, counts, ended, None, [weights[k], None], False, (), kept)[0][0]
            assert np.array_equal(y, wanted[k])

    in_threads(*(partial(work, k) for k in range(4)))


@pytest.mark.parametrize("n_bytes", [0, 1, 7, 8, 9, 63, 64, 65, 200, 1000])
def test_checksums_see_each_change(n_bytes):
    """Of every byte, of the number of zeros, and of words that are exchanged."""
    rng = np.random.default_rng(n_bytes)
    x = rng.integers(0, 256, n_bytes, dtype=np.uint8)
    others = [x[:-1], np.append(x, np.uint8(0))]
    for i in range(n_bytes):
        others.append(x.copy())
        others[-1][i] ^= np.uint8(1 << rng.integers(8))
    for i in range(n_bytes // 8 - 1):
        others.append(x.copy())
        others[-1][8 * i : 8 * i + 16] = np.roll(x[8 * i : 8 * i + 16], 8)
    sums = {_core.checksum(y) for y in others if y.tobytes() != x.tobytes()}
    assert _core.checksum(x) == _core.checksum(x.copy()) and _core.checksum(x) not in sums
