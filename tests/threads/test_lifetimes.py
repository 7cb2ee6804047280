"""Things that come and go while several threads use them: engines, streams, sessions."""

import gc
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from together import in_threads

import dreamstream as ds
from dreamstream import nn

SPEC = ("B", 3, "L")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 5, padding=2)
        self.rnn = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x):
        return self.rnn(self.conv(x).transpose(1, 2))[0]


def make():
    ds.manual_seed(4)
    return Model().eval()


def compiled(**options):
    return ds.compile(make(), SPEC, verify=False, **options)


def chunk(seed, n):
    return np.random.default_rng(seed).standard_normal((3, n), dtype=np.float32)


@pytest.fixture(autouse=True)
def eager_switching():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("threads", [1, 2])
def test_engines_come_and_go(threads):
    model, x = make(), chunk(0, 40)
    wanted = compiled().step({"a": x}, sos="a", eos="a")["a"]

    def work():
        for _ in range(6):
            engine = ds.compile(model, SPEC, verify=False, threads=threads)
            engine.step({"b": x, "c": x}, sos=["b", "c"])  # left open: they go with it
            assert np.array_equal(engine.step({"a": x}, sos="a", eos="a")["a"], wanted)
            snapshot = engine.snapshot("b")
            del engine
            other = ds.compile(model, SPEC, verify=False)
            other.restore(snapshot, "b")
            other.close()

    def collect():
        for _ in range(15):
            gc.collect()

    in_threads(work, work, work, collect)


def test_the_last_reference_goes_during_a_step():
    x = chunk(0, 20_000)
    wanted = compiled().step({"a": x}, sos="a")["a"]
    results = []

    def work(engine):
        results.append(engine.step({"a": x}, sos="a")["a"])

    for _ in range(5):
        engine = compiled()
        thread = threading.Thread(target=work, args=(engine,))
        thread.start()
        del engine
        gc.collect()
        thread.join()
        del thread
    assert all(np.array_equal(y, wanted) for y in results)


def test_close_among_failing_calls():
    """Every method fails, through errors made in Python, while another thread closes the engine."""
    bad = b"DSSTATE1" + bytes(100)
    seen = set()
    for _ in range(15):
        engine = compiled(max_streams=4)
        engine.step({i: chunk(1, 9) for i in "abc"}, sos=["a", "b", "c"])
        good = engine.snapshot("a")
        closed, failing = threading.Event(), threading.Event()

        def fail(engine=engine, good=good, closed=closed, failing=failing):
            actions = [
                lambda: engine.restore(bad, "new"),
                lambda: engine.restore(good, "a"),
                lambda: engine.restore(good, "new"),
                lambda: engine.fork("a", "b"),
                lambda: engine.fork("a", "new"),
                lambda: engine.fork("unknown", "new"),
                lambda: engine.snapshot("unknown"),
                lambda: engine.reset(["a", "unknown"]),
                lambda: engine.step({"unknown": chunk(0, 1)}),
                lambda: engine.step({"a": chunk(0, 1)}, sos="a"),
                lambda: engine.step({"a": chunk(0, 1), "new": chunk(0, 1)}, sos=["new"]),
                lambda: engine.step({"a": np.zeros((4, 1), np.float32)}),
                lambda: engine.step({"x": chunk(0, 1), "y": chunk(0, 1)}, sos=["x", "y"]),
                lambda: engine.reset("new"),
            ]
            while not closed.is_set():
                for action in actions:
                    try:
                        action()
                    except ds.DreamStreamError as error:
                        seen.add(type(error))
                failing.set()

        def close(engine=engine, closed=closed, failing=failing):
            try:
                assert failing.wait(60)
                for _ in range(200):
                    assert set(engine.ids) <= {"a", "b", "c", "new", "x", "y"}
                while not engine.closed:
                    with suppress(ds.StreamBusyError):
                        engine.close()
            finally:
                closed.set()

        in_threads(fail, fail, close)
        with pytest.raises(ds.ClosedError):
            engine.snapshot("a")
    assert {ds.StreamIdError, ds.FormatError, ds.StreamLimitError, ds.ShapeError} <= seen


def test_one_id_started_by_many():
    """One of them gets it, the others are told; nobody's stream is replaced in silence."""
    engine = compiled()
    for n in range(60):
        won, lost = [], []

        def start(n=n, won=won, lost=lost):
            try:
                engine.step({f"s{n}": chunk(n, 5)}, sos=[f"s{n}"])
                won.append(1)
            except (ds.StreamIdError, ds.StreamBusyError) as error:
                assert error.ids == (f"s{n}",)
                lost.append(1)

        in_threads(start, start, start)
        assert (len(won), len(lost)) == (1, 2)
    assert len(engine.ids) == 60


def test_max_streams_with_many_threads():
    engine = compiled(max_streams=3)

    def work(name):
        refused = 0
        for n in range(80):
            try:
                engine.step({f"{name}{n}": chunk(n, 3)}, sos=[f"{name}{n}"])
            except ds.StreamLimitError as error:
                assert error.ids == (f"{name}{n}",)
                refused += 1
                continue
            assert len(engine.ids) <= 3
            engine.reset(f"{name}{n}")

    in_threads(*[lambda k=k: work("abcde"[k]) for k in range(5)])
    assert engine.ids == []


def test_first_call_of_a_module_from_many_threads():
    """The session is made once: whoever got through has its stream."""
    for n in range(40):
        model = ds.patch_module(make()).online()
        through = []

        def start(name, model=model, through=through):
            try:
                model(ds.stream_tensor([chunk(0, 4)], ids=[name], sos=True))
                through.append(name)
            except ds.StreamBusyError as error:
                assert error.ids == (name,)

        in_threads(*[lambda i=i: start(i) for i in "abc"])
        assert sorted(model.live_ids) == sorted(through), n
        assert through


def test_looking_on_while_a_module_streams():
    """live_ids, get_state and reset of other streams from another thread."""
    model = ds.patch_module(make()).online()
    done = threading.Event()

    def stream():
        try:
            for n in range(80):
                x = ds.stream_tensor([chunk(n, 3)], ids=[f"s{n}"], sos=True, eos=n % 2 == 0)
                while True:
                    try:
                        model(x)
                        break
                    except ds.StreamBusyError:  # somebody was looking
                        pass
        finally:
            done.set()

    def look():
        while not done.is_set():
            ids = list(model.live_ids)
            assert len(set(ids)) == len(ids)
            try:
                states = model.get_state()
                assert all(isinstance(s, bytes) for s in states.values())
            except ds.StreamBusyError:
                pass

    in_threads(stream, look)
    assert len(model.live_ids) == 40


class Meddler(str):
    """An id that does something whenever it is looked up."""

    __slots__ = ()
    action = staticmethod(lambda: None)

    def __hash__(self):
        Meddler.action()
        return str.__hash__(self)

    def __eq__(self, other):
        Meddler.action()
        return str.__eq__(self, other)


def test_ids_that_run_code(monkeypatch):
    """A subclass of str is taken for its text: its own methods don't get a chance."""
    engine = compiled()
    a, b = Meddler("a"), Meddler("b")
    monkeypatch.setattr(Meddler, "action", staticmethod(engine.close))
    core = engine._core
    engine.step_batch([a], chunk(0, 5)[None], sos=True)
    core.fork("a", b)
    core.drop([b])
    core.restore(core.snapshot("a"), b)
    engine.step_batch([b, "c"], np.stack([chunk(1, 5)] * 2), lengths=[5, 0], sos=[False, True], eos=True)
    assert engine.ids == ["a"]
    assert type(engine.ids[0]) is str
    assert not engine.closed
    with pytest.raises((ds.StreamIdError, ds.ClosedError)):
        core.snapshot(a)  # here it has one, and the stream is gone
    assert engine.closed


class Closing:
    """A sequence that closes the engine as soon as it is read."""

    def __init__(self, engine, items):
        self.engine, self.items = engine, items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        self.engine.close()
        return self.items[i]


def test_arguments_that_close_the_engine():
    arguments = {"ids": ["a"], "lengths": [5], "sos": [False], "eos": [False]}
    for name in arguments:
        engine = compiled()
        engine.step({"a": chunk(0, 5)}, sos="a")
        given = {**arguments, name: Closing(engine, arguments[name])}
        with pytest.raises((ds.StreamBusyError, ds.ClosedError)):
            engine.step_batch(given.pop("ids"), chunk(0, 5)[None], **given)
    engine = compiled()
    engine.step({"a": chunk(0, 5)}, sos="a")
    with pytest.raises((ds.StreamBusyError, ds.ClosedError)):
        engine.step({"a": chunk(0, 5)}, eos=Closing(engine, ["a"]))
    engine = compiled()
    engine.step({"a": chunk(0, 5)}, sos="a")
    with pytest.raises((ds.StreamBusyError, ds.ClosedError)):
        engine._core.drop(Closing(engine, ["a"]))
