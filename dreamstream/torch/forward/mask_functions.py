"""Attention and masks of transformers, and tables that grow: what runs where they ask for lengths as numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F

from ...array.shape_of import ShapeOf, shape_alone
from ...online.mask_functions import BROUGHT, METHODS
from ...stream.context import is_declared
from ...stream.rules import Length
from ...stream.tree import map_leaves
from .pairs import Pairs

#: Numbers of a model's configuration that say what a mask shows.
_NUMBERS = ("sliding_window", "attention_chunk_size")


def _attention(
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


def _mask(length: Any, original: Any, args: Any, kwargs: Any) -> Any:
    if is_declared():
        return None
    config = kwargs.get("config", args[0] if args else None)
    cache = kwargs.get("past_key_values")
    if cache is not None and type(seen := cache.get_seq_length()) is int and seen == 0:
        kwargs = kwargs | {"past_key_values": None}  # later it has this call's keys
    numbers = {name: n for name in _NUMBERS if isinstance(n := getattr(config, name, None), int)}
    return type(length).note_call(_written_out(original), (numbers, *args), kwargs)


def _grown(length: Any, original: Any, args: Any, kwargs: Any) -> Any:
    """Make a table as long as others are from the start; the call that passes its end says so."""

    def long(x: Any) -> Any:
        if isinstance(x, Length):
            return _ROWS
        alone = shape_alone(x)
        if not isinstance(alone, ShapeOf):
            return x
        return torch.zeros((), dtype=alone.dtype).expand(alone.at(lambda _: _ROWS).shape)

    with Pairs.quietly():
        return original(*map_leaves(args, long), **map_leaves(kwargs, long))


#: Frames for which tables of positions are made.
_ROWS = 5000

METHODS.update(dict.fromkeys(("extend_pe", "extend_pos_enc", "update_max_seq_length"), _grown))
BROUGHT["transformers.integrations.sdpa_attention"] = {
    "sdpa_attention_forward": lambda length, original, args, kwargs: _attention(*args, **kwargs)
}
BROUGHT["transformers.masking_utils"] = dict.fromkeys(
    ("create_causal_mask", "create_sliding_window_causal_mask", "create_chunked_causal_mask"), _mask
)
