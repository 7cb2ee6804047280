"""Layers and functions over two axes against torch, on plain tensors: values, keys, text.

Also what they cost streams, and what they refuse.
"""

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, NotStreamableError, ShapeError

torch = pytest.importorskip("torch")
from torch_layers import close, twins

TF = torch.nn.functional


def both(rng, *shape):
    array = rng.standard_normal(shape).astype(np.float32)
    return ds.tensor(array), torch.tensor(array)


@pytest.mark.parametrize(
    "name", ["ConstantPad2d", "ZeroPad2d", "ReplicationPad2d", "ReflectionPad2d", "CircularPad2d"]
)
def test_pads_ask_for_planes(name):
    with pytest.raises(ShapeError, match=r"dimensions|pairs"):
        getattr(nn, name)(*((1, 0.5) if name == "ConstantPad2d" else (1,)))(ds.zeros(3))


def test_pads_of_each_end(rng):
    """Beyond torch: a pair of numbers or a word for each axis."""
    x, t = both(rng, 2, 4, 9, 7)
    ours = nn.Conv2d(4, 3, 3, padding=((3, 1), (0, 2)), dilation=(2, 1))
    weight, bias = (torch.tensor(p.numpy()) for p in (ours.weight, ours.bias))
    close(ours(x), TF.conv2d(TF.pad(t, (0, 2, 3, 1)), weight, bias, dilation=(2, 1)))
    assert "padding=((3, 1), (0, 2))" in repr(ours)
    causal = nn.Conv2d(4, 3, 3, padding=("causal", 1))
    weight, bias = (torch.tensor(p.numpy()) for p in (causal.weight, causal.bias))
    close(causal(x), TF.conv2d(TF.pad(t, (1, 1, 2, 0)), weight, bias))


def test_conv_transpose2d_output_size(rng):
    ours, theirs = twins("ConvTranspose2d", 4, 6, 3, stride=(3, 2))
    x, t = both(rng, 2, 4, 5, 3)
    for size in ([15, 7], (17, 8), (2, 6, 16, 7)):
        close(ours(x, size), theirs(t, list(size)))
    with pytest.raises(ShapeError, match="15 to 17"):
        ours(x, (18, 7))


@pytest.mark.parametrize("shape", [(2, 4, 2, 7), (2, 4, 7, 2), (2, 4, 2, 2), (2, 4, 0, 7), (2, 4, 7, 0)])
def test_too_short_is_empty(shape):
    """Either axis may be the stream: what is too short gives nothing."""
    x = ds.zeros(*shape)
    out = tuple(max(0, n - 2) for n in shape[2:])
    assert nn.Conv2d(4, 3, 3)(x).shape == (2, 3, *out)
    up = tuple(n and n + 1 for n in shape[2:])
    assert nn.ConvTranspose2d(4, 3, 2)(x).shape == (2, 3, *up)
    assert nn.ZeroPad2d(1)(x).shape == (2, 4, *(n + 2 for n in shape[2:]))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: nn.Conv2d(3, 2, 1)(x),
        lambda x: nn.Conv2d(4, 2, 1)(x[0, 0]),
        lambda x: nn.Conv2d(4, 2, 3, stride=2, padding="same"),
        lambda x: nn.Conv2d(4, 2, 3, padding="lots"),
        lambda x: nn.Conv2d(4, 2, 3, padding="causal"),
        lambda x: nn.Conv2d(4, 2, 3, padding=(1, 2, 3)),
        lambda x: nn.Conv2d(4, 2, 3, padding=(1, (1, 2, 3))),
        lambda x: nn.Conv2d(4, 2, 3, padding=(0, -1)),
        lambda x: nn.Conv2d(4, 2, 3, groups=3),
        lambda x: nn.Conv2d(4, 2, (3, 0)),
        lambda x: nn.Conv2d(4, 2, (1, 2, 3)),
        lambda x: nn.Conv2d(4, 2, 3, padding_mode="mirror"),
        lambda x: nn.ConvTranspose2d(4, 2, 3, padding_mode="reflect"),
        lambda x: nn.ConvTranspose2d(4, 2, 3, padding=(0, -1)),
        lambda x: nn.ConvTranspose2d(4, 2, 3, output_padding=1)(x),
        lambda x: F.conv2d(x, ds.zeros(2, 4, 3)),
        lambda x: F.conv_transpose2d(x, ds.zeros(4, 2, 3)),
        lambda x: nn.ZeroPad2d((1, 2)),
        lambda x: nn.CircularPad2d(9)(x),
    ],
)
def test_shape_errors(wrong):
    with pytest.raises(ShapeError):
        wrong(ds.zeros(2, 4, 5, 6))


def test_types():
    x = ds.zeros(1, 2, 3, 4)
    with pytest.raises(DTypeError):
        nn.Conv2d(2, 2, 1)(x.double())
    assert nn.Conv2d(2, 2, 1, dtype="float64")(x.double()).dtype == ds.float64


# ---------------------------------------------------------------- of streams
def test_what_it_costs():
    """Delay, field and state along the stream are those of the kernel's part along it."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, (3, 5), stride=(2, 3), padding=1), nn.ReLU(), nn.Conv2d(4, 2, (3, 1), padding=(1, 0))
    )
    rows = ds.audit(model, ("B", 1, "L", 10))
    assert (rows.delay, rows.receptive_field) == (3, 7)
    columns = ds.audit(model, ("B", 1, 10, "L"))
    assert (columns.delay, columns.receptive_field) == (3, 5)
    causal = nn.Conv2d(2, 3, 3, padding=("causal", "same"))
    assert ds.audit(causal, ("B", 2, "L", 7)).delay == 0
    assert ds.audit(causal, ("B", 2, 7, "L")).delay == 1
    kept = [row.state_bytes for row in ds.audit(causal, ("B", 2, "L", 7)).rows]
    assert sum(kept) == 2 * 2 * 7 * 4  # two frames, of 2 channels at 7 positions


def test_within_a_frame_nothing_is_kept():
    """Within a frame a convolution keeps nothing."""
    model = nn.Sequential(nn.Conv2d(2, 2, (1, 3), padding=(0, 1)))
    assert ds.audit(model, ("B", 2, "L", 7)).state_size == ds.audit(nn.ReLU(), ("B", 2, "L", 7)).state_size


def test_refusals():
    def online(module, names, shape, eos=False):
        model = ds.patch_module(module).online()
        return model(ds.stream_tensor([np.zeros(shape, np.float32)], names=names, ids=["a"], sos=True, eos=eos))

    class Pad(nn.Module):
        def __init__(self, *args):
            super().__init__()
            self.args = args

        def forward(self, x):
            return F.pad(x, *self.args)

    planes, shape = ("B", "C", "L", "F"), (2, 5, 4)
    for wrong, match in (
        (nn.Conv2d(2, 3, (1, 6)), "window of 6 positions doesn't fit the 4 within a frame"),
        (nn.Conv2d(2, 3, 3, padding=(0, 4), padding_mode="reflect"), "padded by 3 at most"),
        (nn.ConvTranspose2d(2, 3, 1, padding=(0, 2)), "padding 2 drops all of the 4 positions"),
        (nn.Conv2d(3, 3, 1), r"input of shape \(\.\.\., 4, 3\), got \(4, 2\)"),
        (Pad((4, 0), "reflect"), "size 4 can be padded by 3"),
        (Pad((-3, -1)), "nothing is left of 4 features"),
    ):
        with pytest.raises(ShapeError, match=match):
            online(wrong, planes, shape)
    with pytest.raises(ShapeError, match=r"expected dimensions \(B, C, L, F\)"):
        online(nn.Conv2d(5, 3, 1), ("B", "L", "C", "F"), (5, 2, 4))
    for wrong, match in (
        (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), "circular"),
        (nn.Conv2d(2, 3, 3, padding=(1, 0), padding_mode="circular"), "whole stream"),
        (nn.CircularPad2d((0, 0, 1, 1)), "its own end"),
        (Pad((0, 0, 0, 0, 0, 0, 1, 0)), "B of a stream"),
    ):
        with pytest.raises(NotStreamableError, match=match):
            online(wrong, planes, shape)
