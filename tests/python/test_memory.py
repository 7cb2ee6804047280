"""Memory stays flat: a hundred thousand streams that come and go, an hour of audio, ten thousand eager calls.

Each script runs in a process of its own and prints, as JSON, its resident memory in KiB after a warm-up and
at the end, and how often the engine asked for memory in between.
"""

import json
import textwrap

import pytest
from processes import MEMORY, printed

MOST_GROWTH = 1024  # KiB; the interpreter's own heap moves by a few pages

HEAD = """
    def report(step, n_warm, n):
        for k in range(n_warm):
            step(k)
        before, calls = resident(), faults.stats()["calls"]
        for k in range(n_warm, n_warm + n):
            step(k)
        stats = faults.stats()
        print(json.dumps({"before": before, "after": resident(), "calls": stats["calls"] - calls,
                          "bad_releases": stats["bad_releases"]}))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(4, 8, 5, stride=2, padding=2)
            self.rnn = nn.LSTM(8, 8, batch_first=True)

        def forward(self, x):
            y = self.conv(x)
            return self.rnn((y + y.tanh()).transpose(1, 2))[0]
"""

OPENS = """
    faults.install()
    engine = ds.compile(Model().eval(), ("B", 4, "L"), threads={threads}, max_streams=3)
    x = np.ones((4, 6), np.float32)

    def step(k):
        a, b = str(k), f"{{k}}'"
        engine.step({{a: x}}, sos=a)
        if k % 50 == 0:
            engine.restore(engine.snapshot(a), f"{{k}}''")
            engine.reset(f"{{k}}''")
        if k % 2:
            engine.fork(a, b)
            engine.step({{a: x[:, :2], b: x}}, eos=[a, b])
        else:
            engine.reset(a)

    report(step, 1000, {n})
    assert engine.ids == []
"""

REFUSED = """
    engine = ds.compile(Model().eval(), ("B", 4, "L"), max_streams=1)
    engine.step({{"a": np.ones((4, 6), np.float32)}}, sos="a")
    data = engine.snapshot("a")
    wrong = [(data[:-8], "b"), (data[:60] + b"?" + data[61:], "b"), (b"", "b"), (data, "a"), (data, "b")]

    def step(k):
        for state, stream in wrong:
            try:
                engine.restore(state, stream)
            except (ds.FormatError, ds.StreamIdError, ds.StreamLimitError):
                continue
            raise AssertionError("restored")

    report(step, 500, {n})
"""

AUDIO = """
    class FrontEnd(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(400, 12)
            self.conv = nn.Conv1d(12, 8, 3, stride=2, padding=1)
            self.rnn = nn.LSTM(8, 8, batch_first=True)

        def forward(self, x):
            y = self.mix(x.unfold(1, 400, 160)).transpose(1, 2)
            return self.rnn(self.conv(y).transpose(1, 2))[0]

    faults.install()
    engine = ds.compile(FrontEnd().eval(), ("B", "L"), rate=16000, threads={threads})
    rng = np.random.default_rng(0)
    pieces = [(rng.standard_normal(1600) * 3000).astype(np.int16) for _ in range(7)]
    engine.step({{}}, sos="a")
    frames = 0

    def step(k):
        global frames
        frames += len(engine.step({{"a": pieces[k % 7]}})["a"])

    report(step, 200, {n})
    frames += len(engine.step({{}}, eos="a")["a"])
    samples = 1600 * (200 + {n})
    assert frames == ((samples - 400) // 160 + 1 + 1) // 2, frames
"""

EAGER = """
    model = ds.patch_module(Model().eval()).online()
    x = np.ones((4, 6), np.float32)
    live = ["a", "b"]
    model(ds.stream_tensor([x, x], ids=live, sos=True))

    def step(k):
        new = f"s{{k}}"
        model(ds.stream_tensor([x, x, x[:, :3]], ids=[*live, new], sos=[False, False, True],
                               eos=[False, False, k % 2 == 0]))
        if k % 2:
            model.reset(new)
        if k % 100 == 1:
            model.set_state({{"c": model.get_state("a")["a"]}})
            model.reset("c")

    report(step, 500, {n})
    assert model.live_ids == live
"""

WAITING = """
    faults.install()
    model = nn.LSTM(4, 3, batch_first=True, bidirectional=True).eval()
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = model
        def forward(self, x):
            return self.rnn(x)[0]
    engine = ds.compile(Wrapped().eval(), ("B", "L", 4), unstreamable="buffer")
    x = np.ones((2000, 4), np.float32)

    def step(k):
        engine.step({{"a": x}}, sos="a")
        engine.step({{"a": x}})
        if k % 2:
            engine.step({{}}, eos="a")
        else:
            engine.reset("a")

    report(step, 50, {n})
"""


def run(body, **options):
    seen = json.loads(printed("-c", MEMORY + textwrap.dedent(HEAD) + textwrap.dedent(body.format(**options))))
    assert seen["after"] - seen["before"] < MOST_GROWTH, seen
    assert seen["bad_releases"] == 0
    return seen


@pytest.mark.parametrize("threads, n", [(1, 100_000), (2, 20_000)])
def test_opens_and_closes(threads, n):
    snapshots = n // 50  # each counts twice while it is written and once while it is read
    assert run(OPENS, n=n, threads=threads)["calls"] == 3 * snapshots


@pytest.mark.parametrize("threads", [1, 2])
def test_an_hour_of_audio(threads):
    assert run(AUDIO, n=36_000 - 200, threads=threads)["calls"] == 0


def test_refused_states():
    run(REFUSED, n=5000)


def test_eager_calls():
    run(EAGER, n=10_000)


def test_what_grows_is_given_back():
    run(WAITING, n=400)
