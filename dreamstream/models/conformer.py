"""Parts of Conformers and Transformers under a chunk mask, as WeNet and what descends from it name them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import nn
from ..array import Tensor, cat
from ..errors import ShapeError
from ..nn import functional as F
from ..stream.context import Context

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": F.gelu,
    "hardtanh": F.hardtanh,
    "relu": F.relu,
    "selu": F.selu,
    "swish": F.silu,
    "tanh": F.tanh,
}
#: Kernels and strides of the convolutions in front, by name of the input layer, and what the projection is called.
INPUT_LAYERS: dict[str, tuple[tuple[tuple[int, int], ...], str]] = {
    "linear": ((), "out"),
    "conv2d": (((3, 2), (3, 2)), "out"),
    "conv2d6": (((3, 2), (5, 3)), "linear"),
    "conv2d8": (((3, 2), (3, 2), (3, 2)), "linear"),
}

#: What the parameters of encoders are.
PARAMETERS = {
    "attention_heads": "Heads.",
    "num_blocks": "Layers.",
    **dict.fromkeys(
        ("dropout_rate", "positional_dropout_rate", "attention_dropout_rate"),
        "Of training, which natively doesn't happen.",
    ),
    "input_layer": '{"conv2d", "conv2d6", "conv2d8", "linear"}: Subsampling by 4, 6, 8, or none.',
    "normalize_before": "Whether norms stand before blocks.",
    "static_chunk_size": "The chunk, in frames behind the subsampling, where `decoding_chunk_size` is 0.",
    **dict.fromkeys(("use_dynamic_chunk", "use_dynamic_left_chunk"), "Of training."),
    "macaron_style": "Whether there is a feed-forward block before attention too.",
    "use_cnn_module": "Whether there is a convolution behind attention.",
    "activation_type": '{"swish", "relu", "gelu", "tanh", "hardtanh", "selu"}: Between products.',
    "cnn_module_kernel": "Frames of the convolution.",
    "causal": "Whether the convolution looks back alone.",
    "cnn_module_norm": '{"batch_norm", "layer_norm"}: The norm behind the convolution.',
    "decoding_chunk_size": "Frames of a chunk, behind the subsampling; below 0 the whole stream, which "
    '``unstreamable="buffer"`` waits for.',
    "num_decoding_left_chunks": "Chunks before its own that a frame sees; below 0 all.",
    "context": "What a frame sees, in place of chunks.",
}


def one_of(name: str, given: str, known: Any) -> Any:
    if given not in known:
        raise ShapeError(f"{name} is one of {', '.join(known)}, got {given!r}")
    return given


class Subsampling(nn.Module):
    """Convolutions over frames and features, and a projection."""

    def __init__(self, input_layer: str, input_size: int, output_size: int, dropout: float) -> None:
        super().__init__()
        kernels, name = INPUT_LAYERS[input_layer]
        convolutions: list[Any] = []
        features, channels = input_size, 1
        for kernel, stride in kernels:
            convolutions += [nn.Conv2d(channels, output_size, kernel, stride), nn.ReLU()]
            features, channels = (features - kernel) // stride + 1, output_size
        self.conv = nn.Sequential(*convolutions) if kernels else None
        project: Any = nn.Linear(channels * features, output_size)
        if name == "out":
            rest = [] if kernels else [nn.LayerNorm(output_size, eps=1e-5), nn.Dropout(dropout)]
            project = nn.Sequential(project, *rest)
        self.project = name
        self.register_module(name, project)

    def forward(self, x: Tensor) -> Any:
        if self.conv is not None:
            x = self.conv(x.unsqueeze(1)).transpose(1, 2).flatten(2)
        project: Any = self._modules[self.project]
        return project(x)


class Attention(nn.Module):
    """Attention of several heads under a chunk mask; with positions, relative to none but by themselves."""

    def __init__(self, heads: int, width: int, positions: bool, context: Context | None) -> None:
        super().__init__()
        if width % heads:
            raise ShapeError(f"attention_heads: {heads} heads don't divide {width} features")
        self.heads, self.context = heads, context
        for name in ("linear_q", "linear_k", "linear_v", "linear_out"):
            self.register_module(name, nn.Linear(width, width))
        if positions:
            self.linear_pos = nn.Linear(width, width, bias=False)
            for name in ("pos_bias_u", "pos_bias_v"):
                self.register_parameter(name, nn.Parameter(np.zeros((heads, width // heads), np.float32)))
                nn.init.xavier_uniform_(getattr(self, name))

    def forward(self, x: Tensor, positions: Any) -> Any:
        q, k, v = (self._split(layer(x)) for layer in (self.linear_q, self.linear_k, self.linear_v))
        scale = 1 / math.sqrt(q.shape[-1])
        if "linear_pos" in self._modules:
            # (q + u) k + (q + v) p = q (k + p) + (u k + v p): a key is k + p, and a number beside it
            p = self._split(self.linear_pos(positions * x[..., :1] ** 0))  # in step with the frames
            u, w = (b.unsqueeze(1) for b in (self.pos_bias_u, self.pos_bias_v))
            beside = (k * u + p * w).sum(-1, keepdim=True)
            q, k = F.pad(q, (0, 1), value=1.0), cat([k + p, beside], -1)
        y = F.scaled_dot_product_attention(q, k, v, scale=scale, context=self.context)
        return self.linear_out(y.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Any:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two products, a function in between."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Any], Any], dropout: float) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.activation, self.dropout = activation, nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Any:
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class Convolution(nn.Module):
    """A gated product, a convolution of each channel, a norm, and a product."""

    def __init__(
        self, width: int, kernel: int, activation: Callable[[Any], Any], norm: str, causal: bool, bias: bool
    ) -> None:
        super().__init__()
        if not causal and kernel % 2 == 0:
            raise ShapeError(
                f"cnn_module_kernel: a convolution that is not causal has an odd kernel, got {kernel}"
            )
        one_of("cnn_module_norm", norm, ("batch_norm", "layer_norm"))
        self.before = kernel - 1 if causal else 0
        padding = 0 if causal else kernel // 2
        self.pointwise_conv1 = nn.Conv1d(width, 2 * width, 1, bias=bias)
        self.depthwise_conv = nn.Conv1d(width, width, kernel, padding=padding, groups=width, bias=bias)
        self.norm: Any = nn.BatchNorm1d(width) if norm == "batch_norm" else nn.LayerNorm(width)
        self.pointwise_conv2 = nn.Conv1d(width, width, 1, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Any:
        x = F.pad(x.transpose(1, 2), (self.before, 0))  # the gate sees the zeros, and its bias passes
        x = self.depthwise_conv(F.glu(self.pointwise_conv1(x), 1))
        turned = isinstance(self.norm, nn.LayerNorm)
        x = self.norm(x.transpose(1, 2)).transpose(1, 2) if turned else self.norm(x)
        return self.pointwise_conv2(self.activation(x)).transpose(1, 2)


class Layer(nn.Module):
    """Blocks, each with a norm before or behind it, added to what came in."""

    def __init__(
        self, width: int, blocks: Mapping[str, tuple[str, nn.Module, float]], options: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.normalize_before = options["normalize_before"]
        self.dropout = nn.Dropout(options["dropout_rate"])
        self.blocks = [(name, norm, factor) for name, (norm, _, factor) in blocks.items()]
        for name, (norm, block, _) in blocks.items():
            self.register_module(name, block)
            self.register_module(norm, nn.LayerNorm(width, eps=options["norm_eps"]))
        final = nn.LayerNorm(width, eps=options["norm_eps"]) if "conv_module" in blocks else None
        self.register_module("norm_final", final)

    def forward(self, x: Tensor, **besides: Any) -> Any:
        """Return ``(B, L, width)``; `besides` has what blocks take beside frames, a tuple by name of the block."""
        parts: dict[str, Any] = self._modules
        for name, norm, factor in self.blocks:
            y = parts[norm](x) if self.normalize_before else x
            y = self.dropout(parts[name](y, *besides.get(name, ())))
            x = x + (y if factor == 1 else y * factor)
            x = x if self.normalize_before else parts[norm](x)
        final = parts["norm_final"]
        return x if final is None else final(x)


def conformer_blocks(
    width: int,
    attention: nn.Module,
    feed_forward: Callable[[], nn.Module],
    options: Mapping[str, Any],
    last: nn.Module | None = None,
) -> Mapping[str, tuple[str, nn.Module, float]]:
    """Return the blocks of a Conformer's layer: each with its norm's name and its factor.

    `feed_forward` makes a feed-forward block; `last` stands in place of the second one. The options are
    ``macaron_style``, ``use_cnn_module``, and what `Convolution` takes.
    """
    half = 0.5 if options["macaron_style"] else 1.0
    made: dict[str, tuple[str, nn.Module, float]] = {}
    if options["macaron_style"]:
        made["feed_forward_macaron"] = ("norm_ff_macaron", feed_forward(), half)
    made["self_attn"] = ("norm_mha", attention, 1)
    if options["use_cnn_module"]:
        names = ("cnn_module_kernel", "activation", "cnn_module_norm", "causal", "conv_bias")
        made["conv_module"] = ("norm_conv", Convolution(width, *(options[name] for name in names)), 1)
    made["feed_forward"] = ("norm_ff", feed_forward() if last is None else last, half)
    return made


def chunks(size: int, left: int) -> Context | None:
    """Return what chunks see; None where nothing is said."""
    if not size:
        return None
    return Context(size, None if left < 0 else size * left) if size > 0 else Context(chunk=None)


def sinusoids(x: Any) -> Any:
    """Return ``(B, L, width)`` sines and cosines of the frames' positions."""
    turned, sign = (np.tile(pair, (x.shape[-1] + 1) // 2)[: x.shape[-1]] for pair in ((0, 1), (-1, 1)))
    like = [Tensor(a.astype(x.dtype.name)) for a in (turned, sign)]
    return F.rotary_embedding(x[..., :1] ** 0 * like[0], interleaved=True) * like[1]


def encoder_of(state: Mapping[str, Any], prefix: str, head: str = "") -> Mapping[str, Any]:
    """Return a state dict in which a whole model's encoder stands in its place, with the weights of `head`."""
    inner = f"{prefix}encoder."
    if not any(key.startswith(inner) for key in state):
        return state
    return {
        prefix + key.removeprefix(inner) if key.startswith(inner) else key: value
        for key, value in state.items()
        if key.startswith(inner) or not key.startswith(prefix) or (head and key.startswith(prefix + head))
    }
