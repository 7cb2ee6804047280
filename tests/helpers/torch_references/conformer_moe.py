"""3M-ASR's encoder in plain torch, by its definition: two stacks, a loop over experts, a mask of pairs."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .u2 import Attention, Convolution, FeedForward, Subsampling, chunk_mask, sinusoids

EPS = 1e-12


class Experts(nn.Module):
    """The best expert of softmax over all, by an embedding and the frame together; weighted by its probability."""

    def __init__(self, width: int, embedded: int, n: int, hidden: int, bias: bool, keep: bool) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({"w_1": nn.Module(), "w_2": nn.Module()})
        for name, out, of in (("w_1", hidden, width), ("w_2", width, hidden)):
            self.experts[name].weight = nn.Parameter(torch.randn(n, out, of) / math.sqrt(of))
            self.experts[name].bias = nn.Parameter(torch.randn(n, out))
        self.router_weights = nn.Parameter(torch.randn(embedded + width, n))
        self.router_bias = nn.Parameter(torch.randn(n)) if bias else None
        self.keep, self.chosen, self.margin = keep, None, None

    def forward(self, x: Any, embed: Any, index: Any = None) -> Any:
        logits = torch.cat([embed, x], -1) @ self.router_weights
        p = (logits if self.router_bias is None else logits + self.router_bias).softmax(-1)
        first, found = p.topk(2, -1)
        self.margin, self.chosen = first[..., 0] - first[..., 1], found[..., 0] if index is None else index
        out = torch.zeros_like(x)
        w, v = self.experts["w_1"], self.experts["w_2"]
        for e in range(len(w.weight)):
            hit = self.chosen == e
            y = F.linear(F.silu(F.linear(x[hit], w.weight[e], w.bias[e])), v.weight[e], v.bias[e])
            out[hit] = y if self.keep else y * p[hit][:, e : e + 1]
        return out


class Block(nn.Module):
    def __init__(self, o: dict[str, Any], experts: nn.Module | None) -> None:
        super().__init__()
        width = o["attention_dim"]
        self.norm_ff_macaron, self.norm_mha, self.norm_conv, self.norm_ff, self.norm_final = (
            nn.LayerNorm(width, eps=EPS) for _ in range(5)
        )
        self.feed_forward_macaron = FeedForward(width, o["linear_units"], F.silu)
        self.self_attn = Attention(o["attention_heads"], width, True)
        self.conv_module = Convolution(width, o["cnn_module_kernel"], F.silu, o["cnn_module_norm"], o["causal"])
        self.feed_forward = experts or FeedForward(width, o["linear_units"], F.silu)
        self.concat_linear = nn.Linear(2 * width, width)

    def forward(self, x: Any, positions: Any, mask: Any, *more: Any) -> Any:
        x = x + 0.5 * self.feed_forward_macaron(self.norm_ff_macaron(x))
        x = x + self.self_attn(self.norm_mha(x), positions, mask)
        x = x + self.conv_module(self.norm_conv(x))
        x = x + 0.5 * self.feed_forward(self.norm_ff(x), *more)
        return self.norm_final(x)


class Stack(nn.Module):
    def __init__(self, features: int, classes: int, o: dict[str, Any], experts: Any = None) -> None:
        super().__init__()
        width = o["attention_dim"]
        self.subsampling = Subsampling("conv2d", features, width)
        self.blocks = nn.ModuleList([Block(o, experts and experts()) for _ in range(o["num_blocks"])])
        self.after_norm, self.out_linear = nn.LayerNorm(width, eps=EPS), nn.Linear(width, classes)
        self.o = o

    def hidden(self, x: Any, *of_layers: Any) -> Any:
        x = self.subsampling(x)
        n, width = x.shape[1:]
        positions = sinusoids(n, width, x.dtype)
        size = self.o["decoding_chunk_size"]
        mask = (
            chunk_mask(n, size, self.o["num_decoding_left_chunks"])
            if size > 0
            else torch.ones(n, n, dtype=torch.bool)
        )
        x = x * math.sqrt(width)
        for i, block in enumerate(self.blocks):
            x = block(x, positions, mask, *(of_layer[i] for of_layer in of_layers))
        return self.after_norm(x)


class ConformerMoE(Stack):
    """As `dreamstream.models.ConformerMoE` takes its arguments."""

    def __init__(self, features: int, classes: int, **options: Any) -> None:
        moe = {"router_with_bias": False, "keep_expert_output": False} | options["moe_conf"]
        o = {"cnn_module_kernel": 15, "cnn_module_norm": "layer_norm", "causal": False, "attention_heads": 4}
        o |= {"decoding_chunk_size": 0, "num_decoding_left_chunks": -1, "linear_units": moe["hidden_units"]}
        o |= options
        theirs = {**o, "num_blocks": 6, **options["embed_conf"]}
        width, embedded = o["attention_dim"], theirs["attention_dim"]
        super().__init__(
            features,
            classes,
            o,
            lambda: Experts(
                width,
                embedded,
                moe["num_experts"],
                moe["hidden_units"],
                moe["router_with_bias"],
                moe["keep_expert_output"],
            ),
        )
        self.embed = Stack(features, classes, theirs)

    def forward(self, x: Any, index: Any = None) -> Any:
        n = len(self.blocks)
        embed = self.embed.hidden(x)
        return self.out_linear(self.hidden(x, [embed] * n, [None] * n if index is None else index))
