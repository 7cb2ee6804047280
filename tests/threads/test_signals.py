"""Signal handlers that raise while an engine steps: those that wait are handled before the streams advance."""

import ctypes
import functools
import gc
import itertools
import signal
import time

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn

SPEC = ("B", 3, "L")
SIGNAL = getattr(signal, "SIGALRM", None)

pytestmark = pytest.mark.skipif(SIGNAL is None or not hasattr(signal, "setitimer"), reason="needs setitimer")


class Stop(Exception):
    """What the handler raises."""


@pytest.fixture
def handler():
    """A handler that calls what is set here, once."""

    class Handler:
        action = None
        n_calls = 0

        def __call__(self, *_):
            action, self.action = self.action, None
            self.n_calls += 1
            if action is not None:
                action()

        def stop(self):
            raise Stop

    it = Handler()
    gc.disable()  # callbacks of the collector are Python code, which would see to a signal before the step does
    before = signal.signal(SIGNAL, it)
    yield it
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(SIGNAL, before)
    gc.enable()


def compiled():
    ds.manual_seed(1)
    return ds.compile(nn.Sequential(nn.Conv1d(3, 6, 5, padding=2), nn.ReLU()), SPEC, verify=False)


def chunk(n, seed=0):
    return np.random.default_rng([seed, n]).standard_normal((3, n), dtype=np.float32)


def waiting(ids):
    """The ids as an iterator in C that sends the signal: no Python code can see to it before the step does."""
    send = functools.partial(ctypes.CDLL(None)["raise"], int(SIGNAL))  # returns 0
    return itertools.filterfalse(send, ids)


# ---------------------------------------------------------------- a signal that waits
@pytest.mark.parametrize("batch", [False, True])
def test_a_signal_that_waits(handler, batch):
    """Its exception comes before values: nothing has changed, and the step can be made again."""
    engine, twin = compiled(), compiled()
    for e in (engine, twin):
        e.step({"a": chunk(7), "b": chunk(4)}, sos=["a", "b"])
    x = np.stack([chunk(5, 1)] * 3)
    out = np.full((3, 6, 9), 3, np.float32)

    def step(e, eos, out=None):
        if batch:
            y, lengths = e.step_batch(["a", "b", "c"], x, sos=["c"], eos=eos, out=out)
            return [row[:, :n] for row, n in zip(y, lengths, strict=True)]
        return list(e.step(dict(zip("abc", x, strict=True)), sos=["c"], eos=eos).values())

    for _ in range(20):
        handler.action = handler.stop
        with pytest.raises(Stop):
            step(engine, waiting(["b", "c"]), out)
        assert engine.ids == ["a", "b"] and [engine.position(i) for i in "ab"] == [7, 4]
        assert (out == 3).all()
        with pytest.raises(ds.StreamIdError):
            engine.position("c")
    wanted = step(twin, ["b", "c"])
    for got, want in zip(step(engine, waiting(["b", "c"]), out if batch else None), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    assert engine.ids == ["a"] and handler.n_calls == 21


def test_handlers_that_use_the_engine(handler):
    """They find the streams of the step busy, and others free; the engine can't be closed."""
    engine, seen = compiled(), []
    engine.step({"a": chunk(7), "other": chunk(4)}, sos=["a", "other"])

    def look():
        for call in (
            lambda: engine.step({"a": chunk(1)}),
            lambda: engine.reset("a"),
            lambda: engine.position("new"),
            engine.close,
        ):
            with pytest.raises(ds.StreamBusyError):
                call()
        seen.append(engine.step({"other": chunk(5)})["other"].shape)

    handler.action = look
    out = engine.step({"a": chunk(5)}, sos=waiting(["new"]))
    assert seen == [(6, 5)] and list(out) == ["a", "new"] and engine.position("a") == 12


def test_handlers_that_change_out(handler):
    engine = compiled()
    out = np.zeros((1, 6, 9), np.float32)
    handler.action = lambda: out.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        engine.step_batch(["a"], chunk(9)[None], sos=waiting(["a"]), out=out)
    assert engine.ids == [] and (out == 0).all()


# ---------------------------------------------------------------- signals at any time
def longest(action):
    """How long the action takes at most, of some times."""
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return max(times)


def test_positions_after_signals(handler):
    """Whenever it comes, a step was made as a whole or not at all, and `position` tells which."""
    engine, twin = compiled(), compiled()
    rng = np.random.default_rng(5)
    for e in (engine, twin):
        e.step({"a": chunk(3)}, sos="a")
    x = chunk(4000)
    span = longest(lambda: [e.step({"a": x}) for e in (engine, twin)])
    n_before = n_after = 0
    for k in range(300):
        position, out = engine.position("a"), None
        handler.action = handler.stop
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, span))
            out = engine.step({"a": x})
            while handler.action:  # it comes now at the latest
                time.sleep(1e-5)
        except Stop:
            pass
        made = engine.position("a") - position
        assert made in (0, x.shape[1])
        assert made or out is None
        n_before += made == 0
        n_after += made > 0 and out is None
        if made:
            want = twin.step({"a": x})["a"]
            assert out is None or np.array_equal(out["a"], want)
        if k % 50 == 0:
            assert engine.snapshot("a") == twin.snapshot("a")
    assert engine.snapshot("a") == twin.snapshot("a")
    assert n_before + n_after <= 300 == handler.n_calls


def test_streams_by_hand_are_closed(handler):
    """What a `with` began is gone after it, whenever the signal came; what others began is not."""
    engine = compiled()
    rng = np.random.default_rng(6)
    x = chunk(400)
    engine.step({"theirs": x}, sos="theirs")

    def use(stream_id):
        with engine.stream(stream_id) as stream:
            stream.step(x)
            stream.step(x)

    span = longest(lambda: use("a"))
    for k in range(1500):
        handler.action = handler.stop
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, span))
            if k % 5:
                use("a")
            else:
                with pytest.raises(ds.StreamIdError):
                    use("theirs")
            while handler.action:
                time.sleep(1e-5)
        except Stop:
            pass
        assert engine.ids == ["theirs"]
    assert engine.position("theirs") == 400 and handler.n_calls == 1500
