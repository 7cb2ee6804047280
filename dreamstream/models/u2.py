"""U2: the encoders of WeNet's end-to-end speech recognition, Conformers and Transformers under a chunk mask."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .. import nn
from ..array import Tensor
from ..nn import functional as F
from ..nn.cepstra import GlobalCMVN
from ..nn.functional.texts import described
from ..stream.context import Context
from .conformer import (
    ACTIVATIONS,
    INPUT_LAYERS,
    PARAMETERS,
    Attention,
    FeedForward,
    Layer,
    Subsampling,
    chunks,
    conformer_blocks,
    encoder_of,
    one_of,
    sinusoids,
)

POSITIONS = ("abs_pos", "rel_pos", "no_pos")


@described(
    **{
        **PARAMETERS,
        "activation_type": PARAMETERS["activation_type"].replace("}:", "}, optional:").rstrip(".")
        + '; by default "swish" in Conformers, "relu" in Transformers.',
    },
    input_size="Features of a frame.",
    output_size="Width of the layers.",
    linear_units="Width within feed-forward blocks.",
    pos_enc_layer_type='{"rel_pos", "abs_pos", "no_pos"}, optional: Whether positions are added to frames '
    '("abs_pos"); by default "rel_pos" in Conformers, "abs_pos" in Transformers.',
    global_cmvn="GlobalCMVN, optional: What features go through first.",
    selfattention_layer_type='{"rel_selfattn", "selfattn"}, optional: Whether attention sees positions beside '
    "keys; by default in Conformers.",
    conv_bias="Whether convolutions have biases.",
    norm_eps="Added to variances of layer norms.",
    architecture='{"conformer", "transformer"}: Which of WeNet\'s encoders it is; with ``"transformer"`` there is '
    "no convolution and one feed-forward block.",
    vocab_size="int, optional: Outputs of the head; without it there is none.",
)
class U2Encoder(nn.Module):
    """The encoder of U2 and U2++: subsampling, Conformer or Transformer layers under a chunk mask, a head for CTC.

    Positions of ``"rel_pos"`` are WeNet's: embeddings of absolute positions beside the keys, without the shift of
    Transformer-XL. None runs out of a table.

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
        conformer = one_of("architecture", architecture, ("conformer", "transformer")) == "conformer"
        usual = ("rel_pos", "rel_selfattn", "swish") if conformer else ("abs_pos", "selfattn", "relu")
        given = (pos_enc_layer_type, selfattention_layer_type, activation_type)
        positions, attention, function = (a or b for a, b in zip(given, usual))
        self.positions = one_of("pos_enc_layer_type", positions, POSITIONS)
        one_of("input_layer", input_layer, INPUT_LAYERS)
        one_of("selfattention_layer_type", attention, ("rel_selfattn", "selfattn"))
        activation = ACTIVATIONS[one_of("activation_type", function, ACTIVATIONS)]
        seen = context or chunks(decoding_chunk_size or static_chunk_size, num_decoding_left_chunks)
        self.spec = ("B", "L", input_size)
        self.subsampling_rate = math.prod(stride for _, stride in INPUT_LAYERS[input_layer][0])
        self.register_module("global_cmvn", global_cmvn)
        self.embed = Subsampling(input_layer, input_size, output_size, dropout_rate)
        self.scale = math.sqrt(output_size)

        def blocks() -> Mapping[str, tuple[str, nn.Module, float]]:
            def products() -> nn.Module:
                return FeedForward(output_size, linear_units, activation, dropout_rate)

            attend = Attention(attention_heads, output_size, attention == "rel_selfattn", seen)
            if not conformer:
                return {"self_attn": ("norm1", attend, 1), "feed_forward": ("norm2", products(), 1)}
            return conformer_blocks(output_size, attend, products, {**options, "activation": activation})

        self.encoders = nn.ModuleList([Layer(output_size, blocks(), options) for _ in range(num_blocks)])
        self.normalize_before = normalize_before
        self.after_norm = nn.LayerNorm(output_size, eps=norm_eps)
        head = {} if vocab_size is None else {"ctc_lo": nn.Linear(output_size, vocab_size)}
        self.ctc = nn.ModuleDict(head) if head else None

    def encode(self, xs: Tensor) -> Any:
        """Return ``(B, L', output_size)``: what the last layer says of features ``(B, L, input_size)``."""
        cmvn = self._modules["global_cmvn"]
        x = self.embed(xs if cmvn is None else cmvn(xs))
        positions = None if self.positions == "no_pos" else sinusoids(x)
        x = x if self.positions == "no_pos" else x * self.scale
        x = x + positions if self.positions == "abs_pos" else x
        for layer in self.encoders:
            x = layer(x, self_attn=(positions,))
        return self.after_norm(x) if self.normalize_before else x

    def forward(self, xs: Tensor) -> Any:
        """Return what the last layer says, or the logarithms of the head's probabilities."""
        x = self.encode(xs)
        return x if self.ctc is None else F.log_softmax(self.ctc["ctc_lo"](x), -1)

    def _by_own_names(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Take the encoder, and the head if there is one, out of a whole model's state dict."""
        return encoder_of(state, prefix, "" if self.ctc is None else "ctc.")
