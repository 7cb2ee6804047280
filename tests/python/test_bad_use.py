"""Bad use, eager and compiled: damaged states, two threads in one place, wrong modes, ends and leaks."""

import copy
import struct
import threading
import zlib

import numpy as np
import pytest
from snapshot_bytes import seal

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import (
    ClosedError,
    DreamStreamError,
    FormatError,
    ModeError,
    NotStreamableError,
    ShapeError,
    StreamBusyError,
    StreamIdError,
    StreamMismatchError,
)


class Small(nn.Module):
    """A kept frame, a carried array, few bytes."""

    def __init__(self, seed=1, hidden=1):
        super().__init__()
        ds.manual_seed(seed)
        self.conv = nn.Conv1d(1, 1, 2)
        self.rnn = nn.LSTM(1, hidden, batch_first=True)

    def forward(self, x):
        y, _ = self.rnn(self.conv(x).transpose(1, 2))
        return y


SPEC = ("B", 1, "L")


def frames(n, seed=0):
    return np.random.default_rng([n, seed]).standard_normal((1, n), dtype=np.float32)


def chunk(n, seed=0, ids="a", **flags):
    return ds.stream_tensor(frames(n, seed)[None], ids=ids, **flags)


# ---------------------------------------------------------------------- states as bytes


class EngineStates:
    """Snapshots of an engine."""

    def __init__(self, model=None):
        self.target = ds.compile(model or Small(), SPEC, verify=False)

    def step(self, x, sos=False):
        return self.target.step({"a": x}, sos=["a"] if sos else ())["a"]

    def save(self):
        return self.target.snapshot("a")

    def load(self, data, i="a"):
        self.target.restore(data, i)

    @property
    def ids(self):
        return self.target.ids

    @staticmethod
    def signed(data):
        """The same bytes with the checksum that fits them."""
        return seal(data)


class EagerStates:
    """States of a patched module."""

    def __init__(self, model=None):
        self.target = ds.patch_module(model or Small()).online()

    def step(self, x, sos=False):
        return np.asarray(self.target(ds.stream_tensor([x], ids="a", sos=sos))["a"])

    def save(self):
        return self.target.get_state("a")["a"]

    def load(self, data, i="a"):
        self.target.set_state({i: data})

    @property
    def ids(self):
        return self.target.live_ids

    @staticmethod
    def signed(data):
        return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


@pytest.fixture(params=[EngineStates, EagerStates])
def states(request):
    return request.param


def test_every_damaged_byte_is_noticed(states):
    """Flipped bytes, truncations, additions: FormatError, and nothing is restored."""
    source, target = states(), states()
    source.step(frames(5), sos=True)
    data = source.save()
    assert len(data) < 1500
    for n in range(len(data)):
        for flip in (1, 0x41, 0x80, 0xFF):
            with pytest.raises(FormatError):
                target.load(data[:n] + bytes([data[n] ^ flip]) + data[n + 1 :])
        with pytest.raises(FormatError):
            target.load(data[:n])
    for bad in (b"", data + b"\0", data * 2, data[1:], b"\0" * 200):
        with pytest.raises(FormatError):
            target.load(bad)
    assert target.ids == []
    target.load(data)
    np.testing.assert_array_equal(target.step(frames(4)), source.step(frames(4)))


def test_damage_with_a_right_checksum(states):
    """What the checksum can't tell is refused, or is the state of some stream: nothing breaks."""
    source, target = states(), states()
    source.step(frames(5), sos=True)
    data = source.save()
    taken = 0
    for n in range(len(data) - 4):
        for flip in (0x01, 0x80, 0xFF):
            bad = states.signed(data[:n] + bytes([data[n] ^ flip]) + data[n + 1 :])
            try:
                target.load(bad)
            except DreamStreamError:
                assert target.ids == []
                continue
            taken += 1
            try:
                target.step(frames(3))
            except DreamStreamError:
                assert states is EagerStates  # its script is another's
            target.target.reset()
    assert taken  # values may be anything
    target.load(data)
    np.testing.assert_array_equal(target.step(frames(4)), source.step(frames(4)))


def test_states_of_other_models(states):
    """Other weights, other sizes, other layers."""
    source = states()
    source.step(frames(5), sos=True)
    for other in (Small(seed=2), Small(hidden=2), nn.Sequential(nn.Conv1d(1, 1, 3))):
        if states is EagerStates and other.state_dict().keys() == Small().state_dict().keys():
            continue  # eager states name weights, and don't hold them
        target = states(copy.deepcopy(other))
        target.step(frames(5), sos=True)
        with pytest.raises((FormatError, ModeError)):
            target.load(source.save(), "b")
        assert target.ids == ["a"]
        fresh = states(copy.deepcopy(other))
        with pytest.raises(DreamStreamError):
            fresh.load(source.save())
            fresh.step(frames(3))
        fresh.target.reset()
        want = states(copy.deepcopy(other)).step(frames(5), sos=True)
        np.testing.assert_array_equal(fresh.step(frames(5), sos=True), want)


def test_states_and_ids(states):
    """Live ids, other than str, unknown ones; all of several states or none."""
    x = states()
    x.step(frames(5), sos=True)
    data = x.save()
    with pytest.raises(StreamIdError) as caught:
        x.load(data)
    assert caught.value.ids == ("a",)
    for wrong in (3, None, b"a"):
        with pytest.raises((StreamIdError, TypeError)):
            x.load(data, wrong or 3)
    for wrong in ("text", 3, None, [1]):
        with pytest.raises((FormatError, TypeError)):
            x.load(wrong, "b")
    assert x.ids == ["a"]
    if states is EagerStates:
        with pytest.raises(FormatError):
            x.target.set_state({"b": data, "c": data[:-1]})
        with pytest.raises(StreamIdError) as caught:
            x.target.get_state(["a", "z"])
        assert caught.value.ids == ("z",)
    else:
        for call in (lambda: x.target.snapshot("z"), lambda: x.target.fork("z", "y")):
            with pytest.raises(StreamIdError) as caught:
                call()
            assert caught.value.ids == ("z",)
        with pytest.raises(StreamIdError) as caught:
            x.target.fork("a", "a")
        assert caught.value.ids == ("a",)
        assert x.target.restore(data) in x.ids
        x.target.reset([i for i in x.ids if i != "a"])
    for reset in (["a", "z"], "z"):
        with pytest.raises(StreamIdError) as caught:
            x.target.reset(reset)
        assert caught.value.ids == ("z",) and x.ids == ["a"]
    x.target.reset(["a", "a"])
    assert x.ids == []


# ---------------------------------------------------------------------- threads


class Gate(nn.Module):
    """A forward that waits until it is let go."""

    def __init__(self):
        super().__init__()
        self.small = Small()
        self.__dict__.update(wait=False, inside=threading.Event(), go=threading.Event())

    def forward(self, x):
        y = self.small(x)
        if self.wait:
            self.inside.set()
            assert self.go.wait(20)
        return y


def test_two_threads_in_one_module():
    """The second one is told so, with its ids; the first one's call is not touched."""
    model, twin = ds.patch_module(Gate()).online(), ds.patch_module(Gate()).online()
    for m in (model, twin):
        m(chunk(5, sos=True))
    model.wait, results = True, []
    thread = threading.Thread(target=lambda: results.append(model(chunk(4))))
    thread.start()
    try:
        assert model.inside.wait(20)
        calls = [
            lambda: model(chunk(4)),
            lambda: model(chunk(4, ids="b", sos=True)),
            model.reset,
            model.get_state,
            lambda: model.set_state(twin.get_state()),
        ]
        for call, ids in zip(calls, [("a",), ("b",), (), (), ()], strict=True):
            with pytest.raises(StreamBusyError) as caught:
                call()
            assert caught.value.ids == ids
        assert model.live_ids == ["a"]
    finally:
        model.go.set()
        thread.join()
    model.wait = False
    np.testing.assert_array_equal(results[0]["a"], twin(chunk(4))["a"])
    np.testing.assert_array_equal(model(chunk(3, eos=True))["a"], twin(chunk(3, eos=True))["a"])


def test_a_module_that_calls_itself():
    class Loop(nn.Module):
        def forward(self, x):
            return self(chunk(3, ids="b", sos=True)) if x.ids == ["a"] else x

    model = ds.patch_module(Loop()).online()
    with pytest.raises((StreamBusyError, StreamMismatchError)):
        model(chunk(4, sos=True))
    assert model.live_ids == []
    model(chunk(4, ids="b", sos=True))


def test_one_stream_in_two_threads():
    """Of an engine's stream one thread at a time may make use; other streams are free meanwhile."""
    ds.manual_seed(3)
    rng = np.random.default_rng(3)
    model = nn.LSTM(64, 192, 2, batch_first=True)
    engine, twin = (ds.compile(model, ("B", "L", 64), verify=False) for _ in range(2))
    long, short = (rng.standard_normal((n, 64), dtype=np.float32) for n in (12000, 3))
    for e in (engine, twin):
        e.step({"a": short, "b": short}, sos=["a", "b"])
    results: list = []
    thread = threading.Thread(target=lambda: results.append(engine.step({"a": long})["a"][0]))
    thread.start()
    while not results:  # until the other thread has the stream
        try:
            engine.snapshot("a")
        except StreamBusyError:
            break
    calls = [
        lambda: engine.step({"b": short, "a": short}),
        lambda: engine.step({"a": short}, sos="a", restart=True),
        lambda: engine.step({}, eos="a"),
        lambda: engine.snapshot("a"),
        lambda: engine.fork("a", "c"),
        lambda: engine.reset(["b", "a"]),
    ]
    for call in calls:
        with pytest.raises(StreamBusyError) as caught:
            call()
        assert caught.value.ids == ("a",)
    with pytest.raises(StreamBusyError):
        engine.close()
    got = engine.step({"b": short})["b"][0]
    assert thread.is_alive()  # all that was while the long step ran
    thread.join()
    assert engine.ids == ["a", "b"]
    np.testing.assert_array_equal(got, twin.step({"b": short})["b"][0])
    np.testing.assert_array_equal(results[0], twin.step({"a": long})["a"][0])


# ---------------------------------------------------------------------- after the end


def test_a_closed_engine():
    engine = ds.compile(Small(), SPEC)
    engine.step({"a": frames(5)}, sos="a")
    data, half = engine.snapshot("a"), engine.stream("b")
    half.step(frames(3))
    engine.close()
    engine.close()
    calls = [
        lambda: engine.step({"a": frames(5)}),
        lambda: engine.step({}),
        lambda: engine(chunk(5)),
        lambda: engine.snapshot("a"),
        lambda: engine.restore(data),
        lambda: engine.fork("a", "c"),
        lambda: engine.reset(),
        lambda: engine.idle(0),
        lambda: engine.warmup(1, 1),
        lambda: half.step(frames(3)),
        lambda: engine.stream("c").step(frames(3)),
    ]
    for call in calls:
        with pytest.raises(ClosedError) as caught:
            call()
        assert type(caught.value) is ClosedError
    half.__exit__(None, None, None)
    assert engine.closed and engine.ids == [] and engine.state_size > 0
    with ds.compile(Small(), SPEC) as engine:
        engine.step({"a": frames(5)}, sos="a")
    assert engine.closed


def test_streams_by_hand():
    """Left unfinished, or by an exception, a stream is dropped; one that others own is not."""
    engine = ds.compile(Small(), SPEC)
    with engine.stream("a") as s:
        first = s.step(frames(5))
        assert engine.ids == ["a"]
    assert engine.ids == []
    with pytest.raises(ZeroDivisionError), engine.stream("a") as s:
        s.step(frames(5))
        raise ZeroDivisionError
    assert engine.ids == []
    with engine.stream("a") as s:
        with pytest.raises(ShapeError) as caught:
            s.step(frames(5)[0])
        assert caught.value.ids == ("a",) and engine.ids == []
        np.testing.assert_array_equal(s.step(frames(5)), first)
        last = s.finish()
        for call in (lambda: s.step(frames(1)), s.finish):
            with pytest.raises(StreamIdError) as caught:
                call()
            assert caught.value.ids == ("a",)
    assert last.shape == (0, 1) and engine.ids == []
    with engine.stream("a"):
        pass
    engine.step({"a": frames(5)}, sos="a")
    with pytest.raises(StreamIdError), engine.stream("a") as s:
        s.step(frames(5))
    assert engine.ids == ["a"]
    with engine.stream("b") as s:
        s.step(frames(5))
        engine.reset("b")  # behind its back
    assert engine.ids == ["a"]


# ---------------------------------------------------------------------- modes


def test_modes():
    """Offline takes plain tensors, online streams; nothing else, at the top or at a leaf."""
    model = ds.patch_module(Small())
    plain, stream = ds.tensor(frames(5)[None]), chunk(5, sos=True)
    for part, x, s in [(model, plain, stream), (model.conv, plain, stream)]:
        want = np.asarray(part(x))
        with pytest.raises(ModeError, match="online"):
            part(s)
        model.online()
        with pytest.raises(ModeError, match="offline"):
            part(x)
        for wrong in (frames(5)[None], None, 3):
            with pytest.raises(ModeError):
                part(wrong)
        part(s)
        model.offline()
        np.testing.assert_allclose(part(x), want, atol=1e-6)
    for mode in (1, None, "yes"):
        with pytest.raises(ValueError, match="bool"):
            model.online(mode)
    with pytest.raises(AttributeError):
        Small().online()  # not patched
    assert model.live_ids == ["a"]
    with pytest.raises(ModeError):
        Small()(stream)


#: What forwards leak, by module: a model itself is rid of it after each call.
LEAKED = {}


class Reaches(nn.Module):
    """A forward that can leak, and add tensors of elsewhere."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 2)
        self.__dict__["extra"] = None

    def forward(self, x):
        y = LEAKED[self] = self.conv(x)
        return y if self.extra is None else y + self.extra


def test_tensors_of_other_entries():
    """What one call returned, or kept, can't be combined inside another, nor used after its end."""
    model, twin, other = (ds.patch_module(Reaches()).online() for _ in range(3))
    twin.load_state_dict(model.state_dict())
    outputs = [m(chunk(6, sos=True)) for m in (model, twin, other)]
    elsewhere = [outputs[0], LEAKED[other], LEAKED[model], chunk(5), chunk(1, ids="b", sos=True)]
    for x in elsewhere:
        model.__dict__["extra"] = x
        with pytest.raises(StreamMismatchError) as caught:
            model(chunk(4, 1))
        assert "test_bad_use.py" in str(caught.value)
    model.__dict__["extra"] = None
    for m in (model, twin):
        m(chunk(3, 2))
    leaked = LEAKED[model]
    for use in (
        leaked.relu, lambda: leaked + leaked, lambda: leaked[..., 1:], lambda: leaked.transpose(1, 2).exp(),
        lambda: leaked.softmax(1), lambda: model.conv(leaked),
    ):  # fmt: skip
        with pytest.raises(ModeError):
            use()
    for use in (leaked.numpy, lambda: leaked["a"], lambda: np.asarray(leaked), lambda: bool(leaked)):
        with pytest.raises(NotStreamableError):
            use()
    with pytest.raises(StreamMismatchError):
        _ = outputs[0] + leaked
    np.testing.assert_array_equal(model(chunk(4, 1))["a"], twin(chunk(4, 1))["a"])
    assert model.live_ids == ["a"]
