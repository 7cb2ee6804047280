"""Gradients of streams' products, native against torch's: at zeros, infinities and NaN, in chunks."""

import numpy as np
import pytest
from turns import in_blocks

import dreamstream as ds
from dreamstream import nn

torch = pytest.importorskip("torch")


class Products(nn.Module):
    def __init__(self, name, axis):
        super().__init__()
        self.name, self.axis = name, axis

    def forward(self, x):
        return getattr(x, self.name)(self.axis)


#: Frames of one feature, or features of a frame; a 0 and what is infinite come in one chunk, the last.
NO_PRODUCTS = np.array(
    [[1.5, -2, np.inf, 0.5, 3, -1.25], [1.5, np.inf, 2, -np.inf, 0.5, 2], [1.5, -2, np.nan, 0.5, 3, -1],
     [1.5, -2, 0, 0.5, 3, -1], [1.5, 0, 2, 0.5, 0, 2], [1.5, -2, 3, 0, np.inf, 2], [1.5, 3, 2, np.nan, 0, 2]]
)  # fmt: skip


@in_blocks("row", range(len(NO_PRODUCTS)), 7)
@pytest.mark.parametrize(
    ("name", "axis", "cuts"),
    [("prod", 1, (6,)), ("prod", 1, (3, 3)), ("prod", 1, (1,) * 6), ("prod", 2, (1,)), ("cumprod", 1, (6,)),
     ("cumprod", 1, (3, 3))],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:invalid value")
def test_products_of_zeros_infinities_and_nan_have_the_gradient_of_torch(name, axis, cuts, row):
    x = NO_PRODUCTS[row].reshape((1, 6, 1) if axis == 1 else (1, 1, 6))
    theirs = torch.tensor(x, requires_grad=True)
    y = getattr(theirs, name)(axis)
    probe = np.random.default_rng(1).standard_normal(y.shape)
    y.backward(torch.tensor(probe))
    model = ds.patch_module(Products(name, axis), "full-file-aligned").train().online()
    parts = [ds.tensor(part, requires_grad=True) for part in np.split(x, np.cumsum(cuts)[:-1], 1)]
    outputs = [
        model(ds.stream_tensor(part, names=("B", "L", "F"), ids="a", sos=part is parts[0], eos=part is parts[-1]))
        for part in parts
    ]
    met = ds.cat([y["a"] for y in outputs if y["a"].numel()]).reshape(probe.shape)
    (met * ds.tensor(probe)).sum().backward()
    got = np.concatenate([part.grad.numpy() for part in parts], 1)
    np.testing.assert_allclose(got, theirs.grad.numpy(), rtol=1e-12)
