"""Layers, functions and tensor methods online: chunks laid end to end are the offline output."""

from __future__ import annotations

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, NotStreamableError, ShapeError

CHANNELS = 4
RAMP = ds.tensor([[0.5], [-1.0], [2.0], [0.25]])


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Initial(nn.Module):
    """An LSTM whose streams start from a learnt h and from c of ones."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(CHANNELS, 3, 2, batch_first=True)
        self.h = nn.Parameter(ds.randn(2, 1, 3))

    def forward(self, x):
        n = x.size(0)
        return self.rnn(x.transpose(1, 2), (self.h.expand(-1, n, -1), ds.ones(2, n, 3)))[0]


class TimeFirst(nn.Module):
    """An LSTM on (L, B, F)."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(CHANNELS, 3)

    def forward(self, x):
        return self.rnn(x.permute(2, 0, 1))[0].permute(1, 2, 0)


LAYERS = {
    "conv": lambda: nn.Conv1d(CHANNELS, 3, 3, padding=1),
    "conv strided": lambda: nn.Conv1d(CHANNELS, 3, 3, stride=2, padding=(2, 1), groups=1, dilation=2),
    "conv causal": lambda: nn.Conv1d(CHANNELS, 3, 3, padding="causal"),
    "conv same": lambda: nn.Conv1d(CHANNELS, 4, 4, padding="same", groups=2),
    "conv reflect": lambda: nn.Conv1d(CHANNELS, 3, 3, padding=2, padding_mode="reflect"),
    "conv replicate": lambda: nn.Conv1d(CHANNELS, 3, 4, padding=(1, 3), padding_mode="replicate"),
    "transposed": lambda: nn.ConvTranspose1d(CHANNELS, 3, 4, stride=2, padding=1, output_padding=1),
    "delay": lambda: nn.Delay(3),
    "look ahead": lambda: nn.LookAhead(3),
    "look ahead, weighed": lambda: nn.LookAhead(2, CHANNELS),
    "zero pad": lambda: nn.ZeroPad1d((2, 1)),
    "crop": lambda: nn.ZeroPad1d((-2, -1)),
    "pad and crop": lambda: nn.ConstantPad1d((2, -1), 3.0),
    "replication pad": lambda: nn.ReplicationPad1d((2, 1)),
    "reflection pad": lambda: nn.ReflectionPad1d((2, 1)),
    "glu": lambda: nn.GLU(1),
    "softmax": lambda: nn.Softmax(1),
    "log softmax": lambda: nn.LogSoftmax(dim=-2),
    "activations": lambda: nn.Sequential(nn.Tanh(), nn.GELU(), nn.SiLU(), nn.Softplus(), nn.LogSigmoid()),
    "dropout": lambda: nn.Dropout(),
    "lstm": Initial,
    "lstm, time first": TimeFirst,
}

FUNCTIONS = {
    "arithmetic": lambda x: (x * 2 + 1).relu().clamp(0, 3) - RAMP + 1 / (x.abs() + 1),
    "powers": lambda x: 2**x + x**2 + x.pow(3) + x.square(),
    "where": lambda x: ds.where(x > 0, x, -x).masked_fill(x < -1, 5.0),
    "flags": lambda x: ds.where((x > 0) & (x < 1) | ~(x > -1), x, ds.zeros_like(x)),
    "exclusive flags": lambda x: ds.where((x > 0) ^ (x < 1), x, 2.0),
    "truth": lambda x: ds.where((x > 0).logical_or(x.isnan()), x, ds.ones_like(x)),
    "integers": lambda x: ds.where(x.long() == 1, x, 2.0),
    "rounding": lambda x: x % 2 + x // 3 + x.div(2, rounding_mode="trunc"),
    "extremes": lambda x: x.maximum(x.square()).minimum(RAMP),
    "layer norm": lambda x: F.layer_norm(x.transpose(1, 2), (CHANNELS,)),
    "pad of another axis": lambda x: F.pad(x.transpose(1, 2), (0, 0, 2, 1)),
    "matrix": lambda x: x.mT @ ds.ones(CHANNELS, 5),
    "parts": lambda x: x.chunk(2, 1)[1] + x.split(2, 1)[0],
    "joined": lambda x: ds.cat([x, x * 2], 1),
    "stacked": lambda x: ds.stack([x, x * 2], 1).flatten(1, 2),
    "centred": lambda x: x - x.mean(1, keepdim=True),
    "filled": lambda x: ds.full_like(x, 2) * x,
}

CASES = {**LAYERS, **{k: (lambda f=f: Function(f)) for k, f in FUNCTIONS.items()}}


def streamed(model, streams, chunks):
    """Outputs of all streams, fed in chunks of these lengths; what is left comes with the end."""
    collector, at = ds.OutputCollector(), dict.fromkeys(streams, 0)
    for k, n in enumerate([*chunks, None]):
        parts = []
        for name, x in streams.items():
            end = x.shape[-1] if n is None else min(x.shape[-1], at[name] + n)
            parts.append(x[..., at[name] : end])
            at[name] = end
        collector.update(model(ds.stream_tensor(parts, ids=list(streams), sos=k == 0, eos=n is None)))
    return {name: np.asarray(collector[name]) for name in streams}


@pytest.mark.parametrize("name", CASES)
def test_online_is_offline(rng, name):
    ds.manual_seed(5)
    model = CASES[name]().eval()
    streams = {k: rng.standard_normal((CHANNELS, n)).astype(np.float32) for k, n in (("a", 11), ("b", 7))}
    offline = {k: model(ds.tensor(x[None])).numpy()[0] for k, x in streams.items()}
    ds.patch_module(model).online()
    for chunks in ((), (3, 0, 1, 5), (1,) * 11):
        online = streamed(model, streams, chunks)
        for k, expected in offline.items():
            assert online[k].shape == expected.shape
            bound = 1e-5 * max(1.0, float(np.abs(expected).max(initial=0)))
            np.testing.assert_allclose(online[k], expected, rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("layer", "delay"),
    [
        (lambda: nn.Conv1d(CHANNELS, 3, 5, padding=2), 2),
        (lambda: nn.Conv1d(CHANNELS, 3, 5, stride=2, padding=(1, 3), dilation=3), 11),
        (lambda: nn.Conv1d(CHANNELS, 3, 5, padding="causal"), 0),
        (lambda: nn.ConvTranspose1d(CHANNELS, 3, 4, stride=2, padding=3), 2),
        (lambda: nn.Delay(3), 0),
        (lambda: nn.LookAhead(3), 3),
        (lambda: nn.LookAhead(3, CHANNELS), 3),
        (lambda: nn.ZeroPad1d((2, 1)), 0),
        (lambda: nn.ZeroPad1d((0, -2)), 2),
        (lambda: nn.ZeroPad1d((-2, -1)), 3),
        (lambda: nn.ZeroPad1d((2, -1)), 0),
        (lambda: nn.ReplicationPad1d(2), 0),
        (lambda: nn.ReflectionPad1d((2, 1)), 2),
        (lambda: nn.Tanh(), 0),
    ],
)
def test_delays_are_as_documented(layer, delay):
    assert ds.compile(layer().eval(), ("B", CHANNELS, "L")).delay == delay


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: x + ds.tensor(np.ones((CHANNELS, 1))), DTypeError),
        (lambda x: F.pad(x, (0, 0, 0, 0, 1, 0)), NotStreamableError),
        (lambda x: F.pad(x, (1, 1), mode="circular"), NotStreamableError),
        (lambda x: F.softmax(x, dim=-1), (NotStreamableError, ShapeError)),
        (lambda x: x + ds.zeros(2, CHANNELS, 1), (NotStreamableError, ShapeError)),
        (
            lambda x: nn.LSTM(CHANNELS, 3)(x.permute(2, 0, 1), (ds.zeros(1, 1, 3),) * 2),
            NotStreamableError,
        ),
        (lambda x: nn.LSTM(CHANNELS, 3, bidirectional=True)(x.permute(2, 0, 1)), NotStreamableError),
        (lambda x: ds.zeros(CHANNELS, x.size(2)), NotStreamableError),
        (lambda x: nn.ConvTranspose1d(CHANNELS, 3, 3)(x, 7), NotStreamableError),
    ],
)
def test_refusals(function, error):
    model = ds.patch_module(Function(function)).online()
    with pytest.raises(error):
        model(ds.stream_tensor([np.zeros((CHANNELS, 3), np.float32)], ids=["a"], sos=True))
    assert model.live_ids == []
