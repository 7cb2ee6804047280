"""Dual-path networks: both ways within frames, forward over them, with B joined to what is not looked along."""

import pytest
import torch
from architectures import check
from torch import nn

import dreamstream as ds
from dreamstream.errors import NotStreamableError

LENGTHS = (30, 11, 1)


@pytest.mark.parametrize("kind, layers", [("LSTM", 1), ("GRU", 2)])
def test_asteroid(kind, layers):
    """Of chunks of 4 features; both directions over chunks are refused where they are run."""
    recurrent = pytest.importorskip("asteroid.masknn.recurrent")
    torch.manual_seed(0)
    options = {"norm_type": "cLN", "rnn_type": kind, "num_layers": layers}
    block = recurrent.DPRNNBlock(6, 5, bidirectional=False, **options)
    assert check(block, ("B", 6, 4, "L"), LENGTHS, 9) == [0]
    with pytest.raises(NotStreamableError, match=r"inter_RNN\.rnn .*backward direction"):
        ds.compile(recurrent.DPRNNBlock(6, 5, **options), ("B", 6, 4, "L"))


def test_speechbrain():
    dual_path = pytest.importorskip("speechbrain.lobes.models.dual_path")
    torch.manual_seed(0)
    intra, inter = (
        dual_path.SBRNNBlock(6, 3, 1, bidirectional=True),
        dual_path.SBRNNBlock(6, 6, 1, bidirectional=False),
    )
    block = dual_path.Dual_Computation_Block(intra, inter, 6, norm=None, linear_layer_after_inter_intra=False)
    assert check(block, ("B", 6, 4, "L"), LENGTHS, 9) == [0]


class Spectral(nn.Module):
    """As DPCRN and GTCRN are written, with einops."""

    def __init__(self):
        super().__init__()
        self.intra = nn.GRU(6, 3, batch_first=True, bidirectional=True)
        self.inter = nn.LSTM(6, 6, batch_first=True)
        self.convolution = nn.Conv1d(6, 6, 3, padding=1)

    def forward(self, x):
        rearrange = pytest.importorskip("einops").rearrange
        y = self.intra(rearrange(x, "b c t f -> (b t) f c"))[0]
        x = x + rearrange(y, "(b t) f c -> b c t f", b=x.shape[0])
        y = self.inter(rearrange(x, "b c t f -> (b f) t c"))[0]
        x = x + rearrange(y, "(b f) t c -> b c t f", f=4)
        y = self.convolution(rearrange(x, "b c t f -> (b f) c t"))
        return rearrange(y, "(b f) c t -> b c t f", b=x.size(0))


def test_einops():
    pytest.importorskip("einops")
    torch.manual_seed(0)
    assert check(Spectral(), ("B", 6, "L", 4), LENGTHS, 9) == [1]
