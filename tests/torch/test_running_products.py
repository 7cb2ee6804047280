"""`cumprod` has torch's values and gradients at zeros, infinities and NaN: along features, and L in chunks."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dreamstream as ds
from dreamstream import nn

inf, nan = np.inf, np.nan
ROWS = np.array([
    [1, 2, inf, 3, 0.5], [inf, 0, 2, 3, 1], [2, 0, 3, inf, nan], [nan, 1, 2, 3, 4], [0, 0, inf, 1, 2],
    [2, 3, -inf, -2, 0], [1e30, 1e30, 1e30, 1e-30, 2], [1e-30, 1e-30, 1e30, 1e30, 2], [inf, nan, 0, 1, 2],
    [1, 2, 3, 0, nan], [2, nan, 0, 3, inf], [2, 3, 4, 0, 5], [0, inf, 2, 3, 1], [0, 3, inf, 2, 5],
    [0, nan, 2, 3, 4], [2, 3, 4, 5, 6],
])  # fmt: skip
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2, ROWS.shape)


class Products:
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return x.cumprod(self.dim)


class Native(Products, nn.Module):
    pass


class OfTorch(Products, torch.nn.Module):
    pass


def as_torch(dtype):
    x = torch.tensor(ROWS.astype(dtype), requires_grad=True)
    y = x.cumprod(1)
    (y * torch.tensor(WEIGHTS.astype(dtype))).sum().backward()
    return y.detach().numpy(), x.grad.numpy()


def streamed(model, tensor, x, weights, lengths):
    """Values and gradients of frames ``(L, features)``, in chunks."""
    model, at, loss, ys, given = ds.patch_module(model, "full-file-aligned").train().online(), 0, 0, [], []
    for n in lengths:
        given.append(tensor(x[None, at : at + n], requires_grad=True))
        y = model(ds.stream_tensor(given[-1], ids=["a"], sos=at == 0, eos=at + n == len(x), names=("B", "L", "F")))
        ys.append(np.asarray(y.tensor().detach().numpy())[0])
        loss = (y.tensor() * tensor(weights[None, at : at + n])).sum() + loss
        at += n
    loss.backward()
    return np.concatenate(ys), np.concatenate([np.asarray(t.grad.numpy())[0] for t in given])


def same(got, wanted):
    for a, b in zip(got, wanted):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "tensor"), [(Native, ds.tensor), (OfTorch, torch.tensor)])
@pytest.mark.parametrize("lengths", [[5], [1, 4], [2, 0, 3], [3, 2], [1, 1, 1, 1, 1]], ids=str)
def test_along_the_stream(dtype, kind, tensor, lengths):
    x, weights = ROWS.T.astype(dtype), WEIGHTS.T.astype(dtype)
    same([a.T for a in streamed(kind(1), tensor, x, weights, lengths)], as_torch(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "tensor"), [(Native, ds.tensor), (OfTorch, torch.tensor)])
def test_along_features(dtype, kind, tensor):
    x, weights = ROWS.astype(dtype), WEIGHTS.astype(dtype)
    same(streamed(kind(2), tensor, x, weights, [3, len(ROWS) - 3]), as_torch(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_plain(dtype):
    x = ds.tensor(ROWS.astype(dtype), requires_grad=True)
    y = x.cumprod(1)
    (y * ds.tensor(WEIGHTS.astype(dtype))).sum().backward()
    same((y.numpy(), x.grad.numpy()), as_torch(dtype))


def test_products_that_overflow_on_the_way():
    rows = np.tile(np.array([1e-30, 1e30, 1e30, 1e-30], np.float32), (3, 2))
    engine = ds.compile(Native(2).eval(), ("B", "L", 8))
    y = engine.step({"a": rows}, sos=["a"], eos=["a"])["a"]
    np.testing.assert_allclose(y, torch.tensor(rows).cumprod(1).numpy(), rtol=1e-5)
