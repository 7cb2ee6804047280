"""Models of repositories that are no packages, as their authors wrote them.

DREAMSTREAM_TEST_SOURCES names a folder of clones, each under its owner's and its own name; what is not there is skipped:

    git clone https://github.com/johnma2006/mamba-minimal $DREAMSTREAM_TEST_SOURCES/johnma2006/mamba-minimal
"""

import contextlib
import importlib
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from architectures import check
from stand_ins import Finder
from torch import nn

import dreamstream as ds

FOLDER = Path(os.environ.get("DREAMSTREAM_TEST_SOURCES", "/nowhere"))
END = float("inf")

#: What some of them import, and need nothing of.
ABSENT = (
    "_k2", "apex", "auraloss", "bitsandbytes", "cupy", "fairscale", "k2", "kaldialign", "kaldifst", "lhotse", "librosa",
    "matplotlib", "nam._version", "nam.data", "nam.train", "pynvrtc", "pypinyin", "pytorch_lightning", "sentencepiece", "sounddevice", "sphn",
    "tensorboard", "timm", "torch.utils.tensorboard", "wavio",
)  # fmt: skip


def swoosh(offset, constant):
    """k2's activations, in torch."""
    return lambda x: torch.logaddexp(torch.zeros_like(x[..., :1]), x - offset) - 0.08 * x - constant


class Calls(nn.Module):
    """Calls a model in some way."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, x):
        return self.call(self.model, x)


def first(model):
    """A model without the states that it gives beside its output."""
    return Calls(model, lambda model, x: model(x)[0])


def frames_first(model):
    """Likewise a model that has its frames before its batch."""
    return Calls(model, lambda model, x: model(x.transpose(0, 1))[0].transpose(0, 1))


def with_lengths(model, axis=1):
    """Likewise a model that is given lengths of a batch without padding."""
    return Calls(model, lambda model, x: model(x, torch.full((x.size(0),), x.size(axis)))[0])


FRAMES, SAMPLES, FEATURES = ("B", "L", 16), ("B", "L"), ("B", "L", 80)
SHORT, LONG = (40, 17, 9, 1), (200, 60, 30, 25)
#: By name: folder, module, path of modules, dimensions, lengths, delay, and what makes it of the module.
CASES = {}


def case(repository, path, module, dims, lengths, delay, **options):
    def add(make):
        CASES[make.__name__] = (repository, path, module, dims, lengths, delay, options, make)
        return make

    return add


@case("johnma2006/mamba-minimal", "", "model", SAMPLES, SHORT, 0, tokens=16)
def mamba_minimal(m):
    return m.Mamba(m.ModelArgs(8, 2, 16, 4))


@case("alxndrTL/mamba.py", "", "mambapy.mamba", FRAMES, SHORT, 0)
def mamba_in_sequence(m):
    return m.Mamba(m.MambaConfig(16, 2, d_state=4, pscan=False))


@case("tommyip/mamba2-minimal", "", "mamba2", FRAMES, (40, 24, 16, 8), 7)
def mamba2_minimal(m):
    return first(filled(m.Mamba2(m.Mamba2Config(16, 1, 8, headdim=8, chunk_size=8))))


@case("SmerkyG/RWKV_Explained", "", "rwkv5_2", SAMPLES, SHORT, 0, tokens=16)
def rwkv5(m):
    return first(filled(m.RWKV(m.Config(16, 8, 2, 2, 12))))


@case("SmerkyG/RWKV_Explained", "", "rwkv6", SAMPLES, SHORT, 0, tokens=16)
def rwkv6(m):
    return first(filled(m.RWKV(m.Config(16, 8, 2, 2, 12))))


def filled(model):
    """Parameters that were made without values get some."""
    for p in model.parameters():
        torch.nn.init.uniform_(p, -0.4, 0.4)
    return model


@case("lucidrains/minGRU-pytorch", "", "minGRU_pytorch.minGRU", FRAMES, (40, 17, 9, 2), 0)
def min_gru(m):
    return m.minGRU(16, 1.5)


@case("lucidrains/minGRU-pytorch", "", "minGRU_pytorch.minLSTM", FRAMES, (40, 17, 9, 2), 0)
def min_lstm(m):
    return m.minLSTM(16, 1.5)


@case("YecanLee/min-LSTM-torch", "", "minRNN", SAMPLES, SHORT, END, tokens=16)
def min_lstm_of_cells(m):
    """Gives what the last frame leaves."""
    return m.MinRNN(6, 8, 16, 4)


@case("StefOe/indrnn-pytorch", "", "indrnn", FRAMES, SHORT, 0)
def indrnn(m):
    return first(
        m.IndRNN(16, 6, 2, batch_first=True, recurrent_inits=[lambda w: nn.init.uniform_(w, -0.9, 0.9)] * 2)
    )


@case("hrshtv/pytorch-lmu", "src", "lmu", FRAMES, SHORT, 0)
def lmu(m):
    return first(m.LMU(16, 6, 4, 9))


@case("salesforce/pytorch-qrnn", "", "torchqrnn.qrnn", FRAMES, SHORT, 0)
def qrnn(m):
    return frames_first(m.QRNN(16, 6, 2))


@case("salesforce/pytorch-qrnn", "", "torchqrnn.qrnn", FRAMES, (40, 17, 9, 2), 0)
def qrnn_of_two_frames(m):
    return frames_first(m.QRNN(16, 6, 2, window=2))


@case(
    "asappresearch/sru", "", "sru.modules", FRAMES, SHORT, "compiled code, such as a function of torch.jit.script"
)
def sru(m):
    return frames_first(m.SRU(16, 6, 2))


@case("asappresearch/sru", "", "sru.modules", FRAMES, SHORT, 0)
def sru_with_gradients(m):
    """Where gradients are on it runs its plain loop."""

    def call(model, x):
        with torch.enable_grad():
            return model(x.transpose(0, 1))[0].transpose(0, 1).detach()

    return Calls(m.SRU(16, 6, 2), call)


@case("muditbhargava66/PyxLSTM", "", "xLSTM.block", FRAMES, SHORT, 0)
def slstm(m):
    return first(m.xLSTMBlock(16, 6, 2, lstm_type="slstm"))


@case("muditbhargava66/PyxLSTM", "", "xLSTM.block", FRAMES, SHORT, 0)
def mlstm(m):
    return first(m.xLSTMBlock(16, 6, 2, lstm_type="mlstm"))


@case("Jamie-Stirling/RetNet", "src", "retnet", FRAMES, SHORT, 0)
def retnet(m):
    return m.RetNet(2, 16, 16, 2)


@case("Captaindoggo/Attention_based_CRNN", "", "model", ("B", 40, "L"), LONG, END, policy="buffer")
def keyword_spotter(m):
    return m.AtnCRNN(40, 8, 2, "cpu")


@case("fatchord/WaveRNN", "", "models.fatchord_version", ("B", 8, "L"), (40, 17, 9, 6), 4)
def wavernn(m):
    """Samples are a mel's, as long as they last."""
    sizes = {"pad": 2, "upsample_factors": (2, 3), "feat_dims": 8, "compute_dims": 8, "res_out_dims": 8}
    model = m.WaveRNN(16, 16, 4, **sizes, res_blocks=2, hop_length=6, sample_rate=100)
    return Calls(model, lambda model, x: model(x[:, 0, 2:-2].repeat_interleave(6, 1), x))


@case(
    "k2-fsa/icefall",
    "egs/librispeech/ASR/pruned_transducer_stateless7_streaming",
    "zipformer",
    FEATURES,
    (90, 70, 57, 33),
    22,
)
def zipformer_of_2023(m):
    pairs = {"encoder_dims": (16, 16), "attention_dim": (8, 8), "encoder_unmasked_dims": (16, 16), "nhead": (2, 2)}
    more = {"zipformer_downsampling_factors": (1, 2), "feedforward_dim": (16, 16), "num_encoder_layers": (1, 1)}
    chunks = {"num_left_chunks": 2, "short_chunk_size": 8, "decode_chunk_size": 8}
    return with_lengths(m.Zipformer(80, cnn_module_kernels=(5, 5), **pairs, **more, **chunks))


@case("k2-fsa/icefall", "egs/librispeech/ASR/zipformer", "zipformer", FEATURES, (90, 70, 57, 33), 28)
def zipformer(m):
    heads = {"query_head_dim": 8, "pos_head_dim": 4, "value_head_dim": 8, "num_heads": 2, "pos_dim": 16}
    sizes = {"encoder_dim": (16, 16), "num_encoder_layers": 1, "encoder_unmasked_dim": 16, "feedforward_dim": 16}
    chunks = {"causal": True, "chunk_size": [8], "left_context_frames": [16], "cnn_module_kernel": 5}
    encoder = m.Zipformer2(2, (1, 2), **sizes, **heads, **chunks)
    subsampling = importlib.import_module("subsampling").Conv2dSubsampling(80, 16, dropout=0.0)

    def call(both, x):
        x, lengths = both[0](x, torch.full((x.size(0),), x.size(1)))
        return both[1](x.permute(1, 0, 2), lengths)[0].permute(1, 0, 2)

    return Calls(nn.ModuleList([subsampling, encoder]), call)


@case(
    "k2-fsa/icefall",
    "egs/librispeech/ASR/conv_emformer_transducer_stateless2",
    "emformer",
    FEATURES,
    (90, 70, 57, 33),
    "at no fixed distance",
)
def conv_emformer(m):
    sizes = {"d_model": 16, "nhead": 2, "dim_feedforward": 16, "num_encoder_layers": 2, "cnn_module_kernel": 5}
    contexts = {"left_context_length": 16, "chunk_length": 16, "right_context_length": 8, "memory_size": 0}
    return with_lengths(m.Emformer(80, subsampling_factor=4, **sizes, **contexts))


@case("k2-fsa/icefall", "egs/librispeech/ASR/lstm_transducer_stateless2", "lstm", FEATURES, (90, 70, 57, 33), 8)
def icefall_lstm(m):
    sizes = {"d_model": 16, "dim_feedforward": 16, "rnn_hidden_size": 24, "num_encoder_layers": 2}
    return with_lengths(m.RNN(80, 4, **sizes))


ASR = "nemo.collections.asr"


@case("NVIDIA/NeMo", "", f"{ASR}.modules.conv_asr", ("B", 8, "L"), (200, 61, 33, 7, 1), 54)
def matchboxnet(m):
    """The classes and blocks of its configuration, 3x1, with fewer channels."""
    filters, kernels = (16, 8, 8, 8, 16, 16), (11, 13, 15, 17, 29, 1)
    jasper = [
        {"filters": f, "repeat": 1, "kernel": [k], "stride": [1], "dilation": [1 + (k == 29)], "dropout": 0.0}
        | {"residual": k in (13, 15, 17), "separable": k != 1}
        for f, k in zip(filters, kernels)
    ]
    return with_lengths(m.ConvASREncoder(jasper, "relu", 8), 2)


@case("NVIDIA/NeMo", "", f"{ASR}.modules.conformer_encoder", ("B", 80, "L"), (200, 90, 61, 33), 24)
def fast_conformer(m):
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 2, "conv_kernel_size": 5, "conv_norm_type": "layer_norm"}
    streaming = {"att_context_size": [8, 3], "att_context_style": "chunked_limited", "conv_context_size": "causal"}
    down = {"subsampling": "dw_striding", "subsampling_factor": 8, "causal_downsampling": True}
    return with_lengths(m.ConformerEncoder(80, subsampling_conv_channels=8, **sizes, **streaming, **down), 2)


@case("JupiterEthan/CRN-causal", "scripts", "utils.networks", ("B", "L", 161), (30, 12, 5, 1), 1)
def crn(m):
    return m.Net()


@case("NVIDIA/CleanUNet", "", "network", ("B", 1, "L"), (200, 100, 60, 30), END, policy="buffer")
def cleanunet(m):
    sizes = {"channels_H": 4, "max_H": 8, "encoder_n_layers": 3, "kernel_size": 4, "stride": 2}
    return m.CleanUNet(**sizes, tsfm_n_layers=1, tsfm_n_head=2, tsfm_d_model=8, tsfm_d_inner=16)


@case("kyutai-labs/moshi", "moshi", "moshi.modules.transformer", FRAMES, SHORT, 0)
def moshi(m):
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 2, "dim_feedforward": 32, "causal": True, "context": 7}
    return m.StreamingTransformer(**sizes, positional_embedding="rope", gating="silu", norm="rms_norm_f32")


SEANET = {"channels": 1, "dimension": 8, "n_filters": 4, "n_residual_layers": 1, "ratios": [2, 3], "causal": True}


@case("kyutai-labs/moshi", "moshi", "moshi.modules.seanet", ("B", 1, "L"), (300, 120, 60, 36), 5)
def seanet_encoder(m):
    return m.SEANetEncoder(**SEANET, norm="none", pad_mode="constant")


@case("kyutai-labs/moshi", "moshi", "moshi.modules.seanet", ("B", 8, "L"), (40, 12, 9, 6), 0)
def seanet_decoder(m):
    return m.SEANetDecoder(**SEANET, norm="none", pad_mode="constant")


@case("kaituoxu/Conv-TasNet", "src", "conv_tasnet", SAMPLES, (400, 200, 190, 60, 20), 159)
def conv_tasnet(m):
    return m.ConvTasNet(16, 20, 8, 12, 3, 3, 2, 2, norm_type="BN")


def padded_at_the_start(model):
    return Calls(model, lambda model, x: model(x, pad_start=True))


@case("sdatkinson/neural-amp-modeler", "", "nam.models.wavenet", SAMPLES, LONG, 0)
def amplifier_wavenet(m):
    def array(size, channels, dilations, out):
        head = {"out_channels": out, "kernel_size": 1, "bias": out == 1}
        sizes = {"condition_size": 1, "input_size": size, "channels": channels, "kernel_size": 3}
        return {**sizes, "dilations": dilations, "head": head, "activation": "Tanh", "gated": False}

    layers = [array(1, 4, [1, 2, 4], 2), array(4, 2, [1, 2], 1)]
    return padded_at_the_start(
        m.WaveNet.init_from_config({"layers_configs": layers, "head": None, "head_scale": 0.02})
    )


@case("sdatkinson/neural-amp-modeler", "", "nam.models.recurrent", SAMPLES, LONG, 0)
def amplifier_lstm(m):
    return Calls(m.LSTM(8), lambda model, x: model(x, pad_start=False))


#: What was imported of a folder and path, for the next test of them: some can't be twice.
IMPORTED = {}


@pytest.fixture
def sources(monkeypatch):
    """Clones are imported from, by their folder and path, as long as a test lasts."""
    given = {name: {} for name in ABSENT}
    given["k2"] = {"swoosh_l": swoosh(4.0, 0.035), "swoosh_r": swoosh(1.0, 0.313261687)}
    given["k2"] |= {f"{name}_forward": f for name, f in given["k2"].items()}
    switched_off = {name: lambda self, *_: False for name in ("is_access_enabled", "is_adapter_available")}
    access, adapter = (type(name, (), switched_off) for name in ("AccessMixin", "AdapterModuleMixin"))
    nemo = {name: {"__path__": [str(FOLDER / "NVIDIA/NeMo" / name.replace(".", "/"))]} for name in (
        "nemo", "nemo.collections", ASR, f"{ASR}.modules", f"{ASR}.parts", f"{ASR}.parts.submodules",
    )}  # fmt: skip
    given |= nemo | {
        name: {}
        for name in ("nemo.collections.common", "nemo.utils", "nemo.core", f"{ASR}.models", f"{ASR}.parts.mixins")
    }
    given["nemo.utils"] = {"avoid_float16_autocast_context": contextlib.nullcontext}
    given["nemo.core.classes.module"] = {"NeuralModule": nn.Module}
    given["nemo.core.classes.mixins"] = {"AccessMixin": access}
    given["nemo.core.classes.mixins.adapter_mixins"] = {"AdapterModuleMixin": adapter}
    given["nemo.collections.common.parts.utils"] = {"activation_registry": {"relu": nn.ReLU}}
    finder = Finder(given)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.setattr(np, "cumproduct", np.cumprod, raising=False)
    before = dict(sys.modules)

    def use(repository, path):
        if not (FOLDER / repository).is_dir():
            pytest.skip("DREAMSTREAM_TEST_SOURCES has no clone of it")
        monkeypatch.syspath_prepend(str(FOLDER / repository))
        monkeypatch.syspath_prepend(str(FOLDER / repository / path))
        used.append((repository, path))
        sys.modules.update(IMPORTED.get(used[-1], {}))

    used = []
    yield use
    own = {
        n: m for n, m in sys.modules.items() if n not in before and str(FOLDER) in str(getattr(m, "__file__", ""))
    }
    IMPORTED.update(dict.fromkeys(used, own))
    for name in own:
        del sys.modules[name]
    finder.forget()


@pytest.mark.parametrize("name", CASES)
def test_as_their_authors_wrote_them(name, sources):
    repository, path, module, dims, lengths, delay, options, make = CASES[name]
    sources(repository, path)
    torch.manual_seed(0)
    random.seed(0)  # which some ask in evaluation, too, whether to log
    model = make(importlib.import_module(module)).eval()
    if isinstance(delay, str):
        with pytest.raises(ds.NotStreamableError, match=delay):
            ds.compile(model, dims)
        return
    assert set(check(model, dims, lengths, max(lengths) // 5, **options)) == {delay}
