"""Separation with asteroid: Conv-TasNet's network with each norm, Conv-TasNet and LSTM-TasNet whole."""

import pytest
import torch

asteroid = pytest.importorskip("asteroid")

from architectures import check
from asteroid.masknn import TDConvNet, norms, recurrent

import dreamstream as ds
from dreamstream.errors import NotStreamableError

F = torch.nn.functional


@ds.register(norms.GlobLN)
def global_norm(module, x):
    return F.group_norm(x, 1, module.gamma, module.beta, 1e-8)


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


@pytest.mark.parametrize("norm", ["cLN", "cgLN"])
def test_conv_tasnet(norm):
    torch.manual_seed(0)
    model = asteroid.ConvTasNet(2, norm_type=norm, causal=True, mask_act="relu", **SIZES, **SMALL)
    assert check(model, ("B", 1, "L"), (200, 64, 33, 9), 40) == [7]


def test_dprnn_tasnet():
    """Chunks that lie half over each other, by unfold and fold."""
    torch.manual_seed(0)
    sizes = {"n_repeats": 2, "bn_chan": 6, "hid_size": 5, "chunk_size": 10}
    model = asteroid.DPRNNTasNet(2, bidirectional=False, norm_type="cLN", mask_act="relu", **sizes, **SMALL)
    assert check(model, ("B", 1, "L"), (200, 64, 33), 40) == [43]


def test_lstm_tasnet():
    torch.manual_seed(0)
    model = asteroid.LSTMTasNet(
        2, rnn_type="LSTM", hid_size=8, n_layers=2, bidirectional=False, dropout=0, **SMALL
    )
    assert check(model, ("B", 1, "L"), (200, 64, 33), 40) == [7]


def test_a_bidirectional_layer_is_refused():
    """Rightly: it reads from the end."""
    model = recurrent.SingleRNN("LSTM", 16, 8, bidirectional=True)
    with pytest.raises(NotStreamableError, match=r"rnn \(LSTM\).*(bidirectional|backward)"):
        ds.compile(model, ("B", "L", 16))


def test_dptnet():
    """As written, with its global norms and layers in both directions, when the stream ends."""
    torch.manual_seed(0)
    sizes = {"n_heads": 2, "ff_hid": 6, "chunk_size": 10, "n_repeats": 1, "mask_act": "relu"}
    model = asteroid.DPTNet(2, **sizes, **{**SMALL, "n_filters": 8})
    assert check(model, ("B", 1, "L"), (70, 33), 40, policy="buffer") == [float("inf")]
