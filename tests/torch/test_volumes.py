"""Layers over three dimensions, one of which is L, as the front ends of lip reading have."""

import pytest
import torch
from architectures import check
from torch import nn

import dreamstream as ds
from dreamstream.errors import ShapeError

IMAGES = ("B", 2, "L", 4, 5)
LAYERS = {
    "groups": (nn.Conv3d(2, 4, 3, padding=1, groups=2), IMAGES, 1),
    "L is last": (nn.Conv3d(2, 4, (2, 3, 5), (1, 2, 2), padding=(0, 1, 2)), ("B", 2, 4, 5, "L"), 2),
    "L in between": (nn.Conv3d(2, 4, (2, 3, 2), dilation=(1, 2, 2)), ("B", 2, 4, "L", 5), 4),
    "same": (nn.Conv3d(2, 4, (4, 3, 2), padding="same"), IMAGES, 2),
    "replicate": (nn.Conv3d(2, 4, 3, padding=1, padding_mode="replicate"), IMAGES, 1),
    "maximum": (nn.MaxPool3d(3, 2, 1), IMAGES, 1),
    "maximum, ceil": (nn.MaxPool3d((2, 2, 3), 2, ceil_mode=True), ("B", 2, 4, 5, "L"), 2),
    "mean": (nn.AvgPool3d(3, 2, 1), IMAGES, 1),
    "mean of what is there": (nn.AvgPool3d((2, 2, 3), padding=1, count_include_pad=False), IMAGES, 0),
    "mean of some by a divisor": (
        nn.AvgPool3d(3, 2, 1, ceil_mode=True, count_include_pad=False, divisor_override=5), IMAGES, 1,
    ),
    "mean by a divisor": (nn.AvgPool3d((2, 2, 3), divisor_override=5), IMAGES, 1),
}  # fmt: skip


class LipReader(nn.Module):
    """A convolution of volumes, images of frames on their own, a GRU."""

    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv3d(1, 4, (5, 7, 7), (1, 2, 2), (2, 3, 3), bias=False),
            nn.BatchNorm3d(4),
            nn.PReLU(4),
            nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)),
        )
        self.trunk = nn.Conv2d(4, 6, 3, 2, 1)
        self.rnn = nn.GRU(6, 5, batch_first=True)

    def forward(self, x):
        batch = x.size(0)
        x = self.front(x)
        frames = x.shape[2]
        x = x.transpose(1, 2).reshape(batch * frames, x.shape[1], x.size(3), x.size(4))
        return self.rnn(self.trunk(x).mean((2, 3)).view(batch, frames, -1))[0]


@pytest.mark.parametrize("name", LAYERS)
def test_as_torch(name):
    layer, spec, delay = LAYERS[name]
    assert check(layer.eval(), spec, [20, 9, 13, 8], 5) == [delay]


def test_lip_reader():
    torch.manual_seed(0)
    assert check(LipReader().eval(), ("B", 1, "L", 12, 12), [20, 9, 13], 5) == [2]


@pytest.mark.parametrize(
    "layer", [nn.Conv3d(2, 3, 3, 2, 1), nn.MaxPool3d((2, 3, 3), (1, 2, 2), (1, 1, 1))], ids=str
)
def test_gradients(layer):
    """Among equal elements, too, of which there are many."""
    x = torch.randint(-1, 2, (1, 2, 9, 4, 5), generator=torch.Generator().manual_seed(0)).double()
    model = nn.Sequential(nn.Conv3d(2, 2, 1), layer).double()
    with torch.no_grad():
        model[0].weight.fill_(0.5)
    y = model(x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.double).view_as(y)
    wanted = torch.autograd.grad((y * weights).sum(), [*model.parameters()])
    out = ds.patch_module(model).online()(
        ds.stream_tensor(x, names=("B", "C", "L", "H", "W"), ids=["a"], sos=True, eos=True)
    )
    got = torch.autograd.grad((out.tensor() * weights).sum(), [*model.parameters()])
    for a, b in zip(got, wanted):
        torch.testing.assert_close(a, b)


def test_no_dimension_is_the_streams():
    model = ds.patch_module(nn.Conv3d(2, 3, 1)).online()
    frames = ds.stream_tensor(torch.zeros(1, 2, 3, 4), names=("B", "C", "L", "H"), ids=["a"], sos=True)
    with pytest.raises(ShapeError, match="three dimensions behind B and channels, one of them L, are expected"):
        model(frames)
