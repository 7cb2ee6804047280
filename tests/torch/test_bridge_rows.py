"""Gradients of rows of unequal lengths in one chunk, and weights that every call computes anew."""

from __future__ import annotations

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import nn

import dreamstream as ds


class Lstm(nn.Module):
    """An LSTM of batches first, seen as a stream of columns."""

    def __init__(self, layers: int, bias: bool) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 5, layers, bias, batch_first=True)

    def forward(self, x):
        return self.rnn(x.transpose(1, 2))[0].transpose(1, 2)


MODELS = {
    "lstm": lambda: Lstm(1, True),
    "lstm of three": lambda: Lstm(3, False),
    "conv": lambda: nn.Conv1d(4, 5, 3, padding=1),
    "strided": lambda: nn.Conv1d(4, 5, 3, 2, padding=2),
    "sparse": lambda: nn.Conv1d(4, 4, 2, 5, groups=2),
    "wide": lambda: nn.Conv1d(4, 5, 4, 3, dilation=2, padding=3),
    "reflected": lambda: nn.Conv1d(4, 5, 5, padding=2, padding_mode="reflect"),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_ragged_rows(name):
    """Frames that only stand behind short rows have no part in gradients."""
    torch.manual_seed(0)
    model, rows = MODELS[name]().train(), [torch.randn(4, n) for n in (20, 12, 17)]
    sum(model(x[None]).square().sum() for x in rows).backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    ds.patch_module(model).online()
    y = model(ds.stream_tensor(rows, ids=list("abc"), sos=True, eos=True))
    sum(y[i].square().sum() for i in "abc").backward()
    for p, expected in zip(model.parameters(), want):
        torch.testing.assert_close(p.grad, expected, rtol=1e-4, atol=1e-4)


def test_a_weight_that_is_computed_anew():
    """A call repeats what the one before did with such a weight, and nothing keeps it until the next."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 5, 3))).eval()
    whole = torch.randn(1, 4, 40)
    want = model(whole).detach()
    ds.patch_module(model).online()
    made, ys = [], []
    model[0].parametrizations.weight[0].register_forward_hook(lambda _, __, w: made.append(weakref.ref(w)))
    with torch.no_grad():
        for begin in range(0, 40, 10):
            chunk = whole[..., begin : begin + 10]
            ys.append(model(ds.stream_tensor(chunk, ids=["a"], sos=begin == 0, eos=begin == 30))["a"])
            gc.collect()
            assert made and all(w() is None for w in made)
    torch.testing.assert_close(torch.cat(ys, -1), want[0])
