"""Losses against torch: values and gradients, at edges too; of streams they see valid frames."""

from itertools import product

import numpy as np
import pytest
from turns import in_blocks

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream.errors import DTypeError, ShapeError, StreamIndexError

torch = pytest.importorskip("torch")
TF = torch.nn.functional

REDUCTIONS = ("mean", "sum", "none")
EDGES = np.array([0, -0.0, 1, -1, 0.5, -0.5, 2, 100, -100, 1e-8, 1e30, np.inf, -np.inf, np.nan])
UNIT = np.array([0, 1, 0.5, 1e-8, 1 - 1e-8, 1e-200])


def both(name, arrays, options, wanted, skip=()):
    """The losses of both libraries, with the gradients of those arguments that have one."""
    found = []
    for library, make in ((F, ds.tensor), (TF, torch.tensor)):
        given = [make(a) for a in arrays]
        for i in wanted:
            given[i].requires_grad_()
        more = {k: make(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        with np.errstate(all="ignore"):
            y = getattr(library, name)(*given, **more)
            g = np.random.default_rng(0).standard_normal(tuple(y.shape)).astype(arrays[0].dtype)
            y.backward(make(g))
        found.append([y.detach().numpy(), *(given[i].grad.numpy() for i in wanted)])
    for own, other in zip(*found, strict=True):
        assert own.shape == other.shape and own.dtype == other.dtype
        rtol = 2e-5 if own.dtype == np.float32 else 1e-10
        scale = np.abs(other[np.isfinite(other)]).max(initial=1e-3)
        np.testing.assert_allclose(own, other, rtol=rtol, atol=rtol * scale)


OF_ELEMENTS = [
    ("mse_loss", {}, EDGES, EDGES), ("l1_loss", {}, EDGES, EDGES),
    *(("smooth_l1_loss", {"beta": b}, EDGES, EDGES) for b in (1.0, 0.5, 0.0)),
    ("binary_cross_entropy", {}, UNIT, UNIT), ("kl_div", {}, EDGES, UNIT),
    ("kl_div", {"log_target": True}, EDGES, EDGES), ("binary_cross_entropy_with_logits", {}, EDGES, UNIT),
]  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("number", range(len(OF_ELEMENTS)))
def test_losses_of_elements(number, reduction):
    name, options, left, right = OF_ELEMENTS[number]
    options = {**options, "reduction": reduction}
    rng = np.random.default_rng(1)
    x = rng.random((2, 3, 4)) if left is UNIT else rng.standard_normal((2, 3, 4))
    both(name, [x, rng.random((2, 3, 4))], options, (0, 1))
    both(name, [x.astype(np.float32), rng.random((2, 3, 4)).astype(np.float32)], options, (0, 1))
    both(name, [x[:0], x[:0]], options, (0, 1))
    pairs = np.array([*product(left, right)]).T.copy()
    both(name, [*pairs], {**options, "reduction": "none"}, (0, 1))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weights_of_elements(reduction):
    rng = np.random.default_rng(2)
    x, t, w = rng.random((3, 4)), rng.random((3, 4)), rng.random((3, 4))
    both("binary_cross_entropy", [x, t], {"weight": w, "reduction": reduction}, (0, 1))
    for more in ({"weight": w}, {"pos_weight": w[0]}, {"weight": w[:, :1], "pos_weight": w[0]}):
        both("binary_cross_entropy_with_logits", [x * 9 - 4, t], {**more, "reduction": reduction}, (0, 1))
    both("kl_div", [x, t], {"reduction": "batchmean"}, (0, 1))


@pytest.mark.parametrize("name", [*dict.fromkeys(name for name, *_ in OF_ELEMENTS), "nll_loss", "cross_entropy"])
def test_older_arguments_say_the_reduction(name, rng):
    x, t = rng.random((3, 4)), rng.random((3, 4))
    t = rng.integers(0, 4, 3) if name in ("nll_loss", "cross_entropy") else t
    for average, reduce in product((None, True, False), repeat=2):
        both(name, [x, t], {"size_average": average, "reduce": reduce, "reduction": "sum"}, (0,))


CLASSES = [
    {"weight": w, "ignore_index": i, **more}
    for w, i, more in product(
        (None, np.array([0.5, 2.0, 0.0, 1.5])), (-100, 1), ({}, {"label_smoothing": 0.1}, {"label_smoothing": 1.0})
    )
]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@in_blocks("number", range(len(CLASSES)), 12)
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3), (2, 4, 3, 2), (4,), (0, 4)], ids=str)
def test_losses_of_classes(shape, number, reduction):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape) * 3
    rest = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
    target = np.asarray(rng.integers(0, 4, rest))
    options = {k: v for k, v in CLASSES[number].items() if v is not None} | {"reduction": reduction}
    both("cross_entropy", [x, target], options, (0,))
    if not options.pop("label_smoothing", 0):
        both("nll_loss", [x, target], options, (0,))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.2}, {"weight": np.array([0.5, 2.0, 0.0, 1.5])}], ids=str
)
def test_probabilities_of_classes(options, reduction):
    rng = np.random.default_rng(4)
    for shape in ((5, 4), (2, 4, 3), (4,)):
        both(
            "cross_entropy",
            [rng.standard_normal(shape), rng.random(shape)],
            {**options, "reduction": reduction},
            (0, 1),
        )


def test_all_targets_ignored():
    x, t = np.random.default_rng(5).standard_normal((3, 4)), np.full(3, -100)
    for reduction in REDUCTIONS:
        both("cross_entropy", [x, t], {"reduction": reduction}, (0,))


WRONG = {
    "reduction": (lambda x, t: F.mse_loss(x, x, "max"), ShapeError),
    "class": (lambda x, t: F.cross_entropy(x, t + 4), StreamIndexError),
    "shape": (lambda x, t: F.cross_entropy(x, t[:2]), ShapeError),
    "shape of chances": (lambda x, t: F.binary_cross_entropy(x.sigmoid(), x[0].sigmoid()), ShapeError),
    "shape of logits": (lambda x, t: F.binary_cross_entropy_with_logits(x, x[:, :1]), ShapeError),
    "integers": (lambda x, t: F.cross_entropy(t, t), DTypeError),
    "real targets": (lambda x, t: F.nll_loss(x, x), DTypeError),
    "range": (lambda x, t: F.binary_cross_entropy(x + 2, x), ShapeError),
    "smoothing": (lambda x, t: F.cross_entropy(x, t, label_smoothing=2.0), ShapeError),
    "beta": (lambda x, t: F.smooth_l1_loss(x, x, beta=-1.0), ShapeError),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments(what):
    call, error = WRONG[what]
    with pytest.raises(error):
        call(ds.randn(3, 4), ds.tensor(np.array([0, 1, 3])))


@pytest.mark.parametrize("name", F.loss.BROADCASTS)
def test_shapes_that_are_broadcast_are_warned_of(name, recwarn):
    getattr(F, name)(ds.zeros(3, 1), ds.zeros(3, 1))
    assert not [w for w in recwarn if "broadcast" in str(w.message)]
    with pytest.warns(UserWarning, match=rf"{name}: the shapes \(3, 1\) and \(3,\) are broadcast") as seen:
        getattr(F, name)(ds.zeros(3, 1), ds.zeros(3))
    assert seen[0].filename == __file__


# ---------------------------------------------------------------------- streams
def streams(rng, lengths, *features, names):
    rows = [rng.standard_normal((*features, n)) for n in lengths]
    return ds.stream_tensor(rows, ids=[str(n) for n in range(len(rows))], names=names), rows


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_of_streams_valid_frames_count(reduction, rng):
    x, rows = streams(rng, (5, 2), 3, names=("B", "F", "L"))
    t, goals = streams(rng, (5, 2), 3, names=("B", "F", "L"))
    flat, wanted = (ds.tensor(np.concatenate([r.T for r in given])) for given in (rows, goals))
    for target in (t, t.tensor()):
        y, z = F.mse_loss(x, target, reduction), F.mse_loss(flat, wanted, reduction)
        if reduction == "none":
            assert y.ids == x.ids
            y = ds.tensor(np.concatenate([y[i].numpy().T for i in y.ids]))
        np.testing.assert_allclose(y.numpy(), z.numpy())


def test_of_streams_classes_are_dimension_1(rng):
    x, rows = streams(rng, (5, 2), 4, names=("B", "F", "L"))
    goals = [rng.integers(0, 4, n) for n in (5, 2)]
    t = ds.stream_tensor(goals, ids=x.ids, names=("B", "L"))
    flat = ds.tensor(np.concatenate([r.T for r in rows]))
    wanted = ds.tensor(np.concatenate(goals))
    for target in (t, t.tensor()):
        np.testing.assert_allclose(F.cross_entropy(x, target).item(), F.cross_entropy(flat, wanted).item())
        y = F.cross_entropy(x, target, reduction="none")
        assert y.ids == x.ids and y.dims == ("B", "L")
    with pytest.raises(ShapeError, match="dimension 1"):
        F.cross_entropy(x.transpose(1, 2), t)


LAYERS = {
    "MSELoss": {}, "L1Loss": {"reduction": "sum"}, "SmoothL1Loss": {"beta": 0.5}, "BCELoss": {"weight": True},
    "BCEWithLogitsLoss": {"pos_weight": True}, "KLDivLoss": {"reduction": "batchmean"},
    "NLLLoss": {"weight": True, "ignore_index": 1}, "CrossEntropyLoss": {"label_smoothing": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, rng):
    x, w = rng.random((3, 4)).astype(np.float32), rng.random(4).astype(np.float32)
    goal = (
        np.array([0, 1, 3]) if name in ("NLLLoss", "CrossEntropyLoss") else rng.random((3, 4)).astype(np.float32)
    )
    found = []
    for nn, make in ((ds.nn, ds.tensor), (torch.nn, torch.tensor)):
        layer = getattr(nn, name)(**{k: make(w) if v is True else v for k, v in LAYERS[name].items()})
        found.append((layer(make(x), make(goal)).numpy(), sorted(layer.state_dict()), repr(layer)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    assert found[0][1:] == found[1][1:]
