"""Checkpoints of torch modules under weight_norm load into plain layers; others are refused by name."""

import warnings

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import FormatError

parametrizations = torch.nn.utils.parametrizations


def old(module, name="weight", dim=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.nn.utils.weight_norm(module, name, dim)


WAYS = {"old": old, "new": parametrizations.weight_norm}
LAYERS = [
    ("Conv1d", (4, 6, 3), (2, 4, 20), 0),
    ("Conv1d", (4, 6, 3), (2, 4, 20), 1),
    ("Conv1d", (4, 6, 3), (2, 4, 20), 2),
    ("Conv1d", (4, 1, 3), (2, 4, 20), 0),
    ("Conv1d", (4, 6, 3), (2, 4, 20), None),
    ("ConvTranspose1d", (4, 6, 3, 2), (2, 4, 20), 0),
    ("ConvTranspose1d", (4, 6, 3, 2), (2, 4, 20), 1),
    ("Linear", (4, 6), (3, 4), 0),
    ("Linear", (4, 6), (3, 4), 1),
    ("Linear", (4, 6), (3, 4), None),
]


def shaken(module):
    """The module with norms that are not those of its directions."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn_like(p))
    return module.eval()


def close(ours, theirs):
    theirs = theirs.detach().numpy()
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-5 * max(1, np.abs(theirs).max()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "args", "shape", "dim"), LAYERS)
def test_layer(way, name, args, shape, dim):
    theirs = shaken(WAYS[way](getattr(torch.nn, name)(*args), dim=dim))
    ours = getattr(nn, name)(*args).eval()
    result = ours.load_state_dict(theirs.state_dict())
    assert not result.missing_keys and not result.unexpected_keys
    x = torch.randn(shape)
    close(ours(ds.tensor(x.numpy())), theirs(x))
    close(ours.weight, theirs.weight)


class Net:
    """Nested layers, some under weight_norm, for either library."""

    def __new__(cls, n):
        class Model(n.Module):
            def __init__(self):
                super().__init__()
                self.layers = n.Sequential(n.Conv1d(2, 3, 3), n.ELU(), n.Conv1d(3, 3, 3))
                self.rnn = n.LSTM(3, 4, batch_first=True)
                self.head = n.Linear(4, 2)

            def forward(self, x):
                return self.head(self.rnn(self.layers(x).transpose(1, 2))[0])

        return Model()


@pytest.mark.parametrize("way", WAYS)
def test_network(way):
    theirs, ours = Net(torch.nn), Net(nn).eval()
    WAYS[way](theirs.layers[0])
    WAYS[way](theirs.head)
    WAYS[way](theirs.rnn, name="weight_hh_l0")
    shaken(theirs)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = torch.randn(2, 2, 15)
    close(ours(ds.tensor(x.numpy())), theirs(x))


def test_strict_mode_names_what_is_wrong():
    theirs, ours = parametrizations.weight_norm(torch.nn.Linear(4, 6)), nn.Linear(4, 6)
    state = theirs.state_dict()
    before = ours.weight.numpy().copy()
    g = state.pop("parametrizations.weight.original0")
    with pytest.raises(FormatError, match=r"missing: weight; unexpected: parametrizations\.weight\.original1"):
        ours.load_state_dict(state)
    result = ours.load_state_dict(state, strict=False)
    assert result.missing_keys == ["weight"]
    assert result.unexpected_keys == ["parametrizations.weight.original1"]
    np.testing.assert_array_equal(ours.weight.numpy(), before)
    for wrong in (g[:5], g[:, 0], g.expand(6, 3)):
        bad = {**state, "parametrizations.weight.original0": wrong}
        with pytest.raises(FormatError, match="weight is held under weight_norm, but its norms"):
            ours.load_state_dict(bad)
    both = {**state, "parametrizations.weight.original0": g, "weight": theirs.weight}
    with pytest.raises(FormatError, match=r"unexpected: .*original1"):
        ours.load_state_dict(both)
    with pytest.raises(FormatError, match="different shapes: weight is"):
        nn.Linear(4, 5, bias=False).load_state_dict({k: v for k, v in theirs.state_dict().items() if k != "bias"})


@pytest.mark.parametrize("way", ["old", "new"])
def test_spectral_norm_is_refused(way):
    norm = parametrizations.spectral_norm if way == "new" else torch.nn.utils.spectral_norm
    theirs = torch.nn.Sequential(norm(torch.nn.Linear(4, 6)))
    ours = nn.Sequential(nn.Linear(4, 6))
    for strict in (True, False):
        with pytest.raises(FormatError, match=r"0\.weight is held under spectral_norm.*remove"):
            ours.load_state_dict(theirs.state_dict(), strict)


def test_names_of_ones_own_stay():
    """A module whose own parameters are called so keeps them."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(ds.zeros(2))
            self.scale_g = nn.Parameter(ds.zeros(2))
            self.scale_v = nn.Parameter(ds.zeros(2))

    model = Own()
    result = model.load_state_dict({"scale_g": np.ones(2), "scale_v": np.full(2, 3.0)}, strict=False)
    assert result.missing_keys == ["scale"]
    assert model.scale_g.tolist() == [1, 1] and model.scale_v.tolist() == [3, 3]
