"""Rectifiers, their relatives and dropout against torch: values at ordinary and extreme places, text, keys."""

from __future__ import annotations

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, ModeError, NotStreamableError, ShapeError

torch = pytest.importorskip("torch")
TF = torch.nn.functional

# Constructor, arguments, keyword arguments, shape.
LAYERS = [
    ("ELU", (), {}, (2, 3)),
    ("ELU", (2.5,), {"inplace": True}, (2, 3)),
    ("CELU", (), {}, (2, 3)),
    ("CELU", (0.3,), {}, (2, 3)),
    ("SELU", (), {}, (2, 3)),
    ("SELU", (), {"inplace": True}, (2, 3)),
    ("LeakyReLU", (), {}, (2, 3)),
    ("LeakyReLU", (0.3,), {"inplace": True}, (2, 3)),
    ("PReLU", (), {}, (2, 3)),
    ("PReLU", (), {"init": 0.5}, ()),
    ("PReLU", (4,), {}, (2, 4)),
    ("PReLU", (4,), {}, (2, 4, 5)),
    ("PReLU", (4,), {"init": -0.5}, (2, 4, 5, 3)),
    ("ReLU6", (), {}, (2, 3)),
    ("ReLU6", (), {"inplace": True}, (2, 3)),
    ("Hardtanh", (), {}, (2, 3)),
    ("Hardtanh", (-0.25, 0.5), {"inplace": True}, (2, 3)),
    ("Hardsigmoid", (), {}, (2, 3)),
    ("Hardsigmoid", (True,), {}, (2, 3)),
    ("Hardswish", (), {}, (2, 3)),
    ("Hardshrink", (), {}, (2, 3)),
    ("Hardshrink", (0.1,), {}, (2, 3)),
    ("Softshrink", (), {}, (2, 3)),
    ("Softshrink", (0.1,), {}, (2, 3)),
    ("Tanhshrink", (), {}, (2, 3)),
    ("Softsign", (), {}, (2, 3)),
    ("Mish", (), {}, (2, 3)),
    ("Mish", (), {"inplace": True}, (2, 3)),
    ("Threshold", (0.1, 20), {}, (2, 3)),
    ("Threshold", (-0.5, 3.0), {"inplace": True}, (2, 3)),
    ("RReLU", (), {}, (2, 3)),
    ("RReLU", (0.1, 0.4), {"inplace": True}, (2, 3)),
    ("Softmin", (), {"dim": 1}, (2, 3)),
    ("Softmin", (-2,), {}, (2, 3, 4)),
    ("Softmax2d", (), {}, (2, 3, 4, 5)),
    ("Softmax2d", (), {}, (3, 4, 5)),
    ("Dropout", (0.3,), {}, (2, 3)),
    ("Dropout1d", (), {}, (2, 3, 4)),
    ("Dropout2d", (0.2, True), {}, (2, 3, 4, 5)),
    ("Dropout3d", (), {}, (2, 3, 4, 5, 1)),
    ("AlphaDropout", (), {}, (2, 3)),
    ("FeatureAlphaDropout", (0.1,), {}, (2, 3, 4)),
]
ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 0.5, -0.5, 3, -3, 6, 20.5, -100, 1e30, -1e30]


def close(ours, theirs, tolerance):
    expected = theirs.detach().numpy()
    got = ours.numpy()
    assert got.shape == expected.shape and got.dtype == expected.dtype
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    bound = tolerance * np.maximum(1.0, np.abs(expected[finite]))
    assert (np.abs(got[finite] - expected[finite]) <= bound).all()


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAYERS, ids=lambda v: str(v)[:24])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layer(rng, name, args, kwargs, shape, dtype):
    ours, theirs = getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs)
    assert {k: v.tolist() for k, v in ours.state_dict().items()} == {
        k: v.tolist() for k, v in theirs.state_dict().items()
    }
    assert repr(ours) == repr(theirs)
    ours, theirs = ours.eval(), theirs.eval()
    if dtype == np.float64:
        ours, theirs = ours.double(), theirs.double()
    arrays = [np.asarray(rng.standard_normal(shape) * scale, dtype) for scale in (1, 5, 100)]
    if "Soft" not in name or name in ("Softsign", "Softshrink"):
        odd = np.asarray(rng.choice(np.array(ODD, dtype), shape))
        arrays += [odd, *(np.full(shape, v, dtype) for v in ODD)]
    for array in arrays:
        before = array.copy()
        close(ours(ds.tensor(array)), theirs(torch.tensor(array)), 1e-5 if dtype == np.float32 else 1e-12)
        np.testing.assert_array_equal(array, before)


def test_functions(rng):
    x = rng.standard_normal((2, 4, 3)).astype(np.float32) * 3
    ours, theirs = ds.tensor(x), torch.tensor(x)
    for name, options in (
        ("elu", {"alpha": 2.0, "inplace": False}),
        ("celu", {"alpha": 0.5}),
        ("selu", {}),
        ("leaky_relu", {"negative_slope": -0.2}),
        ("rrelu", {"lower": 0.1, "upper": 0.7}),
        ("relu6", {}),
        ("hardtanh", {"min_val": -2.0}),
        ("hardsigmoid", {}),
        ("hardswish", {}),
        ("hardshrink", {"lambd": 1.0}),
        ("softshrink", {"lambd": 1.0}),
        ("tanhshrink", {}),
        ("softsign", {}),
        ("mish", {}),
        ("threshold", {"threshold": 0.5, "value": -1.0}),
        ("softmin", {"dim": 1}),
        ("softmin", {"dim": -1, "dtype": "float64"}),
        ("dropout1d", {"training": False}),
        ("alpha_dropout", {}),
        ("feature_alpha_dropout", {}),
    ):
        torchs = {k: getattr(torch, v) if k == "dtype" else v for k, v in options.items()}
        close(getattr(F, name)(ours, **options), getattr(TF, name)(theirs, **torchs), 1e-5)
    weight = rng.standard_normal(4).astype(np.float32)
    close(F.prelu(ours, ds.tensor(weight)), TF.prelu(theirs, torch.tensor(weight)), 1e-6)
    close(F.prelu(ours, ds.tensor(weight[:1])), TF.prelu(theirs, torch.tensor(weight[:1])), 1e-6)


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
    with pytest.raises(ModeError, match="rrelu can't train"):
        nn.RReLU()(x)
    for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"):
        with pytest.raises(ShapeError, match=f"{name}: a probability lies in"):
            getattr(nn, name)(1.5)
        with pytest.raises(ModeError, match="can't train"):
            getattr(nn, name)()(x)
        assert getattr(nn, name)(0.0)(x) is x


def test_prelu_of_streams_needs_features_in_dimension_1():
    model = ds.patch_module(nn.PReLU(3).eval()).online()
    x = np.ones((5, 3), np.float32)
    with pytest.raises(NotStreamableError, match="dimension 1 holds the channels"):
        model(ds.stream_tensor([x], names=("B", "L", None), ids=["a"], sos=True))
    model(ds.stream_tensor([x.T], ids=["a"], sos=True))
