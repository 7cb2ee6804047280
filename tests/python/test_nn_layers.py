"""Layers and functions against torch, on plain tensors: values, gradients, keys, text, initial values."""

import itertools

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, ModeError, ShapeError
from dreamstream.stream.tree import leaves

torch = pytest.importorskip("torch")
from torch_layers import FUNCTIONS, LAYERS, ODD, close, draw, share, twins
from turns import in_blocks

TF = torch.nn.functional

CHANNELS, LENGTH = 4, 13
#: Of which torch's derivatives have constants of single precision.
OF_SINGLE = ("CELU", "Hardsigmoid", "hardsigmoid", "celu")


def both(rng, *shape, dtype=np.float32):
    array = rng.standard_normal(shape).astype(dtype)
    return ds.tensor(array), torch.tensor(array)


def same_gradients(ours, theirs, tolerance):
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
    """Call both libraries' functions on the same, and compare the gradients of what comes in and of parameters."""
    found = []
    for make, f, module in zip((ds.tensor, torch.tensor), call, modules):
        given = [make(a) for a in arrays]
        real = [x.requires_grad_() for x in given if x.is_floating_point()]
        if module is not None:
            module.zero_grad()
        with np.errstate(all="ignore"):
            backward(f(*[x * 1 if x.is_floating_point() else x for x in given]), make, np.random.default_rng(5))
        found.append([x.grad for x in real] + ([] if module is None else [p.grad for p in module.parameters()]))
    same_gradients(*found, tolerance)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@in_blocks(
    ("kind", "name", "args", "kwargs", "shapes"),
    [(kind, *row) for kind, rows in LAYERS.items() for row in rows],
    23,
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_layer(rng, kind, name, args, kwargs, shapes, dtype, tolerance):
    """Text, keys, values and gradients of torch; what comes in is not written to."""
    ours, theirs = twins(name, *args, **kwargs)
    if kind in ("norms", "others"):
        draw(ours)
        share(ours, theirs)
    if dtype == np.float64:
        ours, theirs = ours.double(), theirs.double()
    for shape in shapes:
        arrays = [rng.standard_normal(shape)]
        if kind == "rectifiers":
            arrays += [5 * arrays[0], 100 * arrays[0]]
            if "Softm" not in name:
                arrays += [rng.choice(ODD, shape), *(np.full(shape, v) for v in ODD)]
        for array in arrays:
            array = np.asarray(np.abs(array) if "LPPool" in name else array, dtype)
            before = array.copy()
            close(ours(ds.tensor(array)), theirs(torch.tensor(array)), tolerance)
            np.testing.assert_array_equal(array, before)
            if dtype == np.float64:
                compare((ours, theirs), (ours, theirs), [array], 1e-6 if name in OF_SINGLE else 1e-10)


@pytest.mark.parametrize("mode", ["zeros", "replicate", "reflect", "circular"])
@pytest.mark.parametrize("pads", [(4, 0), (0, 3), (3, 1)])
def test_conv1d_pads_each_end(rng, mode, pads):
    ours = nn.Conv1d(CHANNELS, 3, 3, padding=pads, dilation=2, padding_mode=mode)
    x, t = both(rng, 2, CHANNELS, LENGTH)
    padded = TF.pad(t, pads, "constant" if mode == "zeros" else mode)
    weight, bias = (torch.tensor(p.numpy()) for p in (ours.weight, ours.bias))
    close(ours(x), TF.conv1d(padded, weight, bias, dilation=2))
    assert f"padding={pads}" in repr(ours)


def test_conv1d_causal(rng):
    ours = nn.Conv1d(CHANNELS, 3, 3, padding="causal", dilation=2)
    x, _ = both(rng, 2, CHANNELS, LENGTH)
    whole = ours(x)
    assert whole.shape == (2, 3, LENGTH)
    for n in (1, 5, LENGTH):
        close(ours(x[..., :n]), torch.tensor(whole[..., :n].numpy()))
    assert "padding=causal" in repr(ours)


def test_short_inputs_give_no_frames(rng):
    x, _ = both(rng, 2, CHANNELS, 2)
    assert nn.Conv1d(CHANNELS, 3, 5)(x).shape == (2, 3, 0)
    assert nn.ReflectionPad1d(2)(x).shape == (2, CHANNELS, 0)
    assert nn.Conv1d(CHANNELS, 3, 5, padding=2)(x[..., :0]).shape == (2, 3, 0)


def test_conv_transpose1d_output_size(rng):
    ours, theirs = twins("ConvTranspose1d", CHANNELS, 6, 3, stride=3)
    x, t = both(rng, 2, CHANNELS, 5)
    for size in (15, [16], (17,)):
        close(ours(x, size), theirs(t, [size] if isinstance(size, int) else list(size)))
    with pytest.raises(ShapeError, match="15 to 17"):
        ours(x, 18)


# ---------------------------------------------------------------------- functions


@in_blocks("call", FUNCTIONS, 21)
def test_function(rng, call):
    for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-12)):
        x, t = both(rng, 3, 4, 5, dtype=dtype)
        close(call(F, x), call(TF, t), tolerance)
    try:
        compare((lambda x: call(F, x), lambda x: call(TF, x)), (None, None), [x.numpy()], 1e-6)
    except RuntimeError as error:  # torch refuses gradients of statistics
        assert "running_mean" in str(error)


def test_pad_of_integers():
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(
        F.pad(ds.tensor(x), (1, 0), value=7).numpy(), np.pad(x, ((0, 0), (1, 0)), constant_values=7)
    )


@pytest.mark.parametrize("mode", ["constant", "replicate", "reflect", "circular"])
def test_pads_of_no_rows_have_a_gradient(mode):
    x = ds.zeros(0, 2, 5, requires_grad=True)
    F.pad(x, (1, 2), mode).sum().backward()
    assert x.grad.shape == x.shape


def test_delay(rng):
    x, _ = both(rng, 2, 3, 6)
    for n in (0, 1, 4, 9):
        expected = np.pad(x.numpy(), ((0, 0), (0, 0), (n, 0)))[..., :6]
        np.testing.assert_array_equal(nn.Delay(n)(x).numpy(), expected)
        np.testing.assert_array_equal(nn.Delay(n, dim=1)(x.mT).numpy(), expected.swapaxes(1, 2))
    np.testing.assert_array_equal(nn.Delay(2)(x[0, 0]).numpy(), np.pad(x.numpy()[0, 0], (2, 0))[:6])
    assert repr(nn.Delay(3)) == "Delay(3)"


def test_look_ahead(rng):
    x, t = both(rng, 2, 3, 6)
    for n in (0, 1, 4, 9):
        expected = np.pad(x.numpy(), ((0, 0), (0, 0), (0, n)))[..., n:]
        np.testing.assert_array_equal(nn.LookAhead(n)(x).numpy(), expected)
        np.testing.assert_array_equal(nn.LookAhead(n, dim=1)(x.mT).numpy(), expected.swapaxes(1, 2))
        weighed = nn.LookAhead(n, 3)
        kernel = torch.from_numpy(weighed.weight.numpy().copy())
        sums = torch.nn.functional.conv1d(torch.nn.functional.pad(t, (0, n)), kernel, groups=3)
        close(weighed(x), sums)
        turned = nn.LookAhead(n, 3, dim=1)
        turned.load_state_dict(weighed.state_dict())
        close(turned(x.mT), sums.mT)
    assert repr(nn.LookAhead(3)) == "LookAhead(3)"
    assert repr(nn.LookAhead(3, 4, dim=1)) == "LookAhead(3, features=4, dim=1)"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: nn.Linear(3, 2)(x),
        lambda x: nn.LayerNorm(3)(x),
        lambda x: nn.LayerNorm((4, 6))(x),
        lambda x: nn.Conv1d(3, 2, 1)(x),
        lambda x: nn.Conv1d(4, 2, 1)(x[None]),
        lambda x: nn.Conv1d(4, 2, 3, stride=2, padding="same"),
        lambda x: nn.Conv1d(4, 2, 3, padding="lots"),
        lambda x: nn.Conv1d(4, 2, 3, padding=(1, 2, 3)),
        lambda x: nn.Conv1d(4, 2, 3, padding=-1),
        lambda x: nn.Conv1d(4, 2, 3, groups=3),
        lambda x: nn.Conv1d(4, 2, 0),
        lambda x: nn.Conv1d(4, 2, (1, 2)),
        lambda x: nn.Conv1d(4, 2, 3, padding_mode="mirror"),
        lambda x: nn.ConvTranspose1d(4, 2, 3, padding_mode="reflect"),
        lambda x: nn.GLU(dim=2)(x),
        lambda x: nn.Softmax()(x),
        lambda x: nn.Dropout(1.5),
        lambda x: nn.Delay(-1),
        lambda x: nn.LookAhead(-1),
        lambda x: nn.LookAhead(2, 5)(x),
        lambda x: nn.ZeroPad1d((1, 2, 3)),
        lambda x: F.pad(x, (1,)),
        lambda x: F.pad(x, (1, 1), "mirror"),
        lambda x: F.pad(x, (9, 9), "circular"),
        lambda x: F.gelu(x, "fast"),
        lambda x: F.mse_loss(x, x, "max"),
    ],
)
def test_shape_errors(wrong):
    with pytest.raises(ShapeError):
        wrong(ds.zeros(2, 4, 5))


def test_type_errors():
    linear = nn.Linear(4, 2)
    for wrong in (
        lambda: linear(np.zeros((2, 4), np.float32)),
        lambda: linear(ds.zeros(2, 4, dtype="float64")),
        lambda: linear(ds.tensor(np.zeros((2, 4), int))),
        lambda: nn.GELU()(ds.tensor(np.zeros(2, int))),
        lambda: nn.Linear(2, 2, dtype="int64"),
        lambda: nn.Linear(2, 2, dtype="float16"),
    ):
        with pytest.raises(DTypeError):
            wrong()
    with pytest.raises(ModeError):
        nn.Linear(2, 2, device="cuda")
    assert nn.Linear(2, 2, device="cpu", dtype="float64").weight.dtype == ds.float64


# ---------------------------------------------------------------------- initial values


@pytest.mark.parametrize(
    ("make", "args"),
    [
        ("Linear", (200, 150)),
        ("Conv1d", (40, 60, 7)),
        ("ConvTranspose1d", (40, 60, 7)),
        ("Conv2d", (20, 30, (5, 7))),
        ("ConvTranspose2d", (20, 30, (5, 7))),
        ("LayerNorm", (100,)),
    ],
)
def test_initial_values_are_distributed_as_torchs(make, args):
    """Equal range, and equal mean and spread within five standard errors."""
    ds.manual_seed(1)
    torch.manual_seed(1)
    ours, theirs = getattr(nn, make)(*args).state_dict(), getattr(torch.nn, make)(*args).state_dict()
    for key, theirs_value in theirs.items():
        a, b = ours[key].numpy().ravel(), theirs_value.numpy().ravel()
        n, spread = len(a), b.std()
        assert abs(a.mean() - b.mean()) <= 5 * spread * np.sqrt(2 / n)
        assert abs(a.std() - spread) <= 5 * spread / np.sqrt(n)
        assert abs(np.abs(a).max() - np.abs(b).max()) <= 0.1 * np.abs(b).max()


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("uniform_", {"a": -2.0, "b": 3.0}),
        ("normal_", {"mean": 1.0, "std": 2.0}),
        ("trunc_normal_", {"std": 0.5, "a": -0.6, "b": 0.6}),
        ("constant_", {"val": 3.0}),
        ("ones_", {}),
        ("zeros_", {}),
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {}),
        ("kaiming_uniform_", {"a": 0.2, "nonlinearity": "leaky_relu"}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("orthogonal_", {"gain": 1.5}),
    ],
)
def test_init(name, kwargs):
    ds.manual_seed(0)
    torch.manual_seed(0)
    ours, theirs = ds.zeros(60, 40, 5), torch.zeros(60, 40, 5)
    assert getattr(nn.init, name)(ours, **kwargs) is ours
    getattr(torch.nn.init, name)(theirs, **kwargs)
    a, b = ours.numpy().ravel(), theirs.numpy().ravel()
    assert abs(a.mean() - b.mean()) <= 5 * b.std() * np.sqrt(2 / a.size)
    assert abs(a.std() - b.std()) <= 5 * b.std() / np.sqrt(a.size)
    if name == "orthogonal_":
        flat = ours.numpy().reshape(60, -1)
        np.testing.assert_allclose(flat @ flat.T, 1.5**2 * np.eye(60), atol=1e-4)
    if name not in ("normal_", "xavier_normal_", "kaiming_normal_", "orthogonal_"):
        assert abs(np.abs(a).max() - np.abs(b).max()) <= 0.02 * np.abs(b).max()


def test_gains():
    for name in ("linear", "sigmoid", "tanh", "relu", "conv1d", "selu"):
        assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)
    with pytest.raises(ValueError, match="gain"):
        nn.init.calculate_gain("softer")


# ---------------------------------------------------------------------- gradients
RECURRENT = [
    (name, options)
    for name in ("LSTM", "GRU", "RNN")
    for options in (
        {}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True},
        *([{"proj_size": 3}] if name == "LSTM" else [{"nonlinearity": "relu"}] if name == "RNN" else []),
    )
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), RECURRENT, ids=str)
def test_gradients_of_recurrent_layers(rng, name, options):
    ours, theirs = (getattr(library, name)(4, 5, **options).double() for library in (nn, torch.nn))
    share(ours, theirs)
    compare((ours, theirs), (ours, theirs), [rng.standard_normal((3, 6, 4))])


def test_gradients_of_a_table(rng):
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
