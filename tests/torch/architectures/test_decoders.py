"""Decoders of Hugging Face transformers by embeddings, with the masks and positions that they make."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

from architectures import check

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2}
GROUPED = SMALL | {"num_key_value_heads": 2}
BY_LETTERS = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 90}
BOTH, EAGER = ("sdpa", "eager"), ("eager",)

#: By the name of its classes: its sizes, and the attentions that it has.
DECODERS = {
    "Llama": (GROUPED, BOTH),
    "Mistral": (GROUPED, EAGER),  # a window of 4096
    "Qwen3": (GROUPED | {"head_dim": 4}, EAGER),
    "Phi": (SMALL, EAGER),
    "GPTNeoX": (SMALL, EAGER),
    "GPT2": (BY_LETTERS, BOTH),
    "GPTBigCode": (BY_LETTERS, EAGER),
    "Olmo2": (GROUPED | {"pad_token_id": 0}, EAGER),
    "Gemma": (GROUPED | {"head_dim": 4}, BOTH),
    "SmolLM3": (GROUPED | {"pad_token_id": 0}, EAGER),
    "Starcoder2": (GROUPED, EAGER),
    "Cohere": (GROUPED, EAGER),
    "Helium": (GROUPED | {"head_dim": 4}, EAGER),
    "Falcon": (SMALL, BOTH),
    "Gemma2": (GROUPED | {"head_dim": 4, "sliding_window": 6, "attn_logit_softcapping": 2.0}, EAGER),
    "Phi3": (GROUPED | {"pad_token_id": 0}, EAGER),
    "CodeGen": (BY_LETTERS | {"rotary_dim": 4}, EAGER),
    "GPTJ": (BY_LETTERS | {"rotary_dim": 2}, EAGER),
    "Olmo3": (GROUPED | {"sliding_window": 6, "num_hidden_layers": 4, "pad_token_id": 0}, EAGER),
    "DiffLlama": (GROUPED | {"pad_token_id": 0}, EAGER),
    "Moshi": (GROUPED | {"head_dim": 4, "ffn_dim": 24, "sliding_window": 8}, EAGER),
    "Bloom": ({"hidden_size": 16, "n_layer": 2, "n_head": 4}, EAGER),
}


class ByEmbeddings(torch.nn.Module):
    """One with "eager" attention fills a cache, which is left at its end."""

    def __init__(self, name, options):
        super().__init__()
        torch.manual_seed(0)
        self.options = {} if options.get("attn_implementation") == "eager" else {"use_cache": False}
        config = getattr(transformers, f"{name}Config")(vocab_size=7, **options)
        self.model = getattr(transformers, f"{name}Model")(config)

    def forward(self, x):
        return self.model(inputs_embeds=x, **self.options).last_hidden_state


@pytest.mark.parametrize("name, how", [(name, how) for name, (_, hows) in DECODERS.items() for how in hows])
def test_decoder(name, how):
    model = ByEmbeddings(name, DECODERS[name][0] | {"attn_implementation": how})
    assert check(model, ("B", "L", 16), (60, 13, 1), 20) == [0]


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("name, options", [("Mistral", {}), ("Gemma3Text", {"head_dim": 4})])
def test_window(name, options, how):
    """Streams are longer than it."""
    model = ByEmbeddings(name, GROUPED | options | {"sliding_window": 6, "attn_implementation": how})
    assert check(model, ("B", "L", 16), (60, 13, 1), 20) == [0]


class NoExperts(torch.nn.Module):
    def forward(self, x):
        return x, None


def test_sinks():
    """gpt-oss', whose experts are those of test_experts_of_others.py."""
    options = GROUPED | {"head_dim": 4, "sliding_window": 8, "attn_implementation": "eager"}
    model = ByEmbeddings("GptOss", options | {"layer_types": ["full_attention", "sliding_attention"]})
    for layer in model.model.layers:
        layer.mlp = NoExperts()
        torch.nn.init.normal_(layer.self_attn.sinks)
    assert check(model, ("B", "L", 16), (60, 13, 1), 20) == [0]
