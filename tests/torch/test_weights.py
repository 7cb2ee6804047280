"""Weights go between torch and us by state dict; the same layer then gives the same numbers offline."""

from __future__ import annotations

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import FormatError

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # its threads wait for one another where cores are few

pytestmark = [  # torch's own
    pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning"),
    pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning"),
]


def L(name, *args, **kwargs):
    return name, args, kwargs


CONVOLUTIONS = [  # kernel, padding, stride, dilation, groups, bias
    (3, 1, 1, 1, 1, True),
    (5, 4, 2, 2, 2, True),
    (4, 3, 3, 1, 1, False),
    (3, "same", 1, 3, 1, True),
    (4, "same", 1, 1, 2, True),
    (3, "valid", 2, 1, 1, True),
]
TRANSPOSED = [  # kernel, stride, padding, output padding, groups, bias, dilation
    (3, 1, 0, 0, 1, True, 1),
    (4, 3, 2, 1, 2, False, 1),
    (3, 2, 3, 2, 1, True, 3),
    (2, 5, 0, 4, 2, True, 1),
]
RECURRENT = [  # layers, bias, batch_first, bidirectional, input
    (1, True, False, False, (9, 3, 5)),
    (3, True, True, False, (3, 9, 5)),
    (2, False, True, True, (2, 7, 5)),
    (1, True, False, True, (6, 5)),
    (4, True, False, True, (11, 2, 5)),
]
RECURRENCES = [
    ("LSTM", {}),
    ("LSTM", {"proj_size": 2}),
    ("GRU", {}),
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu"}),
]
CELLS = ("LSTMCell", "GRUCell", "RNNCell")
LAYERS = [
    *(
        (L("Conv1d", 4, 6, k, s, p, d, g, b, padding_mode=mode), (2, 4, 30))
        for mode in ("zeros", "reflect", "replicate", "circular")
        for k, p, s, d, g, b in CONVOLUTIONS
    ),
    *((L("ConvTranspose1d", 4, 6, *args), (2, 4, 15)) for args in TRANSPOSED),
    (L("Conv1d", 4, 6, 3), (4, 11)),
    (L("ConvTranspose1d", 4, 6, 3), (4, 11)),
    *((L("Linear", 7, 5, bias=b), s) for b in (True, False) for s in [(7,), (3, 7), (2, 3, 4, 7), (0, 7)]),
    *(
        (L(kind, 5, 4, num_layers=n, bias=b, batch_first=f, bidirectional=two, **more), shape)
        for kind, more in RECURRENCES
        for n, b, f, two, shape in RECURRENT
    ),
    *((L(kind, 5, 4, bias=b), s) for kind in CELLS for b in (True, False) for s in [(5,), (3, 5), (1, 5)]),
    (L("RNNCell", 5, 4, nonlinearity="relu"), (3, 5)),
    (L("LayerNorm", 6), (2, 3, 6)),
    (L("LayerNorm", (3, 6), eps=0.1), (2, 3, 6)),
    (L("LayerNorm", 6, elementwise_affine=False), (4, 6)),
    (L("LayerNorm", 6, bias=False), (4, 6)),
    *((L("GLU", dim), (4, 6, 8)) for dim in (-1, 0, 1)),
    *((L("GELU", approximate=a), (3, 5)) for a in ("none", "tanh")),
    *((L(name, dim), (3, 5, 4)) for name in ("Softmax", "LogSoftmax") for dim in (0, 1, -1)),
    *((L(name), (3, 5)) for name in ("ReLU", "SiLU", "Sigmoid", "Tanh", "Softplus", "LogSigmoid")),
    (L("Softplus", beta=3.0, threshold=2.0), (30,)),
    *((L(name, (2, 3)), (2, 4, 9)) for name in ("ZeroPad1d", "ReflectionPad1d", "ReplicationPad1d")),
    (L("ConstantPad1d", (1, 2), 1.5), (2, 4, 9)),
]


def twins(build, seed=0):
    """Return a layer of torch's and the same one of ours, with the same random weights."""
    torch.manual_seed(seed)
    theirs, ours = build(torch.nn).eval(), build(nn).eval()
    for parameter in theirs.parameters():  # ones and zeros would hide exchanged weights
        torch.nn.init.normal_(parameter)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return theirs, ours


def flat(result):
    return [x for part in result for x in flat(part)] if isinstance(result, tuple) else [result]


def check(got, want):
    for a, b in zip(flat(got), flat(want), strict=True):
        a, b = np.asarray(a), b.detach().numpy()
        assert a.shape == b.shape and a.dtype == b.dtype
        assert not b.size or np.abs(a - b).max() <= 1e-5 * max(1.0, np.abs(b).max())


@pytest.mark.parametrize("number", range(len(LAYERS)), ids=lambda n: f"{LAYERS[n][0][0]}-{n}")
def test_layer(number):
    (name, args, kwargs), shape = LAYERS[number]
    theirs, ours = twins(lambda n: getattr(n, name)(*args, **kwargs), number)
    shapes = {k: tuple(v.shape) for k, v in theirs.state_dict().items()}
    assert shapes == {k: v.shape for k, v in ours.state_dict().items()}
    x = np.random.default_rng(number).standard_normal(shape, dtype=np.float32) * 2
    check(ours(ds.tensor(x)), theirs(torch.tensor(x)))
    check(ours.double()(ds.tensor(x).double()), theirs.double()(torch.tensor(x).double()))


@pytest.mark.parametrize(("rows", "bidirectional"), [(5, True), (1, False), (0, False)])
def test_initial_states(rows, bidirectional):
    theirs, ours = twins(lambda n: n.LSTM(3, 4, 2, bidirectional=bidirectional))
    rng, lead = np.random.default_rng(1), 4 if bidirectional else 2
    x, h, c = (rng.standard_normal(s, dtype=np.float32) for s in [(7, rows, 3), (lead, rows, 4), (lead, rows, 4)])
    want = theirs(torch.tensor(x), (torch.tensor(h), torch.tensor(c))) if rows else None
    got = ours(ds.tensor(x), (ds.tensor(h), ds.tensor(c)))
    if rows:
        check(got, want)
    assert got[0].shape == (7, rows, 8 if bidirectional else 4) and got[1][0].shape == h.shape


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
    check(ours(ds.tensor(x)), theirs(torch.tensor(x)))


def test_torch_tensors_and_half_weights_load():
    """A state dict can go over as it is, whatever its element types."""
    theirs, ours = twins(Stack)
    ours.load_state_dict(theirs.bfloat16().state_dict())
    x = np.random.default_rng(4).standard_normal((1, 2, 9), dtype=np.float32)
    check(ours(ds.tensor(x)), theirs.float()(torch.tensor(x)))


def test_what_does_not_fit_is_named():
    _, ours = twins(Stack)
    state = {k: v.numpy() for k, v in Stack(torch.nn).state_dict().items()}
    before = {k: np.array(v) for k, v in ours.state_dict().items()}
    state["rnn.weight_ih_l0"] = np.zeros((16, 5), np.float32)
    del state["heads.0.bias"]
    with pytest.raises(FormatError, match=r"(?s)heads\.0\.bias.*rnn\.weight_ih_l0"):
        ours.load_state_dict(state)
    assert all(np.array_equal(before[k], v) for k, v in ours.state_dict().items())
