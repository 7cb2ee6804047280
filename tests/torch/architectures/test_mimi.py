"""The convolutions of Mimi, of Hugging Face transformers: SEANet, down- and upsampling."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

from architectures import check


@pytest.fixture
def mimi():
    """Its layers: imported by who tests them, for all processes look at this file."""
    return pytest.importorskip("transformers.models.mimi.modeling_mimi")


def config(**options):
    torch.manual_seed(0)
    return transformers.MimiConfig(num_filters=4, hidden_size=16, upsampling_ratios=[4, 3], **options)


@pytest.mark.parametrize("options, delay", [({}, 11), ({"use_causal_conv": False}, 37)])
def test_encoder(mimi, options, delay):
    assert check(mimi.MimiEncoder(config(**options)), ("B", 1, "L"), (200, 64, 8, 1), 40) == [delay]


def test_encoder_that_reflects(mimi):
    encoder = mimi.MimiEncoder(config(pad_mode="reflect"))
    assert check(encoder, ("B", 1, "L"), (200, 64, 8, 1), 40) == [35]


def test_decoder(mimi):
    assert check(mimi.MimiDecoder(config()), ("B", 16, "L"), (30, 11, 1), 9) == [0]


def test_down_and_up(mimi):
    class Halves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            shape = {"in_channels": 16, "out_channels": 16, "kernel_size": 4, "stride": 2}
            self.down = mimi.MimiConv1d(config(), bias=False, pad_mode="replicate", **shape)
            self.up = mimi.MimiConvTranspose1d(config(), groups=16, bias=False, **shape)

        def forward(self, x):
            return self.up(self.down(x))

    assert check(Halves(), ("B", 16, "L"), (30, 11, 1), 9) == [1]
