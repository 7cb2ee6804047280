"""U2's encoders in plain torch, by their definition: whole sequences, a mask of pairs, positions in a table."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def chunk_mask(n: int, chunk: int, left: int) -> torch.Tensor:
    """Which keys a query sees: those of its chunk, and of `left` chunks before it, or of all."""
    block = torch.arange(n) // chunk
    behind = block[:, None] - block
    return (behind >= 0) & ((behind <= left) if left >= 0 else torch.ones_like(behind, dtype=torch.bool))


def sinusoids(n: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    angles = torch.arange(n).to(dtype)[:, None]
    angles = angles * torch.exp(torch.arange(0, width, 2).to(dtype) * (-math.log(10000.0) / width))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


class Attention(nn.Module):
    def __init__(self, heads: int, width: int, positions: bool) -> None:
        super().__init__()
        self.heads = heads
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (nn.Linear(width, width) for _ in range(4))
        if positions:
            self.linear_pos = nn.Linear(width, width, bias=False)
            self.pos_bias_u = nn.Parameter(torch.randn(heads, width // heads))
            self.pos_bias_v = nn.Parameter(torch.randn(heads, width // heads))

    def forward(self, x: Any, positions: Any, mask: Any) -> Any:
        b, n, width = x.shape
        size = width // self.heads
        q, k, v = (f(x).view(b, n, self.heads, size) for f in (self.linear_q, self.linear_k, self.linear_v))
        if hasattr(self, "linear_pos"):
            p = self.linear_pos(positions).view(n, self.heads, size)
            scores = torch.einsum("bihd,bjhd->bhij", q + self.pos_bias_u, k)
            scores = scores + torch.einsum("bihd,jhd->bhij", q + self.pos_bias_v, p)
        else:
            scores = torch.einsum("bihd,bjhd->bhij", q, k)
        weights = (scores / math.sqrt(size)).masked_fill(~mask, -math.inf).softmax(-1)
        return self.linear_out(torch.einsum("bhij,bjhd->bihd", weights, v).reshape(b, n, width))


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, activation: Any) -> None:
        super().__init__()
        self.w_1, self.w_2, self.activation = nn.Linear(width, hidden), nn.Linear(hidden, width), activation

    def forward(self, x: Any) -> Any:
        return self.w_2(self.activation(self.w_1(x)))


class Convolution(nn.Module):
    def __init__(self, width: int, kernel: int, activation: Any, norm: str, causal: bool) -> None:
        super().__init__()
        self.pad = (kernel - 1, 0) if causal else (0, 0)
        self.pointwise_conv1 = nn.Conv1d(width, 2 * width, 1)
        around = 0 if causal else kernel // 2
        self.depthwise_conv = nn.Conv1d(width, width, kernel, padding=around, groups=width)
        self.norm = nn.BatchNorm1d(width) if norm == "batch_norm" else nn.LayerNorm(width)
        self.pointwise_conv2 = nn.Conv1d(width, width, 1)
        self.activation = activation

    def forward(self, x: Any) -> Any:
        x = F.pad(x.transpose(1, 2), self.pad)
        x = self.depthwise_conv(F.glu(self.pointwise_conv1(x), 1))
        if isinstance(self.norm, nn.LayerNorm):
            x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        else:
            x = self.norm(x)
        return self.pointwise_conv2(self.activation(x)).transpose(1, 2)


class ConformerLayer(nn.Module):
    def __init__(self, o: dict[str, Any]) -> None:
        super().__init__()
        width, activation = o["output_size"], o["activation"]
        self.first, self.half = o["normalize_before"], 0.5 if o["macaron_style"] else 1.0
        self.self_attn = Attention(o["attention_heads"], width, o["attention"] == "rel_selfattn")
        self.feed_forward = FeedForward(width, o["linear_units"], activation)
        self.norm_ff, self.norm_mha = (nn.LayerNorm(width) for _ in range(2))
        self.macaron, self.use_cnn = o["macaron_style"], o["use_cnn_module"]
        if self.macaron:
            self.feed_forward_macaron = FeedForward(width, o["linear_units"], activation)
            self.norm_ff_macaron = nn.LayerNorm(width)
        if self.use_cnn:
            self.conv_module = Convolution(
                width, o["cnn_module_kernel"], activation, o["cnn_module_norm"], o["causal"]
            )
            self.norm_conv, self.norm_final = (nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Any, positions: Any, mask: Any) -> Any:
        def add(x: Any, block: Any, norm: Any, factor: float = 1.0) -> Any:
            return x + factor * block(norm(x)) if self.first else norm(x + factor * block(x))

        if self.macaron:
            x = add(x, self.feed_forward_macaron, self.norm_ff_macaron, self.half)
        x = add(x, lambda y: self.self_attn(y, positions, mask), self.norm_mha)
        if self.use_cnn:
            x = add(x, self.conv_module, self.norm_conv)
        x = add(x, self.feed_forward, self.norm_ff, self.half)
        return self.norm_final(x) if self.use_cnn else x


class TransformerLayer(nn.Module):
    def __init__(self, o: dict[str, Any]) -> None:
        super().__init__()
        width = o["output_size"]
        self.first = o["normalize_before"]
        self.self_attn = Attention(o["attention_heads"], width, o["attention"] == "rel_selfattn")
        self.feed_forward = FeedForward(width, o["linear_units"], o["activation"])
        self.norm1, self.norm2 = (nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: Any, positions: Any, mask: Any) -> Any:
        if self.first:
            x = x + self.self_attn(self.norm1(x), positions, mask)
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.self_attn(x, positions, mask))
        return self.norm2(x + self.feed_forward(x))


class Subsampling(nn.Module):
    def __init__(self, kind: str, features: int, width: int) -> None:
        super().__init__()
        steps = {"linear": [], "conv2d": [(3, 2)] * 2, "conv2d6": [(3, 2), (5, 3)], "conv2d8": [(3, 2)] * 3}[kind]
        parts: list[nn.Module] = []
        for i, (kernel, stride) in enumerate(steps):
            parts += [nn.Conv2d(width if i else 1, width, kernel, stride), nn.ReLU()]
        self.steps = steps
        if steps:
            self.conv = nn.Sequential(*parts)
            features = self.conv(torch.zeros(1, 1, 99, features))[0, :, 0].numel()
        if kind in ("conv2d6", "conv2d8"):
            self.linear = nn.Linear(features, width)
        else:
            self.out = nn.Sequential(nn.Linear(features, width), *([] if steps else [nn.LayerNorm(width)]))

    def forward(self, x: Any) -> Any:
        if self.steps:
            x = self.conv(x[:, None])
            x = x.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)
        return self.linear(x) if hasattr(self, "linear") else self.out(x)


class CMVN(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(features))
        self.register_buffer("istd", torch.rand(features) + 0.5)

    def forward(self, x: Any) -> Any:
        return (x - self.mean) * self.istd


class Head(nn.Module):
    def __init__(self, width: int, vocab: int) -> None:
        super().__init__()
        self.ctc_lo = nn.Linear(width, vocab)


class Encoder(nn.Module):
    """An encoder of U2.

    Parameters
    ----------
    features : int
    options : dict
        As `dreamstream.models.U2Encoder` takes them; ``cmvn``: whether there is a norm of features.
    """

    def __init__(self, features: int, options: dict[str, Any]) -> None:
        super().__init__()
        conformer = options.get("architecture", "conformer") == "conformer"
        usual = {"normalize_before": True, "macaron_style": True, "use_cnn_module": True, "cnn_module_kernel": 15}
        usual |= {"causal": False, "cnn_module_norm": "batch_norm", "input_layer": "conv2d", "cmvn": False}
        usual |= {"activation_type": "swish" if conformer else "relu", "num_decoding_left_chunks": -1}
        usual |= {"selfattention_layer_type": "rel_selfattn" if conformer else "selfattn", "vocab_size": None}
        usual |= {"pos_enc_layer_type": "rel_pos" if conformer else "abs_pos"}
        o = {**usual, **options}
        o |= {"activation": {"swish": F.silu, "relu": F.relu, "gelu": F.gelu}[o["activation_type"]]}
        o |= {"attention": o["selfattention_layer_type"]}
        self.o, width = o, o["output_size"]
        if o["cmvn"]:
            self.global_cmvn = CMVN(features)
        self.embed = Subsampling(o["input_layer"], features, width)
        kind = ConformerLayer if conformer else TransformerLayer
        self.encoders = nn.ModuleList([kind(o) for _ in range(o["num_blocks"])])
        self.after_norm = nn.LayerNorm(width)
        if o["vocab_size"]:
            self.ctc = Head(width, o["vocab_size"])

    def forward(self, x: Any) -> Any:
        o = self.o
        if o["cmvn"]:
            x = self.global_cmvn(x)
        x = self.embed(x)
        n, width = x.shape[1:]
        positions = sinusoids(n, width, x.dtype)
        if o["pos_enc_layer_type"] == "no_pos":
            positions = torch.zeros_like(positions)
        else:
            x = x * math.sqrt(width)
        if o["pos_enc_layer_type"] == "abs_pos":
            x = x + positions
        mask = chunk_mask(n, o["decoding_chunk_size"], o["num_decoding_left_chunks"])
        for layer in self.encoders:
            x = layer(x, positions, mask)
        x = self.after_norm(x) if o["normalize_before"] else x
        return self.ctc.ctc_lo(x).log_softmax(-1) if o["vocab_size"] else x
