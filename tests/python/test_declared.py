"""Operators declared in Python stream as the engine's own do."""

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn


def window(w, m0, m1, k, stride, left):
    """Sums of k frames, every stride frames, with `left` zeros before the stream."""
    out = []
    for m in range(m0, m1):
        low = m * stride - left
        rows = [w.frames[p - w.at] for p in range(low, low + k) if p >= 0 and (w.total is None or p < w.total)]
        out.append(np.sum(rows, axis=0, dtype=np.float32))
    return np.stack(out)


def sums(k, stride, left):
    return ds.Op(
        "sums",
        counts=lambda x: ((x.known + left - k) // stride + 1, (x.total + left - k) // stride + 1),
        need=lambda m: m * stride - left,
        forward=lambda w, m0, m1: window(w, m0, m1, k, stride, left),
        rate=1 if stride == 1 else f"1/{stride}",
    )


class Model(nn.Module):
    def __init__(self, op):
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3, padding=1)
        self.op = op

    def forward(self, x):
        return self.op(self.conv(x))


@pytest.mark.parametrize("k, stride, left", [(1, 1, 0), (3, 1, 2), (4, 2, 1), (2, 5, 0)])
def test_streams_like_offline(k, stride, left):
    rng = np.random.default_rng(k)
    model = Model(sums(k, stride, left)).eval()
    x = rng.standard_normal((3, 41), dtype=np.float32)
    whole = np.asarray(model(ds.tensor(x[None])))[0]
    assert whole.shape == (3, (41 + left - k) // stride + 1)
    ds.patch_module(model).online()
    got, at = ds.OutputCollector(), 0
    while at < 41:
        n = int(rng.integers(0, 6))
        other = rng.standard_normal((3, 4), dtype=np.float32)
        y = model(
            ds.stream_tensor(
                [x[:, at : at + n], other],
                ids=["a", f"b{at}{n}{rng.random()}"],
                sos=[at == 0 and "a" not in model.live_ids, True],
                eos=[at + n >= 41, True],
            )
        )
        got.update(y)
        at += n
    np.testing.assert_allclose(np.asarray(got["a"]), whole, atol=1e-6)
    assert model.live_ids == []


def test_states_travel():
    model = ds.patch_module(Model(sums(4, 2, 1)).eval()).online()
    x = np.random.default_rng(0).standard_normal((3, 30), dtype=np.float32)
    model(ds.stream_tensor([x[:, :7]], ids="a", sos=True))
    state = model.get_state("a")
    y = model(ds.stream_tensor([x[:, 7:]], ids="a", eos=True))["a"]
    model.set_state(state)
    again = model(ds.stream_tensor([x[:, 7:]], ids="a", eos=True))["a"]
    assert np.array_equal(np.asarray(y), np.asarray(again))


def test_can_not_be_compiled():
    with pytest.raises(ds.CaptureError, match="declared in Python"):
        ds.compile(Model(sums(3, 1, 2)), ("B", 3, "L"))


def test_integers_do_not_branch():
    op = ds.Op("bad", counts=lambda x: (x.known if x.known else 0, x.total), need=lambda m: m, forward=None)
    with pytest.raises(ds.ModeError, match="branch"):
        op(ds.tensor(np.zeros((1, 3, 4), np.float32)))


def test_wrong_shape_is_named():
    op = ds.Op("bad", counts=lambda x: x, need=lambda m: m, forward=lambda w, m0, m1: np.zeros((1, 1)))
    with pytest.raises(ds.ShapeError, match="bad"):
        op(ds.tensor(np.zeros((1, 3, 4), np.float32)))
