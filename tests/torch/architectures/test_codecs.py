"""Encoders and decoders of neural codecs: DAC of Hugging Face transformers, SNAC."""

import pytest
import torch
from architectures import check

import dreamstream as ds
from dreamstream.errors import NotStreamableError


class TestDac:
    """Its residual units compare lengths that are equal for every stream, and crop by half their difference."""

    @pytest.fixture
    def dac(self):
        dac = pytest.importorskip("transformers.models.dac.modeling_dac")

        torch.manual_seed(0)
        return dac

    @staticmethod
    def config(dac, **options):
        return dac.DacConfig(hidden_size=8, **options)

    def test_encoder(self, dac):
        encoder = dac.DacEncoder(self.config(dac, encoder_hidden_size=4, downsampling_ratios=[2, 4]))
        assert check(encoder, ("B", 1, "L"), (200, 64, 8), 40) == [140]

    def test_decoder(self, dac):
        decoder = dac.DacDecoder(self.config(dac, decoder_hidden_size=16, upsampling_ratios=[4, 2]))
        assert check(decoder, ("B", 8, "L"), (30, 11, 1), 9) == [19]


class TestSnac:
    """Its activation is a scripted function; some configurations have attention."""

    @pytest.fixture
    def layers(self):
        layers = pytest.importorskip("snac.layers")

        torch.manual_seed(0)
        return layers

    def test_encoder(self, layers):
        encoder = layers.Encoder(4, [2, 3], depthwise=True, attn_window_size=None)
        assert check(encoder, ("B", 1, "L"), (200, 64, 8), 40) == [146]

    def test_decoder(self, layers):
        decoder = layers.Decoder(8, 16, [3, 2], noise=False, depthwise=True, attn_window_size=None)
        assert check(decoder, ("B", 8, "L"), (30, 11, 1), 9) == [24]

    def test_attention_is_refused(self, layers):
        """Its windows are as many as fit into the whole stream."""
        encoder = layers.Encoder(32, [2], depthwise=True, attn_window_size=4)
        with pytest.raises(NotStreamableError, match=r"length of a stream .* at einops\.py"):
            ds.compile(encoder, ("B", 1, "L"))
