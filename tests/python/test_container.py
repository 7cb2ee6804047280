"""The readers and writers of `csrc/codec` against those of Python and of the safetensors package."""

import json
import math
import random
import struct
from pathlib import Path

import numpy as np
import pytest

safetensors = pytest.importorskip("safetensors")
from safetensors.numpy import load, save

TOOL = Path(__file__).resolve().parent.parent / "c" / "container_tool.c"
DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]


@pytest.fixture(scope="module")
def convert(c_build, tmp_path_factory):
    """(kind, bytes) -> bytes as our writer gives what our reader read; raises ValueError."""
    built = c_build.build("plain", [TOOL])
    assert not built.errors, built.errors
    folder = tmp_path_factory.mktemp("container")

    def run(kind, data):
        given, made = folder / "given", folder / "made"
        given.write_bytes(data)
        made.unlink(missing_ok=True)
        done = c_build.run(built.programs[TOOL.stem], kind, str(given), str(made))
        if done.returncode == 1:
            raise ValueError(done.stdout)
        assert done.returncode == 0, done.stdout
        return made.read_bytes()

    return run


# ---- JSON


def random_text(rand):
    alphabet = 'ab"\\/\b\f\n\r\t\0\x1f\x7fäЖ€\u2028\ufffe😀\U0010ffff'
    return "".join(rand.choice(alphabet) for _ in range(rand.randrange(8)))


def random_number(rand):
    kind = rand.randrange(4)
    if kind == 0:
        return rand.randrange(-(2**63), 2**63)
    if kind == 1:
        return rand.choice([1.0, -1.0]) * rand.randrange(10**6) / 10 ** rand.randrange(12)
    value = math.inf
    while not math.isfinite(value):
        value = struct.unpack("<d", rand.randbytes(8))[0]
    return value if kind == 2 else value * 2.0**-1022 / max(1, abs(value))  # the latter subnormal


def random_json(rand, depth=0):
    kind = rand.randrange(7 if depth < 4 else 5)
    if kind == 0:
        return rand.choice([None, True, False])
    if kind in (1, 2):
        return random_number(rand)
    if kind in (3, 4):
        return random_text(rand)
    n = rand.randrange(6)
    if kind == 5:
        return [random_json(rand, depth + 1) for _ in range(n)]
    return {random_text(rand): random_json(rand, depth + 1) for _ in range(n)}


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_json_as_python_writes_it(convert):
    """The same bytes: escapes, the fewest digits of every double, order of keys."""
    rand = random.Random(1)
    values = [random_json(rand) for _ in range(3000)]
    assert convert("json", compact(values)) == compact(values)
    assert convert("json", json.dumps(values, indent=3).encode()) == compact(values)


def test_doubles_as_python_reads_them(convert):
    """Numbers of any spelling, in the middle between two doubles or beside it, subnormal, near overflow."""
    rand = random.Random(2)
    texts = []
    for _ in range(4000):
        digits = "".join(rand.choices("0123456789", k=rand.randrange(1, 40))).lstrip("0") or "0"
        texts.append(f"{digits}.{rand.randrange(10**9)}e{rand.randrange(-360, 265)}")
        mantissa, exponent = (2 * rand.getrandbits(rand.choice([53, 53, 20])) + 1, rand.randrange(-1075, 960))
        exact = mantissa * 2**exponent if exponent >= 0 else mantissa * 5**-exponent  # an integer
        power = min(exponent, 0)
        texts += [f"{exact}e{power}", f"{exact}.{'0' * rand.randrange(900)}1e{power}", f"{exact - 1}.9e{power}"]
    values = [float(text) for text in texts]
    assert all(map(math.isfinite, values))
    assert convert("json", f"[{','.join(texts)}]".encode()) == compact(values)


@pytest.mark.parametrize("text", ["[1e309]", "[NaN]", "[1,]", '{"a":1,"a":2}', '["\\ud800"]', "[" * 65 + "]" * 65])
def test_json_that_python_takes_or_not_is_refused(convert, text):
    with pytest.raises(ValueError, match=r"JSON, byte \d+: expected"):
        convert("json", text.encode())


# ---- safetensors


def random_tensors(rng):
    tensors = {}
    for i in range(rng.integers(0, 12)):
        dtype = np.dtype(rng.choice(DTYPES))
        shape = tuple(rng.integers(0, 5, size=rng.integers(0, 4)))
        data = rng.integers(0, 2 if dtype.kind == "b" else 100, size=shape)
        tensors[f"{rng.choice(['layer', 'ä€', '', 'a b'])}.{i}"] = np.asarray(data, dtype=dtype)
    return tensors


def check_equal(one, other):
    assert {name for name in one if not name.startswith(".pad.")} == set(other)
    for name, array in other.items():
        assert one[name].dtype == array.dtype and one[name].shape == array.shape
        assert one[name].tobytes() == array.tobytes()


def header_of(data):
    (length,) = struct.unpack("<Q", data[:8])
    return 8 + length, json.loads(data[8 : 8 + length])


def test_both_read_what_the_other_wrote(convert, rng):
    for case in range(40):
        tensors = random_tensors(rng)
        metadata = {f"k{i}": f'"{i}"\n' for i in range(case % 3)} or None
        made = convert("safetensors", save(tensors, metadata))
        check_equal(load(made), tensors)
        start, header = header_of(made)
        assert header.pop("__metadata__", None) == metadata
        assert start % 64 == 0
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            assert begin % 64 == 0 or begin == end or name.startswith(".pad.")
        assert convert("safetensors", made) == made
        if case % 3 < 2:  # the package shuffles its metadata
            assert convert("safetensors", save(tensors, metadata)) == made


def test_both_refuse(convert, rng):
    """What the package refuses we refuse; beside it what the text of the format forbids."""
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.int16)}
    data = save(tensors, {"k": "v"})
    n_refused = 0
    for _ in range(200):
        place, byte = int(rng.integers(len(data) - 34)), int(rng.integers(256))
        changed = data[:place] + bytes([byte]) + data[place + 1 :]
        try:
            load(changed)
        except (safetensors.SafetensorError, KeyError, OverflowError):
            n_refused += 1
            with pytest.raises(ValueError, match="expected"):
                convert("safetensors", changed)
    assert n_refused > 50
    for n in range(0, len(data), 5):
        with pytest.raises(ValueError, match="expected"):
            convert("safetensors", data[:n])
