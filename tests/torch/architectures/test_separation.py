"""Separation with asteroid: Conv-TasNet's network with each norm, Conv-TasNet and LSTM-TasNet whole."""

import pytest

torch = pytest.importorskip("torch")
asteroid = pytest.importorskip("asteroid")

from architectures import check
from asteroid.masknn import TDConvNet, norms
from asteroid.models.base_models import BaseEncoderMaskerDecoder

import dreamstream as ds
from dreamstream.errors import NotStreamableError
from dreamstream.torch.functional import cumulative_mean

F = torch.nn.functional


@ds.register(norms.CumLN)
def cumulative_norm(module, x):
    mean = cumulative_mean(x.mean(1, keepdim=True))
    variance = cumulative_mean(x.pow(2).mean(1, keepdim=True)) - mean.pow(2)
    return module.apply_gain_and_bias((x - mean) / (variance + 1e-8).sqrt())


@ds.register(norms.GlobLN)
def global_norm(module, x):
    return F.group_norm(x, 1, module.gamma, module.beta, 1e-8)


@ds.register(BaseEncoderMaskerDecoder)
def separate(model, wav):
    frames = model.forward_encoder(wav)
    masked = model.apply_masks(frames, model.forward_masker(frames))
    y = torch.cat([model.decoder(masked[:, i]) for i in range(masked.shape[1])], 1)
    return F.pad(y, (0, model.decoder.filterbank.kernel_size))[..., : wav.size(-1)]


SIZES = {"n_blocks": 3, "n_repeats": 2, "bn_chan": 8, "hid_chan": 12, "skip_chan": 7}
SMALL = {"n_filters": 16, "kernel_size": 8, "stride": 4}


def network(norm_type, causal):
    torch.manual_seed(0)
    return TDConvNet(6, 2, norm_type=norm_type, causal=causal, **SIZES)


@pytest.mark.parametrize("norm, causal, delay", [("cLN", True, 0), ("cgLN", True, 0), ("bN", False, 14)])
def test_network(norm, causal, delay):
    assert check(network(norm, causal), ("B", 6, "L"), (60, 17, 1), 9) == [delay]


def test_global_normalisation_is_refused():
    """Rightly: it divides the first frame by what comes last; it can wait for the end."""
    model = network("gLN", True)
    with pytest.raises(NotStreamableError, match=r"bottleneck\.0 \(GlobLN\).*over the whole stream"):
        ds.compile(model, ("B", 6, "L"))
    assert check(model, ("B", 6, "L"), (30, 17, 1), 9, policy="buffer") == [float("inf")]


def test_a_statistic_over_the_stream_is_refused():
    class AsWritten(norms.FeatsGlobLN):
        pass

    with pytest.raises(
        NotStreamableError, match=r"a value of the whole stream .*`.*x - mean.*at the stream's end"
    ):
        ds.compile(AsWritten(4), ("B", 4, "L"))


def test_conv_tasnet():
    torch.manual_seed(0)
    model = asteroid.ConvTasNet(2, norm_type="cLN", causal=True, mask_act="relu", **SIZES, **SMALL)
    assert check(model, ("B", 1, "L"), (200, 64, 33, 9), 40) == [7]


def test_lstm_tasnet():
    torch.manual_seed(0)
    model = asteroid.LSTMTasNet(
        2, rnn_type="LSTM", hid_size=8, n_layers=2, bidirectional=False, dropout=0, **SMALL
    )
    assert check(model, ("B", 1, "L"), (200, 64, 33), 40) == [7]


def test_a_bidirectional_layer_is_refused():
    """Rightly: it reads from the end."""
    model = asteroid.LSTMTasNet(2, rnn_type="LSTM", hid_size=8, n_layers=1, bidirectional=True, dropout=0, **SMALL)
    with pytest.raises(NotStreamableError, match=r"masker\.0\.rnn \(LSTM\).*bidirectional|backward"):
        ds.patch_module(model)
