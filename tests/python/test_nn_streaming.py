"""Layers and functions online: delays, and what is refused."""

import numpy as np
import pytest
from random_graphs.idioms import of
from turns import in_blocks

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


#: What torch refuses of fewer than five frames (of a convolution, a pool, an LSTM of none, frames mirrored).
TOO_SHORT = {
    "convolution": lambda x, m: m.conv(x),
    "stride": lambda x, m: F.conv1d(x, m.conv.weight, stride=3),
    "pools": lambda x, m: F.avg_pool1d(x, 5),
    "windows": lambda x, m: x.unfold(-1, 5, 2).mean(-1),
    "mirrored": lambda x, m: F.pad(x[..., 2:], (2, 2), mode="reflect"),
    "recurrence": lambda x, m: m.lstm(x[..., 4:].transpose(1, 2))[0].transpose(1, 2),
}
#: What makes frames of none, behind what keeps their number.
BEHIND = {
    "zeros": lambda y, m: F.pad(y, (1, 1)),
    "views": lambda y, m: F.pad(y.transpose(1, 2).relu().transpose(1, 2)[:, :2].flatten(1, 1) * 2, (1, 1)),
    "linear": lambda y, m: F.pad(m.linear(y.transpose(1, 2)).transpose(1, 2), (2, 0)),
    "joined": lambda y, m: F.pad(ds.cat([y, y], 1), (1, 0)),
    "frames before": lambda y, m: ds.cat([ds.ones(y.size(0), CHANNELS, 2), y], -1),
    "transposed": lambda y, m: F.conv_transpose1d(y, m.conv.weight),
    "padded convolution": lambda y, m: F.conv1d(y, m.conv.weight, padding=3),
    "once more": lambda y, m: F.pad(F.conv1d(F.pad(y, (3, 3)), m.conv.weight), (1, 0)),
    "constants": lambda y, m: F.pad(ds.ones_like(y), (1, 1)),
    "larger": lambda y, m: F.pad(F.interpolate(y, scale_factor=2), (1, 0)),
    "detached": lambda y, m: F.pad(y.detach().clone(), (1, 1)),
}


@in_blocks("behind", BEHIND, 11)
@pytest.mark.parametrize("before", TOO_SHORT)
def test_what_is_too_short_has_no_frames_behind_pads_either(before, behind):
    """A plain tensor and a stream of too few frames give none; torch raises."""
    model = of(lambda x: BEHIND[behind](TOO_SHORT[before](x, model), model))
    model.conv, model.lstm = nn.Conv1d(CHANNELS, CHANNELS, 5), nn.LSTM(CHANNELS, CHANNELS, batch_first=True)
    model.linear = nn.Linear(CHANNELS, CHANNELS)
    engine = ds.compile(model.eval(), ("B", CHANNELS, "L"))
    for n in range(7):
        x = np.random.default_rng(n).standard_normal((CHANNELS, n)).astype(np.float32)
        whole, online = model(ds.tensor(x[None])).numpy()[0], engine.step({"a": x}, sos="a", eos="a")["a"]
        assert whole.shape == online.shape and (n > 4 or not whole.shape[1])
        np.testing.assert_allclose(whole, online, rtol=1e-5, atol=1e-5)
