"""Transformers in plain torch, by their definition: StreamingTransformer, and one of relative positions."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def slopes(heads: int) -> list[float]:
    """Of the paper on ALiBi: powers of two, then every second of the next finer ones."""
    if math.log2(heads).is_integer():
        return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    fewer = 2 ** math.floor(math.log2(heads))
    return slopes(fewer) + slopes(2 * fewer)[0::2][: heads - fewer]


def hidden(context: Any, n: Any) -> Any:
    """Which keys a query does not see."""
    i = torch.arange(n)
    begin = i // context.chunk * context.chunk
    seen = i < (begin + context.chunk + context.right)[:, None]
    if context.left is not None:
        seen &= (i >= (begin - context.left)[:, None]) | (i < context.keep)
    return ~seen


class Transformer(nn.Module):
    """What a native StreamingTransformer says, with its weights.

    Parameters
    ----------
    model : StreamingTransformer
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.o = model
        self.names = {k: k.replace(".", "_") for k in model.state_dict()}
        for key, value in model.state_dict().items():
            self.register_parameter(self.names[key], nn.Parameter(torch.tensor(value.numpy())))

    def norm(self, name: str, x: Any) -> Any:
        weight = self.given(f"{name}.weight")
        if self.o.norm_type == "layer_norm":
            return F.layer_norm(x, x.shape[-1:], weight, self.given(f"{name}.bias"), self.o.eps)
        return x * (x.pow(2).mean(-1, keepdim=True) + self.o.eps).rsqrt() * weight

    def given(self, name: str) -> Any:
        return getattr(self, self.names[name]) if name in self.names else None

    def product(self, name: str, x: Any) -> Any:
        return F.linear(x, self.given(f"{name}.weight"), self.given(f"{name}.bias"))

    def turned(self, x: Any) -> Any:
        half = x.shape[-1] // 2
        i = torch.arange(x.shape[2]).to(x.dtype)
        angles = i[:, None] * self.o.max_period ** (-torch.arange(half).to(x.dtype) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def attended(self, at: str, x: Any) -> Any:
        o = self.o
        q, k, v = (self.product(f"{at}.{p}_proj", x).unflatten(-1, (h, -1)).transpose(1, 2) for p, h in
                   (("q", o.num_heads), ("k", o.num_kv_heads), ("v", o.num_kv_heads)))  # fmt: skip
        if o.positions == "rotary":
            q, k = self.turned(q), self.turned(k)
        k, v = (y.repeat_interleave(o.num_heads // o.num_kv_heads, 1) for y in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        if o.positions == "alibi":
            i, steep = torch.arange(x.shape[1]), torch.tensor(slopes(o.num_heads), dtype=x.dtype)
            scores = scores - steep[:, None, None] * (i[:, None] - i).abs()
        y = scores.masked_fill(hidden(o.context, x.shape[1]), -math.inf).softmax(-1) @ v
        return self.product(f"{at}.o_proj", y.transpose(1, 2).flatten(2))

    def forward(self, x: Any) -> Any:
        act = getattr(F, self.o.activation)
        for k in range(len(self.o.layers)):
            x = x + self.attended(f"layers.{k}.self_attn", self.norm(f"layers.{k}.input_layernorm", x))
            y = self.norm(f"layers.{k}.post_attention_layernorm", x)
            up = self.product(f"layers.{k}.mlp.up_proj", y)
            y = act(self.product(f"layers.{k}.mlp.gate_proj", y)) * up if self.o.gated else act(up)
            x = x + self.product(f"layers.{k}.mlp.down_proj", y)
        return self.norm("norm", x)


def definition(model: Any, x: Any) -> Any:
    """What a native StreamingTransformer says of one whole sequence ``(L, features)``, in float64."""
    with torch.no_grad():
        return Transformer(model).double()(torch.from_numpy(x).double()[None])[0].numpy()


class Relative(nn.Module):
    """Attention by Transformer-XL's scheme, shifted as ESPnet does it, with a norm before it and a sum behind it.

    Parameters
    ----------
    width, heads : int
    context : Context
    """

    def __init__(self, width: int, heads: int, context: Any) -> None:
        super().__init__()
        self.heads, self.context, self.norm = heads, context, nn.LayerNorm(width)
        self.attention = nn.Module()
        for part in ("q", "k", "v", "out", "pos"):
            self.attention.register_module(f"linear_{part}", nn.Linear(width, width, bias=part != "pos"))
        for part in ("u", "v"):
            bias = nn.Parameter(torch.randn(heads, width // heads))
            self.attention.register_parameter(f"pos_bias_{part}", bias)

    def forward(self, x: Any) -> Any:
        m, y = self.attention, self.norm(x)
        b, n, width = x.shape
        far = torch.arange(n - 1, -n, -1).to(x.dtype)[:, None]
        angles = far * 10000.0 ** (-torch.arange(0, width, 2).to(x.dtype) / width)
        p = m.linear_pos(torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        p = p.view(-1, self.heads, width // self.heads).transpose(0, 1)
        q, k, v = (f(y).view(b, n, self.heads, -1) for f in (m.linear_q, m.linear_k, m.linear_v))
        bd = (q + m.pos_bias_v).transpose(1, 2) @ p.transpose(1, 2)
        zeros = torch.zeros((*bd.size()[:3], 1), dtype=bd.dtype)
        padded = torch.cat([zeros, bd], dim=-1).view(*bd.size()[:2], bd.size(3) + 1, bd.size(2))
        bd = padded[:, :, 1:].view_as(bd)[:, :, :, : bd.size(-1) // 2 + 1]
        scores = ((q + m.pos_bias_u).transpose(1, 2) @ k.permute(0, 2, 3, 1) + bd) / math.sqrt(width // self.heads)
        weights = scores.masked_fill(hidden(self.context, n), -math.inf).softmax(-1)
        return x + m.linear_out((weights @ v.transpose(1, 2)).transpose(1, 2).flatten(2))
