"""Models of repositories that are no packages, as their authors wrote them.

DREAMSTREAM_TEST_SOURCES names a folder of clones, each under its owner's and its own name; the others are skipped:

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
    "_k2", "apex", "auraloss", "bitsandbytes", "cupy", "fairscale", "k2", "kaldialign", "kaldifst", "lhotse",
    "librosa", "matplotlib", "nam._version", "nam.data", "nam.train", "pynvrtc", "pypinyin", "pytorch_lightning",
    "sentencepiece", "sounddevice", "sphn", "tensorboard", "timm", "torch.utils.tensorboard", "wavio",
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


def filled(model):
    """Parameters that were made without values get some."""
    for p in model.parameters():
        nn.init.uniform_(p, -0.4, 0.4)
    return model


def with_gradients(model):
    """Where they are on, SRU runs its plain loop."""
    inner = frames_first(model)
    return Calls(inner, lambda inner, x: torch.enable_grad()(inner.forward)(x).detach())


def wavernn(m):
    """Samples are a mel's, as long as they last."""
    sizes = {"pad": 2, "upsample_factors": (2, 3), "feat_dims": 8, "compute_dims": 8, "res_out_dims": 8}
    model = m.WaveRNN(16, 16, 4, **sizes, res_blocks=2, hop_length=6, sample_rate=100)
    return Calls(model, lambda model, x: model(x[:, 0, 2:-2].repeat_interleave(6, 1), x))


def zipformer_of_2023(m):
    pairs = {"encoder_dims": (16, 16), "attention_dim": (8, 8), "encoder_unmasked_dims": (16, 16), "nhead": (2, 2)}
    more = {"zipformer_downsampling_factors": (1, 2), "feedforward_dim": (16, 16), "num_encoder_layers": (1, 1)}
    chunks = {"num_left_chunks": 2, "short_chunk_size": 8, "decode_chunk_size": 8}
    return with_lengths(m.Zipformer(80, cnn_module_kernels=(5, 5), **pairs, **more, **chunks))


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


def conv_emformer(m):
    sizes = {"d_model": 16, "nhead": 2, "dim_feedforward": 16, "num_encoder_layers": 2, "cnn_module_kernel": 5}
    contexts = {"left_context_length": 16, "chunk_length": 16, "right_context_length": 8, "memory_size": 0}
    return with_lengths(m.Emformer(80, subsampling_factor=4, **sizes, **contexts))


def icefall_lstm(m):
    sizes = {"d_model": 16, "dim_feedforward": 16, "rnn_hidden_size": 24, "num_encoder_layers": 2}
    return with_lengths(m.RNN(80, 4, **sizes))


def matchboxnet(m):
    """The class and blocks of its configuration, 3x1, with fewer channels."""
    filters, kernels = (16, 8, 8, 8, 16, 16), (11, 13, 15, 17, 29, 1)
    jasper = [
        {"filters": f, "repeat": 1, "kernel": [k], "stride": [1], "dilation": [1 + (k == 29)], "dropout": 0.0}
        | {"residual": k in (13, 15, 17), "separable": k != 1}
        for f, k in zip(filters, kernels)
    ]
    return with_lengths(m.ConvASREncoder(jasper, "relu", 8), 2)


def fast_conformer(m):
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 2, "conv_kernel_size": 5, "conv_norm_type": "layer_norm"}
    streaming = {"att_context_size": [8, 3], "att_context_style": "chunked_limited", "conv_context_size": "causal"}
    down = {"subsampling": "dw_striding", "subsampling_factor": 8, "causal_downsampling": True}
    return with_lengths(m.ConformerEncoder(80, subsampling_conv_channels=8, **sizes, **streaming, **down), 2)


def cleanunet(m):
    sizes = {"channels_H": 4, "max_H": 8, "encoder_n_layers": 3, "kernel_size": 4, "stride": 2}
    return m.CleanUNet(**sizes, tsfm_n_layers=1, tsfm_n_head=2, tsfm_d_model=8, tsfm_d_inner=16)


def moshi(m):
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 2, "dim_feedforward": 32, "causal": True, "context": 7}
    return m.StreamingTransformer(**sizes, positional_embedding="rope", gating="silu", norm="rms_norm_f32")


def amplifier_wavenet(m):
    def array(size, channels, dilations, out):
        head = {"out_channels": out, "kernel_size": 1, "bias": out == 1}
        sizes = {"condition_size": 1, "input_size": size, "channels": channels, "kernel_size": 3}
        return {**sizes, "dilations": dilations, "head": head, "activation": "Tanh", "gated": False}

    layers = [array(1, 4, [1, 2, 4], 2), array(4, 2, [1, 2], 1)]
    model = m.WaveNet.init_from_config({"layers_configs": layers, "head": None, "head_scale": 0.02})
    return Calls(model, lambda model, x: model(x, pad_start=True))


FRAMES, SAMPLES, FEATURES = ("B", "L", 16), ("B", "L"), (("B", "L", 80), (90, 70, 57, 33))
SHORT, TWO, LONG = (40, 17, 9, 1), (40, 17, 9, 2), (200, 60, 30, 25)
TOKENS, WAITS = {"tokens": 16}, {"policy": "buffer"}
ASR, ICEFALL, AMPLIFIER = (
    "nemo.collections.asr",
    "k2-fsa/icefall/egs/librispeech/ASR",
    "sdatkinson/neural-amp-modeler",
)
SEANET = {"channels": 1, "dimension": 8, "n_filters": 4, "n_residual_layers": 1, "ratios": [2, 3], "causal": True}
SEANET |= {"norm": "none", "pad_mode": "constant"}

#: Folder of modules, in a repository's; module, and what makes the model of it; dimensions, lengths, delay or what
#: the refusal says, and options of `check`.
CASES = [
    ("johnma2006/mamba-minimal", "model", lambda m: m.Mamba(m.ModelArgs(8, 2, 16, 4)), SAMPLES, SHORT, 0, TOKENS),
    ("alxndrTL/mamba.py", "mambapy.mamba", lambda m: m.Mamba(m.MambaConfig(16, 2, d_state=4, pscan=False)),
     FRAMES, SHORT, 0),
    ("tommyip/mamba2-minimal", "mamba2",
     lambda m: first(filled(m.Mamba2(m.Mamba2Config(16, 1, 8, headdim=8, chunk_size=8)))),
     FRAMES, (40, 24, 16, 8), 7),
    *[("SmerkyG/RWKV_Explained", name, lambda m: first(filled(m.RWKV(m.Config(16, 8, 2, 2, 12)))),
       SAMPLES, SHORT, 0, TOKENS) for name in ("rwkv5_2", "rwkv6")],
    ("lucidrains/minGRU-pytorch", "minGRU_pytorch.minGRU", lambda m: m.minGRU(16, 1.5), FRAMES, TWO, 0),
    ("lucidrains/minGRU-pytorch", "minGRU_pytorch.minLSTM", lambda m: m.minLSTM(16, 1.5), FRAMES, TWO, 0),
    ("YecanLee/min-LSTM-torch", "minRNN", lambda m: m.MinRNN(6, 8, 16, 4), SAMPLES, SHORT, END, TOKENS),
    ("StefOe/indrnn-pytorch", "indrnn",
     lambda m: first(m.IndRNN(16, 6, 2, batch_first=True, recurrent_inits=[nn.init.uniform_] * 2)),
     FRAMES, SHORT, 0),
    ("hrshtv/pytorch-lmu/src", "lmu", lambda m: first(m.LMU(16, 6, 4, 9)), FRAMES, SHORT, 0),
    ("salesforce/pytorch-qrnn", "torchqrnn.qrnn", lambda m: frames_first(m.QRNN(16, 6, 2)), FRAMES, SHORT, 0),
    ("salesforce/pytorch-qrnn", "torchqrnn.qrnn", lambda m: frames_first(m.QRNN(16, 6, 2, window=2)),
     FRAMES, TWO, 0),
    ("asappresearch/sru", "sru.modules", lambda m: with_gradients(m.SRU(16, 6, 2)), FRAMES, SHORT, 0),
    ("asappresearch/sru", "sru.modules", lambda m: frames_first(m.SRU(16, 6, 2)), FRAMES, SHORT, "compiled code"),
    *[("muditbhargava66/PyxLSTM", "xLSTM.block", lambda m, k=kind: first(m.xLSTMBlock(16, 6, 2, lstm_type=k)),
       FRAMES, SHORT, 0) for kind in ("slstm", "mlstm")],
    ("Jamie-Stirling/RetNet/src", "retnet", lambda m: m.RetNet(2, 16, 16, 2), FRAMES, SHORT, 0),
    ("Captaindoggo/Attention_based_CRNN", "model", lambda m: m.AtnCRNN(40, 8, 2, "cpu"),
     ("B", 40, "L"), LONG, END, WAITS),
    ("fatchord/WaveRNN", "models.fatchord_version", wavernn, ("B", 8, "L"), (40, 17, 9, 6), 4),
    (f"{ICEFALL}/pruned_transducer_stateless7_streaming", "zipformer", zipformer_of_2023, *FEATURES, 22),
    (f"{ICEFALL}/zipformer", "zipformer", zipformer, *FEATURES, 28),
    (f"{ICEFALL}/conv_emformer_transducer_stateless2", "emformer", conv_emformer, *FEATURES, "no fixed distance"),
    (f"{ICEFALL}/lstm_transducer_stateless2", "lstm", icefall_lstm, *FEATURES, 8),
    ("NVIDIA/NeMo", f"{ASR}.modules.conv_asr", matchboxnet, ("B", 8, "L"), (200, 61, 33, 7, 1), 54),
    ("NVIDIA/NeMo", f"{ASR}.modules.conformer_encoder", fast_conformer, ("B", 80, "L"), (200, 90, 61, 33), 24),
    ("JupiterEthan/CRN-causal/scripts", "utils.networks", lambda m: m.Net(), ("B", "L", 161), (30, 12, 5, 1), 1),
    ("NVIDIA/CleanUNet", "network", cleanunet, ("B", 1, "L"), (200, 100, 60, 30), END, WAITS),
    ("kyutai-labs/moshi/moshi", "moshi.modules.transformer", moshi, FRAMES, SHORT, 0),
    ("kyutai-labs/moshi/moshi", "moshi.modules.seanet", lambda m: m.SEANetEncoder(**SEANET),
     ("B", 1, "L"), (300, 120, 60, 36), 5),
    ("kyutai-labs/moshi/moshi", "moshi.modules.seanet", lambda m: m.SEANetDecoder(**SEANET),
     ("B", 8, "L"), (40, 12, 9, 6), 0),
    ("kaituoxu/Conv-TasNet/src", "conv_tasnet", lambda m: m.ConvTasNet(16, 20, 8, 12, 3, 3, 2, 2, norm_type="BN"),
     SAMPLES, (400, 200, 190, 60, 20), 159),
    (AMPLIFIER, "nam.models.wavenet", amplifier_wavenet, SAMPLES, LONG, 0),
    (AMPLIFIER, "nam.models.recurrent", lambda m: Calls(m.LSTM(8), lambda model, x: model(x, pad_start=False)),
     SAMPLES, LONG, "a step over frames"),
]  # fmt: skip

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
    given |= nemo
    given |= {f"nemo.{name}": {} for name in ("collections.common", "core")}
    given |= {f"{ASR}.{name}": {} for name in ("models", "parts.mixins")}
    given["nemo.utils"] = {"avoid_float16_autocast_context": contextlib.nullcontext}
    given["nemo.core.classes.module"] = {"NeuralModule": nn.Module}
    given["nemo.core.classes.mixins"] = {"AccessMixin": access}
    given["nemo.core.classes.mixins.adapter_mixins"] = {"AdapterModuleMixin": adapter}
    given["nemo.collections.common.parts.utils"] = {"activation_registry": {"relu": nn.ReLU}}
    finder = Finder(given)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.setattr(np, "cumproduct", np.cumprod, raising=False)
    before = dict(sys.modules)

    def use(path):
        repository = FOLDER / "/".join(path.split("/")[:2])
        if not repository.is_dir():
            pytest.skip("DREAMSTREAM_TEST_SOURCES has no clone of it")
        monkeypatch.syspath_prepend(str(repository))
        monkeypatch.syspath_prepend(str(FOLDER / path))
        used.append(path)
        sys.modules.update(IMPORTED.get(path, {}))

    used = []
    yield use
    for name, module in list(sys.modules.items()):
        places = f"{vars(module).get('__file__')} {vars(module).get('__path__')}"
        if name not in before and str(FOLDER) in places:
            IMPORTED.setdefault(used[0], {})[name] = sys.modules.pop(name)
    finder.forget()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_as_their_authors_wrote_them(case, sources):
    path, module, make, dims, lengths, delay, *options = case
    sources(path)
    torch.manual_seed(0)
    random.seed(0)  # which some ask in evaluation, too, whether to log
    model = make(importlib.import_module(module)).eval()
    if isinstance(delay, str):
        with pytest.raises(ds.NotStreamableError, match=delay):
            ds.compile(model, dims)
        return
    assert set(check(model, dims, lengths, max(lengths) // 5, **dict(*options))) == {delay}
