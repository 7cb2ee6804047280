"""Weights go between torch and us by state dict; the same model then gives the same numbers offline."""

import numpy as np
import pytest
import torch
from torch_layers import close

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import FormatError


def twins(build):
    """Return a model of torch's layers and the same one of ours, with the same random weights."""
    torch.manual_seed(0)
    theirs, ours = build(torch.nn).eval(), build(nn).eval()
    for parameter in theirs.parameters():  # ones and zeros would hide exchanged weights
        torch.nn.init.normal_(parameter)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return theirs, ours


class Stack:
    """A model of several layers, for either library."""

    def __new__(cls, n):
        class Model(n.Module):
            def __init__(self):
                super().__init__()
                self.front = n.Sequential(n.Conv1d(2, 3, 3), n.GELU())
                self.rnn = n.LSTM(3, 4, batch_first=True)
                self.heads = n.ModuleList([n.Linear(4, 2), n.LayerNorm(4)])

            def forward(self, x):
                y, _ = self.rnn(self.front(x).transpose(1, 2))
                return self.heads[0](y), self.heads[1](y)

        return Model()


def test_both_ways():
    theirs, ours = twins(Stack)
    rng = np.random.default_rng(3)
    for p in ours.parameters():
        p.numpy()[...] = rng.standard_normal(p.shape)
    theirs.load_state_dict({k: torch.tensor(np.asarray(v)) for k, v in ours.state_dict().items()})
    x = rng.standard_normal((2, 2, 20), dtype=np.float32)
    close(ours(ds.tensor(x)), theirs(torch.tensor(x)))


def test_torch_tensors_and_half_weights_load():
    """A state dict can go over as it is, whatever its element types."""
    theirs, ours = twins(Stack)
    ours.load_state_dict(theirs.bfloat16().state_dict())
    x = np.random.default_rng(4).standard_normal((1, 2, 9), dtype=np.float32)
    close(ours(ds.tensor(x)), theirs.float()(torch.tensor(x)))


def test_what_does_not_fit_is_named():
    _, ours = twins(Stack)
    state = {k: v.numpy() for k, v in Stack(torch.nn).state_dict().items()}
    before = {k: np.array(v) for k, v in ours.state_dict().items()}
    state["rnn.weight_ih_l0"] = np.zeros((16, 5), np.float32)
    del state["heads.0.bias"]
    with pytest.raises(FormatError, match=r"(?s)heads\.0\.bias.*rnn\.weight_ih_l0"):
        ours.load_state_dict(state)
    assert all(np.array_equal(before[k], v) for k, v in ours.state_dict().items())


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda m: m.half(), ds.DTypeError, r'weight is float16.*dtype="float32"'),
        (lambda m: m.bfloat16(), ds.DTypeError, r'weight is bfloat16.*dtype="float32"'),
        (lambda m: m.to("meta"), ds.ModeError, r"weight is on the meta device.*to_empty"),
        (torch.jit.script, TypeError, "the model is scripted"),
        (lambda m: torch.nn.Sequential(torch.nn.ReLU(), torch.jit.script(m)), TypeError, "1 is scripted"),
    ],
    ids=["half", "bfloat16", "meta", "scripted", "scripted within"],
)
def test_weights_that_no_engine_takes(make, error, text):
    model = make(torch.nn.Conv1d(3, 3, 2))
    with pytest.raises(error, match=text):
        ds.compile(model, ("B", 3, "L"))
    if error is ds.DTypeError:
        assert ds.compile(model, ("B", 3, "L"), dtype="float32").delay == 1
