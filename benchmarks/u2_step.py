"""networks.py's "u2" as one step of a torch module, (x, states) -> (y, states), for peers.py.

It does as little as it can: positions are added to keys, and only those of new frames; convolutions keep what
comes out of their gates; all streams of a batch stand at the same place.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

FEATURES, WIDTH, HEADS, HIDDEN, LAYERS, KERNEL, CHUNK, LEFT = 80, 256, 4, 2048, 12, 15, 16, 4
BEFORE = 3  # frames that the first window has beyond a chunk's
KEPT = CHUNK * LEFT


def feed_forward() -> nn.Module:
    return nn.ModuleDict({"w_1": nn.Linear(WIDTH, HIDDEN), "w_2": nn.Linear(HIDDEN, WIDTH)})


def run_feed_forward(block: Any, x: torch.Tensor) -> torch.Tensor:
    return block["w_2"](torch.nn.functional.silu(block["w_1"](x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.linear_pos = nn.Linear(WIDTH, WIDTH, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(HEADS, WIDTH // HEADS))
        self.pos_bias_v = nn.Parameter(torch.zeros(HEADS, WIDTH // HEADS))

    def forward(self, x: Any, positions: Any, hidden: Any, keys: Any, values: Any, beside: Any) -> Any:
        n = x.shape[0]
        q, k, v = (f(x).view(n, CHUNK, HEADS, -1) for f in (self.linear_q, self.linear_k, self.linear_v))
        p = self.linear_pos(positions).view(1, CHUNK, HEADS, -1)
        scalar = (k * self.pos_bias_u + p * self.pos_bias_v).sum(-1).transpose(1, 2)
        q, k, v = (y.transpose(1, 2) for y in (q, k + p, v))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        beside = torch.cat([beside, scalar], 2)
        scores = (q @ keys.transpose(2, 3) + beside[:, :, None]) / math.sqrt(WIDTH // HEADS) + hidden
        y = (scores.softmax(-1) @ values).transpose(1, 2).reshape(n, CHUNK, WIDTH)
        return self.linear_out(y), keys[:, :, CHUNK:], values[:, :, CHUNK:], beside[:, :, CHUNK:]


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pointwise_conv1 = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.depthwise_conv = nn.Conv1d(WIDTH, WIDTH, KERNEL, groups=WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.pointwise_conv2 = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: Any, kept: Any) -> Any:
        padded = nn.functional.glu(self.pointwise_conv1.bias, 0)[
            :, None
        ]  # what comes of padding: states begin at 0
        x = nn.functional.glu(self.pointwise_conv1(x.transpose(1, 2)), 1) - padded
        x = torch.cat([kept, x], 2)
        y = nn.functional.silu(self.norm(self.depthwise_conv(x + padded)))
        return self.pointwise_conv2(y).transpose(1, 2), x[:, :, 1 - KERNEL :]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.conv_module = Attention(), Convolution()
        self.feed_forward, self.feed_forward_macaron = feed_forward(), feed_forward()
        for name in ("ff", "mha", "ff_macaron", "conv", "final"):
            setattr(self, f"norm_{name}", nn.LayerNorm(WIDTH))

    def forward(self, x: Any, positions: Any, hidden: Any, *states: Any) -> Any:
        x = x + 0.5 * run_feed_forward(self.feed_forward_macaron, self.norm_ff_macaron(x))
        y, *kept = self.self_attn(self.norm_mha(x), positions, hidden, *states[:3])
        x = x + y
        y, frames = self.conv_module(self.norm_conv(x), states[3])
        x = x + y
        x = x + 0.5 * run_feed_forward(self.feed_forward, self.norm_ff(x))
        return self.norm_final(x), *kept, frames


class U2Step(nn.Module):
    """(B, 64, 80) -> (B, 16, 256)."""

    def __init__(self) -> None:
        super().__init__()
        convolutions = nn.Sequential(
            nn.Conv2d(1, WIDTH, 3, 2), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, 2), nn.ReLU()
        )
        out = nn.Sequential(nn.Linear(WIDTH * ((FEATURES - 1) // 2 - 1) // 2, WIDTH))
        self.embed = nn.ModuleDict({"conv": convolutions, "out": out})
        self.encoders = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.after_norm = nn.LayerNorm(WIDTH)
        self.angles = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))  # fp32 in any format

    def states(self, n: int) -> list[torch.Tensor]:
        """Input frames, frames so far, and of each layer keys, values, numbers beside keys, convolution."""
        size = WIDTH // HEADS
        layer = [(n, HEADS, KEPT, size), (n, HEADS, KEPT, size), (n, HEADS, KEPT), (n, WIDTH, KERNEL - 1)]
        return [torch.zeros(s) for s in [(n, BEFORE, FEATURES), (1,), *layer * LAYERS]]

    def forward(self, x: torch.Tensor, frames: torch.Tensor, at: torch.Tensor, *states: torch.Tensor) -> Any:
        x = torch.cat([frames, x], 1)
        frames = x[:, -BEFORE:]
        x = self.embed["conv"](x[:, None])
        x = self.embed["out"](x.transpose(1, 2).flatten(2)) * math.sqrt(WIDTH)
        angles = (at + torch.arange(CHUNK, dtype=torch.float32))[:, None] * self.angles
        positions = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(x.dtype)
        hidden = torch.where(torch.arange(KEPT + CHUNK) >= KEPT - at, 0.0, -1e9).to(x.dtype)
        kept: list[torch.Tensor] = []
        for i, layer in enumerate(self.encoders):
            x, *own = layer(x, positions, hidden, *states[4 * i : 4 * i + 4])
            kept += own
        return self.after_norm(x), frames, at + CHUNK, *kept
