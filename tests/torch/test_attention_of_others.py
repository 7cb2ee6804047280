"""Attention of transformers' models, as they are."""

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")
from torch import nn

import dreamstream as ds

WAV2VEC2 = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    "conv_dim": (8, 8),
    "conv_stride": (4, 2),
    "conv_kernel": (6, 3),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


class Wav2Vec2(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.model = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**WAV2VEC2, attn_implementation=how))

    def forward(self, x):
        return self.model(x).last_hidden_state


@pytest.mark.parametrize("how", ["sdpa", "eager"])
@torch.no_grad()
def test_wav2vec2_with_a_declared_context(how):
    """Offline it is a model that sees the context, and online it is that model."""
    torch.manual_seed(0)
    model, x = Wav2Vec2(how).eval(), torch.randn(1, 400)
    full = model(x)[0]
    ds.patch_module(model, context={"model.encoder.layers.*.attention": ds.Context(chunk=4, left=8)})
    want = model(x)[0]
    assert (want - full).abs().max() > 1e-3
    model.online()
    for sizes in ([400], [40] * 10, [7, 0, 200, 193]):
        out, at = [], 0
        for k, n in enumerate(sizes):
            last = k == len(sizes) - 1
            chunk = ds.stream_tensor([x[0, at : at + n]], ids=["s"], sos=k == 0, eos=last, names=("B", "L"))
            out.append(model(chunk)["s"])
            at += n
        assert torch.allclose(torch.cat(out), want, atol=1e-5), sizes
    model.offline()
    engine = ds.compile(model, ("B", "L"))
    out = [
        engine.step({"s": x[0, :150].numpy()}, sos="s")["s"],
        engine.step({"s": x[0, 150:].numpy()}, eos="s")["s"],
    ]
    assert np.abs(np.concatenate(out) - want.numpy()).max() <= 1e-5
    assert engine.state_bytes_per_frame == 0


class GPT2(nn.Module):
    def __init__(self, how):
        super().__init__()
        sizes = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 11, "n_positions": 90}
        tokens = {"bos_token_id": 1, "eos_token_id": 1}
        self.model = transformers.GPT2Model(transformers.GPT2Config(**sizes, **tokens, attn_implementation=how))

    def forward(self, x):
        return self.model(inputs_embeds=x, use_cache=False).last_hidden_state


@pytest.mark.parametrize("how", ["sdpa", "eager"])
@torch.no_grad()
def test_gpt2_by_embeddings(how):
    torch.manual_seed(0)
    model, x = GPT2(how).eval(), torch.randn(1, 40, 16)
    want = model(x)[0]
    engine = ds.compile(model, ("B", "L", 16))
    assert engine.delay == 0
    out = [
        engine.step({"s": x[0, :15].numpy()}, sos="s")["s"],
        engine.step({"s": x[0, 15:].numpy()}, eos="s")["s"],
    ]
    assert np.abs(np.concatenate(out) - want.numpy()).max() <= 1e-5
