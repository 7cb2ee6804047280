"""Rectifiers, their relatives and dropout: what they refuse."""

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, NotStreamableError, ShapeError


def test_a_type_of_their_own():
    assert F.softmin(ds.ones(2, 3), dim=-1, dtype="float64").dtype == ds.float64


def test_what_does_not_fit():
    x = ds.ones(2, 4, 3)
    with pytest.raises(ShapeError, match="3 weights, but dimension 1 of the input has size 4"):
        F.prelu(x, ds.ones(3))
    with pytest.raises(ShapeError, match="one dimension"):
        F.prelu(x, ds.ones(4, 1))
    with pytest.raises(DTypeError, match="weight is float64"):
        F.prelu(x, ds.ones(4).double())
    for f in (F.elu, F.leaky_relu, F.mish, F.hardswish, F.hardshrink):
        with pytest.raises(DTypeError, match="expected a float32 or float64 tensor, got int64"):
            f(ds.tensor(np.arange(3)))
    with pytest.raises(ShapeError, match="lambd"):
        F.softshrink(x, -1.0)
    with pytest.raises(ShapeError, match="alpha"):
        F.celu(x, 0)
    with pytest.raises(ShapeError, match="max_val must be above min_val"):
        nn.Hardtanh(1.0, -1.0)
    with pytest.raises(ShapeError, match="give the dimension"):
        nn.Softmin()(x)
    with pytest.raises(ShapeError, match="Softmax2d: expected"):
        nn.Softmax2d()(ds.ones(2, 3))
    for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"):
        with pytest.raises(ShapeError, match=f"{name}: a probability lies in"):
            getattr(nn, name)(1.5)
        assert getattr(nn, name)(0.0)(x) is x


def test_prelu_of_streams_needs_features_in_dimension_1():
    model = ds.patch_module(nn.PReLU(3).eval()).online()
    x = np.ones((5, 3), np.float32)
    with pytest.raises(NotStreamableError, match="dimension 1 holds the channels"):
        model(ds.stream_tensor([x], names=("B", "L", None), ids=["a"], sos=True))
    model(ds.stream_tensor([x.T], ids=["a"], sos=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gates_of_few_features(dtype):
    """glu is a product with a sigmoid, to the bit, whether or not rows are short and brought together."""
    rng = np.random.default_rng(0)
    for n_rows, n in ((1, 1), (2100, 1), (700, 3), (513, 4), (40, 15), (40, 16), (33, 31), (17, 32), (9, 65)):
        x = ds.tensor(rng.standard_normal((n_rows, 2 * n)).astype(dtype))
        assert np.array_equal(F.glu(x).numpy(), (x[:, :n] * x[:, n:].sigmoid()).numpy()), (n_rows, n)


def test_gates_of_a_dimension_that_others_follow():
    """Its halves are those of one that has all of them: nothing is transposed."""
    engine = ds.compile(nn.GLU(2), ("B", "L", 6, 5))
    x = np.random.default_rng(0).standard_normal((4, 6, 5), dtype=np.float32)
    wanted = (ds.tensor(x[:, :3]) * ds.tensor(x[:, 3:]).sigmoid()).numpy()
    assert np.array_equal(engine.step({"a": x}, sos=["a"], eos=["a"])["a"], wanted)
    assert np.array_equal(F.glu(ds.tensor(x), 1).numpy(), wanted)
    assert "permute" not in engine.summary()
