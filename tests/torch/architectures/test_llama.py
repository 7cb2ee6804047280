"""The state dict of transformers' LlamaModel in models.StreamingTransformer."""

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

import dreamstream as ds
from dreamstream.models import StreamingTransformer


@torch.no_grad()
def test_a_llama_model_loads():
    options = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3}
    torch.manual_seed(0)
    theirs = transformers.LlamaModel(
        transformers.LlamaConfig(vocab_size=7, hidden_size=16, intermediate_size=24, rms_norm_eps=1e-5, **options)
    ).eval()
    ours = StreamingTransformer(16, 4, 3, 24, 2).eval()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items() if k != "embed_tokens.weight"})
    x = np.random.default_rng(0).standard_normal((1, 40, 16), dtype=np.float32)
    want = theirs(inputs_embeds=torch.from_numpy(x)).last_hidden_state[0].numpy()
    engine = ds.compile(ours, ours.spec)
    got = [engine.step({"s": x[0, :13]}, sos="s")["s"], engine.step({"s": x[0, 13:]}, eos="s")["s"]]
    np.testing.assert_allclose(np.concatenate(got), want, rtol=0, atol=1e-5)
