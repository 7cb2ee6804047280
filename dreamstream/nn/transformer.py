"""Layers of Transformers: attention, norms and two products, as torch.nn has them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar

from ..array import Tensor, full
from ..stream.context import Context
from . import functional as F, init
from .attention import MultiheadAttention
from .containers import ModuleList
from .dropout import Dropout
from .functional.texts import described
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip

_described = described(
    "",
    {
        "ValueError": "Where heads don't divide the features, or an activation has another name.",
        "NotStreamableError": "Where nothing says what a query sees: a context, or that it is causal.",
    },
    d_model="Features of inputs and outputs.",
    nhead="Heads of attention.",
    dim_feedforward="Features between the two products.",
    dropout="Probability with which something is dropped, in training.",
    activation='"relu", "gelu" or a function: What stands between the two products.',
    layer_norm_eps="Added to variances.",
    batch_first="Whether inputs are ``(B, L, d_model)``, not ``(L, B, d_model)``.",
    norm_first="Whether norms stand before attention and products, not behind their sums with what came in.",
    bias="Whether products and norms have a bias.",
    context="What a query of the attention to itself sees.",
    num_encoder_layers="Layers of the encoder.",
    num_decoder_layers="Layers of the decoder.",
    custom_encoder="Module, optional: The encoder, in place of one that is made.",
    custom_decoder="Module, optional: The decoder, in place of one that is made.",
)
_stack = described(
    encoder_layer="The layer, of which each of the stack is a copy.",
    decoder_layer="The layer, of which each of the stack is a copy.",
    num_layers="Layers of the stack.",
    norm="Module, optional: What the last layer's output goes through.",
    enable_nested_tensor="Changes nothing.",
    mask_check="Changes nothing.",
)

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": F.relu, "gelu": F.gelu}


class _Layer(Module):
    """What layers of encoders and of decoders have."""

    _blocks: ClassVar[tuple[str, ...]]
    self_attn: MultiheadAttention

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        context: Context | None = None,
    ) -> None:
        super().__init__()
        like = {"device": device, "dtype": dtype}
        for name in self._blocks:  # in torch's order
            of = context if name == "self_attn" else None
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, context=of, **like
            )
            self.register_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **like)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **like)
        self.norm_first = norm_first
        places = range(1, len(self._blocks) + 2)
        for i in places:
            self.register_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **like))
        for i in places:
            self.register_module(f"dropout{i}", Dropout(dropout))
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ValueError(
                f'{type(self).__name__}: activation is "relu", "gelu" or a function, not {activation!r}'
            )
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def _with_residuals(self, x: Tensor, *blocks: Callable[[Tensor], Tensor]) -> Tensor:
        """Add what each block makes of its input, normed before or behind, and the two products."""
        parts: dict[str, Any] = self._modules
        for i, block in enumerate((*blocks, self._products), 1):
            norm, drop = parts[f"norm{i}"], parts[f"dropout{i}"]
            x = x + drop(block(norm(x))) if self.norm_first else norm(x + drop(block(x)))
        return x

    def _products(self, x: Tensor) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


def _attend(attention: Any, x: Tensor, keys: Tensor, mask: Any, padding: Any, is_causal: bool) -> Any:
    """Return what queries x see of the keys."""
    return attention(x, keys, keys, padding, False, mask, is_causal=is_causal)[0]


@_described
class TransformerEncoderLayer(_Layer):
    """Attention of a stream to itself, and two products, each added to what came in.

    Attributes
    ----------
    self_attn : MultiheadAttention
    linear1, linear2 : Linear
    norm1, norm2 : LayerNorm

    Notes
    -----
    Input and output ``(B, L, d_model)`` or ``(L, B, d_model)``. **Streaming.** Delay and state are those of the
    context. Source: torch.nn.TransformerEncoderLayer.
    """

    _blocks = ("self_attn",)

    def forward(
        self, src: Tensor, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Tensor:
        """Return a stream of the input's shape."""
        masks = src_mask, src_key_padding_mask, is_causal
        return self._with_residuals(src, lambda x: _attend(self.self_attn, x, x, *masks))


@_described
class TransformerDecoderLayer(_Layer):
    """Attention of a stream to itself, attention to a memory, and two products, each added to what came in.

    Attributes
    ----------
    self_attn, multihead_attn : MultiheadAttention
    linear1, linear2 : Linear
    norm1, norm2, norm3 : LayerNorm

    Notes
    -----
    Input and output ``(B, L, d_model)`` or ``(L, B, d_model)``, the memory likewise with a length of its own.
    **Streaming.** Delay and state are those of the context; the memory is given once, with the stream's start.
    Source: torch.nn.TransformerDecoderLayer.
    """

    _blocks = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return a stream of the first input's shape."""
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        across = memory_mask, memory_key_padding_mask, memory_is_causal
        return self._with_residuals(
            tgt,
            lambda x: _attend(self.self_attn, x, x, *own),
            lambda x: _attend(self.multihead_attn, x, memory, *across),
        )


class _Stack(Module):
    """Copies of one layer, and a norm behind them."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.register_module("norm", norm)

    def _normed(self, x: Tensor) -> Tensor:
        norm = self._modules["norm"]
        return x if norm is None else norm(x)


@_stack
class TransformerEncoder(_Stack):
    """A stack of encoder layers.

    Attributes
    ----------
    layers : ModuleList
        Copies of the layer; their weights are equal until others are loaded.
    norm : Module or None

    Notes
    -----
    Input and output as of the layers. **Streaming.** Delay and state are those of the layers together.
    Source: torch.nn.TransformerEncoder.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self, src: Tensor, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Tensor:
        """Return a stream of the input's shape."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return self._normed(src)


@_stack
class TransformerDecoder(_Stack):
    """A stack of decoder layers.

    Attributes
    ----------
    layers : ModuleList
        Copies of the layer; their weights are equal until others are loaded.
    norm : Module or None

    Notes
    -----
    Inputs and output as of the layers. **Streaming.** Delay and state are those of the layers together.
    Source: torch.nn.TransformerDecoder.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return a stream of the first input's shape."""
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return self._normed(tgt)


@_described
class Transformer(Module):
    """An encoder, and a decoder that attends to what it gives.

    Attributes
    ----------
    encoder : TransformerEncoder
    decoder : TransformerDecoder

    Notes
    -----
    Inputs and output as of the layers. **Streaming.** What is encoded is given once, with the stream's start, or
    is a stream where a mask says what a query sees; delay and state are those of the decoder.
    Source: torch.nn.Transformer.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        like = {"device": device, "dtype": dtype}
        layer = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
        )

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, **like)

        super().__init__()
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*layer, **like), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*layer, **like), num_decoder_layers, norm()
        )
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return a stream of the second input's shape."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Return ``(sz, sz)``: -inf above the diagonal, so that a query sees no key behind it, else 0."""
        return full((sz, sz), -math.inf, dtype, device=device).triu(1)
