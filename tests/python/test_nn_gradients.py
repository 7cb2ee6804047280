"""Gradients of layers and functions on plain tensors, against torch's: of what comes in and of parameters."""

import itertools

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.stream.tree import leaves

torch = pytest.importorskip("torch")
from torch_layers import FUNCTIONS, LAYERS, ODD, draw, share, twins

TF = torch.nn.functional
#: Of which torch's derivatives have constants of single precision.
OF_SINGLE = ("CELU", "Hardsigmoid", "hardsigmoid", "celu")


def close(ours, theirs, tolerance=1e-10):
    """Compare gradients, of which those that are missing are zeros."""
    for own, other in zip(ours, theirs, strict=True):
        if own is None or other is None:
            assert not np.any(
                other.numpy() if own is None and other is not None else 0 if own is None else own.numpy()
            )
            continue
        got, want = own.numpy(), other.numpy()
        assert got.shape == want.shape and str(got.dtype) == str(want.dtype)
        scale = np.abs(want[np.isfinite(want)]).max(initial=1.0)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def backward(outputs, make, rng):
    """Go back from all outputs with random gradients."""
    reals = [y for y in leaves(outputs) if y.is_floating_point()]
    for i, y in enumerate(reals):
        g = make(rng.standard_normal(tuple(y.shape)))
        y.backward(g, retain_graph=i < len(reals) - 1)


def compare(call, modules, arrays, tolerance=1e-10):
    """Call both libraries' functions on the same, and compare all gradients."""
    found = []
    for make, f, module in zip((ds.tensor, torch.tensor), call, modules):
        given = [make(a) for a in arrays]
        real = [x.requires_grad_() for x in given if x.is_floating_point()]
        if module is not None:
            module.zero_grad()
        with np.errstate(all="ignore"):
            backward(f(*[x * 1 if x.is_floating_point() else x for x in given]), make, np.random.default_rng(5))
        found.append([x.grad for x in real] + ([] if module is None else [p.grad for p in module.parameters()]))
    close(*found, tolerance)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(
    ("kind", "name", "args", "kwargs", "shapes"),
    [(kind, *row) for kind, rows in LAYERS.items() for row in rows],
    ids=lambda v: str(v)[:40],
)
def test_layer(rng, kind, name, args, kwargs, shapes):
    ours, theirs = twins(name, *args, **kwargs)
    if kind in ("norms", "others"):
        draw(ours)
        share(ours, theirs)
    ours, theirs = ours.double(), theirs.double()
    for shape in shapes:
        arrays = [np.asarray(rng.standard_normal(shape))]
        if kind == "rectifiers" and "Softm" not in name:
            arrays += [
                5 * arrays[0],
                100 * arrays[0],
                rng.choice(ODD[3:], shape),
                *(np.full(shape, float(v)) for v in ODD),
            ]
        for array in arrays:
            array = np.abs(array) if "LPPool" in name else array
            compare((ours, theirs), (ours, theirs), [np.asarray(array)], 1e-6 if name in OF_SINGLE else 1e-10)


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_function(rng, number):
    call = FUNCTIONS[number]
    try:
        x = rng.standard_normal((3, 4, 5))
        compare((lambda x: call(F, x), lambda x: call(TF, x)), (None, None), [x], 1e-6)
    except RuntimeError as error:  # torch refuses gradients of statistics
        assert "running_mean" in str(error)


RECURRENT = [
    (name, options)
    for name in ("LSTM", "GRU", "RNN")
    for options in (
        {}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True},
        *([{"proj_size": 3}] if name == "LSTM" else [{"nonlinearity": "relu"}] if name == "RNN" else []),
    )
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), RECURRENT, ids=str)
def test_recurrent(rng, name, options):
    ours, theirs = (getattr(library, name)(4, 5, **options).double() for library in (nn, torch.nn))
    share(ours, theirs)
    compare((ours, theirs), (ours, theirs), [rng.standard_normal((3, 6, 4))])


def test_embedding(rng):
    ours, theirs = (library.Embedding(7, 3, padding_idx=2).double() for library in (nn, torch.nn))
    share(ours, theirs)
    compare((ours, theirs), (ours, theirs), [np.array([[0, 2, 6], [0, 0, 1]])])


@pytest.mark.parametrize("how", [lambda x: x.logcumsumexp(2), lambda x: x.amax(1), lambda x: x.amin(1)])
def test_gradients_of_streams_at_infinities_and_nan_are_those_of_torch(how):
    class Once(nn.Module):
        def forward(self, x):
            return how(x)

    rows = np.array([*itertools.product([1, -2, np.inf, -np.inf, np.nan], repeat=3)], np.float32)
    given = np.stack([rows, rows[::-1]], 1)  # (B, 2, L)
    theirs = torch.tensor(given, requires_grad=True)
    z = how(theirs)
    weights = np.random.default_rng(0).standard_normal(z.shape).astype(np.float32)
    z.backward(torch.tensor(weights))
    model = ds.patch_module(Once().train()).online()
    ids = [str(i) for i in range(len(rows))]
    ours = ds.stream_tensor(given, ids=ids, sos=True, eos=True, requires_grad=True)
    y = model(ours)
    y.backward(y.like(ds.tensor(np.moveaxis(weights, -1, 1).reshape(-1, *weights.shape[1:-1]))))
    np.testing.assert_allclose(ours.grad.tensor().numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-6)
