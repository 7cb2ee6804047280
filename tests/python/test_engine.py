"""Engines: stepping, inputs, outputs, states, facts, threads."""

import collections
import itertools
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from nets import net
from processes import printed
from small_model import frames

import dreamstream as ds
from dreamstream import nn
from dreamstream.engine.verify import _lengths
from dreamstream.errors import CaptureError, ShapeError, StreamIdError, StreamLimitError
from dreamstream.stream.tree import leaves, map_leaves


class Tagger(nn.Module):
    """A strided convolution that is not causal, a residual, an LSTM, a linear layer."""

    def __init__(self, seed=1):
        super().__init__()
        ds.manual_seed(seed)
        self.conv = nn.Conv1d(3, 8, 5, stride=2, padding=2)
        self.near = nn.Conv1d(8, 8, 3, padding=1)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = nn.functional.relu(self.conv(x))
        y, _ = self.rnn((x + self.near(x)).transpose(1, 2))
        return nn.functional.log_softmax(self.head(y), dim=-1)


SPEC = ("B", 3, "L")


@pytest.fixture
def engine():
    return ds.compile(Tagger(), SPEC, rate=100)


def whole(model, x):
    return np.asarray(model(ds.tensor(x[None])))[0]


# ---------------------------------------------------------------------- stepping


def test_ids_only_in_sos_and_eos(engine):
    """They count as empty chunks: they start and end streams, and flush."""
    x, want = frames(20), whole(Tagger(), frames(20))
    out = engine.step({}, sos=["a"])
    assert out["a"].shape == (0, 5) and engine.ids == ["a"]
    out = engine.step({"b": x}, sos=["b", "c"], eos=["c"])
    assert {i: y.shape[1] for i, y in out.items()} == {"b": 5, "c": 5}
    assert out["c"].shape == (0, 5) and engine.ids == ["a", "b"]
    parts = [out["b"], engine.step({"a": x})["a"], engine.step(eos=["b", "a"])]
    np.testing.assert_allclose(np.concatenate([parts[0], parts[2]["b"]]), want, atol=1e-6)
    np.testing.assert_array_equal(parts[0], parts[1])
    np.testing.assert_array_equal(parts[2]["a"], parts[2]["b"])
    assert engine.ids == [] and engine.step({}) == {} and engine.step() == {}


def test_a_single_id_needs_no_list(engine):
    out = engine.step({"anna": frames(9)}, sos="anna", eos="anna")
    np.testing.assert_allclose(out["anna"], whole(Tagger(), frames(9)), atol=1e-6)
    engine.step({}, sos=("a", "a"))
    engine.reset("a")
    engine.step({}, sos={"a", "b"}, eos={"b"})
    assert engine.ids == ["a"]


def test_tensors_and_lists_are_chunks(engine):
    x = frames(12)
    want = engine.step({"w": x}, sos="w")["w"]
    for i, given in [("t", ds.tensor(x)), ("l", x.tolist()), ("d", {"x": x})]:
        np.testing.assert_array_equal(engine.step({i: given}, sos=i)[i], want)


# ---------------------------------------------------------------------- several inputs


class Lips(nn.Module):
    """Sound at 100 frames per second, lips at 50, codes at 50."""

    def __init__(self):
        super().__init__()
        ds.manual_seed(2)
        self.sound, self.lips = nn.Linear(4, 6), nn.Conv1d(3, 6, 3, padding=1)

    def forward(self, sound, lips, codes):
        y = self.sound(sound)[:, ::2] + self.lips(lips).transpose(1, 2)
        return y * codes.unsqueeze(-1).float()


def test_several_inputs():
    """A dict by name per id; absent names are empty; each input has its rate and progress."""
    specs = {"sound": ("B", "L", 4), "lips": ("B", 3, "L"), "codes": ("B", "L")}
    model = Lips()
    engine = ds.compile(
        model, specs, rate={"sound": 100, "lips": 50, "codes": 50}, dtype={"codes": "int64"}, skew=2
    )
    assert [(i.name, i.dimensions, i.rate, i.dtype) for i in engine.inputs] == [
        ("sound", ("B", "L", 4), 100, "float32"),
        ("lips", ("B", 3, "L"), 50, "float32"),
        ("codes", ("B", "L"), 50, "int64"),
    ]
    rng = np.random.default_rng(3)
    sound, lips = rng.standard_normal((20, 4), dtype=np.float32), frames(10)
    codes = rng.integers(-3, 4, 10).astype(np.int32)
    want = model(ds.tensor(sound[None]), ds.tensor(lips[None]), ds.tensor(codes[None].astype(np.int64)))
    steps = [
        {"sound": sound[:3], "lips": lips[:, :2], "codes": codes[:1]},
        {"lips": lips[:, 2:4], "codes": codes[1:4]},
        {"sound": sound[3:9], "codes": codes[4:4]},
        {"sound": sound[9:], "lips": lips[:, 4:], "codes": codes[4:].tolist()},
        {},
    ]
    parts = [
        engine.step({"a": given}, sos="a" if n == 0 else (), eos="a" if n == 4 else ())["a"]
        for n, given in enumerate(steps)
    ]
    np.testing.assert_allclose(np.concatenate(parts), np.asarray(want)[0], atol=1e-5)
    assert [len(p) for p in parts] == [1, 1, 1, 6, 1]


# ---------------------------------------------------------------------- several outputs


class Many(nn.Module):
    """Frames, states, pooled vectors, in a nest of dict, tuple and list."""

    def __init__(self):
        super().__init__()
        ds.manual_seed(4)
        self.conv = nn.Conv1d(3, 4, 3, stride=2, padding=1)
        self.rnn = nn.LSTM(4, 5, 2, batch_first=True)

    def forward(self, x):
        y, states = self.rnn(self.conv(x).transpose(1, 2))
        return {"y": y, "states": states, "pooled": [x.mean(-1), y.sum(1)], "x": x}


def test_nested_and_pooled_outputs():
    """One per id, as forward returns them; what has no L comes at the end, along an axis of its own."""
    model, x = Many(), frames(13)
    engine = ds.compile(model, SPEC, rate=Fraction(100))
    want = map_leaves(model(ds.tensor(x[None])), np.asarray)
    outputs = {o.name: (o.dimensions, o.rate) for o in engine.outputs}
    assert outputs == {
        "y": (("B", "L", 5), 50),
        "states.0": ((2, "B", 5), 0),
        "states.1": ((2, "B", 5), 0),
        "pooled.0": (("B", 3), 0),
        "pooled.1": (("B", 5), 0),
        "x": (("B", 3, "L"), 100),
    }
    early = engine.step({"a": x[:, :9]}, sos="a")["a"]
    late = engine.step({"a": x[:, 9:]}, eos="a")["a"]
    assert type(early["states"]) is tuple and type(early["pooled"]) is list
    for out, n in [(early, 0), (late, 1)]:
        assert [s.shape for s in out["states"]] == [(n, 2, 5)] * 2
        assert [p.shape for p in out["pooled"]] == [(n, 3), (n, 5)]
    np.testing.assert_allclose(np.concatenate([early["y"], late["y"]]), want["y"][0], atol=1e-6)
    np.testing.assert_array_equal(np.hstack([early["x"], late["x"]]), x)
    for got, offline in zip(late["states"], want["states"], strict=True):
        np.testing.assert_allclose(got[0], offline[:, 0], atol=1e-6)
    for got, offline in zip(late["pooled"], want["pooled"], strict=True):
        np.testing.assert_allclose(got, offline, atol=1e-5)


def test_pooled_outputs_of_calls():
    """`y[id]` has an axis of 0 or 1 first; `tensor()` has torch's shape, NaN where a row goes on."""
    engine, model = ds.compile(Many(), SPEC), ds.patch_module(Many()).online()
    for call in (engine, model):
        out = call(ds.stream_tensor([frames(6), frames(4)], ids=["a", "b"], sos=True, eos=[False, True]))
        h, pooled = out["states"][0], out["pooled"][0]
        assert (h["a"].shape, h["b"].shape, h.tensor().shape) == ((0, 2, 5), (1, 2, 5), (2, 2, 5))
        assert (pooled["a"].shape, pooled["b"].shape, pooled.tensor().shape) == ((0, 3), (1, 3), (2, 3))
        assert np.isnan(pooled.numpy()[0]).all() and np.isnan(h.numpy()[:, 0]).all()
        np.testing.assert_allclose(pooled.numpy()[1], frames(4).mean(1), atol=1e-6)
        assert h.rate == pooled.rate == 0 and list(h.lengths) == [0, 1]
        collector = ds.OutputCollector()
        collector.update(pooled)
        assert collector["b"].shape == (1, 3)


# ---------------------------------------------------------------------- states


def aligned(n):
    return -(-n // 64) * 64


def test_state_size_is_exact():
    """Header, kept frames of every edge, carried arrays, each 64-byte aligned: counted by hand."""
    stack = nn.Sequential(nn.Conv1d(3, 4, 5, padding=2), nn.ReLU(), nn.Conv1d(4, 2, 3, stride=2))
    engine = ds.compile(stack, SPEC)
    # 4 frames of 3 channels, and at most 2 of 4
    assert engine.state_size == aligned(24 + 8) + aligned(4 * 3 * 4) + aligned(2 * 4 * 4)
    engine = ds.compile(Tagger(), SPEC)
    # 4 frames of the input; of the strided convolution's output 2 for `near` and the residual; h and c
    carried = 2 * aligned(8 * 4)
    assert engine.state_size == aligned(24 + 8) + aligned(4 * 3 * 4) + aligned(2 * 8 * 4) + carried
    summed = sum(n["kept_bytes"] + n["carried_bytes"] for n in engine._core.nodes)
    assert 48 + summed <= engine.state_size <= 48 + summed + 6 * 63
    assert engine.state_bytes_per_frame == 0
    most = 0
    for n in range(40):  # snapshots hold these arrays, with 32 bytes before each
        engine.step({"a": frames(1, n)}, sos="a" if n == 0 else ())
        most = max(most, len(engine.snapshot("a")))
    assert most == 64 + 4 * 32 + 4 * 3 * 4 + 2 * 8 * 4 + 2 * 8 * 4
    assert most <= engine.state_size + 64 + 4 * 32


# ---------------------------------------------------------------------- facts


def test_facts(engine):
    assert (engine.delay, engine.receptive_field) == (4, math.inf)  # the LSTM remembers all
    assert engine.rate == 100 and engine.threads == 1 and not engine.closed
    (x,), (y,) = engine.inputs, engine.outputs
    assert (x.name, x.dimensions, x.dtype, x.rate) == ("x", SPEC, "float32", 100)
    assert (y.dimensions, y.dtype, y.rate, y.delay) == (("B", "L", 5), "float32", 50, 4)
    raw = sum(p.numel() * 4 for p in Tagger().parameters())
    assert raw <= engine.weights_size <= 40 * raw
    text = engine.summary()
    for word in ("conv1d", "lstm", "linear", "log_softmax", f"{engine.state_size} bytes", "delay 4", "bits: yes"):
        assert word in text
    assert repr(engine) == "Engine(Tagger, 0 streams live)"


def test_idle(engine):
    for i in "abc":
        engine.step({i: frames(3)}, sos=i)
    assert engine.idle(60) == [] and engine.idle(0) == ["a", "b", "c"]
    time.sleep(0.02)
    engine.step({"b": frames(3)})
    assert engine.idle(0.02) == ["a", "c"]
    engine.fork("a", "d")
    assert engine.idle(0.02) == ["a", "c"]
    engine.reset(engine.idle(0.02))
    assert engine.ids == ["b", "d"]
    with pytest.raises(ValueError, match="float"):
        engine.idle("long")


def test_warmup(engine):
    """It leaves no streams and no traces."""
    twin = ds.compile(Tagger(), SPEC)
    engine.step({"a": frames(9)}, sos="a")
    twin.step({"a": frames(9)}, sos="a")
    engine.warmup(4, 100)
    engine.warmup(0, 0)
    assert engine.ids == ["a"]
    np.testing.assert_array_equal(engine.step({"a": frames(9, 1)})["a"], twin.step({"a": frames(9, 1)})["a"])
    for args in [(-1, 1), (1, -1)]:
        with pytest.raises(ShapeError):
            engine.warmup(*args)
    with pytest.raises(StreamLimitError):
        ds.compile(Tagger(), SPEC, max_streams=2).warmup(3, 1)


def test_reset(engine):
    for i in "abcd":
        engine.step({i: frames(3)}, sos=i)
    engine.reset("a")
    engine.reset(["b", "b"])
    assert engine.ids == ["c", "d"]
    engine.reset([])
    engine.reset(None)
    assert engine.ids == []
    engine.reset()
    with pytest.raises(StreamIdError):
        engine.reset("a")


# ---------------------------------------------------------------------- verification


def test_lengths_that_a_model_accepts():
    class Picky(nn.Module):
        def forward(self, x):
            assert x.size(2) % 37 == 0
            return x * 2

    with pytest.raises(ShapeError, match=r"(?s)itself refuses streams of .* lengths=\[...\] of ds.compile"):
        ds.compile(Picky(), ("B", 3, "L"))
    engine = ds.compile(Picky(), ("B", 3, "L"), lengths=[37, 74])
    with pytest.raises(ShapeError, match="anna"):
        engine.step({"anna": np.ones((3, 36), np.float32)}, sos="anna", eos="anna")


def test_verify(engine):
    report = ds.verify(Tagger(), engine)
    assert report.ok and report.streams == 3 and report.frames > 0 and report.max_difference < 1e-5
    assert ds.verify(Tagger(), engine, n_streams=1, n_frames=50, seed=3).frames == 25
    worse = ds.verify(Tagger(seed=2), engine)
    assert not worse.ok and worse.max_difference > 1e-4 and engine.ids == []
    engine.step({"a": frames(3)}, sos="a")
    assert ds.verify(Tagger(), engine).ok and engine.ids == ["a"]


def test_nothing_is_recorded_for_gradients(capsys):
    """Neither the capture nor the comparison keeps what a way back would read, which is most of a forward."""

    def forward(self, x):
        print(ds.is_grad_enabled())
        return self.layer(x)

    ds.compile(net(nn, forward, layer=nn.Linear(3, 4)), ("B", "L", 3))
    assert set(capsys.readouterr().out.split()) == {"False"} and ds.is_grad_enabled()


def test_verify_of_attention():
    """Frames that meet each other are as few as show what leaves a window, or fewer."""

    class Model(nn.Module):
        def __init__(self, left):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True, context=ds.Context(left=left))

        def forward(self, x):
            return self.attention(x, x, x)[0]

    for left, n_frames in [(4, 24), (600, 601 + 256), (20000, 10000)]:
        model = Model(left).eval()
        engine = ds.compile(model, ("B", "L", 4), verify=False)
        assert _lengths(engine, None, 3, np.random.default_rng(0))[0] == n_frames
        assert n_frames > 1000 or ds.verify(model, engine, n_streams=1).frames == n_frames


def test_verify_within_limits():
    """max_streams: one by one; buffer_limit: without streams that are too long."""
    engine = ds.compile(Tagger(), SPEC, max_streams=1)
    assert ds.verify(Tagger(), engine).streams == 3
    engine.step({"a": frames(3)}, sos="a")
    with pytest.raises(StreamLimitError):
        ds.verify(Tagger(), engine)
    assert engine.ids == ["a"]

    for limit in (0, 5, 50):
        engine = ds.compile(
            net(nn, lambda self, x: self.rnn(x.permute(2, 0, 1))[0], rnn=nn.LSTM(3, 4, bidirectional=True)),
            SPEC,
            unstreamable="buffer",
            buffer_limit=limit,
        )
        assert engine.ids == []


def test_compile_compares_with_the_model():
    """What a graph can't hold shows: here a forward that counts its calls where no trace takes it back."""
    calls = itertools.count(1)

    class Counts(nn.Module):
        def forward(self, x):
            return x * next(calls)

    with pytest.raises(CaptureError, match=r"differ by .* or they jump \(round, sign, angle, a choice"):
        ds.compile(Counts(), SPEC)
    assert ds.compile(Counts(), SPEC, verify=False).ids == []

    class Doubles(nn.Module):
        def forward(self, x):
            return x

    @ds.register(Doubles)
    def doubled(module, x):
        return ds.cat([x, x], 1)

    with pytest.raises(CaptureError, match=r"output of shape \(6, \d+\), Doubles offline \(3, \d+\)"):
        ds.compile(Doubles(), SPEC)


def test_compile_leaves_the_model_alone():
    """In any mode, with live streams; an engine doesn't see later edits of weights."""
    model, twin = ds.patch_module(Tagger()).online(), ds.patch_module(Tagger()).online()
    for m in (model, twin):
        m(ds.stream_tensor([frames(6)], ids="a", sos=True))
    engine = ds.compile(model.train(), SPEC)
    assert model.training and model.is_online and model.live_ids == ["a"] and engine.ids == []
    x = ds.stream_tensor([frames(6, 1)], ids="a")
    model.eval()
    np.testing.assert_array_equal(model(x)["a"], twin(x)["a"])
    before = engine.step({"a": frames(9)}, sos="a", eos="a")["a"]
    for p in model.parameters():
        p.numpy()[...] = 0
    np.testing.assert_array_equal(engine.step({"a": frames(9)}, sos="a", eos="a")["a"], before)


# ---------------------------------------------------------------------- threads


def run(engine, seed):
    """Run ragged batches of eight streams; return everything that came out."""
    rng, out = np.random.default_rng(seed), []
    for n in range(6):
        chunks = {f"s{i}": frames(int(rng.integers(0, 40)), n * 10 + i) for i in range(8)}
        ids = list(chunks)
        got = engine.step(chunks, sos=ids if n == 0 else (), eos=ids if n == 5 else ())
        out += [got[i] for i in ids]
    return out


def test_thread_counts_give_the_same_bits(monkeypatch):
    want = run(ds.compile(Tagger(), SPEC), 1)
    for n in (2, 3, 8):
        engine = ds.compile(Tagger(), SPEC, threads=n)
        assert engine.threads == n
        for a, b in zip(run(engine, 1), want, strict=True):
            np.testing.assert_array_equal(a, b)
    monkeypatch.setenv("DREAMSTREAM_THREADS", "2")
    engine = ds.compile(Tagger(), SPEC)
    assert engine.threads == 2 and ds.compile(Tagger(), SPEC, threads=1).threads == 1
    for a, b in zip(run(engine, 1), want, strict=True):
        np.testing.assert_array_equal(a, b)
    for wrong in ("0", "-1", "many", "", "1e9"):
        monkeypatch.setenv("DREAMSTREAM_THREADS", wrong)
        with pytest.raises(ValueError, match="DREAMSTREAM_THREADS"):
            ds.compile(Tagger(), SPEC)


def test_the_environment_sets_threads():
    code = "import dreamstream as ds; print(ds.compile(ds.nn.ReLU(), ('B', 'L')).threads)"
    assert printed("-c", code, DREAMSTREAM_THREADS="3") == "3\n"


def test_leaves_of_named_tuples():
    """A forward may return a named tuple."""
    Pair = collections.namedtuple("Pair", "low high")

    engine = ds.compile(net(nn, lambda self, x: Pair(x * 0.5, x * 2)), SPEC)
    out = engine.step({"a": frames(4)}, sos="a")["a"]
    assert type(out) is Pair and len(leaves(out)) == 2
    np.testing.assert_array_equal(out.high, frames(4) * 2)


def test_operators_tell_their_attributes():
    """All of them, defaults included: numbers, words, lists."""
    x = ("float32", (3,), 1, 1)
    conv = ds._core.Op("conv1d", {"mode": "reflect", "left": 1}, [x], [("float32", (4, 3, 2)), None])
    zeros = {"stride": 1, "dilation": 1, "groups": 1, "left": 1, "right": 0}
    assert conv.attributes == {**zeros, "mode": "reflect"}
    assert ds._core.Op("clamp", {"min": 0.5}, [x], []).attributes == {"min": 0.5, "max": math.inf}
    assert ds._core.Op("permute", {"order": [0]}, [x], []).attributes == {"order": [0]}
