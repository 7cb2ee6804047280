"""Layers, masks and attention of transformers, and tables that grow."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch.nn.functional as F

from ..online.register import register
from ..online.registered import called_with_numbers
from ..online.tracer import own_forward
from ..stream.context import is_declared
from ..torch.functional import combine, expert_linear

#: Numbers of a model's configuration that say what a mask shows.
_NUMBERS = ("sliding_window", "attention_chunk_size")


@register(
    "transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer.Wav2Vec2ConformerRotaryPositionalEmbedding"
)
@register("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert.Wav2Vec2BertRotaryPositionalEmbedding")
@register("transformers.models.seamless_m4t.modeling_seamless_m4t.SeamlessM4TConformerRotaryPositionalEmbedding")
def uncached(module: Any, x: Any) -> Any:
    """It keeps what it has computed for the last length."""
    twin = copy.copy(module)
    twin.cached_sequence_length = -1
    return own_forward(twin, x)


@register("transformers.integrations.moe.*")
def experts(module: Any, hidden: Any, index: Any, weights: Any) -> Any:
    """They loop over the experts that are hit, in whichever of transformers' ways is configured."""
    k = index.shape[-1]

    def products(x: Any, name: str) -> Any:
        weight = getattr(module, name).to(x.dtype)
        weight = weight.transpose(1, 2) if module.is_transposed else weight
        bias = getattr(module, f"{name}_bias").to(x.dtype) if module.has_bias else None
        return expert_linear(x, index, weight, bias).unflatten(-1, (k, -1))

    first = products(hidden, "gate_up_proj" if module.has_gate else "up_proj")
    inner = module._apply_gate(first) if module.has_gate else module.act_fn(first)
    out = products(inner.flatten(-2), "down_proj")
    if getattr(module, "has_post_expert_norm", False):
        out = module.post_expert_norm(out)
    return combine(out.flatten(-2), weights.to(hidden.dtype))


@register("transformers.integrations.sdpa_attention.sdpa_attention_forward")
def attention(
    function: Any,
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Any = None,
    **_: Any,
) -> tuple[Any, None]:
    mask = attention_mask if position_bias is None else position_bias
    if attention_mask is not None and position_bias is not None:
        mask = position_bias + attention_mask
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = causal and attention_mask is None and not is_declared()
    grouped = key.shape[1] != query.shape[1]
    out = F.scaled_dot_product_attention(
        query, key, value, mask, dropout, causal, scale=scaling, enable_gqa=grouped
    )
    return out.transpose(1, 2).contiguous(), None


@lru_cache(maxsize=64)
def _written_out(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives the mask itself, where the original may leave it to the attention.

    Its first argument is what the configuration says of the mask.
    """

    def mask(numbers: dict[str, Any], config: Any, *args: Any, **kwargs: Any) -> Any:
        config = copy.copy(config)
        config._attn_implementation = "eager"
        for name, number in numbers.items():
            setattr(config, name, number)
        return original(config, *args, **kwargs)

    return mask


@register("transformers.masking_utils.create_causal_mask")
@register("transformers.masking_utils.create_sliding_window_causal_mask")
@register("transformers.masking_utils.create_chunked_causal_mask")
def mask(function: Any, *args: Any, **kwargs: Any) -> Any:
    """They may leave the mask to the attention, and look at a cache."""
    if is_declared():
        return None
    config = kwargs.get("config", args[0] if args else None)
    cache = kwargs.get("past_key_values")
    if cache is not None and type(seen := cache.get_seq_length()) is int and seen == 0:
        kwargs = kwargs | {"past_key_values": None}  # later it has this call's keys
    numbers = {name: n for name in _NUMBERS if isinstance(n := getattr(config, name, None), int)}
    return called_with_numbers(_written_out(function), numbers, *args, **kwargs)
