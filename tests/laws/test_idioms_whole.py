"""Statistics of whole streams: how they look, what they cost, and what waits for them."""

import math

import numpy as np
import pytest
from random_graphs.idioms import X, net

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn


def pooling() -> nn.Module:
    def forward(self, x):
        return (F.softmax(self.attention(x), dim=2) * x).sum(2), x.var(2, keepdim=True)

    return net(forward, attention=nn.Conv1d(4, 1, 1))


def squeeze_excite() -> nn.Module:
    def forward(self, x):
        return x * self.gate(self.pool(x)).sigmoid()

    return net(forward, pool=nn.AdaptiveAvgPool1d(1), gate=nn.Conv1d(4, 4, 1))


def test_state_of_what_leaves_at_the_end_does_not_grow():
    engine = ds.compile(pooling(), X.spec)
    assert engine.state_bytes_per_frame == 0 and engine.delay == math.inf
    first, last = engine.step({"a": np.ones((4, 9), np.float32)}, sos=["a"])["a"]
    assert first.shape == (0, 4) and last.shape == (0, 4, 1)
    first, last = engine.step({}, eos=["a"])["a"]
    np.testing.assert_array_equal(first, np.ones((1, 4)))
    np.testing.assert_array_equal(last, np.zeros((1, 4, 1)))


def test_what_waits_has_a_limit():
    spec, frames = X.spec, np.ones((4, 6), np.float32)
    engine = ds.compile(squeeze_excite(), spec, unstreamable="buffer", buffer_limit=10)
    engine.step({"a": frames}, sos=["a"])
    with pytest.raises(ds.StreamLimitError, match=r"12 frames wait .*buffer_limit allows"):
        engine.step({"a": frames})
    assert engine.step({"a": frames[:, :4]}, eos=["a"])["a"].shape == (4, 10)
    with pytest.raises(ds.NotStreamableError, match=r"mul: a value of the whole stream .*gate"):
        ds.compile(squeeze_excite(), spec)


def test_snapshots_of_what_waits(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.standard_normal((4, 13)).astype(np.float32)
    ds.compile(squeeze_excite(), X.spec, unstreamable="buffer").save(tmp_path / "m.dsm")
    engine, other = ds.load(tmp_path / "m.dsm"), ds.load(tmp_path / "m.dsm")
    whole = engine.step({"a": frames}, sos=["a"], eos=["a"])["a"]
    assert whole.shape == (4, 13)
    engine.step({"a": frames[:, :5]}, sos=["a"])
    other.restore(engine.snapshot("a"), "a")
    np.testing.assert_array_equal(other.step({"a": frames[:, 5:]}, eos=["a"])["a"], whole)


def test_scores_of_minus_infinity_have_no_weight():
    def forward(self, x):
        return (x * x[:, :1].masked_fill(x[:, 1:2] > 0, -math.inf).softmax(2)).sum(2)

    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    x[1] = [1, 1, -1, 1, -1, 1, 1, 1]
    model = net(forward)
    engine, online = ds.compile(model, X.spec), ds.patch_module(net(forward)).online()
    weights = np.exp(x[0, [2, 4]].astype(np.float64))
    for seen, wanted in ((8, x[:, [2, 4]] @ (weights / weights.sum())), (2, np.full(4, np.nan))):
        for k in range(seen):
            frame, start, end = x[:, k : k + 1], ["a"] * (k == 0), ["a"] * (k == seen - 1)
            got = engine.step({"a": frame}, sos=start, eos=end)["a"]
            eager = online(ds.stream_tensor([frame], ids="a", sos=bool(start), eos=bool(end)))["a"]
        np.testing.assert_allclose(got[0], wanted, rtol=1e-6)
        np.testing.assert_allclose(eager.numpy()[0], wanted, rtol=1e-6)


def test_a_variance_far_from_zero():
    x = np.random.default_rng(1).standard_normal((4, 2000)).astype(np.float32) + 1e4
    engine = ds.compile(net(lambda self, x: x.var(2)), X.spec)
    for k in range(0, 2000, 100):
        got = engine.step({"a": x[:, k : k + 100]}, sos=["a"] * (k == 0), eos=["a"] * (k == 1900))["a"]
    np.testing.assert_allclose(got[0], x.astype(np.float64).var(1, ddof=1), rtol=1e-6)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: ds.cat([x, x.mean(2, keepdim=True)], 1),
        lambda x: x - x.mean(2),
        lambda x: x - x.mean(2).unsqueeze(1),
    ],
)
def test_what_offline_would_not_take_either(use):
    with pytest.raises(ds.ShapeError, match=r"value of the whole stream|don't line up"):
        ds.compile(net(lambda self, x: use(x)), X.spec, unstreamable="buffer")


def test_frames_in_order_with_nan_among_them():
    x = np.random.default_rng(3).standard_normal((4, 7)).astype(np.float32)
    x[0, [4, 6]] = np.nan
    x[1] = np.nan

    def forward(self, x):
        return *x.median(2), x.nanmedian(2).values, x.quantile(0.2, 2), x.nanquantile(0.5, 2), *x.topk(2, 2)

    engine = ds.compile(net(forward), X.spec, unstreamable="buffer")
    for k in range(7):
        got = engine.step({"a": x[:, k : k + 1]}, sos=["a"] * (k == 0), eos=["a"] * (k == 6))["a"]
    of_each = np.median(x[2:], 1)
    np.testing.assert_array_equal(got[0][0], [np.nan, np.nan, *of_each])
    np.testing.assert_array_equal(got[1][0, :2], [4, 0])
    np.testing.assert_array_equal(got[2][0], [np.median(x[0][~np.isnan(x[0])]), np.nan, *of_each])
    np.testing.assert_array_equal(np.isnan(got[3][0]), [True, True, False, False])
    np.testing.assert_array_equal(np.isnan(got[4][0]), [False, True, False, False])
    np.testing.assert_array_equal(got[6][0, :2], [[4, 6], [0, 1]])
    engine.step({"b": x[:, :1]}, sos=["b"])
    with pytest.raises(ds.ShapeError) as raised:
        engine.step({}, eos=["b"])
    assert [*raised.value.ids] == ["b"]


@pytest.mark.parametrize("keepdim", [False, True])
def test_one_frame_in_order_is_taken_alone(keepdim):
    """No windows of as many frames are put together for it."""
    x = np.random.default_rng(4).standard_normal((4, 12)).astype(np.float32)
    engine = ds.compile(net(lambda self, x: tuple(x.kthvalue(9, 2, keepdim))), X.spec, unstreamable="buffer")
    assert not {"frame", "permute"} & {node["name"] for node in engine._core.nodes}
    values, places = engine.step({"a": x}, sos=["a"], eos=["a"])["a"]
    order = x.argsort(1)[:, 8]
    shape = (1, 4, 1) if keepdim else (1, 4)
    np.testing.assert_array_equal(places, order.reshape(shape))
    np.testing.assert_array_equal(values, x[range(4), order].reshape(shape))


def test_where_nan_is():
    """The first NaN is the greatest and the least, wherever chunks end; so far it is the last."""
    x = np.random.default_rng(2).standard_normal((4, 9)).astype(np.float32)
    x[0, [2, 5]] = np.nan
    x[1, :] = -np.inf
    x[2, :] = np.inf
    x[3, 4] = np.nan
    engine = ds.compile(net(lambda self, x: (x.argmax(2), x.argmin(2), x.cummax(2)[1], x.logsumexp(2))), X.spec)
    for k in range(9):
        got = engine.step({"a": x[:, k : k + 1]}, sos=["a"] * (k == 0), eos=["a"] * (k == 8))["a"]
    np.testing.assert_array_equal(got[0], [[2, 0, 0, 4]])
    np.testing.assert_array_equal(got[1], [[2, 0, 0, 4]])
    np.testing.assert_array_equal(got[2][:, 0], [5, 8, 8, 4])
    np.testing.assert_array_equal(got[3], [[np.nan, -np.inf, np.inf, np.nan]])
