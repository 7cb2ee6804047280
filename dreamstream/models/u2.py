"""U2: the encoders of WeNet's end-to-end speech recognition, Conformers and Transformers under a chunk mask."""

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

__all__ = ["GlobalCMVN", "U2Encoder"]

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
POSITIONS = ("abs_pos", "rel_pos", "no_pos")


def _one_of(name: str, given: str, known: Any) -> Any:
    if given not in known:
        raise ShapeError(f"U2Encoder: {name} is one of {', '.join(known)}, got {given!r}")
    return given


class GlobalCMVN(nn.Module):
    """Features less their mean, and divided by their spread, both known beforehand.

    Parameters
    ----------
    mean, istd : array
        ``(features,)``: means, and inverse standard deviations.
    norm_var : bool
        Whether to divide.

    Notes
    -----
    Input and output ``(B, L, features)``. **Streaming.** Delay 0, no state. Source: WeNet.
    """

    def __init__(self, mean: Any, istd: Any, norm_var: bool = True) -> None:
        super().__init__()
        self.register_buffer("mean", Tensor(np.array(mean, np.float32)))
        self.register_buffer("istd", Tensor(np.array(istd, np.float32)))
        self.norm_var = norm_var

    def forward(self, x: Tensor) -> Tensor:
        """Return the normed features."""
        x = x - self.mean
        return x * self.istd if self.norm_var else x


class _Subsampling(nn.Module):
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


class _Attention(nn.Module):
    """Attention of several heads under a chunk mask; with positions, relative to none but by themselves."""

    def __init__(self, heads: int, width: int, positions: bool, context: Context | None) -> None:
        super().__init__()
        if width % heads:
            raise ShapeError(f"U2Encoder: {heads} heads don't divide {width} features")
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


class _FeedForward(nn.Module):
    """Two products, a function in between."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Any], Any], dropout: float) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.activation, self.dropout = activation, nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Any:
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class _Convolution(nn.Module):
    """A gated product, a convolution of each channel, a norm, and a product."""

    def __init__(
        self, width: int, kernel: int, activation: Callable[[Any], Any], norm: str, causal: bool, bias: bool
    ) -> None:
        super().__init__()
        if not causal and kernel % 2 == 0:
            raise ShapeError(f"U2Encoder: a convolution that is not causal has an odd kernel, got {kernel}")
        _one_of("cnn_module_norm", norm, ("batch_norm", "layer_norm"))
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


class _Layer(nn.Module):
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

    def forward(self, x: Tensor, positions: Any) -> Any:
        parts: dict[str, Any] = self._modules
        for name, norm, factor in self.blocks:
            y = parts[norm](x) if self.normalize_before else x
            y = self.dropout(parts[name](*((y, positions) if name == "self_attn" else (y,))))
            x = x + (y if factor == 1 else y * factor)
            x = x if self.normalize_before else parts[norm](x)
        final = parts["norm_final"]
        return x if final is None else final(x)


class U2Encoder(nn.Module):
    """The encoder of U2 and U2++: subsampling, Conformer or Transformer layers under a chunk mask, a head for CTC.

    Positions of ``"rel_pos"`` are WeNet's: embeddings of absolute positions beside the keys, without the shift of
    Transformer-XL. None runs out of a table.

    Parameters
    ----------
    input_size, output_size, attention_heads, linear_units, num_blocks
        Features of a frame, width of the layers, heads, width within feed-forward blocks, layers.
    dropout_rate, positional_dropout_rate, attention_dropout_rate : float
        Of training, which natively doesn't happen.
    input_layer : {"conv2d", "conv2d6", "conv2d8", "linear"}
        Subsampling by 4, 6, 8, or none.
    pos_enc_layer_type : {"rel_pos", "abs_pos", "no_pos"}, optional
        Whether positions are added to frames ("abs_pos"); by default "rel_pos" in Conformers, "abs_pos" in
        Transformers.
    normalize_before : bool
        Whether norms stand before blocks.
    static_chunk_size : int
        The chunk, in frames behind the subsampling, where `decoding_chunk_size` is 0.
    use_dynamic_chunk, use_dynamic_left_chunk : bool
        Of training.
    global_cmvn : GlobalCMVN, optional
        What features go through first.
    macaron_style, use_cnn_module : bool
        Whether there is a feed-forward block before attention too, and a convolution behind it.
    selfattention_layer_type : {"rel_selfattn", "selfattn"}, optional
        Whether attention sees positions beside keys; by default in Conformers.
    activation_type : {"swish", "relu", "gelu", "tanh", "hardtanh", "selu"}, optional
        By default "swish" in Conformers, "relu" in Transformers.
    cnn_module_kernel, causal, cnn_module_norm, conv_bias
        Of the convolution: frames, whether it looks back alone, "batch_norm" or "layer_norm", biases.
    norm_eps : float
        Added to variances of layer norms.
    architecture : {"conformer", "transformer"}
        Which of WeNet's encoders it is; with ``"transformer"`` there is no convolution and one feed-forward block.
    decoding_chunk_size : int
        Frames of a chunk, behind the subsampling; below 0 the whole stream, which waits for its end.
    num_decoding_left_chunks : int
        Chunks before its own that a frame sees; below 0 all.
    context : Context, optional
        What a frame sees, in place of chunks.
    vocab_size : int, optional
        Outputs of the head; without it there is none.

    Attributes
    ----------
    spec : tuple
        What `dreamstream.compile` wants to know of the input.
    subsampling_rate : int
        Frames of the input per frame of the output.

    Raises
    ------
    ShapeError
        For sizes and names that don't fit.

    Notes
    -----
    Input ``(B, L, input_size)``; output ``(B, L // subsampling_rate - 1, output_size)`` or so, as convolutions
    without padding leave it, with a head the logarithms of probabilities ``(…, vocab_size)``. **Streaming.**
    Delay: chunks, and where convolutions are not causal half a kernel per layer, in whole chunks; `ds.audit` has
    the number. State: keys and values of the chunks on the left, and the frames of each convolution. Source:
    WeNet, ``ConformerEncoder`` and ``TransformerEncoder`` with ``CTC``; their state dict loads, and that of the
    whole model.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> model = U2Encoder(80, 32, 4, 64, 2, causal=True, decoding_chunk_size=16, vocab_size=10).eval()
    >>> model(ds.tensor(np.zeros((1, 100, 80), np.float32))).shape
    (1, 24, 10)
    """

    def __init__(
        self,
        input_size: int = 80,
        output_size: int = 256,
        attention_heads: int = 4,
        linear_units: int = 2048,
        num_blocks: int = 6,
        dropout_rate: float = 0.1,
        positional_dropout_rate: float = 0.1,
        attention_dropout_rate: float = 0.0,
        input_layer: str = "conv2d",
        pos_enc_layer_type: str | None = None,
        normalize_before: bool = True,
        static_chunk_size: int = 0,
        use_dynamic_chunk: bool = False,
        global_cmvn: GlobalCMVN | None = None,
        use_dynamic_left_chunk: bool = False,
        macaron_style: bool = True,
        selfattention_layer_type: str | None = None,
        activation_type: str | None = None,
        use_cnn_module: bool = True,
        cnn_module_kernel: int = 15,
        causal: bool = False,
        cnn_module_norm: str = "batch_norm",
        conv_bias: bool = True,
        norm_eps: float = 1e-5,
        architecture: str = "conformer",
        decoding_chunk_size: int = 0,
        num_decoding_left_chunks: int = -1,
        context: Context | None = None,
        vocab_size: int | None = None,
    ) -> None:
        options = dict(locals())
        super().__init__()
        conformer = _one_of("architecture", architecture, ("conformer", "transformer")) == "conformer"
        usual = ("rel_pos", "rel_selfattn", "swish") if conformer else ("abs_pos", "selfattn", "relu")
        given = (pos_enc_layer_type, selfattention_layer_type, activation_type)
        positions, attention, function = (a or b for a, b in zip(given, usual))
        self.positions = _one_of("pos_enc_layer_type", positions, POSITIONS)
        _one_of("input_layer", input_layer, INPUT_LAYERS)
        _one_of("selfattention_layer_type", attention, ("rel_selfattn", "selfattn"))
        activation = ACTIVATIONS[_one_of("activation_type", function, ACTIVATIONS)]
        seen = context or _chunks(decoding_chunk_size or static_chunk_size, num_decoding_left_chunks)
        self.spec = ("B", "L", input_size)
        self.subsampling_rate = math.prod(stride for _, stride in INPUT_LAYERS[input_layer][0])
        self.register_module("global_cmvn", global_cmvn)
        self.embed = _Subsampling(input_layer, input_size, output_size, dropout_rate)
        self.scale = math.sqrt(output_size)

        def blocks() -> Mapping[str, tuple[str, nn.Module, float]]:
            def products() -> nn.Module:
                return _FeedForward(output_size, linear_units, activation, dropout_rate)

            attend = _Attention(attention_heads, output_size, attention == "rel_selfattn", seen)
            if not conformer:
                return {"self_attn": ("norm1", attend, 1), "feed_forward": ("norm2", products(), 1)}
            half = 0.5 if macaron_style else 1.0
            made: dict[str, tuple[str, nn.Module, float]] = {}
            if macaron_style:
                made["feed_forward_macaron"] = ("norm_ff_macaron", products(), half)
            made["self_attn"] = ("norm_mha", attend, 1)
            if use_cnn_module:
                convolution = _Convolution(
                    output_size, cnn_module_kernel, activation, cnn_module_norm, causal, conv_bias
                )
                made["conv_module"] = ("norm_conv", convolution, 1)
            made["feed_forward"] = ("norm_ff", products(), half)
            return made

        self.encoders = nn.ModuleList([_Layer(output_size, blocks(), options) for _ in range(num_blocks)])
        self.normalize_before = normalize_before
        self.after_norm = nn.LayerNorm(output_size, eps=norm_eps)
        self.ctc = None if vocab_size is None else _Head(output_size, vocab_size)

    def encode(self, xs: Tensor) -> Any:
        """Return ``(B, L', output_size)``: what the last layer says of features ``(B, L, input_size)``."""
        cmvn = self._modules["global_cmvn"]
        x = self.embed(xs if cmvn is None else cmvn(xs))
        positions = None if self.positions == "no_pos" else _sinusoids(x)
        x = x if self.positions == "no_pos" else x * self.scale
        x = x + positions if self.positions == "abs_pos" else x
        for layer in self.encoders:
            x = layer(x, positions)
        return self.after_norm(x) if self.normalize_before else x

    def forward(self, xs: Tensor) -> Any:
        """Return what the last layer says, or the logarithms of the head's probabilities."""
        x = self.encode(xs)
        return x if self.ctc is None else F.log_softmax(self.ctc.ctc_lo(x), -1)

    def _by_own_names(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Take the encoder, and the head if there is one, out of a whole model's state dict."""
        inner = f"{prefix}encoder."
        if not any(key.startswith(inner) for key in state):
            return state
        kept = {k: v for k, v in state.items() if not k.startswith(prefix)}
        for key, value in state.items():
            if key.startswith(inner):
                kept[prefix + key.removeprefix(inner)] = value
            elif key.startswith(f"{prefix}ctc.") and self.ctc is not None:
                kept[key] = value
        return kept


class _Head(nn.Module):
    """What makes logits of frames."""

    def __init__(self, width: int, vocab_size: int) -> None:
        super().__init__()
        self.ctc_lo = nn.Linear(width, vocab_size)


def _chunks(size: int, left: int) -> Context | None:
    """Return what chunks see; None where nothing is said."""
    if not size:
        return None
    return Context(size, None if left < 0 else size * left) if size > 0 else Context(chunk=None)


def _sinusoids(x: Any) -> Any:
    """Return ``(B, L, width)`` sines and cosines of the frames' positions."""
    turned, sign = (np.tile(pair, (x.shape[-1] + 1) // 2)[: x.shape[-1]] for pair in ((0, 1), (-1, 1)))
    like = [Tensor(a.astype(x.dtype.name)) for a in (turned, sign)]
    return F.rotary_embedding(x[..., :1] ** 0 * like[0], interleaved=True) * like[1]
