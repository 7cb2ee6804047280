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
