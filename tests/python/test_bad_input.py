"""Bad input, eager and compiled: the right exception, the streams that it names, and nothing changed.

Every case runs on a model whose streams are under way; afterwards these go on, and what they give is
compared, to the bit, with a twin that never saw the bad call.
"""

import numpy as np
import pytest
from small_model import Model, frames
from turns import in_blocks

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import (
    DTypeError,
    ModeError,
    NotStreamableError,
    OutOfMemoryError,
    ShapeError,
    StreamIdError,
    StreamLimitError,
    StreamMismatchError,
)


class Eager:
    """A patched model, fed like an engine."""

    def __init__(self, model=Model, **options):
        self.model = ds.patch_module(model().eval(), **options).online()

    def feed(self, chunks, sos=(), eos=(), restart=False):
        ids = list(chunks)
        flags = {"sos": [i in sos for i in ids], "eos": [i in eos for i in ids]}
        y = self.model(ds.stream_tensor(list(chunks.values()), ids=ids, restart=restart, **flags))
        return {i: np.asarray(y[i]) for i in ids}

    @property
    def ids(self):
        return self.model.live_ids


class Compiled:
    """An engine."""

    def __init__(self, model=Model, **options):
        self.engine = ds.compile(model().eval(), ("B", 3, "L"), verify=False, **options)

    def feed(self, chunks, sos=(), eos=(), restart=False):
        return self.engine.step(chunks, sos=sos, eos=eos, restart=restart)

    @property
    def ids(self):
        return self.engine.ids


@pytest.fixture(params=[Eager, Compiled])
def kind(request):
    return request.param


def same(a, b):
    assert a.keys() == b.keys()
    for i in a:
        np.testing.assert_array_equal(a[i], b[i])


class Disturbed:
    """Two like models whose streams a and b are under way; the first one gets the bad calls."""

    def __init__(self, kind, **options):
        self.subject, self.twin = kind(**options), kind(**options)
        for x in (self.subject, self.twin):
            x.feed({"a": frames(9), "b": frames(4)}, sos=["a", "b"])

    def refuses(self, call, error, ids=()):
        with pytest.raises(error) as caught:
            call(self.subject)
        assert type(caught.value) is error
        assert tuple(getattr(caught.value, "ids", ())) == tuple(ids)
        assert self.subject.ids == self.twin.ids

    def goes_on(self):
        """The streams, and a new one, are as if nothing had happened."""
        for n, (sos, eos) in enumerate([((), ()), (["c"], ["b"]), ((), ["a", "c"])]):
            chunks = {i: frames(5 + n, ord(i)) for i in dict.fromkeys([*self.twin.ids, *sos])}
            same(self.subject.feed(chunks, sos, eos), self.twin.feed(chunks, sos, eos))
        assert self.subject.ids == self.twin.ids == []


# ---------------------------------------------------------------------- arrays that don't fit

GOOD = frames(6)
WRONG_TYPES = {
    "complex": GOOD.astype(np.complex64),
    "int16": GOOD.astype(np.int16),
    "int32": GOOD.astype(np.int32),
    "bool": GOOD > 0,
    "object": GOOD.astype(object),
    "text": GOOD.astype(str),
    "dates": GOOD.astype("M8[s]"),
    "structured": np.zeros((3, 6), [("x", np.float32)]),
    "a word": "frames",
}
WRONG_SHAPES = {
    "too few channels": GOOD[:2],
    "too many channels": np.zeros((4, 6), np.float32),
    "no channels": GOOD[:0],
    "no channel axis": GOOD[0],
    "a batch axis": GOOD[None],
    "transposed": GOOD.T,
    "a number": np.float32(3),
    "uneven lists": [[1.0, 2.0], [3.0]],
}


@pytest.mark.parametrize("name", [*WRONG_TYPES, *WRONG_SHAPES])
def test_wrong_arrays(kind, name):
    """The stream is named: beside others, of which those that go on are trusted more, and alone."""
    bad = {**WRONG_TYPES, **WRONG_SHAPES}[name]
    error = DTypeError if name in WRONG_TYPES else ShapeError
    pair = Disturbed(kind)
    pair.refuses(lambda x: x.feed({"a": GOOD, "b": bad}), error, ["b"])
    pair.refuses(lambda x: x.feed({"n": bad, "a": GOOD}, sos=["n"]), error, ["n"])
    pair.refuses(lambda x: x.feed({"a": bad}), error, ["a"])
    pair.goes_on()


def test_lists_are_float32(kind):
    pair = Disturbed(kind)
    x = np.round(frames(5) * 8)
    given = x.tolist() if kind is Compiled else np.array(x.tolist(), np.float32)
    same(pair.subject.feed({"a": given}), pair.twin.feed({"a": x}))
    pair.goes_on()


@pytest.mark.parametrize(
    ("options", "error", "ids"),
    [
        ({"lengths": [5, 7]}, StreamMismatchError, ["b"]),
        ({"lengths": [-1, 4]}, ShapeError, ["a"]),
        ({"lengths": [2**62, 2**70]}, ShapeError, ["a", "b"]),
        ({"lengths": [2.0, 3.0]}, DTypeError, []),
        ({"lengths": [True, False]}, DTypeError, []),
        ({"lengths": [4]}, ShapeError, []),
        ({"lengths": [[4, 4]]}, ShapeError, []),
        ({"sos": 1}, DTypeError, []),
        ({"sos": [True]}, ShapeError, []),
        ({"eos": "no"}, DTypeError, []),
        ({"ids": ["a", "a"]}, StreamIdError, ["a"]),
        ({"ids": ["a", 5]}, StreamIdError, []),
        ({"ids": ["a", None]}, StreamIdError, []),
        ({"ids": ["a"]}, StreamIdError, []),
        ({"ids": None}, StreamIdError, []),
        ({"names": ("B", "F")}, ShapeError, []),
        ({"names": ("B", "B", "L")}, ShapeError, []),
        ({"names": ("B", "F", "G")}, ShapeError, []),
        ({"names": ("B", "L", "F")}, ShapeError, ["a", "b"]),
        ({"names": "BFL"}, DTypeError, []),
        ({"rate": 0}, StreamMismatchError, []),
        ({"rate": float("nan")}, StreamMismatchError, []),
        ({"rate": "fast"}, StreamMismatchError, []),
        ({"rate": 10**30}, StreamMismatchError, []),
        ({"rate": 2}, StreamMismatchError, []),
        ({"meta": ds.StreamMetadata(["a", "b"], False, False, [6, 6])}, StreamMismatchError, []),
        ({"dtype": "float16"}, DTypeError, []),
        ({"dtype": "float64"}, DTypeError, ["a", "b"]),
    ],
    ids=lambda v: str(v)[:40],
)
def test_wrong_stream_tensors(options, error, ids):
    """Sizes, flags, names and rates that don't fit, in making the tensor or in running it."""
    pair = Disturbed(Eager)
    data = np.zeros((2, 3, 6), np.float32)

    def call(x):
        return x.model(ds.stream_tensor(data, **{"ids": ["a", "b"], **options}))

    pair.refuses(call, error, ids)
    pair.goes_on()


@pytest.mark.parametrize("frames_", [1 << 44, 1 << 49, 1 << 58])
def test_absurd_sizes(frames_):
    """Arrays that take no memory until they are copied."""
    pair = Disturbed(Compiled)
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3, frames_), (0, 0), writeable=False)
    error = OutOfMemoryError if frames_ < 1 << 48 else ShapeError
    pair.refuses(lambda x: x.feed({"a": GOOD, "b": huge}), error, ["b"])
    pair.goes_on()


# ---------------------------------------------------------------------- ids


def test_wrong_ids(kind):
    pair = Disturbed(kind)
    pair.refuses(lambda x: x.feed({"z": GOOD}), StreamIdError, ["z"])
    pair.refuses(lambda x: x.feed({"z": GOOD, "a": GOOD, "y": GOOD}), StreamIdError, ["z", "y"])
    pair.refuses(lambda x: x.feed({"b": GOOD, "n": GOOD}, sos=["b", "n"]), StreamIdError, ["b"])
    pair.refuses(lambda x: x.feed({"z": GOOD[:, :0]}, eos=["z"]), StreamIdError, ["z"])
    for wrong in (5, None, b"a", ("a",)):
        pair.refuses(lambda x, wrong=wrong: x.feed({"a": GOOD, wrong: GOOD}, sos=[wrong]), StreamIdError)
    pair.goes_on()


def test_any_text_is_an_id(kind):
    """Empty, not ASCII, half a surrogate pair, long, with a NUL inside: ids are compared, never read."""
    pair = Disturbed(kind)
    for i in ("", "ä", "\ud800", "x" * 10000, "a\0b", " a"):
        for x in (pair.subject, pair.twin):
            x.feed({i: GOOD}, sos=[i])
        assert i in pair.subject.ids
        pair.refuses(lambda x, i=i: x.feed({i: GOOD}, sos=[i]), StreamIdError, [i])
        for x in (pair.subject, pair.twin):
            x.feed({i: GOOD}, eos=[i])
    pair.goes_on()


def test_a_subclass_of_str_is_that_text(kind):
    class Loud(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            raise AssertionError("compared")

    pair = Disturbed(kind)
    x = frames(5)
    if kind is Compiled:
        got = pair.subject.engine.step({Loud("a"): x})["a"]
    else:
        y = pair.subject.model(ds.stream_tensor([x], ids=[Loud("a")]))
        assert type(y.ids[0]) is str
        got = np.asarray(y["a"])
    np.testing.assert_array_equal(got, pair.twin.feed({"a": x})["a"])
    pair.goes_on()


def test_restart(kind):
    """It throws the old state away, but only in a call that succeeds."""
    pair = Disturbed(kind)
    bad = frames(6, channels=2)
    pair.refuses(lambda x: x.feed({"a": GOOD, "b": GOOD}, sos=["a"]), StreamIdError, ["a"])
    with pytest.raises(ShapeError):
        pair.subject.feed({"a": GOOD, "b": bad}, sos=["a"], restart=True)
    got = pair.subject.feed({"a": GOOD, "b": GOOD}, sos=["a"], restart=True)
    fresh = kind().feed({"n": GOOD}, sos=["n"])
    np.testing.assert_array_equal(got["a"], fresh["n"])
    pair.twin.feed({"a": GOOD, "b": GOOD}, sos=["a"], restart=True)
    assert pair.subject.ids == pair.twin.ids
    pair.goes_on()


def test_restart_and_end_in_one_call(kind):
    pair = Disturbed(kind)
    got = pair.subject.feed({"a": GOOD}, sos=["a"], eos=["a"], restart=True)
    same(got, {"a": kind().feed({"n": GOOD}, sos=["n"], eos=["n"])["n"]})
    assert pair.subject.ids == ["b"]


def test_max_streams():
    pair = Disturbed(Compiled, max_streams=3)
    pair.refuses(lambda x: x.feed({"c": GOOD, "d": GOOD}, sos=["c", "d"]), StreamLimitError, ["d"])
    pair.refuses(lambda x: x.feed({"a": GOOD, "c": GOOD, "d": GOOD}, sos=["c", "d"]), StreamLimitError, ["d"])
    pair.goes_on()
    engine = pair.subject.engine
    engine.step({"a": GOOD}, sos="a")
    data = engine.snapshot("a")
    for i in "bc":
        engine.fork("a", i)
    for call in (lambda: engine.fork("a", "d"), lambda: engine.restore(data, "d")):
        with pytest.raises(StreamLimitError) as caught:
            call()
        assert caught.value.ids == ("d",)
    assert engine.ids == ["a", "b", "c"]


def test_a_restart_needs_no_room():
    """At the limit a live stream can still be started anew."""
    pair = Disturbed(Compiled, max_streams=2)
    pair.refuses(lambda x: x.feed({"c": GOOD}, sos=["c"]), StreamLimitError, ["c"])
    same(
        pair.subject.feed({"a": GOOD, "b": GOOD}, sos=["a", "b"], restart=True),
        {i: Compiled().feed({i: GOOD}, sos=[i])[i] for i in "ab"},
    )
    assert pair.subject.ids == ["a", "b"]


def test_a_stream_that_ends_makes_room():
    """At the limit one call may end streams and start others; never more than the limit go on."""
    pair = Disturbed(Compiled, max_streams=2)
    two = {"a": GOOD, "c": GOOD, "d": GOOD}
    pair.refuses(lambda x: x.feed(two, sos=["c", "d"], eos=["a"]), StreamLimitError, ["d"])
    pair.refuses(lambda x: x.feed({"c": GOOD}, sos=["c"], eos=["c"]), StreamLimitError, ["c"])
    got = pair.subject.feed({"c": GOOD, "a": GOOD, "d": GOOD, "b": GOOD}, sos=["c", "d"], eos=["a", "b"])
    same({i: got[i] for i in "cd"}, {i: Compiled().feed({i: GOOD}, sos=[i])[i] for i in "cd"})
    assert sorted(pair.subject.ids) == ["c", "d"]


# ---------------------------------------------------------------------- samples that are no numbers


# ---------------------------------------------------------------------- layouts of memory


def misaligned(x):
    memory = np.zeros(x.nbytes + 65, np.uint8)
    first = 1 - memory.ctypes.data % 4 + 4
    out = memory[first : first + x.nbytes].view(np.float32).reshape(x.shape)
    out[...] = x
    assert not x.size or not out.flags.aligned
    return out


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "reversed": lambda x: x[:, ::-1].copy()[:, ::-1],
    "channels reversed": lambda x: x[::-1].copy()[::-1],
    "transposed": lambda x: np.asfortranarray(x),
    "every other frame": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "part of a larger array": lambda x: np.pad(x, ((1, 2), (3, 1)))[1:-2, 3:-1],
    "misaligned": misaligned,
    "read-only": read_only,
    "the other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "a subclass": lambda x: x.view(np.ma.MaskedArray).view(type("Array", (np.ndarray,), {})),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layouts(kind, layout):
    """Any strides, alignment and byte order: the values count, and inputs stay as they are."""
    pair = Disturbed(kind)
    for n, eos in [(7, []), (1, []), (0, []), (6, ["a", "b"])]:
        chunks = {i: frames(n, ord(i)) for i in "ab"}
        given = {i: LAYOUTS[layout](x) for i, x in chunks.items()}
        same(pair.subject.feed(given, eos=eos), pair.twin.feed(chunks, eos=eos))
        same(given, chunks)


def test_zero_strides(kind):
    pair = Disturbed(kind)
    one = frames(1)
    for given in (np.broadcast_to(one, (3, 8)), np.broadcast_to(np.float32(0.5), (3, 8))):
        same(pair.subject.feed({"a": given}), pair.twin.feed({"a": given.copy()}))
    pair.goes_on()


def test_one_array_for_several_streams(kind):
    """Nothing is shared between streams whose caller gave them the same memory, then wrote to it."""
    pair = Disturbed(kind)
    x = frames(7)
    got = pair.subject.feed({"a": x, "b": x})
    x[:] = np.nan
    same(got, pair.twin.feed({"a": frames(7), "b": frames(7)}))
    for y in got.values():
        y[:] = np.nan
    pair.goes_on()


class Samples(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 3)
        self.conv.weight.numpy()[...] = np.arange(6).reshape(2, 1, 3)

    def forward(self, x):
        return self.conv(x.unsqueeze(1))


def test_int16_samples():
    """Of inputs (B, L) they are fractions of 32768; of others, and eager, they are refused."""
    engine = ds.compile(Samples(), ("B", "L"))
    x = np.random.default_rng(1).integers(-32768, 32768, 20).astype(np.int16)
    x[:2] = -32768, 32767
    want = engine.step({"f": x.astype(np.float32) / 32768}, sos="f")["f"]
    np.testing.assert_array_equal(engine.step({"i": x}, sos="i")["i"], want)
    np.testing.assert_array_equal(engine.step({"r": x[::-1].copy()[::-1]}, sos="r")["r"], want)
    for dtype in (np.int8, np.uint16, np.int32, np.int64, ">i2"):
        if dtype == ">i2":
            np.testing.assert_array_equal(engine.step({"o": x.astype(dtype)}, sos="o")["o"], want)
            continue
        with pytest.raises(DTypeError) as caught:
            engine.step({"i": x.astype(dtype)})
        assert caught.value.ids == ("i",)
    model = ds.patch_module(Samples()).online()
    with pytest.raises(DTypeError):
        model(ds.stream_tensor([x], ids="i", sos=True))


# ---------------------------------------------------------------------- several inputs


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        ds.manual_seed(2)
        self.conv = nn.Conv1d(3, 2, 3, padding=1)

    def forward(self, x, y):
        return self.conv(x) + y


def test_inputs_that_differ():
    """ids, order, sos, eos and progress of two inputs."""
    model, x, y = ds.patch_module(Two()).online(), frames(6), frames(6, 1, 2)
    engine = ds.compile(Two(), {"x": ("B", 3, "L"), "y": ("B", 2, "L")})
    cases = [
        ({"ids": ["a", "c"], "sos": True}, 6, StreamIdError, ("b", "c")),
        ({"ids": ["b", "a"], "sos": True}, 6, StreamIdError, ("a", "b")),
        ({"ids": ["a", "b"], "sos": [True, False]}, 6, StreamMismatchError, ("b",)),
        ({"ids": ["a", "b"], "sos": True, "eos": [True, False]}, 6, StreamMismatchError, ("a",)),
        ({"ids": ["a", "b"], "sos": True}, 4, StreamMismatchError, ("a", "b")),
    ]
    first = ds.stream_tensor([x, x], ids=["a", "b"], sos=True)
    for options, n, error, ids in cases:
        for call in (model, engine):
            with pytest.raises(error) as caught:
                call(first, ds.stream_tensor([y[:, :n]] * 2, **options))
            assert type(caught.value) is error and caught.value.ids == ids
    assert model.live_ids == engine.ids == []
    for given, error in [
        (x, ShapeError),
        ([x, y], ShapeError),
        ({"x": x, "z": y}, ShapeError),
        ({"x": x, "y": x}, ShapeError),
        ({"x": x}, StreamMismatchError),
        ({"x": x, "y": y[:, :5]}, StreamMismatchError),
    ]:
        with pytest.raises(error) as caught:
            engine.step({"a": given}, sos="a")
        assert type(caught.value) is error and caught.value.ids == ("a",)
    for args in [(), (first,), (first, first, first), (x, y), (ds.tensor(x[None]), ds.tensor(y[None]))]:
        with pytest.raises((ShapeError, ModeError)):
            engine(*args)
    assert engine.ids == []
    a = model(first, ds.stream_tensor([y, y], ids=["a", "b"], sos=True))
    b = engine(first, y=ds.stream_tensor([y, y], ids=["a", "b"], sos=True))
    np.testing.assert_allclose(a["b"], b["b"], atol=1e-6)


# ---------------------------------------------------------------------- compiling

SPECS = [
    (("B", 3), ShapeError),
    (("B", 3, "L", "L"), ShapeError),
    (("B", "F", "L"), ShapeError),
    ("BFL", ShapeError),
    (None, ShapeError),
    (3, ShapeError),
    (("B", 0, "L"), ShapeError),
    (("B", -3, "L"), ShapeError),
    (("B", 3.0, "L"), ShapeError),
    (("B", True, "L"), ShapeError),
    ({}, ShapeError),
    ({"y": ("B", 3, "L")}, ShapeError),
    (("B", 4, "L"), ShapeError),
    (("B", "L", 3), ShapeError),
    (("B", "L"), ShapeError),
    (("B", 1 << 40, "L"), ShapeError),
    (("B", *(2,) * 10, "L"), ShapeError),
]
OPTIONS = [
    *(({"rate": r}, StreamMismatchError) for r in (0, -1, "x", float("nan"), float("inf"), None, 10**30, 1e-30)),
    ({"rate": {"y": 1}}, ShapeError),
    ({"dtype": "float64"}, DTypeError),
    ({"dtype": "float16"}, DTypeError),
    ({"dtype": "int64"}, DTypeError),
    ({"dtype": {"y": "int64"}}, ShapeError),
    *(({"threads": n}, ValueError) for n in (0, -1, 10**9, 2.5, "2")),
    *(({"max_streams": n}, ValueError) for n in (0, -1, 1 << 70, 1.5)),
    *(({"skew": n}, ValueError) for n in (-1, 1.5)),
    *(({"buffer_limit": n}, ValueError) for n in (-1, "x", 1.5)),
    ({"unstreamable": "no"}, ValueError),
    ({"weights": "int3"}, ValueError),
]


@in_blocks(
    ("spec", "options", "error"),
    [*((s, {}, e) for s, e in SPECS), *((("B", 3, "L"), o, e) for o, e in OPTIONS)],
    23,
)
def test_wrong_specs(spec, options, error):
    with pytest.raises(error) as caught:
        ds.compile(Model(), spec, **options)
    assert type(caught.value) is error


def test_wrong_models():
    for wrong in (None, lambda x: x, Model, np.zeros(3)):
        with pytest.raises(TypeError):
            ds.compile(wrong, ("B", 3, "L"))
        with pytest.raises(TypeError):
            ds.patch_module(wrong)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        ds.manual_seed(3)
        layers = [nn.Linear(3, 4), nn.LSTM(4, 2, batch_first=True, bidirectional=True)]
        self.encoder = nn.Sequential(*layers)

    def forward(self, x):
        y, _ = self.encoder(x.transpose(1, 2))
        return y


def test_a_layer_that_needs_the_whole_stream(kind):
    """Refused with path, reason and remedy; on request it waits, for a limited number of frames."""
    with pytest.raises(NotStreamableError) as caught:
        kind(Both)
    assert type(caught.value) is NotStreamableError and caught.value.ids == ()
    for word in ("encoder.1", "LSTM", "backward", "bidirectional=False", "buffer"):
        assert word in str(caught.value)
    pair = Disturbed(kind, model=Both, unstreamable="buffer", buffer_limit=12)
    pair.refuses(lambda x: x.feed({"a": frames(4), "b": frames(4)}), StreamLimitError, ["a"])
    pair.refuses(lambda x: x.feed({"a": frames(4)}, eos=["a"]), StreamLimitError, ["a"])
    got = pair.subject.feed({i: frames(3, ord(i)) for i in "ab"}, eos=["a", "b"])
    pair.twin.feed({i: frames(3, ord(i)) for i in "ab"})
    same(got, pair.twin.feed(dict.fromkeys("ab", GOOD[:, :0]), eos=["a", "b"]))
    assert {i: y.shape for i, y in got.items()} == {"a": (12, 4), "b": (7, 4)}
