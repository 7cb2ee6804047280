"""Vocoders of Hugging Face transformers as they are written there: HiFi-GANs, WaveNet, UnivNet's kernels."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

from architectures import check
from torch import nn

GENERATOR = {
    "upsample_initial_channel": 16,
    "upsample_rates": [4, 3],
    "upsample_kernel_sizes": [8, 7],
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3], [1, 3]],
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", ["SpeechT5HifiGan", "FastSpeech2ConformerHifiGan"])
def test_hifigan(name):
    config = getattr(transformers, f"{name}Config")(model_in_dim=6, **GENERATOR)
    assert check(getattr(transformers, name)(config), ("B", "L", 6), (40, 17, 1), 9) == [8]


def test_hifigan_of_vits():
    from transformers.models.vits.modeling_vits import VitsHifiGan

    model = VitsHifiGan(transformers.VitsConfig(flow_size=6, **GENERATOR))
    assert check(model, ("B", 6, "L"), (40, 17, 1), 9) == [8]


def test_wavenet_of_vits():
    from transformers.models.vits.modeling_vits import VitsWaveNet

    class Unmasked(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = {"hidden_size": 8, "wavenet_kernel_size": 5, "wavenet_dilation_rate": 2}
            self.net = VitsWaveNet(transformers.VitsConfig(speaker_embedding_size=0, **sizes), num_layers=4)

        def forward(self, x):
            return self.net(x, torch.ones(1, 1, 1, dtype=x.dtype))

    assert check(Unmasked(), ("B", 8, "L"), (60, 17, 1), 9) == [30]


def test_kernel_predictor_of_univnet():
    sizes = {"model_in_channels": 4, "model_hidden_channels": 4, "num_mel_bins": 6}
    blocks = {"resblock_kernel_sizes": [3], "resblock_stride_sizes": [2], "resblock_dilation_sizes": [[1, 3]]}
    more = {"kernel_predictor_hidden_channels": 4, "kernel_predictor_num_blocks": 1}
    model = transformers.UnivNetModel(transformers.UnivNetConfig(**sizes, **blocks, **more))
    assert check(model.resblocks[0].kernel_predictor, ("B", 6, "L"), (30, 11, 5), 9) == [5, 5]
