"""Layers and functions online: delays, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs.idioms import of

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, NotStreamableError, ShapeError

CHANNELS = 4


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
        (lambda x: nn.LSTM(CHANNELS, 3)(x.permute(2, 0, 1), (ds.zeros(1, 1, 3),) * 2), NotStreamableError),
        (lambda x: nn.LSTM(CHANNELS, 3, bidirectional=True)(x.permute(2, 0, 1)), NotStreamableError),
        (lambda x: ds.zeros(CHANNELS, x.size(2)), NotStreamableError),
        (lambda x: nn.ConvTranspose1d(CHANNELS, 3, 3)(x, 7), NotStreamableError),
    ],
)
def test_refusals(function, error):
    model = ds.patch_module(of(function)).online()
    with pytest.raises(error):
        model(ds.stream_tensor([np.zeros((CHANNELS, 3), np.float32)], ids=["a"], sos=True))
    assert model.live_ids == []


def test_integers_of_a_stream_are_compared():
    """In eager mode; what runs compiled too is compared there, by the shared cases."""
    x = np.array([[0.2, 1.5, -1.7, 2.0]], np.float32)
    model = ds.patch_module(of(lambda x: ds.where(x.long() == 1, x, 2.0))).online()
    y = model(ds.stream_tensor([x], ids=["a"], sos=True))
    np.testing.assert_array_equal(np.asarray(y["a"]), np.float32([[2, 1.5, 2, 2]]))
