"""Recurrent layers and cells against torch: values, keys, text, states, weights, and what they refuse."""

import itertools

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.array.library import NATIVE
from dreamstream.errors import DTypeError, FormatError, NotStreamableError, ShapeError
from dreamstream.stream.rules import BatchSize
from dreamstream.stream.tree import leaves

torch = pytest.importorskip("torch")
from torch_layers import close, twins
from turns import in_blocks

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's own

KINDS = [("LSTM", {}), ("LSTM", {"proj_size": 2}), ("GRU", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"})]
CELLS = [
    ("LSTMCell", {}),
    ("GRUCell", {}),
    ("GRUCell", {"bias": False}),
    ("LSTMCell", {"bias": False}),
    ("RNNCell", {"bias": False}),
    ("RNNCell", {"nonlinearity": "relu"}),
]


def given(state):
    """A state as the layer takes it: a pair, or one tensor."""
    return tuple(state) if len(state) == 2 else state[0]


def randoms(rng, dtype, *shapes):
    arrays = [rng.standard_normal(s).astype(dtype) for s in shapes]
    return [ds.tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]


# ---------------------------------------------------------------------- layers


@pytest.mark.parametrize(("name", "more"), KINDS, ids=str)
@in_blocks(
    ("layers", "bias", "first", "both_ways"),
    list(itertools.product((1, 3), (True, False), (True, False), (True, False))),
    8,
)
def test_layer(name, more, layers, bias, first, both_ways):
    options = {"num_layers": layers, "bias": bias, "batch_first": first, "bidirectional": both_ways}
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-12)):
        rng = np.random.default_rng(layers)
        ours, theirs = twins(name, 5, 4, **options, **more)
        ours, theirs = (ours.double(), theirs.double()) if dtype == "float64" else (ours, theirs)
        lead = layers * (2 if both_ways else 1)
        sizes = [more.get("proj_size", 4), 4][: 2 if name == "LSTM" else 1]
        mine, torchs = randoms(rng, dtype, *((lead, 3, size) for size in sizes))
        (x,), (t,) = randoms(rng, dtype, (3, 6, 5) if first else (6, 3, 5))
        close(ours(x), theirs(t), tolerance)
        close(ours(x, given(mine)), theirs(t, given(torchs)), tolerance)
        same = [[h[:, :1].expand(-1, 3, -1) for h in state] for state in (mine, torchs)]
        close(ours(x, given(same[0])), theirs(t, given(same[1])), tolerance)
        close(ours(x[0]), theirs(t[0]), tolerance)
        rows = [[h[:, 0] for h in state] for state in (mine, torchs)]
        close(ours(x[0], given(rows[0])), theirs(t[0], given(rows[1])), tolerance)


def test_positional_arguments():
    """The order of torch's arguments: RNN has its nonlinearity before the bias."""
    twins("LSTM", 5, 4, 2, False, True, 0.5, True, 3)
    twins("GRU", 5, 4, 2, False, True, 0.5, True)
    assert twins("RNN", 5, 4, 2, "relu", False, True, 0.5, True)[0].nonlinearity == "relu"
    twins("RNNCell", 5, 4, False, "relu")


@pytest.mark.parametrize(("name", "more"), KINDS, ids=str)
def test_without_rows(name, more):
    layer = getattr(nn, name)(5, 4, batch_first=True, **more)
    none = [ds.zeros(1, 0, n) for n in ([more.get("proj_size", 4), 4] if name == "LSTM" else [4])]
    for state in (None, given(none)):
        y, ends = layer(ds.zeros(0, 6, 5), state)
        assert y.shape == (0, 6, more.get("proj_size", 4))
        assert [h.shape for h in leaves(ends)] == [h.shape for h in none]


@pytest.mark.parametrize(("name", "more"), KINDS, ids=str)
def test_layer_refusals(name, more):
    layer = getattr(nn, name)(5, 4, num_layers=2, dropout=0.5, **more)
    assert repr(layer) == repr(getattr(torch.nn, name)(5, 4, num_layers=2, dropout=0.5, **more))
    x = ds.zeros(6, 3, 5)
    layer.eval()
    assert layer(x)[0].shape == (6, 3, more.get("proj_size", 4))
    h = ds.zeros(2, 3, more.get("proj_size", 4))
    state = [h, ds.zeros(2, 3, 4)] if name == "LSTM" else [h]
    for wrong in (
        lambda: layer(ds.zeros(6, 3, 4)),
        lambda: layer(x[0, 0]),
        lambda: layer(x, given([s[:1] for s in state])),
        lambda: layer(x, given([s[..., :1] for s in state])),
        lambda: layer(x, given([s[:, :1] for s in state])),
        lambda: layer(x[:, 0], given(state)),
        lambda: getattr(nn, name)(5, 4, dropout=2),
    ):
        with pytest.raises(ShapeError):
            wrong()
    for sizes, what in (((0, 4), "input_size"), ((5, 0), "hidden_size"), ((5, 4, 0), "num_layers")):
        with pytest.raises(ShapeError, match=f"{name}: {what} must be at least 1, got 0"):
            getattr(nn, name)(*sizes)
    with pytest.raises(DTypeError, match="convert"):
        layer(x.double())
    with pytest.raises(DTypeError, match="convert"):
        layer(x, given([s.double() for s in state]))


def test_arguments_that_do_not_fit():
    for wrong in (
        lambda: nn.LSTM(5, 4, proj_size=4),
        lambda: nn.LSTM(5, 4, proj_size=-1),
        lambda: nn.RNN(5, 4, nonlinearity="sine"),
        lambda: nn.RNNCell(5, 4, nonlinearity="sine"),
        lambda: nn.GRUCell(5, 0),
        lambda: nn.LSTM(5, 4)(ds.zeros(3, 1, 5), ds.zeros(1, 1, 4)),
        lambda: nn.LSTMCell(5, 4)(ds.zeros(3, 5), ds.zeros(3, 4)),
    ):
        with pytest.raises(ShapeError):
            wrong()
    with pytest.raises(DTypeError, match="tuple"):
        nn.GRU(5, 4)(ds.zeros(3, 1, 5), (ds.zeros(1, 1, 4),))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_state_of_a_stream(name):
    layer = getattr(nn, name)(5, 4, num_layers=2)

    class Stream(ds.Tensor):
        is_stream = True

    x = Stream(np.zeros((6, 3, 5), np.float32))
    B = BatchSize(None)
    shared = NATIVE.of_batch(ds.ones(2, 1, 4), 1, B)
    assert layer._initial("h_0", shared, x).tolist() == ds.ones(2, 4).tolist()
    for wrong in (ds.zeros(2, 3, 4), Stream(np.zeros((2, 3, 4), np.float32))):
        with pytest.raises(NotStreamableError, match=f"{name}: .*constant"):
            layer._initial("h_0", wrong, x)
    for wrong in (NATIVE.of_batch(ds.ones(1, 2, 4), 0, B), NATIVE.of_batch(ds.ones(3, 1, 4), 1, B)):
        with pytest.raises(ShapeError):
            layer._initial("h_0", wrong, x)


# ---------------------------------------------------------------------- cells


@pytest.mark.parametrize(("name", "more"), CELLS, ids=str)
@pytest.mark.parametrize("rows", [(), (3,), (1,)], ids=str)
def test_cell(name, more, rows):
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-12)):
        ours, theirs = twins(name, 5, 4, **more)
        ours, theirs = (ours.double(), theirs.double()) if dtype == "float64" else (ours, theirs)
        n_states = 2 if name == "LSTMCell" else 1
        (x, *mine), (t, *torchs) = randoms(np.random.default_rng(5), dtype, (*rows, 5), *[(*rows, 4)] * n_states)
        close(ours(x), theirs(t), tolerance)
        state = tuple(mine) if n_states == 2 else mine[0]
        close(ours(x, state), theirs(t, tuple(torchs) if n_states == 2 else torchs[0]), tolerance)


@pytest.mark.parametrize(("name", "more"), CELLS, ids=str)
def test_cell_takes_frames_of_any_shape(name, more):
    """(*, F): each vector by itself; without rows, none."""
    cell = getattr(nn, name)(5, 4, **more)
    x = ds.randn(2, 3, 5)
    want = leaves(cell(x.reshape(6, 5)))
    assert all(a.reshape(6, 4).tolist() == b.tolist() for a, b in zip(leaves(cell(x)), want))
    assert [h.shape for h in leaves(cell(ds.zeros(0, 5)))] == [(0, 4)] * len(want)


@pytest.mark.parametrize("name", ["GRUCell", "RNNCell"])
def test_cell_refusals(name):
    cell = getattr(nn, name)(5, 4)
    for wrong in (
        lambda: cell(ds.zeros(3, 4)),
        lambda: cell(ds.zeros(3, 5), ds.zeros(3, 5)),
        lambda: cell(ds.zeros(3, 5), ds.zeros(2, 4)),
        lambda: cell(ds.zeros(3, 5), ds.zeros(4)),
    ):
        with pytest.raises(ShapeError, match=f"{name}: expected"):
            wrong()
    with pytest.raises(DTypeError, match="convert"):
        cell(ds.zeros(3, 5), ds.zeros(3, 4, dtype="float64"))
    x = ds.stream_tensor(np.zeros((1, 5, 2), np.float32), ids="s", sos=True).transpose(1, 2)
    assert cell(x)["s"].shape == (2, 4)  # outside a forward too: frames are independent
    assert cell(x, cell(x))["s"].shape == (2, 4)
    with pytest.raises(NotStreamableError, match=f"one per frame.*nn.{name[:3]}$"):
        cell(x, ds.zeros(1, 2, 4))


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_a_layer_takes_a_cells_weights(name):
    """A cell's checkpoint loads into the layer that runs it along the stream."""
    cell = getattr(torch.nn, name + "Cell")(3, 4)
    model = nn.Sequential(nn.Linear(3, 3), getattr(nn, name)(3, 4, batch_first=True))
    state = {"1." + k: v for k, v in cell.state_dict().items()}
    state |= {"0." + k: v for k, v in torch.nn.Linear(3, 3).state_dict().items()}
    result = model.load_state_dict(state)
    assert result == ([], [])
    layer = model[1]
    assert list(layer.state_dict()) == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    x = np.random.default_rng(6).standard_normal((5, 3), dtype=np.float32)
    wanted, hx = [], None
    for frame in torch.tensor(x):
        hx = cell(frame, hx)
        wanted.append((hx[0] if name == "LSTM" else hx).detach().numpy())
    np.testing.assert_allclose(layer(ds.tensor(x))[0].numpy(), wanted, rtol=0, atol=1e-6)


def test_cells_weights_that_do_not_fit():
    state = torch.nn.LSTMCell(3, 4).state_dict()
    with pytest.raises(FormatError, match=r"weight_ih_l0 is \(16, 3\) there and \(20, 3\) here"):
        nn.LSTM(3, 5).load_state_dict(state)
    for more in ({"num_layers": 2}, {"bidirectional": True}):
        with pytest.raises(FormatError, match=r"missing: weight_ih_l0.*unexpected: weight_ih,"):
            nn.LSTM(3, 4, **more).load_state_dict(state)
    both = {**state, **torch.nn.LSTM(3, 4).state_dict()}
    with pytest.raises(FormatError, match="unexpected: weight_ih, weight_hh"):
        nn.LSTM(3, 4).load_state_dict(both)
    partial = nn.LSTM(3, 4).load_state_dict({"weight_ih": state["weight_ih"]}, strict=False)
    assert partial.missing_keys == ["weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]


@pytest.mark.parametrize(("name", "more"), [*KINDS, *CELLS], ids=str)
def test_initial_values(name, more):
    """Evenly over ± 1 / sqrt(hidden_size), as torch's: their range, their mean and their spread."""
    ds.manual_seed(1)
    for key, value in getattr(nn, name)(60, 50, **more).state_dict().items():
        values, bound = value.numpy().ravel(), 50**-0.5
        n = len(values)
        assert 1 - 12 / n <= np.abs(values).max() / bound <= 1, key
        assert abs(values.mean()) <= 5 * bound / np.sqrt(3 * n)
        assert abs(values.std() / (bound / np.sqrt(3)) - 1) <= 5 / np.sqrt(n)
