"""Several threads step one engine on different streams; one stream is used by one thread at a time."""

import functools
import threading

import numpy as np
import pytest
from together import in_threads

import dreamstream as ds
from dreamstream import nn

N_THREADS, N_STREAMS, N_STEPS = 4, 6, 60


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(5, 16, 5, padding=2)
        self.rnn = nn.LSTM(16, 16, batch_first=True)

    def forward(self, x):
        y = self.conv(x)
        return self.rnn((y + y.tanh()).transpose(1, 2))[0]


def make():
    ds.manual_seed(3)
    return Model().eval()


def work(engine, name, collect):
    """Join, step, fork, go astray and back, and end; everything a thread does is seeded by its name."""
    rng = np.random.default_rng(sum(map(ord, name)))
    live: list[str] = []
    for step in range(N_STEPS):
        joining = [f"{name}/{step}"] if len(live) < N_STREAMS else []
        going = [i for i in live if rng.random() < 0.7] + joining
        ending = {i for i in going if rng.random() < 0.1}
        chunks = {i: rng.standard_normal((5, rng.integers(0, 30)), dtype=np.float32) for i in going}
        for i, y in engine.step(chunks, sos=joining, eos=ending).items():
            collect.setdefault(i, []).append(y)
        live = [i for i in live + joining if i not in ending]
        if live and rng.random() < 0.2:
            engine.fork(live[0], f"{name}/fork{step}")
            live.append(f"{name}/fork{step}")
        if live and rng.random() < 0.2:
            kept = engine.snapshot(live[-1])
            engine.step({live[-1]: np.zeros((5, 9), np.float32)})
            engine.reset(live[-1])
            engine.restore(kept, live[-1])
    engine.reset(live)


@pytest.mark.parametrize("threads", [1, 2])
def test_as_serial(threads):
    names = [f"thread{k}" for k in range(N_THREADS)]
    serial, engine = {}, ds.compile(make(), ("B", 5, "L"))
    for name in names:
        work(engine, name, serial)
    parallel = [{} for _ in names]
    shared = ds.compile(make(), ("B", 5, "L"), threads=threads)
    in_threads(*[lambda n=n, c=c: work(shared, n, c) for n, c in zip(names, parallel)])
    together = {i: p for c in parallel for i, p in c.items()}
    assert shared.ids == []
    assert together.keys() == serial.keys()
    for i, parts in serial.items():
        assert all(np.array_equal(a, b) for a, b in zip(parts, together[i], strict=True))


def test_one_stream_from_two_threads():
    """Whoever comes second is refused; the stream is as if only those who got through had come."""
    engine, twin = (ds.compile(make(), ("B", 5, "L")) for _ in range(2))
    chunk = np.random.default_rng(0).standard_normal((5, 3000), dtype=np.float32)
    for e in (engine, twin):
        e.step({}, sos="a")
    done, busy = [], []

    def hammer():
        for _ in range(40):
            try:
                done.append(engine.step({"a": chunk})["a"])
            except ds.StreamBusyError as error:
                assert error.ids == ("a",)
                busy.append(error)

    in_threads(*[hammer] * 4)
    assert busy, "the threads never met"
    for _ in range(len(done)):
        last = twin.step({"a": chunk})["a"]
    assert any(np.array_equal(last, y) for y in done)
    assert np.array_equal(engine.step({}, eos="a")["a"], twin.step({}, eos="a")["a"])


def test_a_refused_stream_holds_up_nobody_else():
    engine = ds.compile(make(), ("B", 5, "L"))
    long = np.zeros((5, 60_000), np.float32)
    started = threading.Event()

    def slow():
        started.set()
        engine.step({"a": long}, sos="a")

    thread = threading.Thread(target=slow)
    thread.start()
    started.wait()
    while "a" not in engine.ids and thread.is_alive():
        pass
    refused = 0
    while thread.is_alive():
        try:
            engine.step({"a": long[:, :1], "b": long[:, :1]}, sos="b", restart=True)
            engine.reset("b")
        except ds.StreamBusyError as error:
            refused += 1
            assert error.ids == ("a",)
            assert "b" not in engine.ids
    thread.join()
    assert refused > 0


def test_close_while_stepping():
    engine = ds.compile(make(), ("B", 5, "L"))
    long = np.zeros((5, 100_000), np.float32)
    thread = threading.Thread(target=lambda: engine.step({"a": long}, sos="a", eos="a"))
    thread.start()
    refused = 0
    while thread.is_alive():
        if "a" in engine.ids:
            try:
                engine.close()
                assert not thread.is_alive() or "a" not in engine.ids
                break
            except ds.StreamBusyError:
                refused += 1
    thread.join()
    assert refused > 0


def test_eager_module_from_two_threads():
    model, twin = (ds.patch_module(make()).online() for _ in range(2))
    chunk = np.random.default_rng(1).standard_normal((5, 2000), dtype=np.float32)
    for m in (model, twin):
        m(ds.stream_tensor([chunk[:, :0]], ids="a", sos=True))
    x = ds.stream_tensor([chunk], ids="a")
    done, busy = [], []

    def hammer():
        for _ in range(20):
            try:
                done.append(model(x)["a"].numpy())
            except ds.StreamBusyError:
                busy.append(1)

    in_threads(*[hammer] * 4)
    assert busy, "the threads never met"
    for _ in range(len(done)):
        last = twin(x)["a"].numpy()
    assert any(np.array_equal(last, y) for y in done)


def test_restarts_at_the_limit_do_not_hinder_each_other():
    """Every stream that starts takes the place of one that ends in the same call, in whichever thread."""
    engine = ds.compile(make(), ("B", 5, "L"), max_streams=N_THREADS)
    chunk = np.zeros((5, 200), np.float32)

    def restart(name):
        for step in range(N_STEPS):
            engine.step({name: chunk}, sos=[name], restart=True)
            if step % 3 == 0:
                engine.step({name: chunk, f"{name} {step}": chunk}, sos=[f"{name} {step}"], eos=[name])
                engine.step({name: chunk, f"{name} {step}": chunk}, sos=[name], eos=[f"{name} {step}"])

    names = [f"stream {k}" for k in range(N_THREADS)]
    in_threads(*(functools.partial(restart, name) for name in names))
    assert sorted(engine.ids) == names
    with pytest.raises(ds.StreamLimitError):
        engine.step({"one more": chunk}, sos=["one more"])
