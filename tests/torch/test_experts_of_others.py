"""Mixtures of experts of language models: transformers' own blocks, as they are, against themselves."""

import copy
from importlib import import_module

import numpy as np
import pytest
import torch

import dreamstream as ds

pytest.importorskip("transformers", reason="transformers is not installed")

D = 16
FFN = {
    "hidden_size": D,
    "intermediate_size": 24,
    "moe_intermediate_size": 12,
    "hidden_act": "silu",
    "num_attention_heads": 4,
}
MANY = {**FFN, "n_routed_experts": 12, "num_local_experts": 12, "num_experts_per_tok": 3, "n_shared_experts": 1}
GROUPS = {**MANY, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}
BLOCKS = {
    "mixtral.MixtralSparseMoeBlock": {**FFN, "num_local_experts": 6, "num_experts_per_tok": 2},
    "qwen2_moe.Qwen2MoeSparseMoeBlock": {**FFN, "num_experts": 6, "shared_expert_intermediate_size": 20},
    "qwen3_moe.Qwen3MoeSparseMoeBlock": {
        **FFN,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
    },
    "olmoe.OlmoeSparseMoeBlock": {**FFN, "num_experts": 6, "num_experts_per_tok": 3},
    "deepseek_v2.DeepseekV2Moe": {**GROUPS, "topk_method": "group_limited_greedy"},
    "deepseek_v2.DeepseekV2Moe greedy": {**MANY, "topk_method": "greedy"},
    "deepseek_v3.DeepseekV3MoE": {**GROUPS, "norm_topk_prob": True},
    "glm4_moe.Glm4MoeMoE": GROUPS,
    "gpt_oss.GptOssMLP": MANY,
    "phimoe.PhimoeSparseMoeBlock": {**MANY, "num_experts_per_tok": 2},
    "nemotron_h.NemotronHMoE": {**GROUPS, "moe_shared_expert_intermediate_size": 20, "mlp_hidden_act": "relu2"},
    "minimax.MiniMaxSparseMoeBlock": {**FFN, "num_local_experts": 6},
    "ernie4_5_moe.Ernie4_5_MoeSparseMoeBlock": {
        **FFN,
        "moe_num_experts": 6,
        "moe_k": 2,
        "moe_num_shared_experts": 1,
    },
    "granitemoe.GraniteMoeMoE": {**FFN, "num_local_experts": 6},
}


def first(result):
    """What a block says, without what else it returns."""
    return result[0] if isinstance(result, tuple) else result


def made(name):
    kind, model = name.split(" ")[0].split(".")[1], name.split(".")[0]
    own = import_module(f"transformers.models.{model}.modeling_{model}")
    settings = import_module(f"transformers.models.{model}.configuration_{model}")
    config = next(
        v for k, v in vars(settings).items() if k.endswith("Config") and k.lower().startswith(kind[:4].lower())
    )
    options = config(**BLOCKS[name])
    options._experts_implementation = "eager"
    block = getattr(own, kind)(options).eval()
    generator = torch.Generator().manual_seed(0)
    for p in (*block.parameters(), *block.buffers()):
        p.data = 0.5 * torch.randn(p.shape, generator=generator)
    return block


@pytest.mark.parametrize("name", BLOCKS)
def test_streams_as_it_is(name):
    block = made(name)
    x = torch.randn(2, 33, D, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = block(x)
    wanted = first(wanted).reshape(x.shape).numpy()
    engine = ds.compile(block, ("B", "L", D))
    online = ds.patch_module(copy.deepcopy(block)).online()
    for chunk in (1, 7, 33):
        eager, compiled = [], []
        for at in range(0, 33, chunk):
            start, end = at == 0, at + chunk >= 33
            piece = [row[at : at + chunk] for row in x]
            given = ds.stream_tensor(piece, ids=["a", "b"], sos=[start] * 2, eos=[end] * 2, names=("B", "L", "F"))
            with torch.no_grad():
                eager.append(first(online(given)).numpy())
            out = engine.step(
                {"a": piece[0].numpy(), "b": piece[1].numpy()},
                sos=["a", "b"] if start else (),
                eos=["a", "b"] if end else (),
            )
            compiled.append(np.stack([first(out["a"]), first(out["b"])]))
        np.testing.assert_allclose(np.concatenate(eager, 1), wanted, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(np.concatenate(compiled, 1), wanted, rtol=1e-5, atol=2e-5)
