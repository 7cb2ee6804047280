"""What the numbers of a chunk mean: the table of docs/howto/inputs.md, row by row and in all front ends.

And what can't be read: every error names input and stream, nothing has changed, and the others go on.
"""

import array
import re
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from turns import in_blocks

import dreamstream as ds
from dreamstream import cli, nn
from dreamstream.errors import DTypeError, ShapeError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "inputs.md"
NUMBERS = np.array([0, 3, 1, 2])
TYPES = ("float32", "int64", "bool")


class Floats(nn.Module):
    """Refuses all but floats, and keeps two frames."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3)
        self.conv.weight.numpy()[...] = np.array([1, 2, 4]).reshape(1, 1, 3)
        self.conv.bias.numpy()[...] = 0

    def forward(self, x):
        return self.conv(x.unsqueeze(1)).squeeze(1)


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 1, bias=False)
        self.linear.weight.numpy()[...] = [[1, 2]]

    def forward(self, x):
        return self.linear(x)[..., 0]


class Integers(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 1)
        self.table.weight.numpy()[...] = np.arange(9)[:, None]

    def forward(self, x):
        return self.table(x)[..., 0]


class Bools(nn.Module):
    def forward(self, x):
        return ds.where(x, 2.0, 1.0)


MODELS = {"float32": Floats, "int64": Integers, "bool": Bools}


def bfloat16(x):
    return x.astype(pytest.importorskip("ml_dtypes").bfloat16)


def float8(x):
    return x.astype(pytest.importorskip("ml_dtypes").float8_e4m3fn)


def cast(*names):
    return {name: lambda name=name: NUMBERS.astype(name) for name in names}


def features(dtype):
    return np.stack([NUMBERS, NUMBERS]).T.astype(dtype)


def masked(mask):
    return np.ma.array(NUMBERS.astype(np.float32), mask=mask)


#: By the first cell of a row: chunks of that kind, made when they are needed.
CHUNKS = {
    "float32": cast("float32", "=f4"),
    "float16, bfloat16, float8": {
        **cast("float16"), "bfloat16": lambda: bfloat16(NUMBERS), "float8": lambda: float8(NUMBERS),
    },
    "float64, longdouble": cast("float64", "longdouble", ">f8"),
    'int16 of an input `("B", "L")`': cast("int16"),
    "int16 of other inputs": {"int16": lambda: features("int16")},
    "int8, int32, int64, uint8, uint16, uint32": cast("int8", "int32", "int64", "uint8", "uint16", "uint32"),
    "uint64 below 2<sup>63</sup>": cast("uint64"),
    "uint64 from 2<sup>63</sup> on": {"uint64": lambda: NUMBERS.astype("uint64") + np.uint64(2**63)},
    "bool": cast("bool"),
    "complex, text, objects, dates, structured": {
        **cast("complex64", "complex128", "U3", "S3", object, "M8[s]", "m8[s]", "V4"),
        "structured": lambda: np.zeros(4, [("x", "f4")]),
    },
    "a list of floats, or of floats and integers": {
        "floats": lambda: [0.0, 3.0, 1.0, 2.0], "both": lambda: (0.0, 3, 1, 2),
        "scalars": lambda: [*np.float32(NUMBERS)],
    },
    "a list of integers": {"list": NUMBERS.tolist, "tuple": lambda: tuple(NUMBERS.tolist())},
    "a list of integers beyond int64": {"2**70": lambda: [0, 3, 1, 2**70], "2**63": lambda: [0, 3, 1, 2**63]},
    "a list of bools": {"list": lambda: [False, True, True, True]},
    "an empty list": {"list": list, "tuple": tuple},
    "bytes, bytearray, a memoryview of bytes": {
        "bytes": NUMBERS.tobytes, "bytearray": lambda: bytearray(8), "memoryview": lambda: memoryview(b"1234"),
    },
    "array.array, memoryview and bytes read as int16": {
        "array": lambda: array.array("h", NUMBERS.tolist()),
        "memoryview": lambda: memoryview(NUMBERS.astype("int16")),
        "frombuffer": lambda: np.frombuffer(NUMBERS.astype("<i2").tobytes(), "<i2"),
    },
    "int16 of another byte order": cast(np.dtype("int16").newbyteorder()),
    "a masked array with nothing masked": {"array": lambda: masked(False)},
    "a masked array with something masked": {"array": lambda: masked([0, 0, 1, 0])},
}  # fmt: skip


def rows():
    """Return the cells of the table's rows."""
    text = PAGE.read_text().split("\n## What the numbers of a chunk mean\n")[1]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_row_has_chunks():
    assert [row[0] for row in rows()] == list(CHUNKS)


# ---------------------------------------------------------------------- front ends
def engine_of(model, dtype, has_features):
    spec = ("B", "L", 2) if has_features else ("B", "L")
    return ds.compile(model().eval(), spec, dtype=dtype, verify=False)


def step(model, dtype, chunk, has_features):
    return engine_of(model, dtype, has_features).step({"a": chunk}, sos="a", eos="a")["a"]


def step_among_others(model, dtype, chunk, has_features):
    engine = engine_of(model, dtype, has_features)
    other = np.ones((2, 2) if has_features else 5, dtype)
    try:
        return engine.step({"b": other, "a": chunk}, sos=["a", "b"], eos=["a"])["a"]
    finally:
        assert engine.ids in ([], ["b"])


def step_named(model, dtype, chunk, has_features):
    return engine_of(model, dtype, has_features).step({"a": {"x": chunk}}, sos="a", eos="a")["a"]


def step_batch(model, dtype, chunk, has_features):
    return engine_of(model, dtype, has_features).step_batch(["a"], [chunk], sos=True, eos=True)[0][0]


def by_hand(model, dtype, chunk, has_features):
    with engine_of(model, dtype, has_features).stream("a") as stream:
        empty = np.zeros((0, 2) if has_features else 0, dtype)
        parts = [stream.step(empty), stream.step(chunk), stream.finish()]
    return np.concatenate(parts)


def stream_of(dtype, chunk, has_features):
    names = ("B", "L", None) if has_features else ("B", "L")
    to = dtype if dtype == "float32" or (isinstance(chunk, (list, tuple)) and not chunk) else None
    return ds.stream_tensor([chunk], ids=["a"], sos=True, eos=True, names=names, dtype=to)


def call(model, dtype, chunk, has_features):
    return engine_of(model, dtype, has_features)(stream_of(dtype, chunk, has_features))["a"].numpy()


def patched(model, dtype, chunk, has_features):
    model = ds.patch_module(model().eval()).online()
    return model(stream_of(dtype, chunk, has_features))["a"].numpy()


FRONTS = [step, step_among_others, step_named, step_batch, by_hand, call, patched]
MEANS = {
    "taken": lambda x: x,
    "rounded to float32": lambda x: x,
    "divided by 32768": lambda x: x.astype(np.float32) / 32768,
    "no frames": lambda x: x[:0],
}


@pytest.mark.parametrize("front", FRONTS, ids=lambda f: f.__name__)
@in_blocks(("kind", "name"), [(k, n) for k, chunks in CHUNKS.items() for n in chunks], 16)
def test_the_table(kind, name, front):
    cells = dict(zip(TYPES, next(row for row in rows() if row[0] == kind)[1:]))
    has_features = kind == "int16 of other inputs"
    for dtype, cell in cells.items():
        model = Features if has_features and dtype == "float32" else MODELS[dtype]
        if has_features and dtype != "float32":
            continue  # of integers, features or not are alike
        chunk = CHUNKS[kind][name]()
        if cell == "refused":
            with pytest.raises(DTypeError) as caught:
                front(model, dtype, chunk, has_features)
            assert caught.value.ids in (("a",), () if front is patched else ("a",))
            continue
        numbers = MEANS[cell](NUMBERS).astype(dtype)
        want = np.asarray(model()(ds.tensor(numbers)[None]))[0]
        got = front(model, dtype, chunk, has_features)
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


@in_blocks(("kind", "name"), [(k, n) for k, chunks in CHUNKS.items() for n in chunks], 47)
def test_types_of_stream_tensors(kind, name):
    cell = next(row for row in rows() if row[0] == kind)[4]
    chunk = CHUNKS[kind][name]()
    names = ("B", "L") if np.ndim(chunk) == 1 or isinstance(chunk, (bytes, bytearray)) else ("B", "L", None)
    if cell == "refused":
        with pytest.raises(DTypeError) as caught:
            ds.stream_tensor([chunk], ids=["a"], names=names)
        assert caught.value.ids == ("a",)
    else:
        x = ds.stream_tensor([chunk], ids=["a"], names=names)
        assert x.dtype == cell
        np.testing.assert_array_equal(
            x.value, NUMBERS.astype(cell)[: len(chunk)] if names == ("B", "L") else chunk
        )


def test_rows_of_many_kinds():
    """In one batch: a list beside arrays of every kind, and an empty list that is of the others' type."""
    engine = ds.compile(Floats().eval(), ("B", "L"), verify=False)
    fractions = NUMBERS.astype(np.float32) / 32768
    chunks = {
        "f32": fractions,
        "i16": NUMBERS.astype(np.int16),
        "f64": fractions.astype(float),
        "l": fractions.tolist(),
    }
    out = engine.step(chunks, sos=list(chunks))
    for y in out.values():
        np.testing.assert_array_equal(y, out["f32"])
    y, _ = engine.step_batch(list(chunks), list(chunks.values()), sos=False, eos=True)
    for row in y:
        np.testing.assert_array_equal(row, y[0])
    x = ds.stream_tensor([NUMBERS, [], NUMBERS.tolist()], ids=["a", "b", "c"])
    assert x.dtype == np.int64 and x.lengths.tolist() == [4, 0, 4]


def test_values_are_data():
    """NaN and infinities pass; what is beyond float32 is infinite, without a warning, in every form."""
    values = [1.0, np.nan, np.inf, -np.inf, 1e300]
    want = np.array([1, np.nan, np.inf, -np.inf, np.inf], np.float32)
    engine = ds.compile(nn.Identity(), ("B", "L"), verify=False)
    for given in (values, np.array(values), np.array(values, ">f8"), np.array(values, np.longdouble)):
        np.testing.assert_array_equal(engine.step({"a": given}, sos="a", eos="a")["a"], want)


def test_uneven_and_deep_lists():
    engine = ds.compile(Features().eval(), ("B", "L", 2), verify=False)
    ok, deep = np.ones((3, 2), np.float32), []
    for _ in range(100):
        deep = [deep]
    for bad in ([[1.0, 2.0], [3.0]], [1.0, 2.0], [[[1.0, 2.0]]], [[1.0], [2.0]], deep):
        for call in (
            lambda bad=bad: engine.step({"ok": ok, "bad": bad}, sos=["ok", "bad"]),
            lambda bad=bad: engine.step_batch(["ok", "bad", "fine"], [ok, bad, ok], sos=True),
            lambda bad=bad: ds.stream_tensor([ok, bad], ids=["ok", "bad"], names=("B", "L", None)),
        ):
            with pytest.raises(ShapeError) as caught:
                call()
            assert caught.value.ids == ("bad",)
    assert engine.ids == []


def test_a_number_that_is_given_once_is_no_sample():
    class Gain(nn.Module):
        def forward(self, x, gain):
            return x * gain.unsqueeze(-1)

    engine = ds.compile(Gain(), {"x": ("B", "L"), "gain": ("B",)}, verify=False)
    x = np.ones(3, np.float32)
    for how in (np.int16(3), np.array(3, np.int16), 3):
        with pytest.raises(DTypeError, match=r"^input gain: ") as caught:
            engine.step({"a": {"x": x, "gain": how}}, sos="a")
        assert caught.value.ids == ("a",)
    np.testing.assert_array_equal(engine.step({"a": {"x": x, "gain": 3.0}}, sos="a")["a"], x * 3)


# ---------------------------------------------------------------------- recordings
def pcm(path, width, values):
    """Write samples of so many bytes."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, width, 16000, 0, "NONE", ""))
        raw = b"".join(struct.pack("<i", v << 8 * (4 - width))[4 - width :] for v in values) if width > 1 else None
        file.writeframes(bytes(v + 128 for v in values) if raw is None else raw)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_recordings_are_divided_by_their_width(width, tmp_path):
    """What `run` gives of a file is what a stream gives of the same samples as fractions, and as int16."""
    engine = ds.compile(nn.Conv1d(1, 1, 3), ("B", 1, "L"), rate=16000, verify=False)
    engine.save(tmp_path / "model.dsm")
    values = [0, 100, -100, 3, -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1]
    pcm(tmp_path / "a.wav", width, values)
    assert (
        cli.main(["run", str(tmp_path / "model.dsm"), str(tmp_path / "a.wav"), "-o", str(tmp_path / "y.npy")]) == 0
    )
    fractions = np.array(values, np.float64) / 2 ** (8 * width - 1)
    want = engine.step({"a": fractions[None]}, sos="a", eos="a")["a"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), want)
    if width == 2:
        engine = ds.compile(nn.Identity(), ("B", "L"), verify=False)
        got = engine.step({"a": np.array(values, np.int16)}, sos="a", eos="a")["a"]
        np.testing.assert_array_equal(got, fractions.astype(np.float32))


# ---------------------------------------------------------------------- what can't be read
class Raises:
    def __init__(self, error):
        self.error = error

    def __array__(self, *args, **kwargs):
        raise self.error


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Nonsense:
    def __array__(self, *args, **kwargs):
        return "nonsense"


class Interface:
    def __init__(self, interface):
        self.__array_interface__ = interface


class Broken:
    """A sequence whose items can't be had."""

    def __len__(self):
        return 4

    def __getitem__(self, k):
        raise OSError("the line is dead")


class NoClass:
    @property
    def __class__(self):
        raise RuntimeError("gone")


UNREADABLE = {
    "raises": lambda: Raises(RuntimeError("device lost")),
    "raises StopIteration": lambda: Raises(StopIteration()),
    "raises one of ours": lambda: Raises(ds.ModeError("closed")),
    "raises what has no text": lambda: Raises(Unprintable()),
    "nonsense": Nonsense,
    "an interface that is none": lambda: Interface("no"),
    "an interface of negative size": lambda: Interface({"shape": (-3,), "typestr": "<f4", "version": 3}),
    "an interface without type": lambda: Interface({"shape": (3,), "version": 3}),
    "a broken sequence": Broken,
    "a list of what raises": lambda: [Raises(RuntimeError("device lost"))],
    "no class": NoClass,
    "a generator": lambda: (v for v in NUMBERS),
    "a set": lambda: {1.0, 2.0},
    "a function": lambda: test_the_table,
    "bytes": lambda: b"1234",
    "text": lambda: "frames",
    "a released view": lambda: released(),
    "masked": lambda: masked([1, 0, 0, 0]),
}


def released():
    view = memoryview(bytearray(8)).cast("h")
    view.release()
    return view


class Pair(nn.Module):
    def forward(self, x, y):
        return x[:, 2:] + y[:, 2:]


@in_blocks("name", UNREADABLE, 18)
@pytest.mark.parametrize("start", [True, False])
def test_what_cannot_be_read_hurts_nobody_else(name, start):
    """Two inputs, streams under way: the error names input and stream, and the retry gives the right bits."""
    spec = {"x": ("B", "L"), "y": ("B", "L")}
    subject, twin = ds.compile(Pair(), spec, verify=False), ds.compile(Pair(), spec, verify=False)
    x = np.arange(12, dtype=np.float32)
    for engine in (subject, twin):
        engine.step({i: {"x": x, "y": x} for i in ("ok", "bad")}, sos=["ok", "bad"])
    who = "new" if start else "bad"
    chunks = {who: {"x": x, "y": UNREADABLE[name]()}, "ok": {"x": x[:5], "y": x[:5]}}
    sos = [who] if start else []
    with pytest.raises(ds.DreamStreamError, match=r"^input y: ") as caught:
        subject.step(chunks, sos=sos)
    assert caught.value.ids == (who,)
    assert isinstance(caught.value, (DTypeError, ShapeError, ds.ModeError))
    rows = [chunks["ok"]["x"], UNREADABLE[name]()]
    with pytest.raises(ds.DreamStreamError, match=r"^input y: ") as caught:
        subject.step_batch(["ok", who], np.stack([x, x]), rows, sos=[False, start], lengths=([5, 5], None))
    assert caught.value.ids == (who,)
    with pytest.raises(ds.DreamStreamError, match=r"^input y: ") as caught:
        subject.stream("hand").step({"x": x, "y": UNREADABLE[name]()})
    assert caught.value.ids == ("hand",)
    assert subject.ids == twin.ids and [subject.position(i) for i in twin.ids] == [{"x": 12, "y": 12}] * 2
    del chunks[who]
    np.testing.assert_array_equal(subject.step(chunks)["ok"], twin.step(chunks)["ok"])


@pytest.mark.parametrize("name", UNREADABLE)
def test_rows_of_stream_tensors_that_cannot_be_read(name):
    ok = NUMBERS.astype(np.float32)
    for rows in ([ok, UNREADABLE[name](), ok], [ok, UNREADABLE[name](), ok.tolist()]):
        with pytest.raises(ds.DreamStreamError) as caught:
            ds.stream_tensor(rows, ids=["a", "bad", "c"], names=("B", "L"))
        assert caught.value.ids == ("bad",)
    if name != "no class":
        with pytest.raises(ds.DreamStreamError) as caught:
            ds.stream_tensor(UNREADABLE[name](), ids="bad", names=("B", "L"))
        assert caught.value.ids == ("bad",)


def test_all_that_fail_alike_are_named_at_once():
    engine = ds.compile(Features().eval(), ("B", "L", 2), verify=False)
    ok, narrow, text = np.ones((3, 2), np.float32), np.ones((3, 1), np.float32), "frames"
    rows = {"a": ok, "b": text, "c": narrow, "d": text, "e": ok, "f": narrow}
    for error, ids in ((DTypeError, "bd"), (ShapeError, "cf")):
        for call in (
            lambda: engine.step(rows, sos=list(rows)),
            lambda: engine.step_batch(list(rows), list(rows.values()), sos=True),
            lambda: ds.stream_tensor(list(rows.values()), ids=list(rows), names=("B", "L", None)),
        ):
            with pytest.raises(error) as caught:
                call()
            assert caught.value.ids == tuple(ids)
            assert str(caught.value).endswith(f"(streams: {', '.join(map(repr, ids))})")
        for i in ids:
            del rows[i]
    assert engine.ids == [] and list(engine.step(rows, sos=list(rows))) == ["a", "e"]


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_given_once_and_cannot_be_read(name):
    class Gain(nn.Module):
        def forward(self, x, gain):
            return x * gain

    x = ds.stream_tensor([NUMBERS.astype(np.float32)] * 2, ids=["ok", "bad"], sos=True)
    gain = ds.static({"ok": np.ones(1, np.float32), "bad": UNREADABLE[name]()})
    for model in (
        ds.compile(Gain(), {"x": ("B", "L"), "gain": ("B", 1)}),
        ds.patch_module(Gain().eval()).online(),
    ):
        with pytest.raises(ds.DreamStreamError, match=r"^input gain: ") as caught:
            model(x, gain)
        assert caught.value.ids == ("bad",)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), MemoryError("no room")])
def test_what_is_nobodys_fault_passes(error):
    engine = ds.compile(nn.Identity(), ("B", "L"), verify=False)
    engine.step({"a": NUMBERS * 1.0}, sos="a")
    bad = Raises(error)
    for call in (
        lambda: engine.step({"a": NUMBERS * 1.0, "b": bad}, sos="b"),
        lambda: engine.step_batch(["a", "b"], [NUMBERS * 1.0, bad], sos=[False, True]),
        lambda: engine.step_batch(["a"], bad),
        lambda: engine.stream("b").step(bad),
        lambda: ds.stream_tensor([NUMBERS * 1.0, bad], ids=["a", "b"]),
    ):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error
    assert engine.ids == ["a"] and engine.position("a") == 4


@pytest.mark.parametrize("front", ["native", "torch"])
def test_calls_that_are_not_as_live_streams_are(front):
    """A patched call of other types or features than those of live streams names its own rows, not theirs."""
    lib = ds if front == "native" else pytest.importorskip("torch")
    model = ds.patch_module(lib.nn.Linear(2, 1).eval()).online()
    ok, options = np.ones((3, 2), np.float32), {"names": ("B", "L", None)}

    def called(rows, ids):
        rows = rows if lib is ds else [lib.from_numpy(x) for x in rows]
        return model(ds.stream_tensor(rows, ids=ids, sos=True, **options))

    called([ok], ["ok"])
    for bad in (ok.astype(float), ok.astype(int), ok > 0, np.ones((3, 4), np.float32)):
        error = DTypeError if bad.shape == ok.shape else ShapeError
        for ids in (["b"], ["b", "c"]):
            with pytest.raises(error) as caught:
                called([bad] * len(ids), ids)
            assert caught.value.ids == tuple(ids)
        if error is DTypeError:
            name = {"native": "float32", "torch": "torch.float32"}[front]
            assert re.match(rf"input (input|x): .* {name}, and these chunks ", str(caught.value))
    assert model.live_ids == ["ok"]
