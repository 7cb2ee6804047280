"""Embedding and one_hot: against torch, in streams, and what is out of range."""

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, ModeError, NotStreamableError, ShapeError, StreamIndexError

torch = pytest.importorskip("torch")
TF = torch.nn.functional


def ids(values):
    return ds.tensor(np.array(values))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (5,), (2, 7), (2, 3, 4), (0, 3), (2, 0)])
def test_rows_are_torchs(rng, shape, dtype):
    weight, index = rng.standard_normal((6, 3)).astype(dtype), rng.integers(0, 6, shape)
    got = F.embedding(ds.tensor(index), ds.tensor(weight), padding_idx=-1)
    want = TF.embedding(torch.tensor(index), torch.tensor(weight))
    assert got.shape == tuple(want.shape) and got.numpy().dtype == dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((6, 3), {}),
        ((6, 3, 2), {}),
        ((6, 3), {"padding_idx": -1, "norm_type": 1.0}),
        ((6, 3), {"scale_grad_by_freq": True, "sparse": True}),
    ],
)
def test_layer_is_torchs(rng, args, kwargs):
    ours, theirs = nn.Embedding(*args, **kwargs), torch.nn.Embedding(*args, **kwargs)
    assert repr(ours) == repr(theirs)
    assert ours.padding_idx == theirs.padding_idx
    if ours.padding_idx is not None:
        assert not ours.weight.numpy()[ours.padding_idx].any()
    assert ours.weight.numpy().std() > 0.3
    ours.load_state_dict(theirs.state_dict())
    index = rng.integers(0, 6, (2, 5))
    want = theirs(torch.tensor(index)).detach().numpy()
    np.testing.assert_array_equal(ours(ds.tensor(index)).numpy(), want)


@pytest.mark.parametrize("padding", [None, 1])
def test_gradients_by_frequency(rng, padding):
    options, index = {"scale_grad_by_freq": True, "padding_idx": padding}, rng.integers(0, 6, (4, 5))
    ours, theirs = nn.Embedding(6, 3, **options, dtype="float64"), torch.nn.Embedding(6, 3, **options).double()
    g = rng.standard_normal((4, 5, 3))
    (ours(ds.tensor(index)) * ds.tensor(g)).sum().backward()
    (theirs(torch.tensor(index)) * torch.tensor(g)).sum().backward()
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-12)
    model = ds.patch_module(ours).train().online()
    with pytest.raises(NotStreamableError, match="how often an index occurs"):
        model(ds.stream_tensor(index[:1], ids=["a"], sos=True))


def test_from_pretrained():
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    layer = nn.Embedding.from_pretrained(ds.tensor(rows), padding_idx=1)
    assert not layer.weight.requires_grad
    assert nn.Embedding.from_pretrained(ds.tensor(rows), freeze=False).weight.requires_grad
    np.testing.assert_array_equal(layer(ids([[3, 1]])).numpy(), rows[[[3, 1]]])


def test_one_hot(rng):
    index = rng.integers(0, 5, (2, 4))
    for n in (5, 7, -1):
        got, want = F.one_hot(ds.tensor(index), n), TF.one_hot(torch.tensor(index), n)
        assert got.shape == tuple(want.shape) and got.dtype == np.int64
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    with pytest.raises(StreamIndexError, match="index 4 is out of range, expected 0 to 2"):
        F.one_hot(ids([1, 4]), 3)
    with pytest.raises(ShapeError, match="empty tensor"):
        F.one_hot(ds.tensor(np.zeros(0, np.int64)))


def test_what_does_not_fit():
    weight, index = ds.ones(4, 3), ids([1, 2])
    for bad in (-1, 4, -(1 << 40)):
        with pytest.raises(StreamIndexError, match=rf"embedding: index {bad} is out of range, expected 0 to 3"):
            F.embedding(ids([0, bad]), weight)
        with pytest.raises(IndexError):
            nn.Embedding(4, 3)(ids([bad]))
    with pytest.raises(DTypeError, match="expected an int64 tensor, got float32"):
        F.embedding(ds.tensor([1.0]), weight)
    with pytest.raises(DTypeError, match="expected a float32 or float64 tensor, got int64"):
        F.embedding(index, weight.long())
    with pytest.raises(ShapeError, match=r"\(num_embeddings, embedding_dim\), got \(4,\)"):
        F.embedding(index, weight[:, 0])
    for make in (lambda: F.embedding(index, weight, padding_idx=4), lambda: nn.Embedding(4, 3, -5)):
        with pytest.raises(StreamIndexError, match="padding_idx must be within 4 rows"):
            make()
    for make in (lambda: F.embedding(index, weight, max_norm=1.0), lambda: nn.Embedding(4, 3, max_norm=1.0)):
        with pytest.raises(ModeError, match="max_norm"):
            make()
    with pytest.raises(ShapeError, match="expected weights of shape"):
        nn.Embedding(4, 3, _weight=ds.ones(3, 4))


def test_padding_is_not_looked_up():
    model = ds.patch_module(nn.Embedding(3, 2).eval()).online()
    padded = np.array([[0, 1, 2, 1], [2, 99, -5, 99]])
    y = model(ds.stream_tensor(padded, ids=["a", "b"], sos=True, eos=True, lengths=[4, 1]))
    assert y["b"].shape == (1, 2)


class Computed(nn.Module):
    """An index that the forward makes."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, x):
        return self.table(x[:, 1:].long())


def test_computed_indices():
    model = Computed().eval()
    online = ds.patch_module(model).online()
    x = np.array([0.5, 3.9, 1.0], np.float32)
    y = online(ds.stream_tensor([x], ids=["a"], sos=True))
    np.testing.assert_array_equal(y["a"].numpy(), model.table.weight.numpy()[[3, 1]])
    with pytest.raises(StreamIndexError) as caught:
        online(ds.stream_tensor([x + 3], ids=["b"], sos=True, eos=True))
    assert caught.value.ids == ("b",) and online.live_ids == ["a"]
    rows = ds.compile(model, ("B", "L"), verify=False).step({"a": x + 2}, sos=["a"])["a"]  # of 5 there is none
    np.testing.assert_array_equal(rows, [[np.nan] * 3, model.table.weight.numpy()[3]])


class Unused(nn.Module):
    """A look-up that nothing uses."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, x, y):
        self.table(y)
        return x * 2


def test_a_look_up_that_nothing_uses_still_refuses():
    spec = {"x": ("B", "L"), "y": ("B", "L")}
    engine = ds.compile(Unused().eval(), spec, dtype={"x": "float32", "y": "int64"}, verify=False)
    good = {"x": np.ones(2, np.float32), "y": np.array([0, 4])}
    assert engine.step({"a": good}, sos=["a"])["a"].shape == (2,)
    with pytest.raises(StreamIndexError) as caught:
        engine.step({"a": {**good, "y": np.array([5, 0])}})
    assert caught.value.ids == ("a",)


def test_one_hot_of_a_stream():
    class Hot(nn.Module):
        def forward(self, x):
            return F.one_hot(x, 4).float()

    engine = ds.compile(Hot().eval(), ("B", "L"), dtype="int64")
    y = engine.step({"a": np.array([3, 0])}, sos=["a"])["a"]
    np.testing.assert_array_equal(y, np.eye(4)[[3, 0]])
    online = ds.patch_module(Hot().eval()).online()
    y = online(ds.stream_tensor([np.array([3, 0])], ids=["a"], sos=True))
    np.testing.assert_array_equal(y["a"].numpy(), np.eye(4)[[3, 0]])


@pytest.mark.parametrize("right", [False, True])
def test_bucketize_and_searchsorted(rng, right):
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    x[0, 0, :4] = np.nan, 0, 1, -1
    for given, limits in (
        (x, np.array([-1, 0, 1], np.float32)),
        ((x[1:] * 9).astype(np.int64), np.arange(-9, 9, 4)),
    ):
        want = torch.bucketize(torch.from_numpy(given), torch.from_numpy(limits), right=right).numpy()
        got = F.bucketize(ds.tensor(given), ds.tensor(limits), right=right)
        assert got.dtype == np.int64 and np.array_equal(got.numpy(), want)
        side = "right" if right else "left"
        assert np.array_equal(F.searchsorted(ds.tensor(limits), ds.tensor(given), side=side).numpy(), want)

    class Model(nn.Module):
        def forward(self, x):
            return F.bucketize(x, ds.tensor([-1.0, 0.0, 1.0]), right=right)

    engine = ds.compile(Model(), ("B", 4, "L"), verify=False)
    want = torch.bucketize(torch.from_numpy(x[0]), torch.tensor([-1.0, 0.0, 1.0]), right=right).numpy()
    assert np.array_equal(engine.step({"a": x[0]}, ["a"], ["a"])["a"], want)
    with pytest.raises(ds.ShapeError, match=r"boundaries must be a constant \(n\)"):
        F.bucketize(ds.tensor(x), ds.tensor(x))
