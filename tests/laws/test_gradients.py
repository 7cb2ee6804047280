"""Which operators have slopes, and records that are used wrongly; the laws of slopes: `ds_laws.laws_slopes`."""

import numpy as np
import pytest
from ds_laws import GENERATORS
from ds_laws.case import Case, Input, Refused
from ds_laws.slopes import Driven, random_slopes, whole
from turns import in_blocks

import dreamstream as ds
from dreamstream import _core

#: Operators that could be differentiated and have no backward yet: this list only gets shorter.
MISSING: set[str] = set()


def test_every_operator_has_a_backward_or_says_that_calculus_ends():
    missing = {o["name"] for o in _core.operators() if not (o["backward"] or o["constant"])}
    assert missing == MISSING


# ---------------------------------------------------------------- records
def convolution(dtype="float64", n=(9, 4)):
    """A convolution of two streams, driven to its end, and slopes of its outputs."""
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(s).astype(dtype) for s in ((3, 2, 3), (3,))]
    case = Case("conv1d", [Input((2,), dtype)], {"left": 1}, weights)
    streams = [[rng.standard_normal((k, 2)).astype(dtype)] for k in n]
    driven, outputs = whole(case, streams, record=True)
    return case, streams, driven, [random_slopes(rng, ys) for ys in outputs]


def test_a_record_does_not_change_the_call():
    case, streams, driven, _ = convolution()
    for (got,), (wanted,) in zip(whole(case, streams, record=True)[1], whole(case, streams)[1]):
        assert got.tobytes() == wanted.tobytes()


def test_slopes_are_added_to_arrays_that_are_given():
    case, streams, driven, gs = convolution()
    record, g = driven.calls[0][1], [np.concatenate([y[0] for y in gs])]
    (dx,), dw, _ = record.backward(g, [True], [True, True], None, False)
    given = [np.ones_like(a) for a in (dx, *dw)]
    (again,), weights, _ = record.backward(g, given[:1], given[1:], None, False)
    assert [a is b for a, b in zip((again, *weights), given)] == [True] * 3
    for a, b in zip((again, *weights), (dx, *dw)):
        np.testing.assert_allclose(a, b + 1, rtol=1e-14)
    assert record.backward([None], [True], [True, False], None, False)[1][1] is None
    for a in record.backward([None], [True], [True, True], None, False)[0]:
        assert not a.any()


def test_a_record_is_read_as_often_as_one_likes():
    _, _, driven, gs = convolution("float32")
    first, second = (driven.backward(dict(enumerate(gs))) for _ in range(2))
    assert first[0][1][0].tobytes() == second[0][1][0].tobytes()
    assert first[1][0].tobytes() == second[1][0].tobytes()


WRONG = [
    (([np.zeros((13, 3))], [np.zeros((13, 2), np.float32)], [True, True], None, False), ds.ShapeError),
    (([np.zeros((13, 3))], [np.zeros((12, 2))], [True, True], None, False), ds.ShapeError),
    (([np.zeros((13, 3))], [True], [True], None, False), ds.ShapeError),
    (([np.zeros((12, 3))], [True], [True, True], None, False), ds.ShapeError),
    (([], [True], [True, True], None, False), ds.ShapeError),
    (([None], [True], [True, True], [None], True), TypeError),
    (([None], [True], [True, True], [{"kept.1": np.zeros((1, 2))}, None], True), ds.ShapeError),
    (([None], [True], [True, True], [{"kept.0": np.zeros((9, 2))}, None], True), ds.ShapeError),
]


@pytest.mark.parametrize(("arguments", "error"), WRONG)
def test_wrong_arguments_are_refused_before_anything_is_added(arguments, error):
    _, _, driven, gs = convolution()
    record = driven.calls[0][1]
    kept = np.zeros((13, 2))
    slopes, inputs, *rest = arguments
    with pytest.raises(error):
        record.backward(slopes, [kept if i is True else i for i in inputs], *rest)
    assert not kept.any()


def test_forks_add():
    """Two ways on from one call: its slopes are the sum of those of each."""
    rng = np.random.default_rng(2)
    case, *_ = convolution()
    x = [rng.standard_normal((k, 2)) for k in (5, 4, 6)]
    g = [rng.standard_normal((k, 3)) for k in (4, 4, 6)]

    def run(ways):
        driven = Driven(case)
        driven.call([0], [[x[0]]], [False])
        state, frames = driven.states[0], driven.frames[0]
        root, places = driven.calls.pop()[1], []
        for way in ways:
            driven.states[0], driven.frames[0] = state, frames
            driven.call([0], [[x[way]]], [False])
            places.append(driven.calls[-1][1].backward([g[way]], [True], [True, True], None, True)[2][0])
        total = {name: sum(p[name] for p in places) for name in places[0]}
        return root.backward([g[0]], [True], [True, True], [total], True)[0][0]

    only = Driven(case)
    only.call([0], [[x[0]]], [False])
    alone = only.calls[0][1].backward([g[0]], [True], [True, True], None, True)[0][0]
    np.testing.assert_allclose(run([1, 2]) + alone, run([1]) + run([2]), rtol=1e-12)


@pytest.mark.parametrize("name", ["eq", "cast"])
def test_constants_have_no_record(name):
    if name == "eq":
        case = Case("eq", [Input((2,))] * 2)
    else:
        case = Case(name, [Input((2,))], {"to": "int64"})
    driven, _ = whole(case, [[np.zeros((3, 2), np.float32)] * len(case.inputs)], record=True)
    assert driven.calls[0][1] is None
    assert driven.op.constant
    assert not driven.op.differentiable


def test_what_is_not_read_is_not_held():
    """A record holds inputs, outputs and states as far as backward reads them."""
    x = np.ones((7, 4), np.float32)
    sizes = {"neg": 0, "exp": x.nbytes, "square": x.nbytes, "add": 0, "mul": 2 * x.nbytes, "slice": 0}
    for name, n_bytes in sizes.items():
        case = Case(name, [Input((4,))] * (2 if name in ("add", "mul") else 1))
        driven, _ = whole(case, [[x] * len(case.inputs)], record=True)
        values, outputs, *_ = driven.calls[0][1].held
        assert sum(a.nbytes for a in (*values, *outputs) if a is not None) == n_bytes, name


@pytest.mark.parametrize("blas", [False, True])
def test_slopes_of_many_frames(blas):
    """More than a slab of windows, or of rows: in float32, with either kernels, as a plain sum in float64."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1500, 5)), rng.standard_normal((4, 5))
    g = rng.standard_normal((1500, 4))
    case = Case("linear", [Input((5,))], {}, [w.astype(np.float32), None])
    taps = Case("conv1d", [Input((5,))], {}, [w[:, :, None].astype(np.float32), None])
    for made in (case, taps):
        driven = Driven(made, blas=blas)
        driven.call([0], [[x.astype(np.float32)]], [True])
        dx, dw = driven.backward({0: [g.astype(np.float32)]})
        np.testing.assert_allclose(dx[0][0], g @ w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(dw[0].reshape(4, 5), g.T @ x, rtol=1e-5, atol=1e-3)


@in_blocks("name", GENERATORS, 24)
def test_slopes_in_float32(name):
    """They are those in float64, rounded: of one case of each operator."""
    rng = np.random.default_rng(11)
    for _ in range(8):
        wide = GENERATORS[name](rng, "float64")
        stream = wide.stream(rng)
        narrow = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in stream]
        if not Driven(wide).op.differentiable or wide.attributes.get("to") or not all(map(len, stream)):
            continue
        try:
            wide.expected(stream)
        except Refused:
            continue
        inputs = [Input(i.features, "float32" if i.dtype == "float64" else i.dtype, i.rate) for i in wide.inputs]
        weights = [w.astype(np.float32) if w is not None and w.dtype.kind == "f" else w for w in wide.weights]
        attributes = {
            k: v.replace("float64", "float32") if isinstance(v, str) else v for k, v in wide.attributes.items()
        }
        case = Case(name, inputs, attributes, weights)
        exact, outputs = whole(wide, [[x.astype(i.dtype) for x, i in zip(narrow, wide.inputs)]], record=True)
        gs = [g.astype(np.float32) for g in random_slopes(rng, outputs[0])]
        driven, made = whole(case, [narrow], record=True)
        if any(y.dtype.kind != "f" and not np.array_equal(y, z) for y, z in zip(outputs[0], made[0])):
            continue
        got, wanted = (
            d.backward({0: [g.astype(y.dtype) for g, y in zip(gs, ys[0])]})
            for d, ys in ((driven, made), (exact, outputs))
        )
        for a, b in zip((*got[0][0], *got[1]), (*wanted[0][0], *wanted[1])):
            if b is not None and np.isfinite(b).all():
                assert a.dtype == np.float32
                np.testing.assert_allclose(a, b, rtol=0, atol=2e-4 * np.abs(b).max(initial=1.0))
        return
