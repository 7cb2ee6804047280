"""Matrices that are both of a frame, and a matrix for each head, are multiplied by operators of products."""

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn

W = np.random.default_rng(1).standard_normal((4, 8, 5), dtype=np.float32)
CASES = {
    "x @ y": ("bmm", (3, 6, 8), (3, 8, 4), lambda x, y: x @ y, "...ij,...jk->...ik"),
    "a transpose": ("bmm", (6, 8), (4, 8), lambda x, y: x @ y.transpose(-1, -2), "...ij,...kj->...ik"),
    "by letters": ("bmm", (6, 4, 8), (5, 4, 8), "blihd,bljhd->blhij", "lihd,ljhd->lhij"),
    "a vector": ("reduce_features", (6, 8), (8,), "blij,blj->bli", "lij,lj->li"),
    "heads": ("matmul", (4, 8), None, "blhd,hdo->blho", "lhd,hdo->lho"),
    "rows of heads": ("matmul", (6, 4, 8), None, "blihd,hdo->blhio", "lihd,hdo->lhio"),
}


class Product(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        if callable(self.function):
            return self.function(x, y)
        return ds.einsum(self.function, x, ds.tensor(W) if "hdo" in self.function else y)


@pytest.mark.parametrize("name", CASES)
def test_products(name):
    operator, first, second, function, letters = CASES[name]
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((7, *(f or (1,))), dtype=np.float32) for f in (first, second))
    spec = {"x": ("B", "L", *first), "y": ("B", "L", *(second or (1,)))}
    engine = ds.compile(Product(function).eval(), spec)
    got = [
        engine.step({"a": {"x": x[a:b], "y": y[a:b]}}, sos=["a"] * (a == 0), eos=["a"] * (b == 7))["a"]
        for a, b in ((0, 3), (3, 7))
    ]
    wanted = np.einsum(letters, x, W if second is None else y)
    np.testing.assert_allclose(np.concatenate(got), wanted, rtol=1e-5, atol=1e-5)
    assert f" {operator} " in engine.summary()
