"""Methods of stream tensors outside a forward: row by row what plain tensors give, padding never seen.

What a method does to ids and lengths, it does by rows: a case is a function of the batch and the same
function of one row, whose dimensions are those of the batch without B.
"""

import warnings

import numpy as np
import pytest
import stream_methods
from random_graphs.idioms import of
from stream_methods import OVER_L
from turns import in_blocks

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream.errors import NotStreamableError, ShapeError, StreamFallbackWarning, StreamMismatchError
from dreamstream.operations import BINARY, UNARY
from dreamstream.stream.tree import leaves

IDS = ("anna", "bob", "carl")
LENGTHS = (7, 3, 5)


def make(seed=0, positive=False, lengths=LENGTHS, dtype=np.float32):
    """Return a stream tensor (B, 4, L) of random rows, and NaN where the caller's array is padded."""
    rng = np.random.default_rng(seed)
    data = np.full((len(lengths), 4, max(lengths) + 2), np.nan)
    for row, n in zip(data, lengths):
        row[:, :n] = rng.standard_normal((4, n)) * 2
    if positive:
        data = np.abs(data) + 0.1
    if np.dtype(dtype).kind != "f":
        data = np.nan_to_num(data, nan=99)
    return ds.stream_tensor(data.astype(dtype), ids=IDS[: len(lengths)], sos=True, lengths=lengths)


def rows(x):
    return [ds.tensor(np.asarray(x[i])) for i in x.ids]


# ---------------------------------------------------------------------- one frame at a time

#: function of the batch, or of a row as a batch
ONE = {
    **{name: (lambda t, fn=fn: fn(ds, t)) for name, fn in stream_methods.KEEP.items()},
    **{
        name: (lambda t, name=name: getattr(t, name)())
        for name in ["isinf", "isfinite", "float", "cpu", "tan", "exp2", "sinc", "isposinf", "isneginf", "signbit"]
    },
    **{
        r.name + " of positive": (lambda t, r=r: getattr(ds.Tensor if r.doc else F, r.name)(t))
        for r in UNARY
        if r.domain == "positive"
    },
    **{
        r.name: (lambda t, name=r.name: getattr(t, name)(t.cos()))
        for r in BINARY
        if r.name != "pow" and hasattr(ds.Tensor, r.name)
    },
    "divide a number of positive": lambda t: 3 / t,
    "pow of positive": lambda t: t**0.7,
    "pow base of positive": lambda t: 2**t,
    "compare eq": lambda t: (t.round() == 1) | (t.round() != 2),
    "clamp_min": lambda t: t.clamp_min(0.5),
    "clamp_max": lambda t: t.clamp_max(0.5),
    "clip": lambda t: t.clip(max=0),
    "where, as a method": lambda t: t.where(t > 0, -1.0),
    "logical": lambda t: (t > 0).logical_and(t < 1).logical_or(t < -1).logical_xor(t < -2),
    "logaddexp": lambda t: t.logaddexp(t * t),
    "heaviside": lambda t: t.round().heaviside(0.5),
    "to": lambda t: t.to(ds.float64),
    "type_as": lambda t: t.type_as(ds.zeros(1, dtype=ds.float64)),
    "array column": lambda t: COLUMN.numpy() - t,
    "matmul reversed, an array": lambda t: COLUMN.numpy().T @ t,
    "matmul of many": lambda t: MATRICES @ t.unflatten(1, (2, 2)),
}

COLUMN = ds.tensor([[1.0], [2.0], [3.0], [4.0]])
MATRICES = ds.tensor([[[1.0, 2.0], [3.0, -4.0], [0.5, 0.0]], [[-1.0, 2.0], [3.0, 4.0], [1.0, 1.0]]])
#: what takes names of dimensions, and the same of a plain tensor
NAMES = {
    "softmax by name": (lambda x: x.softmax("F"), lambda r: r.softmax(1)),
    "sum by name": (lambda x: x.sum("F"), lambda r: r.sum(1)),
}


@in_blocks("name", [*ONE, *NAMES], 34)
@pytest.mark.parametrize("lengths", [LENGTHS, (0, 7, 2)])
def test_frames_keep_their_rows(name, lengths):
    """Same ids, flags, lengths; each row's frames are those of the plain tensor."""
    x = make(positive="positive" in name, lengths=lengths)
    batch, row = NAMES[name] if name in NAMES else (ONE[name], ONE[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error", StreamFallbackWarning)
        ys = leaves(batch(x))
    plain = [leaves(row(r.unsqueeze(0))) for r in rows(x)]
    for k, y in enumerate(ys):
        assert isinstance(y, ds.StreamTensor) and y.meta == x.meta and y.rate == x.rate
        sizes = dict(zip(y.names, y.shape))
        assert (sizes["B"], sizes["L"]) == (3, max(lengths))
        for i, wanted in zip(x.ids, plain):
            got, want = np.asarray(y[i]), np.take(np.asarray(wanted[k]), 0, y.names.index("B"))
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


# ---------------------------------------------------------------------- reductions


@pytest.mark.parametrize("name", OVER_L)
def test_reductions_over_frames(name):
    """Over L: one vector per row, of its valid frames, as a plain tensor; likewise with other dims."""
    x = make()
    for dim in (-1, 2, "L"):
        for k, y in enumerate(leaves(OVER_L[name](x, dim))):
            assert not isinstance(y, ds.StreamTensor) and y.shape == (3, 4)
            for b, plain in enumerate(rows(x)):
                want = leaves(OVER_L[name](plain, -1))[k]
                np.testing.assert_allclose(np.asarray(y[b]), np.asarray(want), rtol=2e-6, atol=1e-6)
    for y, want in zip(leaves(OVER_L[name](x.transpose(1, 2), 1)), leaves(OVER_L[name](x, 2))):
        np.testing.assert_allclose(np.asarray(y), np.asarray(want), rtol=1e-6)


TOTAL = {
    "sum": lambda t: t.sum(),
    "mean": lambda t: t.mean(),
    "prod": lambda t: t.prod(),
    "var": lambda t: t.var(),
    "std": lambda t: t.std(unbiased=False),
    "var of all": lambda t: t.var(False),
    "norm": lambda t: t.norm(),
    "max": lambda t: t.max(),
    "min": lambda t: t.min(),
    "amax": lambda t: t.amax(),
    "all": lambda t: (t > -99).all(),
    "any": lambda t: (t > 99).any(),
    "mse_loss": lambda t: F.mse_loss(t, t * 0.5),
    "l1_loss": lambda t: F.l1_loss(t, t * 0.5, reduction="sum"),
    "item": lambda t: ds.tensor(t.mean().item()),
}


@pytest.mark.parametrize("name", TOTAL)
def test_reductions_over_all(name):
    """Losses just work: all valid elements, whatever the padding would be."""
    x = make()
    together = ds.tensor(np.concatenate([np.asarray(r) for r in rows(x)], 1))
    y = TOTAL[name](x)
    assert not isinstance(y, ds.StreamTensor) and y.shape == ()
    np.testing.assert_allclose(y.item(), TOTAL[name](together).item(), rtol=1e-5)
    if name in ("sum", "mean", "amax"):
        y = getattr(x, name)((0, 2))
        np.testing.assert_allclose(np.asarray(y), np.asarray(getattr(together, name)(1)), rtol=1e-5)
        assert getattr(x, name)((0, 1, 2)).shape == ()


PAIRS = np.array([[0, 1, 1], [2, 0, -1]])
MASK = np.arange(12).reshape(3, 4) % 5 == 1
NAMED = {  # of a tensor (B, F, D, L)
    "flatten": (lambda x: x.flatten(1, 2), ("B", "F_D", "L")),
    "flatten, from the end": (lambda x: x.flatten(-3, -2), ("B", "F_D", "L")),
    "flatten, moved": (lambda x: x.permute(0, 3, 2, 1).flatten(2), ("B", "L", "D_F")),
    "flatten, one without a name": (lambda x: x.unsqueeze(2).flatten(1, 2), ("B", "F_?", "D", "L")),
    "pairs": (lambda x: x[:, PAIRS], ("B", None, "F", "D", "L")),
    "pairs, last": (lambda x: x[..., PAIRS, :], ("B", "F", None, "D", "L")),
    "pairs and a number": (lambda x: x[:, 0, PAIRS], ("B", None, "D", "L")),
    "pairs and a new one": (lambda x: x[:, None, PAIRS], ("B", None, None, "F", "D", "L")),
    "mask": (lambda x: x[:, MASK], ("B", "F_D", "L")),
    "mask of one": (lambda x: x[:, MASK[:, 1]], ("B", "F", "D", "L")),
    "list": (lambda x: x[:, [2, 0]], ("B", "F", "D", "L")),
    "number": (lambda x: x[:, 1], ("B", "D", "L")),
    "number, last": (lambda x: x[:, :, -1], ("B", "F", "L")),
    "new": (lambda x: x[:, None], ("B", None, "F", "D", "L")),
    "slice": (lambda x: x[:, 1:, ::2], ("B", "F", "D", "L")),
}


@pytest.mark.parametrize("how", NAMED)
def test_names_survive(how):
    """Outside, inside a forward and in an engine: the same names where there are names, the same values."""
    view, names = NAMED[how]
    data = np.random.default_rng(3).standard_normal((2, 3, 4, 5)).astype(np.float32)
    x = ds.stream_tensor(data, names=("B", "F", "D", "L"), ids=["a", "b"], sos=True, eos=True)
    want = view(ds.tensor(data)).numpy()
    inside = ds.patch_module(of(view)).online()(x)
    for y in (view(x), inside):
        assert y.names == names
        np.testing.assert_array_equal(y.tensor().numpy(), want)
    step = ds.compile(of(view), ("B", 3, 4, "L"), verify=False).step
    np.testing.assert_array_equal(step({"b": data[1]}, sos="b", eos="b")["b"], inside["b"])


@pytest.mark.parametrize(
    ("view", "error"),
    [
        (lambda x: x[:, [3]], ShapeError),
        (lambda x: x[:, [[-4]]], ShapeError),
        (lambda x: x[:, MASK[:2]], ShapeError),
        (lambda x: x[:, MASK & False], NotStreamableError),
    ],
)
def test_indices_that_pick_nothing_inside(view, error):
    x = ds.stream_tensor(np.zeros((1, 3, 4, 5)), names=("B", "F", "D", "L"), ids="a", sos=True)
    with pytest.raises(error, match=r"test_stream_methods\.py"):
        ds.patch_module(of(view)).online()(x)


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "var", "std", "norm", "logsumexp", "amax", "amin", "all", "any"]
)
def test_reductions_over_frames_and_features(name):
    """Over L and features: one number per row, of valid frames; with B too, one of all."""
    x = make().unflatten(1, (2, 2))  # (B, 2, 2, L)
    x = x > 1 if name in ("all", "any") else x

    def reduce(t, **options):
        return getattr(t, name)(**options)

    with warnings.catch_warnings():
        warnings.simplefilter("error", StreamFallbackWarning)
        for dims in ((1, 2, 3), (3, 1), (-1, 2)):
            y, kept = reduce(x, dim=dims), reduce(x, dim=dims, keepdim=True)
            assert not isinstance(y, ds.StreamTensor)
            assert kept.shape == tuple(1 if i in [d % 4 for d in dims] else n for i, n in enumerate((3, 2, 2, 7)))
            np.testing.assert_array_equal(kept.squeeze([d % 4 for d in dims]).numpy(), y.numpy())
            for b, plain in enumerate(rows(x)):
                want = reduce(plain, dim=tuple(d % 4 - 1 for d in dims))
                np.testing.assert_allclose(y[b].numpy(), want.numpy(), rtol=2e-6, atol=1e-6)
        together = ds.tensor(np.concatenate([np.asarray(r) for r in rows(x)], 2))
        for dims in ((0, 3), (0, 1, 3), (0, 1, 2, 3)):
            kept = reduce(x, dim=dims, keepdim=True)
            want = reduce(together, dim=[d - 1 for d in dims if d], keepdim=True)
            assert kept.shape == (1, *want.shape)
            np.testing.assert_allclose(kept.numpy()[0], want.numpy(), rtol=2e-6, atol=1e-6)
        turned = reduce(x.permute(3, 1, 0, 2), dim=(0, 3))
        np.testing.assert_array_equal(turned.numpy(), reduce(x, dim=(3, 2)).numpy().T)


def test_reductions_of_no_frames():
    """Sums are zero, means and extremes NaN: an empty row has nothing to say."""
    x = make(lengths=(0, 3))
    np.testing.assert_array_equal(np.asarray(x.sum(-1))[0], 0)
    np.testing.assert_array_equal(np.asarray(x.prod(-1))[0], 1)
    for name in ("mean", "amax", "amin"):
        assert np.isnan(np.asarray(getattr(x, name)(-1))[0]).all()
        assert np.isfinite(np.asarray(getattr(x, name)(-1))[1]).all()
    values, where = x.max(-1)
    assert np.isnan(np.asarray(values)[0]).all() and (np.asarray(where)[0] == -1).all()
    assert where.dtype == x.argmin("L").dtype == np.int64 and (np.asarray(x.argmax(-1))[0] == -1).all()
    nobody = x[:0]
    assert nobody.argmax(-1).dtype == np.int64 and nobody.max(2).indices.shape == (0, 4)
    empty = ds.stream_tensor([np.zeros((4, 0), np.float32)], ids="a")
    assert empty.sum().item() == 0 and np.isnan(empty.mean().item()) and empty.numel() == 0


# ---------------------------------------------------------------------- what can't keep the rows

FALLBACKS = {
    "flip L": lambda t: t.flip(2),
    "roll L": lambda t: t.roll(1, 2),
    "roll L, by names": lambda t: t.roll(shifts=1, dims=-1),
    "roll of two": lambda t: t.roll((1, 2), dims=(0, 1)),
    "cumsum L": lambda t: t.cumsum(2),
    "softmax L": lambda t: t.softmax(2),
    "log_softmax B": lambda t: t.log_softmax(0),
    "flatten": lambda t: t.flatten(1),
    "flatten all": lambda t: t.flatten(),
    "reshape": lambda t: t.reshape(12, 7),
    "repeat L": lambda t: t.repeat(1, 1, 2),
    "expand": lambda t: t.expand(2, 3, 4, 7),
    "unfold": lambda t: t.unfold(2, 2, 1),
    "sum B": lambda t: t.sum(0),
    "argmax": lambda t: t.argmax(),
    "max B": lambda t: t.max(0).values,
    "mean B and F": lambda t: t.mean((0, 1)),
    "gather": lambda t: t.gather(1, ds.zeros(3, 1, 7, dtype=ds.int64)),
    "index_select": lambda t: t.index_select(1, ds.tensor(np.array([0, 2]))),
    "masked_select": lambda t: t.masked_select(ds.ones(3, 4, 7, dtype=ds.bool)),
    "matmul of L": lambda t: t @ ds.ones(7, 2),
    "unbind": lambda t: t.unbind(1)[0] if not isinstance(t, ds.StreamTensor) else t.unbind(1)[0].flip(1).flip(1),
    "cat with a plain tensor": lambda t: ds.cat([t, ds.zeros(3, 4, 2)], 2),
}  # fmt: skip


@pytest.mark.parametrize("name", FALLBACKS)
def test_fallbacks(name):
    """A plain padded tensor, zeros behind the rows, with a warning; or an error, or nothing, if asked for."""
    x, function = make(), FALLBACKS[name]
    want = function(x.tensor())
    with pytest.warns(StreamFallbackWarning, match=r"test_stream_methods\.py"):
        y = function(x)
    assert not isinstance(y, ds.StreamTensor) and y.shape == want.shape
    np.testing.assert_allclose(np.asarray(y), np.asarray(want), rtol=1e-6)
    with ds.on_fallback("raise"), pytest.raises(StreamMismatchError, match=r"plain tensor"):
        function(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ds.on_fallback("ignore"):
            assert not isinstance(function(x), ds.StreamTensor)
