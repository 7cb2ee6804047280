"""The convolutions of Mimi, of Hugging Face transformers: SEANet, down- and upsampling."""

import pytest
import torch

mimi = pytest.importorskip("transformers.models.mimi.modeling_mimi")

from architectures import check
from transformers import MimiConfig


def config(**options):
    torch.manual_seed(0)
    return MimiConfig(num_filters=4, hidden_size=16, upsampling_ratios=[4, 3], **options)


@pytest.mark.parametrize("options, delay", [({}, 11), ({"use_causal_conv": False}, 37)])
def test_encoder(options, delay):
    assert check(mimi.MimiEncoder(config(**options)), ("B", 1, "L"), (200, 64, 8, 1), 40) == [delay]


def test_encoder_that_reflects():
    encoder = mimi.MimiEncoder(config(pad_mode="reflect"))
    assert check(encoder, ("B", 1, "L"), (200, 64, 8, 1), 40) == [35]


def test_decoder():
    assert check(mimi.MimiDecoder(config()), ("B", 16, "L"), (30, 11, 1), 9) == [0]


def test_down_and_up():
    class Halves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            shape = {"in_channels": 16, "out_channels": 16, "kernel_size": 4, "stride": 2}
            self.down = mimi.MimiConv1d(config(), bias=False, pad_mode="replicate", **shape)
            self.up = mimi.MimiConvTranspose1d(config(), groups=16, bias=False, **shape)

        def forward(self, x):
            return self.up(self.down(x))

    assert check(Halves(), ("B", 16, "L"), (30, 11, 1), 9) == [1]
