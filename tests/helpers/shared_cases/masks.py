"""Attention whose masks, terms and softmax are written by hand, as they stand in the models of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .tables import BLC, case, net


def _heads(self: Any, x: Any) -> Any:
    """Return queries, keys and values ``(B, 2, L, 4)``."""
    B, L, C = x.shape
    return [y.view(B, L, 2, C // 2).transpose(1, 2) for y in self.qkv(x).split(C, dim=2)]


def _joined(self: Any, y: Any) -> Any:
    B, H, L, D = y.shape
    return self.out(y.transpose(1, 2).contiguous().view(B, L, H * D))


def _entered(**more: Any) -> Callable[..., Any]:
    """Enter a forward ``(self, x, q, k, v, F, torch)`` that gives what heads attend to."""

    def enter(attend: Callable[..., Any]) -> Callable[..., Any]:
        def make(nn: Any, F: Any, torch: Any) -> Any:
            def forward(self: Any, x: Any) -> Any:
                return _joined(self, attend(self, x, *_heads(self, x), F, torch))

            model = net(
                nn,
                forward,
                qkv=nn.Linear(8, 24),
                out=nn.Linear(8, 8),
                drop=nn.Dropout(0.1),
                near=nn.Embedding(9, 2),
            )
            model.register_buffer("slopes", torch.tensor([0.5, 0.125]))
            return model

        name = attend.__name__.strip("_").replace("_", "-")
        case(name, BLC(8), make, **{"exports": False, "reach": 20, "delay": 0} | more)
        return attend

    return enter


# ---------------------------------------------------------------- masks for a function
@_entered(reach=12, delay=3)
def _chunks_by_positions(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    i = torch.arange(x.size(1), device=x.device)
    block, other = i[:, None] // 4, i[None, :] // 4
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(block >= other) & (block - other <= 1))


@_entered()
def _square_mask(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    mask = torch.nn.Transformer.generate_square_subsequent_mask(x.size(1))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@_entered(reach=14, delay=2)
def _window_on_both_sides(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    T = q.shape[-2]
    every = torch.ones(T, T, dtype=torch.bool)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=every.tril(diagonal=2) & every.triu(diagonal=-5))


@_entered()
def _slopes_as_a_mask(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    """ALiBi, and -inf where the future is."""
    i = torch.arange(x.size(1))
    bias = -self.slopes[:, None, None] * (i[:, None] - i)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(i > i[:, None], float("-inf")))


# ---------------------------------------------------------------- written out
@_entered()
def _small_gpt_by_hand(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    T, table = x.size(1), torch.tril(torch.ones(90, 90)).view(1, 1, 90, 90)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(table[:, :, :T, :T] == 0, float("-inf"))
    return self.drop(F.softmax(att, dim=-1)) @ v


@_entered(reach=14, delay=2)
def _window_by_einsum(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    i = torch.arange(x.size(1))
    far = i[None, :] - i[:, None]
    att = torch.einsum("bhid,bhjd->bhij", q, k) / 4**0.5
    att = att.masked_fill((far > 2) | (far < -5), -1e9).softmax(-1)
    return torch.einsum("bhij,bhjd->bhid", att, v)


@_entered()
def _softmax_in_float(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    T = x.size(1)
    att = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(4)
    att += torch.full((T, T), float("-inf")).triu(1)
    return torch.matmul(F.softmax(att.float(), dim=-1).type_as(q), v)


@_entered()
def _clipped_positions(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    """A learned term for each distance up to four."""
    i = torch.arange(x.size(1))
    near = self.near((i[:, None] - i[None, :]).clamp(-4, 4) + 4).permute(2, 0, 1).unsqueeze(0)
    att = q @ k.transpose(-2, -1) / math.sqrt(4) + near
    att = torch.where(i[:, None] >= i[None, :], att, torch.finfo(att.dtype).min)
    return att.softmax(-1) @ v


@_entered()
def _masked_before_and_behind(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    T = x.size(1)
    future = torch.triu(torch.ones(T, T), 1).bool()
    att = (q @ k.transpose(-2, -1)).masked_fill(future, -1e4 * 2).softmax(-1).masked_fill(future, 0.0)
    return att @ v


@_entered()
def _times_a_mask(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    """As the first GPT has it: scores times a mask, less what its zeros hide."""
    att = q @ k.transpose(-2, -1)
    seen = torch.tril(torch.ones(90, 90)).view(1, 1, 90, 90)[:, :, : att.size(-2), : att.size(-1)]
    return (att * seen - 1e10 * (1 - seen)).softmax(-1) @ v


@_entered(reach=14, delay=3)
def _grid_of_expanded_positions(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    """Positions repeated along the other axis, and a mask of the scores' own shape."""
    i = torch.arange(x.size(1))
    keys = i.expand(x.size(1), x.size(1))
    far = keys - i.unsqueeze(1).expand_as(keys)
    att = q @ k.transpose(-2, -1) * torch.ones(x.size(1), x.size(1))
    hidden = torch.ones_like(att).triu(4) == 1
    att = torch.where(far >= -5, att.masked_fill(hidden, -1e9), torch.full_like(att, -1e9))
    return att.softmax(-1) @ v


@_entered()
def _vectors_by_matmul(self: Any, x: Any, q: Any, k: Any, v: Any, F: Any, torch: Any) -> Any:
    """Shaw's vector of each pair, with queries in front of streams and heads; a term picked from a weight."""
    B, H, L, D = q.shape
    i = torch.arange(L)
    index = (i[None, :] - i[:, None]).clamp(-4, 4) + 4
    pairs = F.embedding(index, self.qkv.weight[:9, :4])
    att = torch.matmul(q.permute(2, 0, 1, 3).contiguous().view(L, B * H, D), pairs.transpose(1, 2))
    att = att.transpose(0, 1).contiguous().view(B, H, L, L) + q @ k.transpose(-2, -1)
    att = att + self.near.weight[index].permute(2, 0, 1)
    return att.masked_fill(i > i[:, None], -math.inf).softmax(-1) @ v


# ---------------------------------------------------------------- torch's layers
def _layers(nn: Any, F: Any, torch: Any, hint: bool) -> Any:
    def forward(self: Any, x: Any) -> Any:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.encoder(x, mask=mask, is_causal=hint)

    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=hint)
    return net(nn, forward, encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


def _multihead(nn: Any, F: Any, torch: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        future = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        return self.attention(x, x, x, attn_mask=future)[0]

    return net(nn, forward, attention=nn.MultiheadAttention(8, 2, batch_first=True))


def _positions(nn: Any, F: Any, torch: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        return x + self.table(torch.arange(x.size(1), device=x.device))

    return net(nn, forward, table=nn.Embedding(90, 8))


_TORCH: dict[str, Any] = {"exports": False, "reach": 20, "delay": 0}
case("encoder-with-a-mask", BLC(8), lambda nn, F, torch: _layers(nn, F, torch, False), **_TORCH)
case("encoder-with-a-mask-and-a-hint", BLC(8), lambda nn, F, torch: _layers(nn, F, torch, True), **_TORCH)
case("multihead-with-a-mask", BLC(8), _multihead, **_TORCH)
case("table-by-arange", BLC(8), _positions, **_TORCH)
