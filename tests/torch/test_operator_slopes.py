"""Slopes of operators equal torch's gradients, at edge values too: ties, limits, zeros, infinities and NaN."""

from itertools import product
from operator import attrgetter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ds_laws.case import Case, Input
from ds_laws.slopes import Driven
from turns import in_blocks

from dreamstream import _core
from dreamstream.operations import BINARY, RELATIONS, UNARY

EDGES = [
    -np.inf,
    -20.5,
    -6.0,
    -2.0,
    -1.0,
    -0.5,
    -1e-30,
    -0.0,
    0.0,
    1e-30,
    0.25,
    0.5,
    1.0,
    2.0,
    3.0,
    6.0,
    25.0,
    np.inf,
    np.nan,
]
OPERATORS = {o["name"]: o for o in _core.operators()}
TYPES = ["float32", "float64"]


def slopes(name, arrays, attributes=None, weights=(), g=None):
    """Outputs of a whole stream, and slopes of inputs and weights; g: of the first output, 0.75 where left out."""
    inputs = [Input(a.shape[1:], a.dtype.name) for a in arrays]
    driven = Driven(Case(name, inputs, attributes or {}, [None if w is None else w for w in weights]))
    outputs = [y[0] for y in driven.call([0], [list(arrays)], [True])]
    given = [np.full_like(y, 0.75) if g is None else g for y in outputs[:1]] + [
        np.zeros_like(y) for y in outputs[1:]
    ]
    found, of_weights = driven.backward({0: given})
    return outputs, found[0], of_weights


def wanted(function, arrays, g=None):
    """The same of torch's function of all arrays."""
    leaves = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    y = function(*leaves)
    y.backward(torch.full_like(y, 0.75) if g is None else torch.tensor(g))
    return y.detach().numpy(), [torch.zeros_like(x).numpy() if x.grad is None else x.grad.numpy() for x in leaves]


def equal(got, expected, what):
    assert got.dtype == expected.dtype
    tolerance = 2e-6 if got.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=str(what))


def of_one():
    for row in UNARY:
        if row.name == "elu" or row.alone:
            continue
        for values in product(*row.tries.values()):
            yield row, dict(zip(row.tries, values))


def _clamp(x, min, max):
    """Let gradients pass at the limits, as torch did until 2.13."""
    return torch.where((x >= min) & (x <= max), x, x.detach().clamp(min, max))


@pytest.mark.parametrize("dtype", TYPES)
@in_blocks(("row", "attributes"), of_one(), 25)
def test_functions_of_one(row, attributes, dtype):
    function = _clamp if row.name == "clamp" else attrgetter(row.torch or row.name)(torch)
    x = np.array(EDGES, dtype)
    expected = wanted(lambda v: function(v, **attributes), [x])[1][0]
    equal(slopes(row.name, [x], attributes)[1][0], expected, (row.name, attributes))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("attributes", "function"),
    [
        ({"alpha": 1.5}, lambda x: F.elu(x, 1.5)),
        ({"alpha": 2.0, "input_scale": 0.5}, lambda x: F.celu(x, 2.0)),
        ({"alpha": 1.6732632423543772 * 1.0507009873554805, "scale": 1.0507009873554805}, F.selu),
    ],
)
def test_elu(attributes, function, dtype):
    x = np.array([v for v in EDGES if v != 1e-30], dtype)
    equal(slopes("elu", [x], attributes)[1][0], wanted(function, [x])[1][0], attributes)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "row", [r for r in BINARY if r.name not in (*RELATIONS, "floor_divide")], ids=lambda r: r.name
)
def test_functions_of_two(row, dtype):
    function = attrgetter(row.torch or row.name)(torch)
    pairs = np.array(list(product(EDGES, EDGES)), dtype)
    arrays = [pairs[:, 0].copy(), pairs[:, 1].copy()]
    if row.name == "prelu":  # its weight has one number for each channel
        function = lambda x, w: F.prelu(x[None], w)[0]  # noqa: E731
    expected = wanted(function, arrays)[1]
    for i, (got, want) in enumerate(zip(slopes(row.name, arrays)[1], expected)):
        equal(got, want, (row.name, i))


def image(rng, *shape):
    """Few different numbers, so that many are equal."""
    return rng.integers(-2, 3, shape).astype(float)


FRAMES = {  # operator, attributes, torch's function of (frames, features)
    "softmax": ({}, lambda x: torch.softmax(x, -1)),
    "log_softmax": ({}, lambda x: torch.log_softmax(x, -1)),
    "glu": ({}, lambda x: F.glu(x, -1)),
    "layer_norm": ({"axes": 1}, lambda x: F.layer_norm(x, x.shape[1:])),
    "amax": ({"kind": "amax"}, lambda x: x.amax(-1)),
    "amin": ({"kind": "amin"}, lambda x: x.amin(-1)),
    "prod": ({"kind": "prod"}, lambda x: x.prod(-1)),
    "var": ({"kind": "var"}, lambda x: x.var(-1)),
    "std": ({"kind": "std"}, lambda x: x.std(-1)),
    "logsumexp": ({"kind": "logsumexp"}, lambda x: x.logsumexp(-1)),
    **{
        f"norm {p}": ({"kind": "norm", "p": p}, lambda x, p=p: torch.linalg.vector_norm(x, p, -1))
        for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf, -np.inf)
    },
    "topk": ({"k": 2}, lambda x: x.topk(2, -1).values),
    "max_pool": (
        {"kernel": 3, "stride": 2, "left": 1, "right": 1},
        lambda x: F.max_pool1d(x.T[None], 3, 2, 1)[0].T,
    ),
    "reduce_frames mean": ({"kind": "mean"}, lambda x: x.mean(0, keepdim=True)),
    "reduce_frames max": ({"kind": "max"}, lambda x: x.max(0, keepdim=True).values),
    "reduce_frames min": ({"kind": "min"}, lambda x: x.min(0, keepdim=True).values),
    "reduce_frames prod": ({"kind": "prod"}, lambda x: x.prod(0, keepdim=True)),
    "cumulative max": ({"kind": "max"}, lambda x: x.cummax(0).values),
    "cumulative prod": ({"kind": "prod"}, lambda x: x.cumprod(0)),
    "cumulative logsumexp": ({"kind": "logsumexp"}, lambda x: x.logcumsumexp(0)),
    "sort": ({}, lambda x: x.sort(dim=0, stable=True).values),
}


@pytest.mark.parametrize("dtype", TYPES)
@in_blocks("name", FRAMES, 28)
def test_frames_with_equal_numbers(name, dtype):
    attributes, function = FRAMES[name]
    operator = name.split(" ")[0]
    if operator not in OPERATORS:  # a kind of what features are reduced to
        operator = next(n for n, o in OPERATORS.items() if "amax" in str(o["attributes"]))
    rng = np.random.default_rng(3)
    for x in (image(rng, 7, 4), np.zeros((5, 4)), rng.standard_normal((6, 4))):
        if name == "topk":  # which of equal numbers torch takes is not said
            x = rng.standard_normal(x.shape)
        x = x.astype(dtype)
        y, _ = wanted(function, [x])
        g = rng.standard_normal(y.shape).astype(dtype)
        outputs, (got,), _ = slopes(operator, [x], attributes, g=g)
        equal(outputs[0], y, f"y of {name}")
        equal(got, wanted(function, [x], g)[1][0], f"{name} of {x}")


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_nothing_but_minus_infinity(dtype):
    x = np.array([[-np.inf, 0.0, 1.0], [-np.inf, 2.0, -np.inf]], dtype)
    for name in ("softmax", "log_softmax"):
        attributes, function = FRAMES[name]
        equal(slopes(name, [x], attributes)[1][0], wanted(function, [x])[1][0], name)


@pytest.mark.parametrize("dtype", TYPES)
def test_embedding_adds_what_an_index_is_given_again(dtype):
    rng = np.random.default_rng(4)
    table, index = rng.standard_normal((5, 3)).astype(dtype), np.array([1, 4, 1, 1, 0])
    expected = wanted(lambda w: F.embedding(torch.tensor(index), w), [table])[1][0]
    equal(slopes("embedding", [index], {}, [table])[2][0], expected, "embedding")


@pytest.mark.parametrize("dtype", TYPES)
def test_relu_of_recurrent_states_at_zero(dtype):
    rng = np.random.default_rng(5)
    layer = torch.nn.RNN(3, 2, nonlinearity="relu", dtype=getattr(torch, dtype))
    weights = [w.detach().numpy() for w in layer.parameters()]
    x = np.concatenate([np.zeros((2, 3)), rng.standard_normal((4, 3))]).astype(dtype)
    for w in weights[2:]:
        w[:] = 0  # the first states are zero
    expected = wanted(lambda v: layer(v)[0], [x])[1][0]
    _, (got, *_), of_weights = slopes("rnn", [x], {"nonlinearity": "relu"}, weights)
    equal(got, expected, "x")
    for w, p in zip(of_weights, layer.parameters()):
        equal(w, p.grad.numpy(), "weights")
