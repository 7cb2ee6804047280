"""Encoders of speech with attention, as other packages have them, in a declared context."""

import warnings

import numpy as np
import pytest
import torch
from architectures import check
from torch import nn

import dreamstream as ds

CONTEXT = ds.Context(chunk=4, left=8)


class Encoder(nn.Module):
    """Hidden states alone, of frames and their lengths where they are asked for."""

    def __init__(self, model, lengths=False):
        super().__init__()
        self.model, self.lengths = model, lengths

    def forward(self, x):
        if self.lengths:
            return self.model(x, torch.full((x.size(0),), x.size(1)))[0]
        return self.model(x).last_hidden_state


def declared(model, path, **options):
    torch.manual_seed(0)
    encoder = Encoder(model(), **options).eval()
    for name, parameter in encoder.named_parameters():
        if "bias_" in name or "embed" in name:
            nn.init.normal_(parameter)
    return ds.patch_module(encoder, context={f"model.{path}": CONTEXT})


SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SAMPLES = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_dim": (8, 8), "conv_stride": (4, 2)}
SAMPLES |= {"conv_kernel": (6, 3), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
SAMPLES |= {"conv_depthwise_kernel_size": 5}


@pytest.mark.parametrize("positions", ["relative", "rotary"])
def test_wav2vec2_conformer(positions):
    transformers = pytest.importorskip("transformers")
    config = transformers.Wav2Vec2ConformerConfig(**SIZES, **SAMPLES, position_embeddings_type=positions)
    model = declared(lambda: transformers.Wav2Vec2ConformerModel(config), "encoder.layers.*.self_attn")
    assert check(model, ("B", "L"), (400, 253), 100) == [85]


ENCODERS = {
    "Hubert": ({}, 93),
    "UniSpeechSat": ({}, 93),
    "SEW": ({"squeeze_factor": 2}, 117),
    "Data2VecAudio": ({"num_conv_pos_embeddings": 3, "conv_pos_kernel_size": 5}, 85),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_of_samples(name):
    transformers = pytest.importorskip("transformers")
    options, delay = ENCODERS[name]
    config = getattr(transformers, f"{name}Config")(**SIZES, **SAMPLES | options)
    model = declared(lambda: getattr(transformers, f"{name}Model")(config), "encoder.layers.*.attention")
    assert check(model, ("B", "L"), (400, 253), 100) == [delay]


@pytest.mark.parametrize("positions", ["relative", "relative_key", "rotary"])
def test_wav2vec2_bert(positions):
    transformers = pytest.importorskip("transformers")
    sizes = {"feature_projection_input_dim": 6, "conv_depthwise_kernel_size": 5}
    config = transformers.Wav2Vec2BertConfig(**SIZES, **sizes, position_embeddings_type=positions)

    class Features(transformers.Wav2Vec2BertModel):
        def forward(self, x):
            return super().forward(input_features=x)

    model = declared(lambda: Features(config), "encoder.layers.*.self_attn")
    assert check(model, ("B", "L", 6), (90, 41), 20) == [3]


ESPNET = {"attention_heads": 2, "num_blocks": 2}
BRANCHES = ESPNET | {"cgmlp_linear_units": 16, "cgmlp_conv_kernel": 5, "rel_pos_type": "latest"}
SELF = "encoders.*.self_attn"


@pytest.mark.parametrize(
    ("file", "name", "path", "options"),
    [
        (
            "conformer_encoder",
            "ConformerEncoder",
            SELF,
            ESPNET | {"rel_pos_type": "latest", "cnn_module_kernel": 7},
        ),
        ("transformer_encoder", "TransformerEncoder", SELF, ESPNET),
        ("branchformer_encoder", "BranchformerEncoder", "encoders.*.attn", BRANCHES),
        ("e_branchformer_encoder", "EBranchformerEncoder", "encoders.*.attn", BRANCHES),
    ],
)
def test_espnet(file, name, path, options):
    module = pytest.importorskip(f"espnet2.asr.encoder.{file}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = declared(lambda: getattr(module, name)(20, 16, **options), path, lengths=True)
    check(model, ("B", "L", 20), (160, 83), 40)


@pytest.mark.parametrize("name", ["Conformer", "Branchformer"])
def test_speechbrain(name):
    """Its positions are made anew in every call, by slices that are written."""
    lobes = pytest.importorskip(f"speechbrain.lobes.models.transformer.{name}")
    attention = pytest.importorskip("speechbrain.nnet.attention")
    options = {"Conformer": {"d_ffn": 32}, "Branchformer": {"csgu_linear_units": 32}}[name]

    class Frames(nn.Module):
        def __init__(self):
            super().__init__()
            make = getattr(lobes, f"{name}Encoder")
            self.layers = make(2, 16, nhead=2, kernel_size=7, attention_type="RelPosMHAXL", **options)
            self.positions = attention.RelPosEncXL(16)

        def forward(self, x):
            return self.layers(x, pos_embs=self.positions(x))[0]

    torch.manual_seed(0)
    model = ds.patch_module(Frames().eval(), context={"layers.layers.*.mha_layer": CONTEXT})
    x = torch.randn(1, 50, 16)
    with torch.no_grad():
        want = model(x)[0].numpy()
    engine = ds.compile(model, ("B", "L", 16))
    cuts = [x[0, a:b].numpy() for a, b in ((0, 7), (7, 7), (7, 31), (31, 50))]
    got = [
        engine.step({"a": c}, sos="a" * (k == 0) or [], eos="a" * (k == 3) or [])["a"] for k, c in enumerate(cuts)
    ]
    assert (
        np.abs(np.concatenate(got) - want).max() < 1e-5
    )  # its softmax is float32's: no exact run to hold against


def test_torchaudio():
    models = pytest.importorskip("torchaudio.models")
    model = declared(lambda: models.Conformer(20, 4, 32, 2, 7), "conformer_layers.*.self_attn", lengths=True)
    check(model, ("B", "L", 20), (60, 33), 20)
