"""Models of many packages that need no word from their users."""

import importlib
import sys

import numpy as np
import pytest
import torch
from architectures import check
from stand_ins import Finder


@pytest.fixture
def no_torchaudio(monkeypatch):
    """Packages that import torchaudio for their file formats and command lines can be imported."""
    try:
        import torchaudio  # noqa: F401
    except (ImportError, OSError):
        finder = Finder({"torchaudio": {"__version__": torch.__version__}})
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
        yield
        finder.forget()
    else:
        yield


class First(torch.nn.Module):
    """A layer without the states that it gives beside its output."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y = self.layer(x)
        return y[0] if isinstance(y, tuple) else y


SEANET = {"channels": 1, "dimension": 16, "n_filters": 4, "n_residual_layers": 1, "ratios": [4, 2, 3]}
RNN = {"input_shape": (None, None, 4), "hidden_size": 6}
PLACE = "speechbrain.lobes.models"

#: package, class, arguments, dims, lengths, delay
CASES = {
    "encodec: encoder, causal": (
        "encodec.modules.SEANetEncoder", {**SEANET, "causal": True}, ("B", 1, "L"), (500, 61, 25, 24, 7, 1), 167,
    ),
    "encodec: encoder, zeros": (
        "encodec.modules.SEANetEncoder", {**SEANET, "pad_mode": "constant"}, ("B", 1, "L"), (500, 61, 7, 1), 124,
    ),
    "encodec: decoder": (
        "encodec.modules.SEANetDecoder", {**SEANET, "causal": True}, ("B", 16, "L"), (40, 9, 1), 6,
    ),
    "conformer: convolution module": (
        "conformer.ConformerConvModule",
        {"dim": 8, "causal": True, "expansion_factor": 2, "kernel_size": 7}, ("B", "L", 8), (40, 9, 1), 0,
    ),
    "vocos: backbone": (
        "vocos.models.VocosBackbone",
        {"input_channels": 8, "dim": 8, "intermediate_dim": 16, "num_layers": 2}, ("B", 8, "L"), (40, 9, 1), 9,
    ),
    "vocos: Fourier head": (
        "vocos.heads.ISTFTHead", {"dim": 8, "n_fft": 16, "hop_length": 4, "padding": "center"},
        ("B", "L", 8), (40, 9), 2,
    ),
    "vocos: Fourier head, same": (
        "vocos.heads.ISTFTHead", {"dim": 8, "n_fft": 16, "hop_length": 4, "padding": "same"},
        ("B", "L", 8), (40, 9, 1), 2,
    ),
    "julius: resampling": (
        "julius.ResampleFrac", {"old_sr": 4, "new_sr": 3}, ("B", "L"), (200, 61, 4), 37,
    ),
    "DeepFilterNet: grouped linear": (
        "df.modules.GroupedLinearEinsum", {"input_size": 8, "hidden_size": 12, "groups": 4},
        ("B", "L", 8), (40, 9, 1), 0,
    ),
    "DeepFilterNet: squeezed GRU": (
        "df.modules.SqueezedGRU_S", {"input_size": 8, "hidden_size": 8, "output_size": 8},
        ("B", "L", 8), (40, 9, 1), 0,
    ),
    "DeepFilterNet: convolution over time and frequency": (
        "df.modules.Conv2dNormAct", {"in_ch": 2, "out_ch": 4, "kernel_size": (2, 3)},
        ("B", 2, "L", 8), (40, 9, 1), 0,
    ),
    "DeepFilterNet: transposed convolution over frequency": (
        "df.modules.ConvTranspose2dNormAct", {"in_ch": 2, "out_ch": 4, "kernel_size": (1, 3), "fstride": 2},
        ("B", 2, "L", 8), (40, 9, 1), 0,
    ),
    "speechbrain: causal convolution": (
        "speechbrain.nnet.CNN.Conv1d",
        {"out_channels": 6, "kernel_size": 3, "input_shape": (None, None, 4), "padding": "causal"},
        ("B", "L", 4), (40, 9, 1), 0,
    ),
    "speechbrain: two-dimensional convolution": (
        "speechbrain.nnet.CNN.Conv2d",
        {"out_channels": 3, "kernel_size": (3, 3), "input_shape": (None, None, 8, 2)},
        ("B", "L", 8, 2), (40, 9, 3), 1,
    ),
    "speechbrain: GRU": ("speechbrain.nnet.RNN.GRU", RNN, ("B", "L", 4), (40, 9, 1), 0),
    "speechbrain: LSTM": ("speechbrain.nnet.RNN.LSTM", RNN, ("B", "L", 4), (40, 9, 1), 0),
    "speechbrain: Conformer's convolution": (
        f"{PLACE}.transformer.Conformer.ConvolutionModule",
        {"input_size": 8, "kernel_size": 7, "causal": True}, ("B", "L", 8), (40, 9, 1), 0,
    ),
    "speechbrain: encoder of separation networks": (
        f"{PLACE}.dual_path.Encoder", {"kernel_size": 16, "out_channels": 8}, ("B", "L"), (200, 61, 16), 15,
    ),
    "speechbrain: STFT": (
        "speechbrain.processing.features.STFT",
        {"sample_rate": 16000, "n_fft": 64, "win_length": 4, "hop_length": 2}, ("B", "L"), (1000, 200), 31,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_written(name, no_torchaudio):
    place, options, dims, lengths, delay = CASES[name]
    module, _, cls = place.rpartition(".")
    pytest.importorskip(module.partition(".")[0])
    torch.manual_seed(0)
    model = First(getattr(importlib.import_module(module), cls)(**options))
    assert check(model, dims, lengths, max(lengths) // 5) == [delay]


def test_open_unmix(no_torchaudio):
    """In one direction, with its own spectrograms of two channels."""
    model = pytest.importorskip("openunmix.model")
    transforms = pytest.importorskip("openunmix.transforms")
    torch.manual_seed(0)
    sizes = {"nb_bins": 33, "nb_channels": 2, "hidden_size": 8, "nb_layers": 1, "unidirectional": True}
    network = model.OpenUnmix(**sizes)
    whole = torch.nn.Sequential(transforms.TorchSTFT(64, 16), transforms.ComplexNorm(), network)
    assert check(whole, ("B", 2, "L"), (400, 150), 90) == [63]


class Levels(torch.nn.Module):
    """Convolutions down and up again, whose input is padded until no level leaves a sample over."""

    def __init__(self, n_levels):
        super().__init__()
        sizes = [1] + [3] * n_levels
        self.down = torch.nn.ModuleList(torch.nn.Conv1d(a, b, 4, 2) for a, b in zip(sizes, sizes[1:]))
        self.up = torch.nn.ModuleList(torch.nn.ConvTranspose1d(b, a, 4, 2) for a, b in zip(sizes, sizes[1:]))

    def padded(self, x):
        size = x.shape[-1]
        for _ in self.down:
            if size < 4:
                size = 1
            else:
                size = 1 + np.ceil((size - 4) / 2)
        for _ in self.up:
            size = (size - 1) * 2 + 4
        return torch.nn.functional.pad(x, (0, int(size) - x.shape[-1]))

    def forward(self, x):
        y, kept = self.padded(x), []
        for layer in self.down:
            y = layer(y).tanh()
            kept.append(y)
        for layer, z in zip(reversed(self.up), reversed(kept)):
            y = layer(y + z[..., : y.shape[-1]])
        return y[..., : x.shape[-1]]


class LastKept(torch.nn.Module):
    """The last four frames, for a cache, are cut by a pad of as many as the length says; of them their sum."""

    def forward(self, x):
        return x + torch.nn.functional.pad(x, (4 - x.shape[-1], 0)).sum(-1, keepdim=True)


class Halved(torch.nn.Module):
    """Frames by twos, as in Zipformer, the last one doubled where it is alone; a squeeze takes B of one stream."""

    def forward(self, x):
        n = (x.size(1) + 1) // 2
        if 2 * n - x.size(1) > 0:
            x = torch.cat((x, x[:, x.size(1) - 1 :].expand(-1, 2 * n - x.size(1), -1)), dim=1)
        return x.reshape(x.size(0), n, 2, 2).sum(2), x.amax(1).squeeze()


@pytest.mark.parametrize(
    ("model", "dims", "lengths", "delay"),
    [
        (lambda: Levels(3), ("B", 1, "L"), (400, 150, 61), 21),
        (lambda: Levels(8), ("B", 1, "L"), (3000, 1777), 765),
        (LastKept, ("B", 2, "L"), (30, 4, 3, 1), np.inf),
        (Halved, ("B", "L", 2), (30, 7, 1), 1),
    ],
)
def test_pads_as_the_length_says(model, dims, lengths, delay):
    torch.manual_seed(0)
    policy = "buffer" if delay == np.inf else "raise"
    assert check(model(), dims, lengths, max(lengths) // 5, policy)[0] == delay
