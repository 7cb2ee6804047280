"""What the numbers of a chunk mean: the table of docs/howto/inputs.md, row by row and in all front ends.

And what can't be read: every error names input and stream, nothing has changed, and the others go on.
"""

from __future__ import annotations

import array
import re
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

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
        "floats": lambda: [0.0, 3.0, 1.0, 2.0], "both": lambda: (0.0, 3, 1, 2), "scalars": lambda: [*np.float32(NUMBERS)],
    },
    "a list of integers": {"list": NUMBERS.tolist, "tuple": lambda: tuple(NUMBERS.tolist())},
    "a list of integers beyond int64": {"2**70": lambda: [0, 3, 1, 2**70], "2**63": lambda: [0, 3, 1, 2**63]},
    "a list of bools": {"list": lambda: [False, True, True, True]},
    "an empty list": {"list": list, "tuple": tuple},
    "bytes, bytearray, a memoryview of bytes": {
        "bytes": lambda: NUMBERS.tobytes(), "bytearray": lambda: bytearray(8), "memoryview": lambda: memoryview(b"1234"),
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
@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, chunks in CHUNKS.items() for n in chunks], ids=str)
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


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, chunks in CHUNKS.items() for n in chunks], ids=str)
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
        np.testing.assert_array_equal(x.value, NUMBERS.astype(cell)[: len(chunk)] if names == ("B", "L") else chunk)
