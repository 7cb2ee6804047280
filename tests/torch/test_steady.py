"""What an operator of windows does is done again in mid-stream, where its windows stand as in a call before."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_training import assert_close, assert_same_gradients, calls, gathered, offline
from turns import in_blocks

import dreamstream as ds
from dreamstream.torch.run import calls as run_calls, steady as made_again

#: Networks over (B, 4, L): layers that read windows, at rates that calls of some sizes do not divide.
NETWORKS = {
    "dilated": lambda: nn.Sequential(nn.Conv1d(4, 6, 3, padding=2, dilation=2), nn.Conv1d(6, 4, 5)),
    "strided": lambda: nn.Sequential(nn.Conv1d(4, 6, 5, stride=3, padding=1), nn.Conv1d(6, 4, 3, padding=1)),
    "skipping": lambda: nn.Conv1d(4, 4, 2, stride=4),
    "grouped": lambda: nn.Conv1d(4, 4, 4, groups=4),
    "transposed": lambda: nn.Sequential(nn.Conv1d(4, 4, 3), nn.ConvTranspose1d(4, 4, 5, stride=2, padding=1)),
    "pooled": lambda: nn.Sequential(nn.MaxPool1d(3, 2, padding=1), nn.Conv1d(4, 4, 2)),
    "mirrored": lambda: nn.Sequential(nn.Conv1d(4, 4, 3, padding=1, padding_mode="reflect"), nn.Conv1d(4, 4, 3)),
    "residual": lambda: Of(lambda m, x: x[..., 2:] + m.conv(x) * F.pad(x, (3, 0))[..., 1:-4]),
    "every third": lambda: Of(lambda m, x: m.conv(x)[..., 1::3]),
    "framed": lambda: Of(lambda m, x: m.conv(x).unfold(2, 4, 2).mean(-1)),
    "planes": lambda: Of(lambda m, x: m.plane(x[:, None]).mean(1)),
    "recurrent": lambda: Of(lambda m, x: m.gru(x.transpose(1, 2))[0].transpose(1, 2)),
    "recurrent by lanes": lambda: Of(
        lambda m, x: m.lstm(x.flatten(0, 1)[..., None])[0].mean(-1).unflatten(0, (-1, 4))
    ),
}
ROUNDS = 9


class Of(nn.Module):
    """A function of layers and a tensor as a forward."""

    def __init__(self, function):
        super().__init__()
        self.conv, self.plane = nn.Conv1d(4, 4, 3), nn.Conv2d(1, 2, 3, stride=(1, 2), padding=1)
        self.gru, self.lstm = nn.GRU(4, 4, 2, batch_first=True), nn.LSTM(1, 3, batch_first=True)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


@pytest.fixture(params=NETWORKS)
def model(request):
    torch.manual_seed(0)
    return NETWORKS[request.param]().double()


@pytest.fixture
def repeated(monkeypatch):
    """How often something was done again."""
    times = []

    def counting(again):
        return lambda *call: times.append(1) or again(*call)

    carrying, windows = made_again.carrying, made_again.SteadyWindows
    monkeypatch.setattr(windows, "repeat", counting(windows.repeat))
    monkeypatch.setattr(run_calls, "carrying", lambda *given: counting(carrying(*given)))
    return times


#: Two rows of unequally many frames, of which one has none at times.
RAGGED = {"a": [11, 1, 2, 0, 2, 2, 1, 1, 2, 2, 40], "b": [11, 2, 1, 2, 1, 0, 2, 2, 1, 1, 45]}


def chunked(module, xs, begins, n):
    """Run streams that begin with so many frames and go on in calls of n, or are `RAGGED`."""
    sizes = (
        {i: [k, *[n] * ROUNDS, x.shape[-1] - k - ROUNDS * n] for (i, x), k in zip(xs.items(), begins)}
        if n
        else RAGGED
    )
    return gathered([module(chunk) for chunk in calls(xs, sizes)])


@in_blocks("n", [1, 2, 3, 5], 4)
@pytest.mark.parametrize("begins", [(11,), (11, 11), (11, 14)], ids=["one", "level", "apart"])
def test_streams_in_calls_of_one_size(model, begins, n, repeated):
    xs = {str(i): torch.randn(4, 70 + 3 * i, dtype=torch.float64) for i in range(len(begins))}
    patched = ds.patch_module(copy.deepcopy(model)).online().eval()
    with torch.no_grad():
        for i, y in chunked(patched, xs, begins, n).items():
            assert_close(y, offline(model.eval(), xs[i]), i)
    assert repeated or begins == (11, 14)  # which may stand at other places in every call


def test_ragged_rows(model, repeated, request):
    xs = {i: torch.randn(4, sum(sizes), dtype=torch.float64) for i, sizes in RAGGED.items()}
    patched = ds.patch_module(copy.deepcopy(model)).online().eval()
    with torch.no_grad():
        for i, y in chunked(patched, xs, (), None).items():
            assert_close(y, offline(model.eval(), xs[i]), i)
    assert repeated or request.node.callspec.params["model"] in ("skipping", "planes")


@pytest.mark.parametrize("n", [1, 3, None])
def test_gradients(model, n, repeated):
    lengths = {i: 40 if n else sum(sizes) for i, sizes in RAGGED.items()}
    xs = {i: torch.randn(4, k, dtype=torch.float64, requires_grad=True) for i, k in lengths.items()}
    patched = ds.patch_module(copy.deepcopy(model), train_variant="full-file-aligned").online().train()
    ys, slopes = chunked(patched, xs, (11, 11), n), {}
    for i, x in xs.items():
        slopes[i] = torch.randn_like(ys[i])
        assert_close(ys[i], offline(model.train(), x), i)
        (offline(model, x) * slopes[i]).sum().backward()
    wanted = [x.grad for x in xs.values()]
    for x in xs.values():
        x.grad = None
    sum((ys[i] * slopes[i]).sum() for i in xs).backward()
    for x, want in zip(xs.values(), wanted):
        assert_close(x.grad, want)
    assert_same_gradients(patched, model)
    assert repeated or not n
