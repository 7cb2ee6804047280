"""Attention of plain tensors within a declared context: the same model offline as online."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...errors import ShapeError
from ...stream.context import Context, is_declared, seen_by
from ...stream.mask_recognition import MASKED, sees


def _seen(context: Context, query: Tensor, key: Tensor, axis: int) -> Tensor:
    """Return ``(L, L)``: whether the query of a row sees the key of a column."""
    n = query.shape[axis]
    if key.shape[axis] != n:
        raise ShapeError(f"attention in {context}: {n} queries and {key.shape[axis]} keys are not of one stream")
    i = torch.arange(n, device=query.device)
    return sees(context, i[:, None], i)


def _hides(mask: Any) -> bool:
    """Whether a mask says of any key that it is not seen."""
    if mask is None:
        return False
    return bool((~mask if mask.dtype == torch.bool else mask <= MASKED).any())


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **named: Any,
) -> Tensor:
    context = seen_by("scaled_dot_product_attention", is_causal or _hides(attn_mask))
    mask = _seen(context, query, key, -2)
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        mask = attn_mask.masked_fill(~mask, -torch.inf)
    return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, **named)


def _heads(
    query: Tensor, key: Tensor, *args: Any, attn_mask: Any = None, is_causal: bool = False, **more: Any
) -> Any:
    context = seen_by("MultiheadAttention", is_causal or attn_mask is not None)
    more["attn_mask"] = ~_seen(context, query, key, 0)
    return F.multi_head_attention_forward(query, key, *args, **more)


def _softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Return softmax of what is a score for each query and key over the keys that are seen."""
    context = seen_by("attention", False)
    axis = -1 if dim is None else dim if dim < 0 else dim - input.ndim
    queries = {-1: -2, -2: -1}.get(axis)
    if input.ndim < 3 or queries is None or input.shape[-1] != input.shape[-2]:
        return torch.softmax(input, axis, dtype=dtype)
    seen = _seen(context, input, input, queries)
    return torch.softmax(input.masked_fill(~(seen if axis == -1 else seen.T), -torch.inf), axis, dtype=dtype)


_STANDS_IN = {
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _heads,
    F.softmax: _softmax,
    **dict.fromkeys((torch.softmax, torch.Tensor.softmax), lambda x, dim, dtype=None: _softmax(x, dim, 3, dtype)),
}


class DeclaredContext(TorchFunctionMode):
    """Within it attention sees what is declared; and torch's fused layers, which ask nobody, are not taken."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        run = _STANDS_IN.get(func, func) if is_declared() else func
        return run(*args, **(kwargs or {}))
