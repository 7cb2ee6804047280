"""torch's functions behind recurrent layers, which forwards call by themselves, stream as the layers do."""

import pytest
import torch
from one_stream import held, patched, stepped
from torch import nn

import dreamstream as ds


class Net(nn.Module):
    def __init__(self, function, layer, order=lambda x: x, times=1.0):
        super().__init__()
        self.function, self.layer, self.order, self.times = function, layer, order, times

    def forward(self, x):
        layer, lead = self.layer, self.layer.num_layers
        h = torch.zeros(lead, x.size(0), layer.proj_size or layer.hidden_size)
        hx = (h, x.new_zeros(lead, x.size(0), layer.hidden_size)) if layer.mode == "LSTM" else h
        weights = [w * self.times for w in layer._flat_weights]
        options = (layer.bias, lead, 0.0, self.training, False, layer.batch_first)
        return self.order(self.function(self.order(x), hx, weights, *options)[0])


def turned(x):
    return x.transpose(0, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Net(torch._VF.lstm, nn.LSTM(4, 5, 2, batch_first=True)),
        lambda: Net(torch.lstm, nn.LSTM(4, 5), turned),
        lambda: Net(torch.lstm, nn.LSTM(4, 5, batch_first=True, proj_size=3)),
        lambda: Net(torch._VF.lstm, nn.LSTM(4, 5, 2, batch_first=True), times=0.5),
        lambda: Net(torch.gru, nn.GRU(4, 5, 2, batch_first=True)),
        lambda: Net(torch._VF.gru, nn.GRU(4, 5, batch_first=True, bias=False)),
        lambda: Net(torch.rnn_tanh, nn.RNN(4, 5, batch_first=True)),
        lambda: Net(torch._VF.rnn_relu, nn.RNN(4, 5, batch_first=True, nonlinearity="relu")),
    ],
)
def test_functions_are_their_layers(make):
    model = make().eval().requires_grad_(False)
    x = torch.randn(23, 4)
    whole = model(x[None])[0].numpy()
    engine = ds.compile(model, ("B", "L", 4))
    online = ds.patch_module(model).online()
    held([stepped(engine), patched(online)], x, whole, 2e-6)


def test_dropout_between_layers_is_refused():
    net = Net(lambda x, hx, w, *o: torch.lstm(x, hx, w, True, 2, 0.5, True, False, True), nn.LSTM(4, 5, 2))
    with pytest.raises(ds.NotStreamableError, match=r"torch.lstm .* call its layer"):
        ds.compile(net, ("B", "L", 4))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_backwards_from_ends_of_streams_that_have_other_lengths(kind):
    """Also in a call that brings each stream equally many frames, of which some don't end."""
    layer = kind(4, 5, bidirectional=True, batch_first=True).eval().requires_grad_(False)
    xs = [torch.randn(n, 4) for n in (5, 4, 2)]
    whole = [layer(x[None])[0][0] for x in xs]
    online = ds.patch_module(layer, unstreamable="buffer").online()
    found = [[], [], []]
    for begins, ends in (((0, 0, 0), (3, 3, 1)), ((3, 3, 1), (4, 4, 2)), ((4,), (5,))):
        rows = [i for i, _ in enumerate(begins)]
        parts = [xs[i][a:b] for i, a, b in zip(rows, begins, ends)]
        sos, eos = [a == 0 for a in begins], [b == len(xs[i]) for i, b in zip(rows, ends)]
        y, _ = online(
            ds.stream_tensor(parts, ids=[str(i) for i in rows], sos=sos, eos=eos, names=("B", "L", None))
        )
        for i in rows:
            found[i].append(y[str(i)])
    for parts, want in zip(found, whole):
        torch.testing.assert_close(torch.cat(parts), want, rtol=0, atol=1e-6)


class Cast(nn.Module):
    """A loop under autocast, of which a part is computed in another type."""

    def __init__(self, inner):
        super().__init__()
        torch.manual_seed(2)
        self.inner, self.line, self.into = inner, nn.Linear(8, 5), nn.Linear(5, 3)

    def forward(self, x):
        z, h, ys = self.into(x).bfloat16(), torch.zeros(x.size(0), 5), []
        for t in range(x.size(1)):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.inner):
                h = torch.tanh(self.line(torch.cat([0.1 * z[:, t], h], -1)).float())
            ys.append(0.3 * h)
        return torch.stack(ys, 1) + 0.1 * z[..., :1]


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("inner", [False, True])
def test_autocast_around_a_loop_and_within_it(inner, outer):
    model, x = Cast(inner).eval(), torch.randn(1, 9, 5)
    patched = ds.patch_module(Cast(inner).eval()).online()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=outer):
        wanted, parts = model(x)[0], []
        for a, b in ((0, 2), (2, 3), (3, 6), (6, 9)):
            chunk = ds.stream_tensor(x[:, a:b], ids="a", names=("B", "L", None), sos=a == 0, eos=b == 9)
            parts.append(patched(chunk)["a"])
    assert parts[0].dtype == wanted.dtype
    assert torch.equal(torch.cat(parts), wanted)


class Envelope(nn.Module):
    def forward(self, x):
        level, ys = x.new_zeros(x.size(0), 5), []
        for frame in x.unbind(1):
            level = level + torch.where(frame > level, 0.5, 0.05) * (frame - level)
            ys.append(level)
        return torch.stack(ys, 1) * torch.where(x > 0, 0.1, 0.3)


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_numbers_that_where_chooses_are_of_the_default_type(in_float64):
    x = torch.randn(1, 9, 5)
    parts = [(0, 4), (4, 9)]
    online = ds.patch_module(Envelope()).online()
    chunks = [
        ds.stream_tensor(x[:, a:b], ids="a", names=("B", "L", None), sos=a == 0, eos=b == 9) for a, b in parts
    ]
    assert torch.equal(torch.cat([online(chunk)["a"] for chunk in chunks]), Envelope()(x)[0])
