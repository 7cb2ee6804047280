"""Layers of attention."""

from __future__ import annotations

from typing import Any, ClassVar

from ..array import Tensor
from ..array.attend import across
from ..array.batch_constants import value_of
from ..errors import ShapeError
from ..stream.context import Context
from . import functional as F, init
from .functional.texts import described
from .linear import Linear, new_parameter
from .module import Module

__all__ = ["MultiheadAttention"]

_described = described(
    "",
    {
        "ValueError": "Where heads don't divide the features.",
        "ShapeError": "Where an input has another number of features.",
        "NotStreamableError": "Where nothing says what a query sees: a context, or ``is_causal=True``.",
    },
    embed_dim="Features of queries and of outputs.",
    num_heads="Heads, each of ``embed_dim / num_heads`` features.",
    dropout="Probability with which a weight is dropped, in training.",
    bias="Whether projections have a bias.",
    kdim="Features of keys; `embed_dim` without it.",
    vdim="Features of values; `embed_dim` without it.",
    batch_first="Whether inputs are ``(B, L, features)``, not ``(L, B, features)``.",
    context="What a query sees.",
)


@_described
class MultiheadAttention(Module):
    """Attention of several heads between projections.

    Attributes
    ----------
    in_proj_weight : Parameter
        ``(3 * embed_dim, embed_dim)``; None where `kdim` or `vdim` differ.
    q_proj_weight, k_proj_weight, v_proj_weight : Parameter
        ``(embed_dim, embed_dim)``, ``(embed_dim, kdim)``, ``(embed_dim, vdim)``, where they differ.
    in_proj_bias : Parameter or None
        ``(3 * embed_dim,)``.
    out_proj : Linear

    Notes
    -----
    Inputs ``(B, L, features)`` or ``(L, B, features)``, outputs as many features as `embed_dim`, and None for the
    weights. **Streaming.** Delay and state are the context's. Source: torch.nn.MultiheadAttention.
    """

    _shown = "{embed_dim}, {num_heads}, batch_first={batch_first}"
    _usual: ClassVar = {"context": None}

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        context: Context | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: {num_heads} heads don't divide {embed_dim} features")
        if add_bias_kv or add_zero_attn:
            raise ValueError("MultiheadAttention: add_bias_kv and add_zero_attn are not supported")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first, self.context = batch_first, context
        like = {"device": device, "dtype": dtype}
        joined = self.kdim == self.vdim == embed_dim
        for name, features in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            own = None if joined else new_parameter(embed_dim, features, **like)
            self.register_parameter(f"{name}_proj_weight", own)
        self.register_parameter(
            "in_proj_weight", new_parameter(3 * embed_dim, embed_dim, **like) if joined else None
        )
        self.register_parameter("in_proj_bias", new_parameter(3 * embed_dim, **like) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, **like)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new projections (Glorot); biases are 0."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Any]:
        """Return the attended values, and weights: None of plain tensors, what can't be used of streams."""
        hidden = key_padding_mask
        if hidden is not None and F.attention.hides_nothing(hidden):
            hidden = None
        if hidden is not None:
            hidden = ~hidden if "bool" in str(hidden.dtype) else hidden  # True shows
            if any(x.is_stream for x in (query, key)) and not F.attention.of_memory(hidden):
                raise F.attention.unrecognised_mask("MultiheadAttention", hidden)
        if attn_mask is not None and "bool" in str(attn_mask.dtype):
            attn_mask = ~attn_mask  # True hides
        if isinstance(attn_mask, Tensor) and not attn_mask.is_stream and attn_mask.ndim == 3:
            attn_mask = attn_mask.unflatten(0, (-1, self.num_heads))  # each row's heads, one after the other
        alike = query is key is value
        query, key, value = map(value_of, (query, key, value))
        given = ((query, self.embed_dim), (key, self.kdim), (value, self.vdim))
        for x, features in given:
            if x.ndim != 3 or x.shape[-1] != features:
                raise ShapeError(
                    f"MultiheadAttention: expected (B, L, {features}), or with L first, got {tuple(x.shape)}"
                )
        if alike and self.in_proj_weight is not None:
            parts = list(F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1))
        else:
            parts = [self._projected(i, x) for i, (x, _) in enumerate(given)]
        parts = parts if self.batch_first else [x.transpose(0, 1) for x in parts]
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in parts)
        attn_mask = F.attention.beside_hint(attn_mask, is_causal, key_padding_mask, need_weights)
        causal = is_causal and attn_mask is None
        p = self.dropout if self.training else 0.0
        if hidden is None:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask, p, causal, context=self.context)
        elif causal or (self.context is not None and not across(q, k)):
            raise ValueError("MultiheadAttention: key_padding_mask beside a context; give attn_mask in its place")
        else:
            masks = [x for x in (attn_mask, hidden.unsqueeze(1).unsqueeze(2)) if x is not None]
            out = F.attention.under_masks(q, k, v, masks, q.shape[-1] ** -0.5, p=p)
        out = self.out_proj(out.transpose(1, 2).flatten(-2))
        weights = F.attention.weights_of(q, k) if need_weights else None
        return out if self.batch_first else out.transpose(0, 1), weights

    def _projected(self, i: int, x: Tensor) -> Tensor:
        """Return queries, keys or values."""
        part = slice(i * self.embed_dim, (i + 1) * self.embed_dim)
        joined = self.in_proj_weight
        weight = getattr(self, f"{'qkv'[i]}_proj_weight") if joined is None else joined[part]
        return F.linear(x, weight, None if self.in_proj_bias is None else self.in_proj_bias[part])
