"""Exceptions that come from outside: a call has happened as a whole, or not at all, and nothing stays locked.

KeyboardInterrupt is raised at random moments by another thread, by SIGINT, and, to leave nothing to
chance, by a trace function before every line (in the slow tier: before every bytecode instruction) that a
call runs.
"""

import ctypes
import gc
import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from processes import HELPERS, printed

import dreamstream as ds
from dreamstream import nn

SPEC = ("B", 3, "L")


class Model(nn.Module):
    """Kept frames, carried state, a sync, a stride."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 5, padding=2)
        self.down = nn.Conv1d(6, 6, 4, stride=3, padding=1)
        self.rnn = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x):
        y = self.conv(x)
        y = self.down(y.tanh() + y)
        return self.rnn(y.transpose(1, 2))[0]


class Eager:
    """A patched module that is stepped as an engine is."""

    def __init__(self):
        ds.manual_seed(1)
        self.model = ds.patch_module(Model().eval()).online()

    def step(self, chunks, sos=(), eos=()):
        ids = list(chunks)
        x = ds.stream_tensor(
            list(chunks.values()), ids=ids, sos=[i in sos for i in ids], eos=[i in eos for i in ids]
        )
        y = self.model(x)
        return {i: y[i].numpy() for i in ids}

    def states(self):
        return self.model.get_state()

    def back_to(self, states):
        self.model.reset()
        self.model.set_state(states)

    def reset(self, ids):
        self.model.reset(ids)

    def add(self, states):
        self.model.set_state(states)


class Engine:
    def __init__(self):
        ds.manual_seed(1)
        self.engine = ds.compile(Model().eval(), SPEC, verify=False)
        self.step, self.reset = self.engine.step, self.engine.reset

    def states(self):
        return {i: self.engine.snapshot(i) for i in self.engine.ids}

    def back_to(self, states):
        self.engine.reset()
        self.add(states)

    def add(self, states):
        for i, state in states.items():
            self.engine.restore(state, i)


class Pair:
    """One that is disturbed and a twin that is not."""

    def __init__(self, kind, seed=0):
        self.rng = np.random.default_rng(seed)
        self.one, self.twin = kind(), kind()
        self.live, self.n_started = [], 0
        self.n_before = self.n_after = 0

    def call(self):
        """Arguments of a call: streams that go on, end and start, one that does both."""
        going = [i for i in self.live if self.rng.random() < 0.8] or self.live[:1]
        ending = [i for i in going if self.rng.random() < 0.2]
        starting = [f"s{self.n_started + k}" for k in range(2 if len(self.live) < 4 else 0)]
        self.n_started += len(starting)
        ending += starting[1:]
        chunks = {
            i: self.rng.standard_normal((3, self.rng.integers(0, 9)), dtype=np.float32) for i in going + starting
        }
        return chunks, tuple(starting), tuple(ending)

    def settle(self, calls, outputs):
        """The disturbed one ran these calls up to any of them: find out which; both are alike then."""
        assert len(outputs) <= len(calls)
        for call, got in zip(calls, outputs):
            wanted = self.twin.step(*call)
            assert all(np.array_equal(got[i], wanted[i]) for i in wanted)
        before, now = self.twin.states(), self.one.states()
        if len(outputs) < len(calls):
            if now == before:
                self.n_before += 1
            else:  # it was made, but its outputs were not handed over
                self.twin.step(*calls[len(outputs)])
                assert now == self.twin.states(), "a call was made in part"
                self.n_after += 1
        assert now == self.twin.states()
        self.live = list(now)


@pytest.fixture
def eager_switching(monkeypatch):
    """Threads take turns often; what swallows exceptions (callbacks of the collector) is kept out."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    interval, callbacks = sys.getswitchinterval(), gc.callbacks[:]
    sys.setswitchinterval(1e-6)
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)
    sys.setswitchinterval(interval)


def interrupt(thread):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))


def run_interrupted(one, calls, delay):
    """Make the calls in a thread and interrupt it once after a while; return the outputs that came."""
    outputs, errors, sent = [], [], []
    inside = threading.Event()

    def victim():
        try:
            inside.set()
            for call in calls:
                outputs.append(one.step(*call))
            while not sent:  # an exception in the wait of an Event could leave its lock behind
                time.sleep(1e-4)
        except KeyboardInterrupt:
            pass
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=victim)
    thread.start()
    inside.wait()
    time.sleep(delay)
    interrupt(thread)
    sent.append(True)
    thread.join()
    assert not errors, errors
    return outputs


@pytest.mark.parametrize("kind", [Eager, Engine])
def test_from_another_thread(kind, eager_switching):
    pair = Pair(kind)
    calls = [pair.call() for _ in range(3)]
    start = time.perf_counter()
    for call in calls:
        pair.one.step(*call)
        pair.twin.step(*call)
    longest = time.perf_counter() - start
    pair.live = list(pair.one.states())
    for k in range(1000):
        if k >= 150 and (kind is Engine or pair.n_before > 5):
            break
        calls = [pair.call()]  # ids of the next call depend on what has become of this one
        outputs, n_before = run_interrupted(pair.one, calls, pair.rng.uniform(0, longest)), pair.n_before
        pair.settle(calls, outputs)
        if kind is Eager:  # a machine that was busy at first may be faster by now
            longest *= 1.2 if pair.n_before > n_before else 0.97
    if kind is Eager:
        assert pair.n_before > 5
    call = pair.call()
    pair.settle([call], [pair.one.step(*call)])


# ---------------------------------------------------------------- before every line or instruction
class Stop:
    """A trace function that raises before the n-th line (or instruction) run in the package."""

    def __init__(self, n, opcodes):
        self.n, self.opcodes, self.seen = n, opcodes, 0
        self.package = os.path.dirname(ds.__file__)

    def __call__(self, frame, event, _):
        if not frame.f_code.co_filename.startswith(self.package):
            return None
        frame.f_trace_opcodes = self.opcodes
        if event == ("opcode" if self.opcodes else "line"):
            self.seen += 1
            if self.seen == self.n:
                raise KeyboardInterrupt
        return self

    def run(self, action):
        """Run it; return what it gave, or None where it was interrupted."""
        sys.settrace(self)
        try:
            out = action()
        except KeyboardInterrupt:
            return None
        finally:
            sys.settrace(None)
        return out


def every_point(action, check, opcodes, stride):
    """Interrupt an action at points that are a stride apart, and at each of the last; return how often.

    After an interruption it does more than after none: its last points are looked for after one that ended.
    """
    n, hits, out = 1, 0, None
    while out is None:
        out = Stop(n, opcodes).run(action)
        check(out)
        hits, n = hits + (out is None), n + stride
    for k in range(20):
        whole = Stop(0, opcodes)
        check(whole.run(action))
        check(Stop(max(whole.seen - k, 1), opcodes).run(action))
    return hits


def calls_at_every_point(opcodes, stride):
    pair = Pair(Eager)
    for _ in range(4):
        call = pair.call()
        pair.settle([call], [pair.one.step(*call)])
    call = pair.call()
    start = pair.one.states()

    def check(out):
        pair.settle([call], [] if out is None else [out])
        pair.one.back_to(start)
        pair.twin.back_to(start)

    assert every_point(lambda: pair.one.step(*call), check, opcodes, stride) > 100
    assert pair.n_before > 50
    assert pair.n_after >= 1


def test_before_lines():
    calls_at_every_point(False, 5)


@pytest.mark.slow
@pytest.mark.parametrize("opcodes", [False, True])
def test_before_everything(opcodes):
    calls_at_every_point(opcodes, 1)


@pytest.mark.parametrize("stride", [1, pytest.param(1, marks=pytest.mark.slow, id="opcodes")])
def test_reset_and_set_state(stride, request):
    """They too happen as a whole or not at all."""
    opcodes = "opcodes" in request.node.name
    one = Eager()
    x = np.random.default_rng(0).standard_normal((3, 7), dtype=np.float32)
    one.step(dict.fromkeys("abcd", x), sos=["a", "b", "c", "d"])
    all_four = one.states()
    two = {i: all_four[i] for i in "ab"}

    def check(before, after):
        def inner(out):
            assert one.states() in (before, after)
            assert out is None or one.states() == after
            one.back_to(before)

        return inner

    def reset():
        one.reset(["c", "d"])
        return True

    def add():
        one.add({i: all_four[i] for i in "cd"})
        return True

    assert every_point(reset, check(all_four, two), opcodes, stride) > 20
    one.back_to(two)
    assert every_point(add, check(two, all_four), opcodes, stride) > 20


# ---------------------------------------------------------------- SIGINT
SIGNALLED = """
    import os, signal, sys, threading, time
    import numpy as np
    sys.path.insert(0, {folder!r})
    import test_async as t

    sys.setswitchinterval(1e-6)
    pair, armed, count = t.Pair(getattr(t, {kind!r})), False, 0

    def handler(*_):
        global armed
        if armed:
            armed = False  # once for each call
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)
    stop = False

    def disturb():
        rng = np.random.default_rng(3)
        while not stop:
            time.sleep(rng.uniform(0, 0.001))
            signal.raise_signal(signal.SIGINT) if rng.random() < 0.5 else os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while count < 10 and time.monotonic() < deadline:
        call, outputs = pair.call(), []
        try:
            armed = True
            outputs.append(pair.one.step(*call))
            armed = False
        except KeyboardInterrupt:
            count += 1
        pair.settle([call], outputs)
    stop = True
    thread.join()
    print(count, pair.n_before, pair.n_after)
"""


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="needs raise_signal")
@pytest.mark.parametrize("kind", ["Eager", "Engine"])
def test_ctrl_c(kind):
    script = textwrap.dedent(SIGNALLED).format(folder=str(Path(__file__).parent), kind=kind)
    assert int(printed("-c", script, PYTHONPATH=str(HELPERS)).split()[0]) == 10
