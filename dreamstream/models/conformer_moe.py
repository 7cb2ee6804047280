"""3M-ASR's Conformers whose second feed-forward blocks are mixtures of experts, routed by an embedding network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import nn
from ..array import Tensor
from ..errors import ShapeError
from ..nn.functional.texts import described
from ..nn.mixing import RoutingCounter
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

#: What an embedding network, and a mixture, is made of where nothing else is said.
EMBEDDING = ("num_blocks", "linear_units", "attention_heads", "attention_dim")
EXPERTS = {"num_experts": 32, "hidden_units": 1024, "router_with_bias": False, "keep_expert_output": False}
#: What training takes, or what says where experts lie; taken, and left alone.
TRAINING = ("dropout_rate", "capacity_factor", "router_regularization", "rand_init_router", "rank", "world_size")
#: What checkpoints have that no output depends on.
UNUSED = ("concat_linear.", "embed.out_linear.")


class RoutedExperts(RoutingCounter, nn.gates.EmbeddingGate):
    """A router, and the experts of two products that it chooses among."""

    def __init__(
        self, width: int, embedded: int, activation: Callable[[Any], Any], conf: Mapping[str, Any]
    ) -> None:
        n, hidden = conf["num_experts"], conf["hidden_units"]
        bias, keeps = conf["router_with_bias"], conf["keep_expert_output"]
        super().__init__(width, n, gate_bias=bias, d_embed=embedded, keep_expert_output=keeps)
        products = {"w_1": nn.FMoELinear(n, width, hidden), "w_2": nn.FMoELinear(n, hidden, width)}
        self.experts = nn.ModuleDict(products)
        self.activation = activation

    def forward(self, x: Any, embed: Any, index: Any = None) -> Any:  # type: ignore[override]
        """Return ``(B, L, width)``; `index` ``(B, L, 1)`` forces experts."""
        found = self.route(self.joined(x, embed), index)
        self.count(x, found)
        hidden = self.activation(self.experts["w_1"](x, found.index))
        return self.ops.combine(self.experts["w_2"](hidden, found.index), found.score)


class _Stack(nn.Module):
    """Subsampling, positions, Conformer layers and a norm: the embedding network, and what sees it."""

    def __init__(
        self,
        features: int,
        options: Mapping[str, Any],
        seen: Context | None,
        last: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        width, dropout = options["attention_dim"], options["dropout_rate"]
        activation = ACTIVATIONS[one_of("activation_type", options["activation_type"], ACTIVATIONS)]
        self.scale, self.normalize_before = math.sqrt(width), options["normalize_before"]
        self.subsampling = Subsampling(options["input_layer"], features, width, dropout)

        def layer() -> Layer:
            attend = Attention(options["attention_heads"], width, True, seen)
            blocks = conformer_blocks(
                width,
                attend,
                lambda: FeedForward(width, options["linear_units"], activation, dropout),
                {**options, "activation": activation, "conv_bias": True},
                None if last is None else last(),
            )
            return Layer(width, blocks, {**options, "norm_eps": 1e-12})

        self.blocks = nn.ModuleList([layer() for _ in range(options["num_blocks"])])
        self.after_norm = nn.LayerNorm(width, eps=1e-12)

    def encoded(self, xs: Tensor, of_layer: Sequence[tuple[Any, ...]] | None = None) -> Any:
        """Return ``(B, L', width)``; `of_layer` has what each layer's last block takes beside frames."""
        x = self.subsampling(xs)
        positions = sinusoids(x)
        x = x * self.scale
        for i, layer in enumerate(self.blocks):
            x = layer(x, self_attn=(positions,), feed_forward=of_layer[i] if of_layer else ())
        return self.after_norm(x) if self.normalize_before else x

    def forward(self, xs: Tensor) -> Any:
        return self.encoded(xs)


@described(
    **PARAMETERS,
    input_dim="Features of a frame.",
    output_dim="Outputs of the head.",
    blank_idx="Which output is CTC's blank.",
    attention_dim="Width of the layers.",
    embed_conf="dict, optional: Of the embedding network, where it differs; ``num_blocks`` (6), ``linear_units`` "
    "(the experts'), ``attention_heads``, ``attention_dim``, and what else of the above.",
    moe_conf="dict, optional: ``num_experts`` (32, of all workers), ``hidden_units`` (1024, within experts and "
    "feed-forward blocks), ``router_with_bias``, ``keep_expert_output``; what training takes is left alone.",
)
class ConformerMoE(_Stack):
    """3M-ASR's encoder: Conformer layers with mixtures of experts, and an embedding network that routes frames.

    Both networks see the same features, each through its own subsampling, under one chunk mask. A router sees the
    embedding and a frame together and gives the frame to one expert. Positions are those of absolute frames,
    beside the keys, without the shift of Transformer-XL; where the original's table ends, at 5000, they go on.

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
    Input ``(B, L, input_dim)``; output ``(B, L // 4 - 1, output_dim)`` or so, logits for CTC. **Streaming.**
    Delay: with ``causal=True`` a chunk; otherwise each layer of the one network, and each but the first of the
    other, look half a kernel beyond, in whole chunks; `ds.audit` has the number. State: keys and values of the
    chunks on the left, and the frames of each convolution, in both networks. Source: 3M-ASR; its state dict
    loads, of which ``concat_linear``, the embedding network's head and decoders are left.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> model = ConformerMoE(
    ...     40, 10, attention_dim=16, num_blocks=2, causal=True, decoding_chunk_size=4,
    ...     embed_conf={"num_blocks": 1}, moe_conf={"num_experts": 4, "hidden_units": 8},
    ... ).eval()
    >>> model(ds.tensor(np.zeros((1, 100, 40), np.float32))).shape
    (1, 24, 10)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        blank_idx: int = 0,
        attention_heads: int = 4,
        attention_dim: int = 256,
        num_blocks: int = 6,
        dropout_rate: float = 0.1,
        positional_dropout_rate: float = 0.1,
        attention_dropout_rate: float = 0.0,
        input_layer: str = "conv2d",
        normalize_before: bool = True,
        static_chunk_size: int = 0,
        use_dynamic_chunk: bool = False,
        use_dynamic_left_chunk: bool = False,
        macaron_style: bool = True,
        activation_type: str = "swish",
        use_cnn_module: bool = True,
        cnn_module_kernel: int = 15,
        causal: bool = False,
        cnn_module_norm: str = "layer_norm",
        embed_conf: Mapping[str, Any] | None = None,
        moe_conf: Mapping[str, Any] | None = None,
        decoding_chunk_size: int = 0,
        num_decoding_left_chunks: int = -1,
        context: Context | None = None,
    ) -> None:
        options = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        conf = {**EXPERTS, **_known("moe_conf", moe_conf, (*EXPERTS, *TRAINING, "activation", "comm"))}
        options["linear_units"] = conf["hidden_units"]
        theirs = {**options, "num_blocks": 6, **_known("embed_conf", embed_conf, (*options, *EMBEDDING))}
        one_of("input_layer", input_layer, INPUT_LAYERS)
        seen = context or chunks(decoding_chunk_size or static_chunk_size, num_decoding_left_chunks)
        activation = ACTIVATIONS[one_of("activation_type", activation_type, ACTIVATIONS)]
        width = theirs["attention_dim"]
        super().__init__(input_dim, options, seen, lambda: RoutedExperts(attention_dim, width, activation, conf))
        self.embed = _Stack(input_dim, theirs, seen)
        self.out_linear = nn.Linear(attention_dim, output_dim)
        self.blank_idx, self.spec = blank_idx, ("B", "L", input_dim)
        self.subsampling_rate = math.prod(stride for _, stride in INPUT_LAYERS[input_layer][0])

    @classmethod
    def of_12_layers(cls, output_dim: int, **options: Any) -> ConformerMoE:
        """Return the published network: 12 layers of 512 in 8 heads, 32 experts of 2048, 80 features.

        Parameters
        ----------
        output_dim : int
        options
            What differs; published is ``causal=False`` without chunks, which doesn't stream.
        """
        usual = {"input_dim": 80, "attention_dim": 512, "attention_heads": 8, "num_blocks": 12}
        return cls(**{**usual, "output_dim": output_dim, "moe_conf": {"hidden_units": 2048}, **options})

    @classmethod
    def of_18_layers(cls, output_dim: int = 1434, **options: Any) -> ConformerMoE:
        """Return the network of the inference benchmark: 18 layers of 512, 32 experts of 1024, 40 features.

        Parameters
        ----------
        output_dim : int
        options
            What differs, as of `of_12_layers`.
        """
        usual = {"input_dim": 40, "attention_dim": 512, "num_blocks": 18}
        return cls(**{**usual, "output_dim": output_dim, **options})

    def encode(self, xs: Tensor, index: Sequence[Tensor] | None = None) -> Any:
        """Return ``(B, L', attention_dim)``: what the last layer says of features ``(B, L, input_dim)``.

        Parameters
        ----------
        xs : Tensor
        index : sequence of Tensor, optional
            ``(B, L', 1) int64`` per layer: experts that are forced, their weights the router's; -1 drops a frame.
        """
        if index is not None and len(index) != len(self.blocks):
            raise ShapeError(
                f"ConformerMoE: index has experts of {len(index)} layers, but there are {len(self.blocks)}"
            )
        embed = self.embed(xs)
        return self.encoded(xs, [(embed, None if index is None else index[i]) for i in range(len(self.blocks))])

    def forward(self, xs: Tensor, index: Sequence[Tensor] | None = None) -> Any:
        """Return logits ``(B, L', output_dim)`` of features ``(B, L, input_dim)``; `index` as in `encode`."""
        return self.out_linear(self.encode(xs, index))

    def _by_own_names(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Take the encoder out of a whole model's state dict, without what no output depends on."""
        found = encoder_of(state, prefix).items()
        return {k: v for k, v in found if not (k.startswith(prefix) and any(part in k for part in UNUSED))}


def _known(name: str, given: Mapping[str, Any] | None, known: Sequence[str]) -> Mapping[str, Any]:
    """Return what was given, where all of it is known."""
    unknown = [key for key in given or {} if key not in known]
    if unknown:
        raise ShapeError(f"ConformerMoE: {name} knows no {unknown[0]!r}")
    return given or {}
