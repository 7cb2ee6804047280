"""Streams that have run for days: positions beyond 2^31, 40 hours of sound, up to 2^58, by doctored snapshots.

A stream is stopped near its start, its snapshot is moved by a whole number of the model's periods, and both
go on side by side: the bits are the same, and positions differ by exactly what they were moved by. The laws hold
every operator and layer there; here are the models whose periods are long.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from snapshot_bytes import build, parse, shift

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import FormatError, ShapeError
from dreamstream.models import SileroVAD

FORTY_HOURS = 40 * 3600 * 16000


def resample():
    return nn.Resample(44100, 16000)


ONE = ("B", "L")
# model, spec, rate, a multiple of the period (frames of the first input), frames of a first chunk
MODELS = {"resampled": (resample, ONE, 44100, 441, 3000), "speech": (SileroVAD, ONE, 16000, 512 * 8, 6000)}
FAR = {"2^31": 1 << 31, "40 hours": FORTY_HOURS, "2^32": 1 << 32, "2^53": 1 << 53, "2^57": 1 << 57}


def make(name, **options):
    make_model, spec, rate, period, first = MODELS[name]
    ds.manual_seed(5)
    engine = ds.compile(make_model().eval(), spec, rate=rate, verify=False, **options)
    return engine, period, first


def chunks(engine, rng, n):
    """New frames of every input for n frames of the first."""
    out = []
    for s in engine.inputs:
        m = math.ceil(n * Fraction(s.rate) / Fraction(engine.rate))
        out.append(rng.standard_normal(s.shape_of(m), dtype=np.float32))
    return out


def step(engine, ids, arrays, **flags):
    """The same frames for each stream."""
    tensors = []
    for s, x in zip(engine.inputs, arrays):
        names = [d if isinstance(d, str) else None for d in s.dimensions]
        tensors.append(ds.stream_tensor([x] * len(ids), ids=ids, names=names, rate=s.rate, **flags))
    y = engine(*tensors)
    return list(y) if isinstance(y, tuple) else [y]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("far", FAR)
def test_far_and_near_are_alike(name, far, rng):
    engine, period, first = make(name)
    by = -(-FAR[far] // period) * period
    step(engine, ["near"], chunks(engine, rng, 2 * (first // 2)), sos=True)
    state = shift(engine.snapshot("near"), engine, by)
    engine.restore(state, "far")
    assert engine.snapshot("far") == state
    done = None
    for k in range(6):
        n = 2 * int(rng.integers(0, first // 3))
        outputs = step(engine, ["near", "far"], chunks(engine, rng, n), eos=k == 5)
        starts = []
        for y in outputs:
            moved = by * Fraction(y.rate) / Fraction(engine.rate)
            near, there = y.starts
            assert there - near == moved and isinstance(there, int)
            assert list(y.lengths) == [y.lengths[0]] * 2
            np.testing.assert_array_equal(y["near"].numpy(), y["far"].numpy())
            starts.append((near, near + y.lengths[0]))
        assert done is None or [s for s, _ in starts] == done
        done = [end for _, end in starts]
        if k == 2:  # and from here on as another one, in another engine
            other, _, _ = make(name, threads=2)
            data = engine.snapshot("far")
            other.restore(data, "far")
            other.fork("far", "near")
            assert other.snapshot("near") == data
            assert parse(data).frames[0] - parse(engine.snapshot("near")).frames[0] != 0
    assert engine.ids == []
    rest = step(other, ["near", "far"], chunks(other, rng, first), eos=True)
    assert all(y.starts[0] == y.starts[1] > (1 << 31) * Fraction(y.rate) / Fraction(other.rate) for y in rest)


class Means(nn.Module):
    """The mean so far, and that of the whole."""

    def __init__(self):
        super().__init__()
        self.mean = nn.CumulativeMean()

    def forward(self, x):
        return self.mean(x), x.mean(2)


def test_means_of_forty_hours(rng):
    """2.3e9 frames and more: single precision would stand still."""
    engine = ds.compile(Means().eval(), ("B", 2, "L"), rate=16000, verify=False)
    engine.step({"a": np.zeros((2, 3), np.float32)}, sos="a")
    sums = np.array([0.37, -4.1]) * FORTY_HOURS
    s = parse(engine.snapshot("a"))
    assert all(a.array < 0 and len(a.data) == 16 for a in s.arrays) and len(s.arrays) == 2
    s = replace(s, frames=(FORTY_HOURS,), arrays=tuple(replace(a, data=sums.tobytes()) for a in s.arrays))
    engine.restore(build(s), "far")
    x = rng.standard_normal((2, 5000)).astype(np.float32) * 1000
    total = np.cumsum(x.astype(np.longdouble), axis=1) + sums.astype(np.longdouble)[:, None]
    means = total / (FORTY_HOURS + 1 + np.arange(5000))
    got = [engine.step({"far": x[:, a:b]})["far"] for a, b in [(0, 1), (1, 700), (700, 700), (700, 4999)]]
    running = np.concatenate([y for y, _ in got], axis=1)
    np.testing.assert_allclose(running, means[:, :4999].astype(np.float64), rtol=1e-7)
    assert len(np.unique(running[0])) > 50  # it moves
    _, mean = engine.step({"far": x[:, 4999:]}, eos="far")["far"]
    np.testing.assert_allclose(mean.reshape(2), means[:, -1].astype(np.float64), rtol=1e-7)


class Positions(nn.Module):
    """A table by absolute position."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", ds.tensor(np.arange(2000, dtype=np.float32)))

    def forward(self, x):
        return x + self.table[: x.size(1)]


def test_no_stream_is_beyond_its_table():
    engine = ds.compile(Positions().eval(), ONE, verify=False)
    engine.step({"a": np.zeros(10, np.float32)}, sos="a")
    data = engine.snapshot("a")
    engine.restore(shift(data, engine, 1989), "last")
    assert engine.step({"last": np.zeros(1, np.float32)})["last"].tolist() == [1999]
    with pytest.raises(ShapeError, match="position 2001 is beyond the table's 2000 rows") as refused:
        engine.step({"last": np.zeros(1, np.float32)})
    assert refused.value.ids == ("last",)
    with pytest.raises(FormatError, match="position 2010 is beyond the table's 2000 rows"):
        engine.restore(shift(data, engine, 2000), "far")
    assert engine.ids == ["a", "last"]


def test_the_last_position(rng):
    """2^60 frames are the most: a call beyond is refused, and changes nothing."""
    engine, period, first = make("resampled")
    step(engine, ["a"], chunks(engine, rng, first), sos=True)
    by = ((1 << 60) - first - 400) // period * period
    engine.restore(shift(engine.snapshot("a"), engine, by), "far")
    before = engine.snapshot("far")
    with pytest.raises(ds.DreamStreamError, match=r"2\^60") as refused:
        engine.step({"far": np.zeros(900, np.float32)})
    assert refused.value.ids == ("far",) and engine.snapshot("far") == before
    near, far = step(engine, ["a", "far"], chunks(engine, rng, 30), eos=True)[0].starts
    assert far - near == by // 441 * 160
    with pytest.raises(FormatError, match=r"is impossible: expected 0 to 2\^60"):
        engine.restore(shift(before, engine, 10 * period), "further")
