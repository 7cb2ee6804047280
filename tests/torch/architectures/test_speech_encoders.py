"""Front ends and convolutions of speech encoders of Hugging Face transformers, as they are written there."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

from architectures import check
from torch import nn

import dreamstream as ds
from dreamstream.errors import NotStreamableError

F = nn.functional


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def wav2vec2(norm):
    from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2FeatureEncoder

    sizes = {"conv_dim": (8,) * 4, "conv_stride": (5, 2, 2, 2), "conv_kernel": (10, 3, 3, 2)}
    config = transformers.Wav2Vec2Config(
        feat_extract_norm=norm, num_feat_extract_layers=4, conv_bias=True, **sizes
    )
    return Wav2Vec2FeatureEncoder(config)


def test_wav2vec2():
    assert check(wav2vec2("layer"), ("B", "L"), (700, 120, 90, 60, 7), 200) == [59]


def test_wav2vec2_with_group_norm_is_refused():
    """Rightly: each channel is normalised over the whole recording; it can wait for the end."""
    model = wav2vec2("group")
    with pytest.raises(
        NotStreamableError, match=r"conv_layers\.0\.layer_norm \(GroupNorm\).*over the whole stream"
    ):
        ds.compile(model, ("B", "L"))
    assert check(model, ("B", "L"), (700, 120, 90), 200, policy="buffer") == [float("inf")]


def test_whisper():
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    class Stem(nn.Module):
        """What stands before the layers of attention."""

        def __init__(self):
            super().__init__()
            sizes = {"num_mel_bins": 6, "d_model": 8, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
            encoder = WhisperEncoder(transformers.WhisperConfig(encoder_layers=1, **sizes))
            self.conv1, self.conv2, self.positions = (encoder.conv1, encoder.conv2, encoder.embed_positions)

        def forward(self, x):
            x = F.gelu(self.conv2(F.gelu(self.conv1(x)))).permute(0, 2, 1)
            return x + self.positions.weight[: x.size(1)]

    assert check(Stem(), ("B", 6, "L"), (100, 17, 1), 20) == [2]


def test_moonshine_is_refused():
    """Rightly: its group norm has one group, over all frames; it can wait for the end."""
    from transformers.models.moonshine.modeling_moonshine import MoonshineEncoder

    class Stem(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 10}
            heads = {"encoder_num_hidden_layers": 1, "encoder_num_attention_heads": 2}
            encoder = MoonshineEncoder(transformers.MoonshineConfig(**sizes, **heads))
            self.conv1, self.conv2, self.conv3 = encoder.conv1, encoder.conv2, encoder.conv3
            self.groupnorm = encoder.groupnorm

        def forward(self, x):
            x = self.groupnorm(torch.tanh(self.conv1(x.unsqueeze(1))))
            return F.gelu(self.conv3(F.gelu(self.conv2(x))))

    with pytest.raises(NotStreamableError, match=r"groupnorm \(GroupNorm\).*over the whole stream"):
        ds.compile(Stem(), ("B", "L"))
    assert check(Stem(), ("B", "L"), (1500, 1000), 400, policy="buffer") == [float("inf")]


def test_speech_to_text():
    from transformers.models.speech_to_text.modeling_speech_to_text import Conv1dSubsampler

    config = transformers.Speech2TextConfig(input_feat_per_channel=6, d_model=8, conv_channels=12)
    assert check(Conv1dSubsampler(config), ("B", "L", 6), (100, 17, 1), 20) == [6]


def test_conformer():
    from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
        Wav2Vec2ConformerConvolutionModule,
    )

    config = transformers.Wav2Vec2ConformerConfig(hidden_size=8, conv_depthwise_kernel_size=5)
    assert check(Wav2Vec2ConformerConvolutionModule(config), ("B", "L", 8), (30, 11, 5), 9) == [2]


def test_parakeet():
    from transformers.models.parakeet.modeling_parakeet import ParakeetEncoderSubsamplingConv2D

    sizes = {"hidden_size": 8, "num_mel_bins": 16, "subsampling_conv_channels": 4, "subsampling_factor": 8}
    model = ParakeetEncoderSubsamplingConv2D(transformers.ParakeetEncoderConfig(**sizes))
    assert check(model, ("B", "L", 16), (100, 33, 5), 19) == [7]
