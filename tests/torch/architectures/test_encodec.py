"""EnCodec's SEANet of Hugging Face transformers: convolutions that pad to whole frames, and an LSTM."""

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from architectures import check

import dreamstream as ds
from dreamstream.errors import NotStreamableError


def model(**options):
    torch.manual_seed(0)
    sizes = {"num_filters": 4, "hidden_size": 16, "upsampling_ratios": [4, 2, 3], "codebook_size": 8}
    config = transformers.EncodecConfig(**{"norm_type": "weight_norm", **sizes, **options})
    return transformers.EncodecModel(config)


# Reflection at the start needs the frames that it mirrors, in each layer: hence the causal model's delay.
@pytest.mark.parametrize(
    "options, delay",
    [
        ({"use_causal_conv": True}, 167),
        ({"use_causal_conv": True, "pad_mode": "constant"}, 23),
        ({"use_causal_conv": True, "pad_mode": "replicate"}, 23),
        ({"use_causal_conv": False}, 124),
        ({"use_causal_conv": False, "pad_mode": "constant"}, 124),
    ],
)
def test_encoder(options, delay):
    lengths = (500, 61, 25, 24, 7, 1)  # frames of 24 samples; the short ones are shorter than what is mirrored
    assert check(model(**options).encoder, ("B", 1, "L"), lengths, 50) == [delay]


@pytest.mark.parametrize("causal, delay", [(True, 6), (False, 5)])
def test_decoder(causal, delay):
    assert check(model(use_causal_conv=causal).decoder, ("B", 16, "L"), (40, 9, 1), 7) == [delay]


def test_normalisation_over_the_recording_is_refused():
    """Rightly: the mean of the whole recording stands in its first frame."""
    encoder = model(use_causal_conv=False, norm_type="time_group_norm").encoder
    with pytest.raises(NotStreamableError, match=r"layers\.0\.norm.*over the whole stream.*buffer"):
        ds.compile(encoder, ("B", 1, "L"))
    assert check(encoder, ("B", 1, "L"), (200, 61, 24), 50, policy="buffer") == [float("inf")]


def test_as_it_is_written_streams_of_a_length_are_exact():
    """It asks whether a stream is long enough to be mirrored, and pads and crops one that is not."""
    from transformers.models.encodec import modeling_encodec as encodec

    class Unregistered(encodec.EncodecConv1d):
        pass

    @ds.register(Unregistered)
    def as_written(module, x):
        return module.forward(x)

    torch.manual_seed(0)
    config = transformers.EncodecConfig(norm_type="weight_norm")
    layer = Unregistered(config, 1, 2, 7).eval()
    engine, x = ds.compile(layer, ("B", 1, "L")), torch.randn(1, 1, 20)
    y = [engine.step({"a": x[0, :, :3].numpy()}, sos="a"), engine.step({"a": x[0, :, 3:].numpy()}, eos="a")]
    with torch.no_grad():
        np.testing.assert_allclose(np.concatenate([part["a"] for part in y], 1), layer(x)[0], atol=1e-6)
    for n in range(1, 9):
        short = engine.step({"b": x[0, :, :n].numpy()}, sos="b", eos="b")["b"]
        with torch.no_grad():
            np.testing.assert_allclose(short, layer(x[..., :n])[0], atol=1e-6)
    with pytest.raises(NotStreamableError, match=r"mode 'reflect' by .* in _pad1d"):
        ds.compile(Unregistered(config, 1, 2, 7, stride=2), ("B", 1, "L"))
