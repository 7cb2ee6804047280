"""``dreamstream convert`` of other toolkits' recognisers, of random weights, and what they transcribe."""

import json
import wave

import numpy as np
import pytest
import torch
from torch_references.u2 import Encoder

import dreamstream as ds
from dreamstream import cli, nn
from dreamstream.data import read_audio
from dreamstream.decode import CTCDecoder, greedy, log_probabilities
from dreamstream.models import load_wenet

LETTERS = "abcdefgh"
SIZES = {"output_size": 16, "attention_heads": 4, "linear_units": 24, "num_blocks": 2, "cnn_module_kernel": 5}
YAML = """
encoder: {kind}
encoder_conf:
  output_size: 16
  attention_heads: 4
  linear_units: 24
  num_blocks: 2
  input_layer: conv2d
  normalize_before: true
{more}
  use_dynamic_chunk: true
input_dim: 20
output_dim: 11
cmvn: global_cmvn
dataset_conf:
  fbank_conf: {{num_mel_bins: 20, frame_shift: 10, frame_length: 25, dither: 1.0}}
  resample_conf: {{resample_rate: 16000}}
"""
CONFORMER = "  cnn_module_kernel: 5\n  causal: true\n  use_sdpa: false\n  selfattention_layer_type: rel_selfattn"


@pytest.fixture
def speech(tmp_path):
    x = np.random.default_rng(0).standard_normal(24000) * np.repeat([0.02, 0.3, 0.1], 8000)
    with wave.open(str(tmp_path / "speech.wav"), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
        file.writeframes(np.round(x.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return tmp_path / "speech.wav"


def wenet(folder, kind="conformer", more=CONFORMER, extra=None):
    """Write what WeNet's training leaves; return the plain definition of its network."""
    torch.manual_seed(3)
    options = {**SIZES, "decoding_chunk_size": 8, "num_decoding_left_chunks": 2, "vocab_size": 11, "cmvn": True}
    options |= {"causal": True} if kind == "conformer" else {"architecture": "transformer"}
    theirs = Encoder(20, options).eval()
    state = {k if k.startswith("ctc") else f"encoder.{k}": v for k, v in theirs.state_dict().items()}
    state["encoder.global_cmvn.mean"].copy_(torch.linspace(5, 9, 20))
    state["encoder.global_cmvn.istd"].copy_(torch.linspace(0.3, 0.5, 20))
    state["ctc.ctc_lo.weight"] *= 8  # so that scores are sure
    state["decoder.embed.0.weight"] = torch.zeros(3, 3)
    torch.save({**state, **(extra or {})}, folder / "final.pt")
    (folder / "train.yaml").write_text(YAML.format(kind=kind, more=more))
    lines = ["<blank> 0", "<unk> 1", *(f"▁{c} {n}" for n, c in enumerate(LETTERS, 2)), "<sos/eos> 10"]
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    return theirs


def said(scores, tokens, blank=0):
    return greedy(log_probabilities(np.asarray(scores)), tokens, blank).text


@pytest.mark.parametrize(("kind", "more"), [("conformer", CONFORMER), ("transformer", "")])
def test_wenet(tmp_path, speech, capsys, kind, more):
    """What is transcribed is what the plain definition says of the recording's features, under the chunk mask."""
    theirs = wenet(tmp_path, kind, more)
    out = str(tmp_path / "net.dsm")
    assert cli.main(["convert", str(tmp_path), out, "--chunk", "8", "--left", "16"]) == 0
    assert "--model" in capsys.readouterr().out
    features = nn.KaldiFbank(20)(ds.tensor(read_audio(speech)[0][None] * np.float32(32768))).numpy()
    with torch.no_grad():
        want = theirs(torch.from_numpy(features)).log_softmax(-1)[0].numpy()
    ours = load_wenet(tmp_path, context=ds.Context(8, 16))
    got = ours(ds.tensor(read_audio(speech)[0][None])).numpy()[0]
    np.testing.assert_allclose(got, want, atol=2e-3)
    assert cli.main(["transcribe", str(speech), "--model", out, "--beam", "0"]) == 0
    text = capsys.readouterr().out.strip()
    assert text == said(want, CTCDecoder(tmp_path / "words.txt", beam=0).tokens) and text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "words.txt").write_text("<blank> 0\na 1\n"), "with 11 tokens: words.txt has 2"),
        (lambda f: (f / "train.yaml").write_text("encoder: [", "utf-8"), "train.yaml: "),
        (lambda f: (f / "train.yaml").write_text(YAML.format(kind="squeezeformer", more="")), "'squeezeformer'"),
        (
            lambda f: (f / "train.yaml").write_text(YAML.format(kind="conformer", more="  n_kv_head: 2")),
            "encoder_conf: n_kv_head: 2 is not computed here",
        ),
        (
            lambda f: (f / "train.yaml").write_text(
                YAML.format(kind="conformer", more="").replace(": 20,", ": 23,")
            ),
            "input_dim is 20, and features have 23 bands",
        ),
        (lambda f: torch.save({"x": torch.zeros(1)}, f / "final.pt"), "no CTC head"),
        (lambda f: torch.save({"x": Harmful()}, f / "final.pt"), "no checkpoint of tensors only"),
        (lambda f: torch.save([1], f / "final.pt"), "no checkpoint of tensors by name"),
        (lambda f: (f / "final.pt").write_bytes(b"junk"), "no checkpoint of tensors only"),
        (lambda f: (f / "final.pt").rename(f / "a.pt").with_name("b.pt").write_bytes(b""), "found a.pt, b.pt"),
        (lambda f: (f / "train.yaml").unlink(), "has neither WeNet's train.yaml"),
    ],
)
def test_what_is_no_model_of_wenet(tmp_path, capsys, change, words):
    wenet(tmp_path)
    change(tmp_path)
    assert cli.main(["convert", str(tmp_path), str(tmp_path / "net.dsm")]) == 1
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and not (tmp_path / "net.dsm").exists()
    assert Harmful.ran == 0


class Harmful:
    """What a pickle would run."""

    ran = 0

    def __reduce__(self):
        return Harmful.run, ()

    @staticmethod
    def run():
        Harmful.ran += 1


ICEFALL = """
import torch
from torch import nn
import dreamstream.torch.nn as features


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = features.KaldiFbank(20)
        self.encoder = nn.LSTM(20, 16, batch_first=True)
        self.ctc_output = nn.Sequential(nn.Dropout(0.1), nn.Linear(16, 4), nn.LogSoftmax(dim=-1))

    def forward(self, x):
        return self.ctc_output(self.encoder(self.features(x))[0])


def model():
    return Net().eval(), ("B", "L"), 16000
"""


def test_icefall(tmp_path, speech, capsys):
    """A graph in Python that is patched, weights under "model", tokens as they are."""
    (tmp_path / "net.py").write_text(ICEFALL)
    (tmp_path / "tokens.txt").write_text("<blk> 0\n▁A 1\nB 2\n▁C 3\n")
    torch.manual_seed(1)
    scope = {}
    exec(ICEFALL, scope)
    net = scope["Net"]().eval()
    net.ctc_output[1].weight.data *= 20
    torch.save({"model": net.state_dict()}, tmp_path / "pretrained.pt")
    out = str(tmp_path / "net.dsm")
    assert cli.main(["convert", f"{tmp_path}/net.py:model", out, "--weights", f"{tmp_path}/pretrained.pt"]) == 0
    with torch.no_grad():
        want = net(torch.from_numpy(read_audio(speech)[0])[None])[0].numpy()
    more = ["--model", out, "--tokens", str(tmp_path / "tokens.txt"), "--beam", "0"]
    assert cli.main(["transcribe", str(speech), *more]) == 0
    text = capsys.readouterr().out.strip()
    assert text == said(want, CTCDecoder(tmp_path / "tokens.txt", beam=0).tokens) and text


SMALL = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 9,
    "feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_dim": (8, 8), "conv_stride": (40, 8),
    "conv_kernel": (60, 8), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "pad_token_id": 3,
}  # fmt: skip


@pytest.fixture
def wav2vec(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    network = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**SMALL)).eval()
    network.lm_head.weight.data *= 30
    network.save_pretrained(tmp_path)
    names = {"|": 0, "<s>": 1, "</s>": 2, "<pad>": 3, **{c: n for n, c in enumerate("abcde", 4)}}
    (tmp_path / "vocab.json").write_text(json.dumps(names))
    (tmp_path / "preprocessor_config.json").write_text('{"do_normalize": true, "sampling_rate": 16000}')
    return network


def test_wav2vec(tmp_path, wav2vec, speech, capsys):
    out, context = str(tmp_path / "net.dsm"), ds.Context(8, 24)
    command = ["convert", str(tmp_path), out, "--chunk", "8", "--left", "24"]
    assert cli.main(command) == 1 and "--normalize MEAN,STD" in capsys.readouterr().err
    assert cli.main([*command, "--normalize", "0.01,0.2"]) == 0
    x = (torch.from_numpy(read_audio(speech)[0])[None] - 0.01) / 0.2
    ds.patch_module(wav2vec, context={"wav2vec2.encoder.layers.*.attention": context})
    with torch.no_grad():
        want = wav2vec(x).logits[0].numpy()
    capsys.readouterr()
    assert cli.main(["transcribe", str(speech), "--model", out, "--beam", "0"]) == 0
    tokens = ["|", "<s>", "</s>", "<blank>", *"abcde"]
    text = capsys.readouterr().out.strip()
    assert text == said(want, tokens, 3) and text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "vocab.json").write_text('{"eng": {}}'), "of one language"),
        (lambda f: (f / "vocab.json").write_text('{"a": 99}'), "9 scores"),
        (lambda f: (f / "vocab.json").write_text("["), "vocab.json: "),
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors"),
        (lambda f: (f / "config.json").write_text('{"model_type": "bert"}'), ""),
    ],
)
def test_what_is_no_ctc_model_of_transformers(tmp_path, wav2vec, capsys, change, words):
    change(tmp_path)
    assert cli.main(["convert", str(tmp_path), str(tmp_path / "net.dsm"), "--normalize", "none"]) == 1
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and not (tmp_path / "net.dsm").exists()
