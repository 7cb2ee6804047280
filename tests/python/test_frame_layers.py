"""Layers that overlap, sum up and repeat frames: values, counts and precision, without torch."""

import numpy as np
import pytest
from random_graphs.idioms import of

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import ShapeError


def streamed(model, x, cuts, names=None):
    """One stream, cut along its last axis but one where `names` say so; frames out per call, and all of them."""
    axis = -1 if names is None else names.index("L") - 1
    online, counts, parts, at = ds.patch_module(model).online(), [], [], 0
    for k, n in enumerate(cuts):
        chunk = np.take(x, range(at, at + n), axis)
        at += n
        y = online(ds.stream_tensor([chunk], names=names, ids=["a"], sos=k == 0, eos=at == x.shape[axis]))
        counts.append(y.lengths[0])
        parts.append(y["a"].numpy())
    ds.unpatch_module(model)
    return counts, parts


def test_overlap_add_undoes_unfold(rng):
    """Windows that add up to one give back what was cut into them, where all of them reach."""
    size, step = 6, 2
    x = rng.standard_normal((3, 2, 32)).astype(np.float32)
    y = F.overlap_add(ds.tensor(x).unfold(2, size, step) / (size // step), step).numpy()
    assert y.shape == x.shape
    inner = slice(size - step, 32 - size + step)
    np.testing.assert_allclose(y[..., inner], x[..., inner], rtol=1e-6)


@pytest.mark.parametrize(("size", "step"), [(4, 2), (5, 2), (3, 3), (2, 5), (1, 1), (7, 3)])
def test_samples_leave_when_all_their_windows_are_there(rng, size, step):
    x = rng.standard_normal((6, size)).astype(np.float32)
    wanted = np.zeros(5 * step + size)
    for i in range(6):
        wanted[i * step : i * step + size] += x[i]
    model = nn.OverlapAdd(step)
    np.testing.assert_allclose(model(ds.tensor(x)).numpy(), wanted, rtol=1e-6, atol=1e-6)
    names = ("B", "L", "F")
    counts, parts = streamed(model, x, (1, 2, 0, 3), names)
    known = [min(n * step, (n - 1) * step + size) for n in (1, 3, 3)] + [len(wanted)]
    assert counts == np.diff([0, *known]).tolist()
    np.testing.assert_array_equal(np.concatenate(parts), model(ds.tensor(x)).numpy())
    assert model(ds.tensor(x[:0])).shape == (0,)
    assert model(ds.zeros(2, 0, size)).shape == (2, 0)
    engine = ds.compile(model, ("B", "L", size))
    assert engine.delay == (size < step) and engine.outputs[0].rate == step


def test_overlap_add_asks_for_windows():
    for wrong in (ds.zeros(4), ds.zeros(1, 2, 3, 4, 5)):
        with pytest.raises(ShapeError, match="expected"):
            F.overlap_add(wrong, 2)
    assert repr(nn.OverlapAdd(3)) == "OverlapAdd(3)"


def test_running_layers(rng):
    x = rng.standard_normal((2, 3, 11)).astype(np.float32)
    wide = x.astype(np.float64)
    sums = np.cumsum(wide, -1)
    last = np.stack([wide[..., max(0, t - 3) : t + 1].mean(-1) for t in range(11)], -1)
    for layer, wanted in (
        (nn.CumulativeSum, sums),
        (nn.CumulativeMean, sums / np.arange(1, 12)),
        (lambda **k: nn.RunningMean(4, **k), last),
    ):
        np.testing.assert_array_equal(layer()(ds.tensor(x)).numpy(), wanted.astype(np.float32))
        turned = layer(dim=1)(ds.tensor(x.swapaxes(1, 2))).numpy()
        np.testing.assert_array_equal(turned, wanted.astype(np.float32).swapaxes(1, 2))
        for cuts in ((11,), (1,) * 11, (4, 0, 6, 1)):
            counts, parts = streamed(layer(), x[0], cuts)
            assert counts == list(cuts)
            np.testing.assert_array_equal(np.concatenate(parts, -1), wanted[0].astype(np.float32))
        assert ds.compile(layer(), ("B", 3, "L")).delay == 0
    assert repr(nn.RunningMean(4)) == "RunningMean(4)"
    assert repr(nn.RunningMean(4, dim=1)) == "RunningMean(4, dim=1)"
    assert repr(nn.CumulativeMean()) == "CumulativeMean()"


def test_nothing_drifts():
    """A mean of a million equal frames is that frame; a window forgets what it no longer holds."""
    x = np.full((1, 1_000_000), 0.1, np.float32)
    mean = nn.CumulativeMean()(ds.tensor(x)).numpy()
    assert np.array_equal(mean, x)
    x[0, 10] = 1e30
    window = nn.RunningMean(5)(ds.tensor(x)).numpy()
    np.testing.assert_array_equal(window[0, 15:], x[0, 15:])


def test_repeats(rng):
    x = rng.standard_normal((4, 5)).astype(np.float32)
    counts, parts = streamed(of(lambda x: x.repeat_interleave(3, 2)), x, (2, 0, 3))
    assert counts == [6, 0, 9]
    np.testing.assert_array_equal(np.concatenate(parts, -1), x.repeat(3, -1))
    counts, parts = streamed(of(lambda x: x.repeat_interleave(2, 1)), x, (2, 3))
    np.testing.assert_array_equal(np.concatenate(parts, -1), x.repeat(2, 0))
    for wrong in (
        lambda x: x.repeat_interleave(-1),
        lambda x: x.repeat_interleave(ds.tensor(np.array([1, 2])), 1),
    ):
        with pytest.raises(ShapeError, match="repeat_interleave"):
            wrong(ds.tensor(x))


def test_pools_within_frames_of_joined_rows(rng):
    """(B, L) joined: the same layer pools features of single frames."""

    def inner(x):
        n, length, _ = x.shape
        return F.max_pool1d(x.reshape(n * length, 2, 6), 3, 2, 1).reshape(n, length, 6)

    x = rng.standard_normal((7, 12)).astype(np.float32)
    wide = np.pad(x.reshape(7, 2, 6), ((0, 0), (0, 0), (1, 0)), constant_values=-np.inf)
    wanted = np.stack([wide[..., m * 2 : m * 2 + 3].max(-1) for m in range(3)], -1).reshape(7, 6)
    _, parts = streamed(of(inner), x, (3, 4), ("B", "L", "F"))
    np.testing.assert_array_equal(np.concatenate(parts), wanted)
    np.testing.assert_array_equal(inner(ds.tensor(x[None])).numpy()[0], wanted)
