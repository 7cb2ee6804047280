"""What an engine keeps by id: positions, names, streams by hand; and arguments that change under its hands."""

import collections
import functools
import time

import numpy as np
import pytest
from nets import net

import dreamstream as ds
from dreamstream import _core, nn
from dreamstream.errors import DTypeError, FormatError, ShapeError, StreamIdError

SPEC = ("B", "L")


def compiled(model=None, spec=SPEC, **options):
    return ds.compile(model or nn.ReLU(), spec, verify=False, **options)


def frames(n, seed=0):
    return np.random.default_rng([n, seed]).standard_normal(n, dtype=np.float32)


# ---------------------------------------------------------------------- positions


def test_positions():
    """Frames so far of live streams, which snapshots and forks carry on."""
    engine, far = compiled(), 0
    for n in (3, 0, 5):
        engine.step({"a": frames(n)}, sos="a" if far == 0 and n else ())
        far += n
        assert engine.position("a") == far
    engine.fork("a", "b")
    engine.step({"b": frames(2)})
    assert [engine.position(i) for i in "ab"] == [8, 10]
    assert engine.position(engine.restore(engine.snapshot("b"))) == 10
    engine.step({"a": frames(4)}, sos="a", restart=True)
    assert engine.position("a") == 4
    engine.step({}, eos="a")
    for unknown in ("a", "never"):
        with pytest.raises(StreamIdError) as caught:
            engine.position(unknown)
        assert caught.value.ids == (unknown,)
    engine.close()
    with pytest.raises(ds.ClosedError):
        engine.position("b")


def test_a_failed_step_moves_nothing():
    engine = compiled()
    engine.step({"a": frames(3)}, sos="a")
    with pytest.raises(ShapeError):
        engine.step({"a": frames(3), "b": frames(3)[None]}, sos="b")
    assert engine.position("a") == 3


# ---------------------------------------------------------------------- names


def test_restore_names_its_argument_id():
    engine = compiled()
    engine.step({"restored-1": frames(3)}, sos="restored-1")
    data = engine.snapshot("restored-1")
    assert engine.restore(data, id="named") == "named"
    assert engine.restore(data) == "restored-0" and engine.restore(data=data) == "restored-2"
    with pytest.raises(FormatError):
        engine.restore(data[:-1])
    assert engine.restore(data, None) == "restored-3"
    engine.reset(["restored-0", "restored-2"])
    again = [engine.restore(data) for _ in range(3)]
    assert len({*again, *engine.ids}) == len(engine.ids) == 6


def spent(action, n=100):
    """The least of some times of n actions."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(n):
            action()
        times.append(time.perf_counter() - begin)
    return min(times)


def test_many_live_streams_cost_nothing():
    """Of one stream's steps, end, restoring, name and position, however many others are live."""
    few, many = compiled(), compiled()
    ids = [f"s{n}" for n in range(50_000)]
    many.step({}, sos=ids)

    def by_hand(engine):
        with engine.stream("by hand") as stream:
            stream.step(None)

    few.step({}, sos="s1")
    data = few.snapshot("s1")
    actions = {
        "by hand": by_hand,
        "restore": lambda engine: engine.reset(engine.restore(data)),
        "position": lambda engine: engine.position("s1"),
        "step": lambda engine: engine.step({"s1": None}),
        "batch": lambda engine: engine.step_batch(["s1"], None),
    }
    for name, action in actions.items():
        here, there = (spent(functools.partial(action, engine)) for engine in (few, many))
        assert there < 10 * here, name  # looking through all of them takes thousands of times as long
    assert len(many.ids) == 50_000


# ---------------------------------------------------------------------- by hand


def test_by_hand_only_its_own_stream():
    """What has its id by the time of leaving, but is not what it began, stays."""
    engine = compiled()
    with engine.stream("a") as s:
        s.step(frames(3))
        engine.reset("a")
        engine.step({"a": frames(5)}, sos="a")
    assert engine.position("a") == 5
    with engine.stream("b") as s:
        s.step(frames(3))
        engine.step({"b": frames(4)}, sos="b", restart=True)
    assert engine.position("b") == 4
    with engine.stream("c") as s:
        s.step(frames(3))
        engine.step({}, eos="c")
        with pytest.raises(StreamIdError):
            s.step(frames(1))
    assert engine.ids == ["a", "b"] and (s.id, s.engine) == ("c", engine)
    half = engine.stream("d")
    half.step(frames(2))
    engine.close()
    half.__exit__(None, None, None)
    with pytest.raises(TypeError):
        type(half)(engine._core, "e")


# ---------------------------------------------------------------------- bools


def test_bools_of_other_bytes():
    """A NumPy bool that is neither 0 nor 1 is what NumPy takes it for, True, in the engine as in C."""
    odd = np.array([0, 1, 2, 128, 255, 0], np.uint8)

    engine = compiled(net(nn, lambda self, x: (ds.where(x, x.float() + 2, x.float()), x)), dtype="bool")
    value, same = engine.step({"a": odd.view(bool)}, sos="a")["a"]
    np.testing.assert_array_equal(value, [0, 3, 3, 3, 3, 0])
    np.testing.assert_array_equal(same.view(np.uint8), [0, 1, 1, 1, 1, 0])
    (value, _), _ = engine.step_batch(["a"], odd.view(bool)[None])
    np.testing.assert_array_equal(value, [[0, 3, 3, 3, 3, 0]])


# ---------------------------------------------------------------------- arguments that change


class Changing(collections.UserList):
    """A sequence that is shorter each time that somebody walks it."""

    def __iter__(self):
        items = list(self.data)
        del self.data[-1:]
        return iter(items)

    def __len__(self):
        del self.data[-1:]
        return len(self.data)


class Spoiler:
    """An item that empties its list when it is looked at."""

    def __init__(self, items, value):
        self.items, self.value = items, value

    def __index__(self):
        self.items.clear()
        return self.value

    def __array__(self, dtype=None, copy=None):
        self.items.clear()
        return np.full(3, self.value, np.float32)


def test_chunks_that_change():
    """Each argument is read once, as it is at the call."""
    engine = compiled()
    engine.step(collections.UserDict(a=frames(3)), sos=Changing(["a", "b"]), eos=Changing(["b"]))
    assert engine.ids == ["a"]
    chunks = {"a": None, "c": frames(2)}
    chunks["a"] = Spoiler(chunks, 5)
    out = engine.step(chunks, sos="c")
    assert chunks == {} and out["a"].tolist() == [5, 5, 5] and out["c"].shape == (2,)
    rows = [["a", "c"], [frames(2), frames(2)]]
    engine.step_batch(Changing(rows[0]), np.stack(rows[1]), lengths=[1, 2], eos=Changing([True, True]))
    assert engine.ids == []

    class Shifting(dict):
        """A mapping whose keys are other ones each time."""

        n = 0

        def __iter__(self):
            self.n += 1
            return iter([f"{self.n}-{k}" for k in range(3)])

        def __getitem__(self, key):
            return frames(2)

    assert list(engine.step(Shifting(x=1), sos=["1-0", "1-1", "1-2"])) == ["1-0", "1-1", "1-2"]


def test_arrays_that_change():
    """An array that a later chunk's conversion cuts down is taken as it is by then, or refused."""
    engine = compiled(nn.ReLU(), ("B", 2, "L"))
    first = np.ones((2, 6), np.float32)

    class Cutting:
        def __array__(self, dtype=None, copy=None):
            first.shape = (12,)
            return np.ones((2, 3), np.float32)

    with pytest.raises(ShapeError) as caught:
        engine.step({"a": first, "b": Cutting()}, sos=["a", "b"])
    assert caught.value.ids == ("a",) and engine.ids == []


def test_weights_of_a_generator():
    """What a graph reads stays until it was read."""
    graphs = []
    for lazy in (False, True):
        g = _core.Graph()
        x = g.input(("float32", (3,), 1, 1))
        arrays = (np.arange(n, dtype=np.float32).reshape(s) for n, s in [(6, (2, 3)), (2, (2,))])
        (y,) = g.node("linear", {}, [x], arrays if lazy else list(arrays))
        g.output(y)
        graphs.append(_core.Engine(g).fingerprint)
    assert graphs[0] == graphs[1]
    g = _core.Graph()
    order: list = [0, 0]
    order[0] = Spoiler(order, 1)
    x = g.input(("float32", (2, 2), 1, 1))
    g.node("permute", {"order": order[:1] + order[1:]}, [x], [])
    shape: list = [0, 2]
    shape[0] = Spoiler(shape, 2)
    assert g.input(("float32", shape, 1, 1)) is not None and shape == []
    with pytest.raises((TypeError, ShapeError, DTypeError)):
        g.node("linear", {}, [x], Changing([np.zeros((2, 3), np.float32)]))


def test_long_ids_in_messages():
    """A line says which stream; `.ids` holds all of it."""
    engine = compiled()
    for stream_id in ("x" * 100_000, "a\nb\n" * 1000, "\ud800" * 500):
        with pytest.raises(StreamIdError) as caught:
            engine.step({stream_id: frames(1)})
        text = str(caught.value)
        assert caught.value.ids == (stream_id,) and "\n" not in text and len(text) < 300
    with pytest.raises(StreamIdError) as caught:
        engine.step({tuple(range(10_000)): frames(1)})
    assert len(str(caught.value)) < 300


def test_an_engine_that_was_not_made():
    engine = ds.Engine.__new__(ds.Engine)
    for call in (
        lambda: engine.step({}),
        lambda: engine.step_batch([], np.zeros(0)),
        lambda: _core.Stream(engine, "a").step(None),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        _core.Stepper(None, (), 0, [], [])
    core, axes = compiled()._core, [[-1, 0]]
    for bad in (
        (core, ("x", "y"), 0, axes, axes),
        (core, ("x",), 1, axes, axes),
        (core, ("x",), "y", axes, axes),
        (core, ("x",), 0, axes, []),
        *((core, ("x",), 0, [wrong], axes) for wrong in ([-1], [-1, 1], [-2, 0], [0, 0], [-1, 0, 0])),
    ):
        with pytest.raises(ValueError):
            _core.Stepper(*bad)
    stepper = _core.Stepper(core, ("x",), 0, axes, axes)
    assert stepper.step({"a": frames(2)}, sos="a")["a"].shape == (2,)
    with pytest.raises(TypeError):
        stepper.__init__(core, ("x",), 0, axes, axes)
