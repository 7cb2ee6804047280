"""A call that fails leaves every stream as it was, wherever it fails: at the k-th operation of a forward or at
the n-th allocation. (Exceptions that come from outside: tests/threads/test_async.py.)"""

import gc

import faults
import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn


class Model(nn.Module):
    """Kept frames, carried state, a sync, a stride; `fail` raises at the k-th layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 5, padding=2)
        self.down = nn.Conv1d(8, 8, 4, stride=3, padding=1)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.fail = None

    def forward(self, x):
        y = self.conv(x)
        self.maybe(0)
        y = y.relu() + y
        self.maybe(1)
        y = self.down(y)
        self.maybe(2)
        y = self.rnn(y.transpose(1, 2))[0]
        self.maybe(3)
        return y

    def maybe(self, k):
        if self.fail is not None and self.fail[0] == k:
            raise self.fail[1]


def make():
    ds.manual_seed(1)
    return Model().eval()


def chunk(rng, n):
    return rng.standard_normal((3, n), dtype=np.float32)


def tensor(chunks, sos=(), eos=()):
    ids = list(chunks)
    return ds.stream_tensor(
        list(chunks.values()), ids=ids, sos=[i in sos for i in ids], eos=[i in eos for i in ids]
    )


class Pair:
    """A module and an undisturbed twin: after every disturbance both must go on alike."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.model, self.twin = (ds.patch_module(make()).online() for _ in range(2))
        self.both({"a": chunk(self.rng, 11), "b": chunk(self.rng, 2)}, sos=("a", "b"))

    def both(self, chunks, sos=(), eos=()):
        got, wanted = (m(tensor(chunks, sos, eos)) for m in (self.model, self.twin))
        for i in chunks:
            assert np.array_equal(got[i].numpy(), wanted[i].numpy()), i
        assert self.model.live_ids == self.twin.live_ids

    def batch(self):
        """A batch with a stream that goes on, one that ends, one that starts and one that comes and goes."""
        chunks = {i: chunk(self.rng, n) for i, n in (("a", 7), ("b", 5), ("c", 6), ("d", 1))}
        return chunks, ("c", "d"), ("b", "d")

    def go_on(self):
        self.both({"a": chunk(self.rng, 4), "b": chunk(self.rng, 9)})


# ---------------------------------------------------------------- the k-th operation
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3), MemoryError()])
@pytest.mark.parametrize("k", range(4))
def test_the_users_own_exception(k, error):
    pair = Pair()
    chunks, sos, eos = pair.batch()
    pair.model.fail = (k, error)
    with pytest.raises(type(error)):
        pair.model(tensor(chunks, sos, eos))
    pair.model.fail = None
    pair.go_on()
    pair.both(chunks, sos, eos)


# ---------------------------------------------------------------- the n-th allocation
@pytest.fixture
def counted():
    faults.install()
    yield
    faults.uninstall()


def fail_every_allocation(action):
    """Run the action with its 1st, 2nd, ... allocation failing until it succeeds; return how often it failed."""
    for n in range(1, 2000):
        gc.collect()  # graphs hang in circles with the tensors that were captured
        blocks = faults.stats()["live_blocks"]
        faults.arm(n)
        try:
            action()
            return
        except ds.OutOfMemoryError:
            pass
        finally:
            faults.arm(0)
        gc.collect()
        yield n, faults.stats()["live_blocks"] - blocks


def test_eager_calls(counted):
    pair, failures = Pair(), 0
    x, sos, eos = pair.batch()
    outputs = []
    for _ in fail_every_allocation(lambda: outputs.append(pair.model(tensor(x, sos, eos)))):
        failures += 1
    twin = pair.twin(tensor(x, sos, eos))
    assert all(np.array_equal(outputs[0][i].numpy(), twin[i].numpy()) for i in x)
    pair.both({"a": chunk(pair.rng, 5), "c": chunk(pair.rng, 5)})
    assert failures >= 5, "one for every operation at least"


def test_offline_calls(counted):
    model = make()
    x = ds.tensor(chunk(np.random.default_rng(0), 50)[None])
    wanted = model(x).numpy()  # operators are made once and kept
    results, failures = [], 0
    for _, leaked in fail_every_allocation(lambda: results.append(model(x))):
        failures += 1
        assert leaked <= 0
    assert failures > 5
    assert np.array_equal(results[0].numpy(), wanted)


def test_bits_do_not_depend_on_where_memory_lies():
    model, blocks, rng = make(), [], np.random.default_rng(0)
    x = chunk(rng, 50)[None]
    wanted = model(ds.tensor(x)).numpy()
    for _ in range(200):
        blocks.append(np.empty(rng.integers(1, 400), np.float32))
        if len(blocks) > 50:
            blocks.pop(rng.integers(50))
        assert np.array_equal(model(ds.tensor(x)).numpy(), wanted)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_compiling(counted, threads):
    model, engines, failures = make(), [], 0
    ds.compile(model, ("B", 3, "L"), verify=False)  # operators are made once and kept
    for _, leaked in fail_every_allocation(
        lambda: engines.append(ds.compile(model, ("B", 3, "L"), verify=False, threads=threads))
    ):
        failures += 1
        assert leaked <= 0
    assert failures > 30
    x = chunk(np.random.default_rng(0), 20)
    wanted = ds.compile(model, ("B", 3, "L")).step({"a": x}, sos="a", eos="a")["a"]
    assert np.array_equal(engines[0].step({"a": x}, sos="a", eos="a")["a"], wanted)


def engines():
    rng = np.random.default_rng(2)
    pair = [ds.compile(make(), ("B", 3, "L"), verify=False) for _ in range(2)]
    first = {"a": chunk(rng, 13), "b": chunk(rng, 3)}
    for e in pair:
        e.step(first, sos=("a", "b"))
    return *pair, rng


def assert_alike(engine, twin, rng):
    assert engine.ids == twin.ids
    chunks = {i: chunk(rng, 6) for i in twin.ids}
    got, wanted = (e.step(chunks) for e in (engine, twin))
    assert all(np.array_equal(got[i], wanted[i]) for i in chunks)


@pytest.mark.parametrize("restart", [False, True])
def test_steps(counted, restart):
    engine, twin, rng = engines()
    chunks = {i: chunk(rng, 2000) for i in "abcd"}
    options = {"sos": ("b", "c", "d") if restart else ("c", "d"), "eos": ("a", "d"), "restart": restart}
    failures, outputs = 0, []
    for _ in fail_every_allocation(lambda: outputs.append(engine.step(chunks, **options))):
        failures += 1
        assert_alike(engine, twin, rng)
        chunks.update({i: chunk(rng, 2000 * (failures + 1)) for i in "abcd"})  # larger: it allocates again
        if failures > 12:
            break
    assert failures >= 3, "two new streams, and room for the call"
    wanted = twin.step(chunks, **options)
    got = outputs[0] if outputs else engine.step(chunks, **options)
    assert all(np.array_equal(got[i], wanted[i]) for i in chunks)
    assert_alike(engine, twin, rng)


def test_batches(counted):
    """The same of padded batches, whose `out` is as it was, too."""
    engine, twin, rng = engines()
    ids, options = list("abcd"), {"sos": ["c", "d"], "eos": ["a", "d"]}
    failures, results = 0, []

    def arrays(n):
        return rng.standard_normal((4, 3, n), dtype=np.float32), np.full((4, n, 8), 7, np.float32)

    given = [*arrays(2000)]
    for _ in fail_every_allocation(
        lambda: results.append(engine.step_batch(ids, given[0], out=given[1], **options))
    ):
        failures += 1
        assert (given[1] == 7).all()
        assert_alike(engine, twin, rng)
        given[:] = arrays(2000 * (failures + 1))  # larger: it allocates again
        if failures > 12:
            break
    assert failures >= 3
    x, out = given
    wanted = twin.step(dict(zip(ids, x, strict=True)), **options)
    y, lengths = results[0] if results else engine.step_batch(ids, x, out=out, **options)
    assert all(np.array_equal(y[r, : lengths[r]], wanted[i]) for r, i in enumerate(ids))
    assert_alike(engine, twin, rng)


@pytest.mark.parametrize("what", ["snapshot", "restore", "fork"])
def test_copies(counted, what):
    engine, twin, rng = engines()
    kept = engine.snapshot("a")
    actions = {
        "snapshot": lambda: engine.snapshot("a"),
        "restore": lambda: engine.restore(kept, "new"),
        "fork": lambda: engine.fork("a", "new"),
    }
    failures = 0
    for _ in fail_every_allocation(actions[what]):
        failures += 1
        assert_alike(engine, twin, rng)
    assert failures >= 1
    if what != "snapshot":
        assert engine.ids == ["a", "b", "new"]
        engine.reset("new")
    assert_alike(engine, twin, rng)


def test_nothing_leaks(counted):
    before = faults.stats()["live_blocks"]
    engine, _, rng = engines()
    engine.step({i: chunk(rng, 50) for i in "abcd"}, sos=("c", "d"), eos=("a", "d"))
    engine.close()
    del engine, _
    assert faults.stats()["live_blocks"] <= before
    assert faults.stats()["bad_releases"] == 0
