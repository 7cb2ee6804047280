"""Snapshots that strangers can rely on: moved to other settings, damaged, of other models, kept for years."""

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import golden_snapshot
import numpy as np
import pytest
from processes import HELPERS, VARIANTS, printed
from small_model import frames
from snapshot_bytes import build, parse, seal

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import FormatError

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SPEC = ("B", 3, "L")


class Model(nn.Module):
    """A stride, a residual, an LSTM, a running mean: five arrays."""

    def __init__(self, seed=1, hidden=4):
        super().__init__()
        ds.manual_seed(seed)
        self.conv = nn.Conv1d(3, hidden, 5, stride=2, padding=2)
        self.near = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.rnn = nn.LSTM(hidden, hidden, batch_first=True)
        self.mean = nn.CumulativeMean()

    def forward(self, x):
        y = self.conv(x)
        y, _ = self.rnn((y + self.near(y)).transpose(1, 2))
        return self.mean(y.transpose(1, 2))


def compiled(**options):
    return ds.compile(Model().eval(), SPEC, verify=False, **options)


# ---------------------------------------------------------------------- other settings, other processes
def moved(what, file, setting):
    return json.loads(printed("-m", "ds_laws.moved", what, file, cwd=HELPERS, setting=setting))


@pytest.mark.parametrize(
    "settings", [[VARIANTS[0], VARIANTS[-1]], pytest.param(VARIANTS[1:-1], marks=pytest.mark.slow)]
)
def test_moved_to_other_settings(tmp_path, settings):
    """Taken under the best kernels and under the reference, restored under either: the same bits, all models."""
    best = VARIANTS[-1]
    files = {name: tmp_path / f"{name}.json" for name in {best, "ref"}}
    taken = {name: moved("take", file, name) for name, file in files.items()}
    assert taken["ref"]["kernels"] == "ref" and taken["ref"]["hashes"] == taken[best]["hashes"]
    assert files["ref"].read_text() == files[best].read_text(), "other bytes"
    assert len(taken["ref"]["hashes"]) > 30
    for setting in settings:
        gone = moved("go", files[best], setting)
        assert gone["kernels"] == setting
        assert gone["hashes"] == taken[best]["hashes"], setting


# ---------------------------------------------------------------------- damage
def test_messages():
    """Each fault by its name."""
    engine = compiled()
    engine.step({"a": frames(9)}, sos="a")
    data = engine.snapshot("a")
    other = ds.compile(Model(seed=2).eval(), SPEC, verify=False)
    theirs, ours = other._core.fingerprint, engine._core.fingerprint
    s = parse(data)
    assert "".join(f"{f:016x}" for f in s.fingerprint) == ours != theirs
    faults = [
        (b"", "begins with DSSTATE, got 0 other bytes"),
        (b"\x93NUMPY" + bytes(100), "begins with DSSTATE, got 106 other bytes"),
        (b"DSSTATE2" + data[8:], r"a snapshot of version 1, got one of version '\\x32'"),
        (data[:-1], f"cut short: expected {len(data)} bytes, got {len(data) - 1}"),
        (data[:20], "cut short: expected at least 40 bytes, got 20"),
        *((data + bytes(more), "too many") for more in (1, 7, 8, 64, 1000)),
        (data[:-30] + b"\xa5" + data[-29:], "damaged: expected the checksum [0-9a-f]{16}, got [0-9a-f]{16}"),
        (build(s.__class__(s.fingerprint, (-5,), s.arrays)), "position -5 of input 0 is impossible"),
        (build(s.__class__(s.fingerprint, s.frames, s.arrays[1:])), "holds 4 arrays, expected 5"),
    ]
    for bad, message in faults:
        with pytest.raises(FormatError, match=message):
            engine.restore(bad, "b")
    with pytest.raises(FormatError, match=f"another model: expected the fingerprint {theirs}, got {ours}"):
        other.restore(data)
    wider = ds.compile(Model(hidden=5).eval(), SPEC, verify=False)
    with pytest.raises(FormatError, match="another model"):
        wider.restore(data)


def test_any_values_are_harmless(rng):
    """Whatever carried arrays and kept frames hold, streams step and end."""
    engine = compiled()
    engine.step({"a": frames(9)}, sos="a")
    s = parse(engine.snapshot("a"))
    for k in range(50):
        words = rng.integers(0, 1 << 63, 64, dtype=np.int64).tobytes() if k % 2 else b"\xff\x80\x7f" * 200
        arrays = tuple(a.__class__(a.node, a.array, a.at, words[: len(a.data)]) for a in s.arrays)
        data = build(s.__class__(s.fingerprint, s.frames, arrays))
        engine.restore(data, "odd")
        assert engine.snapshot("odd") == data
        engine.step({"odd": frames(11)})
        assert engine.step(eos="odd")["odd"].shape == (4, 2)


def test_data_of_any_kind():
    engine = compiled()
    engine.step({"a": frames(9)}, sos="a")
    data = engine.snapshot("a")
    apart = bytearray(2 * len(data))
    apart[::2] = data
    for k, given in enumerate([bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)]):
        assert engine.restore(given, str(k)) == str(k)
    odd = memoryview(b"x" + data)[1:]  # at an odd address
    engine.restore(odd, "odd")
    assert engine.snapshot("odd") == data
    for bad in ("text", 5, None, memoryview(apart)[::2]):
        with pytest.raises((TypeError, BufferError, FormatError)):
            engine.restore(bad, "bad")
    assert "bad" not in engine.ids


# ---------------------------------------------------------------------- differences
class Growing(nn.Module):
    """What keeps all frames, beside windows and carried arrays."""

    def __init__(self):
        super().__init__()
        self.before = Model()

    def forward(self, x):
        y = self.before(x).transpose(1, 2)[:, None]
        return nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True).flip(-1), x[..., 7:]


@pytest.mark.parametrize("cls", [Model, Growing])
def test_differences_are_put_together(cls, rng):
    """A snapshot and what each later one adds are the latest, to the byte, however the stream was cut."""
    engine = ds.compile(cls().eval(), SPEC, verify=False)
    for sizes in ((0, 1, 1, 0, 2, 3, 40, 5), (300, 1, 0, 50), *(rng.integers(0, 30, 9) for _ in range(5))):
        engine.step({"a": frames(0)}, sos="a")
        parts, at = [engine.snapshot("a")], 0
        for n in map(int, sizes):
            at = engine.position("a")
            engine.step({"a": frames(n, seed=n)})
            parts.append(engine.snapshot("a", since=at))
            engine.restore(b"".join(parts), "b")
            assert engine.snapshot("b") == engine.snapshot("a")
            engine.reset("b")
        engine.reset("a")
    if cls is Growing:  # what is new, not what is there
        engine.step({"a": frames(5000)}, sos="a")
        whole, at = engine.snapshot("a"), engine.position("a")
        engine.step({"a": frames(10)})
        assert len(engine.snapshot("a", since=at)) < len(whole) // 50
        assert engine.snapshot("a", since=[at]) == engine.snapshot("a", since={engine.inputs[0].name: at})
        for bad in (-1, at + 11, [at, at], []):
            with pytest.raises(ValueError, match="a snapshot since"):
                engine.snapshot("a", since=bad)


def test_differences_that_are_wrong():
    """Damaged, cut, in another order, of another stream or model: refused, and nothing has changed."""
    engine = ds.compile(Growing().eval(), SPEC, verify=False)
    parts, at = [], None
    for n in (9, 30, 4):
        engine.step({"a": frames(n)}, sos="a" if at is None else ())
        parts.append(engine.snapshot("a", since=at))
        at = engine.position("a")
    whole, one, two = parts
    good, other = b"".join(parts), ds.compile(Growing().eval(), SPEC, verify=False)
    with pytest.raises(FormatError, match="another model"):
        compiled().restore(good)
    for bad in (whole + two, whole + two + one, whole + one + one, one, whole + whole, whole + one + whole):
        with pytest.raises(FormatError):
            other.restore(bad, "b")
    for k in range(len(whole) + 1, len(good)):
        if k != len(whole + one):
            with pytest.raises(FormatError):
                other.restore(good[:k], "b")
    for k in range(0, len(good), 3):
        with pytest.raises(FormatError):
            other.restore(good[:k] + bytes([good[k] ^ 64]) + good[k + 1 :], "b")
    for part, begin in ((one, len(whole)), (two, len(whole + one))):  # each number anything, and sealed again
        for k in range(16, len(part) - 8, 8):
            for number in (0, 1, 5, 1 << 31, (1 << 63) - 1, (1 << 64) - 1):
                odd = seal(part[:k] + number.to_bytes(8, "little") + part[k + 8 :])
                try:
                    other.restore(good[:begin] + odd + good[begin + len(part) :], "b")
                except FormatError:
                    assert other.ids == []
                else:
                    other.reset("b")
    assert other.restore(good, "b") == "b" and other.snapshot("b") == engine.snapshot("a")


# ---------------------------------------------------------------------- ids and limits
# ---------------------------------------------------------------------- idle streams
def test_idle_streams_are_put_away_and_come_back():
    """As the documentation of `idle` shows it: two places for ten callers, none of whom notices."""
    engine, whole = compiled(max_streams=2), compiled()
    shelf, ids = {}, [f"caller {k}" for k in range(10)]
    for turn in range(4):
        for k, i in enumerate(ids):
            if len(engine.ids) == 2 and i not in engine.ids:
                time.sleep(0.002)
                longest = engine.idle(0.002)[0]
                shelf[longest] = engine.snapshot(longest)
                engine.reset(longest)
            if i in shelf:
                engine.restore(shelf.pop(i), i)
            flags = {"sos": i if turn == 0 else (), "eos": i if turn == 3 else ()}
            x = frames(5 + k % 3, turn)
            np.testing.assert_array_equal(
                engine.step({i: x}, **flags)[i], whole.step({i: x}, **flags)[i], err_msg=f"{i}, {turn}"
            )
    assert engine.ids == [] and shelf == {} and whole.ids == []


def test_idle_is_a_number_of_seconds():
    engine = compiled()
    engine.step({"a": frames(1)}, sos="a")
    data = engine.snapshot("a")
    assert engine.idle(0) == ["a"] and engine.idle(3600) == [] and engine.idle(float("inf")) == []
    for bad in (-1, float("nan"), -float("inf")):
        with pytest.raises(ValueError, match="expected 0 or more"):
            engine.idle(bad)
    time.sleep(0.01)
    engine.restore(data, "b")
    assert engine.idle(0.01) == ["a"]  # a restored stream is a fresh one
    assert engine.snapshot("a") == data and engine.idle(0.01) == ["a"]  # looking does not wake


# ---------------------------------------------------------------------- memory
MANY = """
    import gc, json, os
    import numpy as np
    import dreamstream as ds
    from dreamstream import nn

    def resident():
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    model = nn.Sequential(nn.Conv1d(100, 700, 9), nn.Conv1d(700, 100, 3)).eval()
    engine = ds.compile(model, ("B", 100, "L"), verify=False)
    x, ids = np.ones((100, 1), np.float32), [f"stream {k}" for k in range(10_000)]
    engine.step({i: x for i in ids[:9]}, sos=ids[:9])
    data = engine.snapshot(ids[0])
    engine.reset()
    engine.step({i: x for i in ids[:10]}, sos=ids[:10])
    before = resident()
    for i in ids[10:9000]:
        engine.step({i: x}, sos=i)
    for i in ids[9000:]:
        engine.restore(data, i)
    print(json.dumps([before, resident(), len(engine.ids), engine.state_size, engine.weights_size]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_ten_thousand_streams_cost_their_state():
    """state_size bytes each, a few hundred for the tables, and no copy of the weights."""
    script = [sys.executable, "-c", textwrap.dedent(MANY)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after, n, state_size, weights_size = json.loads(done.stdout)
    assert n == 10_000 and weights_size > 3_000_000 and state_size > 5000
    assert after - before < 9990 * (state_size + 600) + (1 << 20)


# ---------------------------------------------------------------------- kept for years
@pytest.mark.parametrize("version", [1])
def test_golden(version):
    """A snapshot written by the version that this format came with reads as ever, and goes on as ever."""
    kept = (GOLDEN / f"snapshot_{version}.bin").read_bytes()
    assert seal(kept) == kept and build(parse(kept)) == kept
    engine = golden_snapshot.stopped_engine()
    engine.restore(kept, "b")
    assert engine.snapshot("b") == kept
    own = parse(engine.snapshot("a"))
    assert own.fingerprint == parse(kept).fingerprint and own.frames == (golden_snapshot.STOP, 19)
    values, lengths = golden_snapshot.frames_between(golden_snapshot.STOP, golden_snapshot.END)
    rest = [np.concatenate([x, x]) for x in values], [n * 2 for n in lengths]
    outputs, counts = engine.step(["a", "b"], [False] * 2, [True] * 2, *rest, False)
    assert [starts[1] for _, starts in counts] == [18, 0, 19, 0]
    for out, ((n, _), _) in zip(outputs, counts, strict=True):
        np.testing.assert_allclose(out[:n], out[n:], rtol=0, atol=1e-6)
    assert [lengths.tolist() for lengths, _ in counts] == [[n, n] for n in (27, 1, 26, 90)]
