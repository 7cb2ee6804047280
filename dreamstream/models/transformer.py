"""A Transformer on streams of frames, as neural codecs and small language models of speech have them."""

from __future__ import annotations

from typing import Any

from .. import nn
from ..array import Tensor
from ..errors import ShapeError
from ..nn import functional as F
from ..stream.context import CAUSAL, Context
from .conformer import one_of

ACTIVATIONS: dict[str, Any] = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}
NORMS: dict[str, Any] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}
POSITIONS = ("rotary", "alibi", "none")


class _Attention(nn.Module):
    """Attention of several heads of queries, each group of which shares a head of keys and values."""

    def __init__(self, owner: StreamingTransformer) -> None:
        super().__init__()
        width, heads, groups = owner.d_model, owner.num_heads, owner.num_kv_heads
        self.heads, self.groups, self.positions = heads, groups, owner.positions
        self.max_period, self.context = owner.max_period, owner.context
        size = width // heads
        for name, n_in, n_out in (
            ("q_proj", width, heads * size),
            ("k_proj", width, groups * size),
            ("v_proj", width, groups * size),
            ("o_proj", heads * size, width),
        ):
            self.register_module(name, nn.Linear(n_in, n_out, bias=owner.bias))
        self.alibi = nn.ALiBi(heads, owner.context) if self.positions == "alibi" else None

    def forward(self, x: Tensor) -> Any:
        q = self.q_proj(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (f(x).unflatten(-1, (self.groups, -1)).transpose(1, 2) for f in (self.k_proj, self.v_proj))
        if self.positions == "rotary":
            q, k = (F.rotary_embedding(y, base=self.max_period) for y in (q, k))
        if self.alibi is None:
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, context=self.context)
        else:
            y = self.alibi(q, k, v)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class _FeedForward(nn.Module):
    """Two products, a function in between; or three, where one is a gate."""

    def __init__(self, owner: StreamingTransformer) -> None:
        super().__init__()
        width, hidden, bias = owner.d_model, owner.dim_feedforward, owner.bias
        self.gate_proj = nn.Linear(width, hidden, bias=bias) if owner.gated else None
        self.up_proj = nn.Linear(width, hidden, bias=bias)
        self.down_proj = nn.Linear(hidden, width, bias=bias)
        self.activation = ACTIVATIONS[owner.activation]

    def forward(self, x: Tensor) -> Any:
        up = self.up_proj(x)
        return self.down_proj(self.activation(self.gate_proj(x)) * up if self.gate_proj else self.activation(up))


class _Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to what came in."""

    def __init__(self, owner: StreamingTransformer) -> None:
        super().__init__()
        self.self_attn, self.mlp = _Attention(owner), _FeedForward(owner)
        self.input_layernorm, self.post_attention_layernorm = owner.new_norm(), owner.new_norm()

    def forward(self, x: Tensor) -> Any:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class StreamingTransformer(nn.Module):
    """Layers of attention and feed-forward on frames, each behind a norm, and a norm at their end.

    Parameters
    ----------
    d_model, num_heads, num_layers : int
        Features of a frame, heads of queries, layers.
    dim_feedforward : int, optional
        Features within feed-forward blocks; 4 times `d_model` without it.
    num_kv_heads : int, optional
        Heads of keys and values, each of which serves as many heads of queries; by default `num_heads`.
    positions : {"rotary", "alibi", "none"}
        Queries and keys turned by their positions, scores that fall with the distance, or nothing.
    max_period : float
        Of rotary positions: the base of their angles.
    norm : {"rms_norm", "layer_norm"}
    activation : {"silu", "gelu", "relu"}
    gated : bool
        Whether feed-forward blocks have a gate.
    bias : bool
        Whether products have biases.
    eps : float
        Added to variances of norms.
    context : Context, optional
        What a frame sees: by default all before it. With None it is to be declared.

    Attributes
    ----------
    spec : tuple
        What `dreamstream.compile` wants to know of the input.

    Raises
    ------
    ShapeError
        For sizes and names that don't fit.

    Notes
    -----
    Input and output ``(B, L, d_model)``. **Streaming.** Delay and state are the context's; a frame keeps
    ``2 * num_kv_heads / num_heads * d_model`` numbers per layer. Positions never run out. The state dict of
    transformers' ``LlamaModel`` loads, without its table of tokens: ``layers.0.self_attn.q_proj.weight``, …,
    ``norm.weight``. Source: Touvron et al., "LLaMA" (2023); Press et al., "Train Short, Test Long" (2022).

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> model = StreamingTransformer(32, 4, 2, num_kv_heads=2, context=ds.Context(left=99)).eval()
    >>> model(ds.tensor(np.zeros((1, 7, 32), np.float32))).shape
    (1, 7, 32)
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_layers: int,
        dim_feedforward: int | None = None,
        num_kv_heads: int | None = None,
        positions: str = "rotary",
        max_period: float = 10000.0,
        norm: str = "rms_norm",
        activation: str = "silu",
        gated: bool = True,
        bias: bool = False,
        eps: float = 1e-5,
        context: Context | None = CAUSAL,
    ) -> None:
        super().__init__()
        groups = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or d_model % num_heads:
            raise ShapeError(f"StreamingTransformer: {num_heads} heads don't divide {d_model} features")
        if groups < 1 or num_heads % groups:
            raise ShapeError(f"StreamingTransformer: {groups} heads of keys don't divide {num_heads} of queries")
        if positions == "rotary" and d_model // num_heads % 2:
            raise ShapeError(
                f"StreamingTransformer: rotary heads have pairs of features, not {d_model // num_heads}"
            )
        one_of("StreamingTransformer: positions", positions, POSITIONS)
        one_of("StreamingTransformer: norm", norm, NORMS)
        one_of("StreamingTransformer: activation", activation, ACTIVATIONS)
        self.d_model, self.num_heads, self.num_kv_heads = d_model, num_heads, groups
        self.dim_feedforward = 4 * d_model if dim_feedforward is None else dim_feedforward
        self.positions, self.max_period, self.context = positions, max_period, context
        self.activation, self.gated, self.bias = activation, gated, bias
        self.norm_type, self.eps = norm, eps
        self.spec = ("B", "L", d_model)
        self.layers = nn.ModuleList([_Layer(self) for _ in range(num_layers)])
        self.norm = self.new_norm()

    def new_norm(self) -> Any:
        """Return a norm as its layers have it."""
        return NORMS[self.norm_type](self.d_model, eps=self.eps)

    def forward(self, x: Tensor) -> Any:
        """Return what the last layer says, normed."""
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)
