"""Layers of attention, as stacks that see a context; see `models`. torch says offline what they say elsewhere."""

from typing import Any

import dreamstream as ds
from dreamstream.models import ConformerMoE, StreamingTransformer, U2Encoder
from dreamstream.models.transformer import POSITIONS

from .models import BLC, _layer

CONTEXTS = {
    "causal": (ds.Context(), 20),
    "window": (ds.Context(left=3, right=1), 12),
    "chunks": (ds.Context(chunk=3, left=6), 24),
}


def _encoder(nn: Any, context: ds.Context, **options: Any) -> Any:
    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, context=context, **options)
    return nn.TransformerEncoder(layer, 2, nn.LayerNorm(6))


for _name, (_context, _reach) in CONTEXTS.items():
    _layer(
        f"transformer-encoder-{_name}",
        lambda nn, F, c=_context, o=_name: _encoder(nn, c, norm_first=o == "chunks", activation="gelu"),
        BLC,
        6,
        reach=_reach,
        torch=False,
    )


def _u2(nn: Any, F: Any) -> Any:
    """A convolution that looks ahead under a chunk mask, positions beside the keys."""
    chunks = {"decoding_chunk_size": 2, "num_decoding_left_chunks": 1}
    return U2Encoder(5, 4, 2, 6, 1, input_layer="linear", cnn_module_kernel=3, **chunks)


_layer("u2-conformer", _u2, BLC, 5, reach=9, torch=False)


def _conformer_moe(nn: Any, F: Any) -> Any:
    """Experts by an embedding network: both under one chunk mask, convolutions that look back."""
    more = {"causal": True, "decoding_chunk_size": 2, "num_decoding_left_chunks": 1, "input_layer": "linear"}
    parts = {"embed_conf": {"num_blocks": 1}, "moe_conf": {"num_experts": 3, "hidden_units": 4}}
    return ConformerMoE(5, 3, 0, 2, 4, 1, cnn_module_kernel=3, **parts, **more)


_layer("conformer-moe", _conformer_moe, BLC, 5, reach=20, torch=False)
for _positions in POSITIONS[:2]:
    _layer(
        f"streaming-transformer-{_positions}",
        lambda nn, F, p=_positions: StreamingTransformer(
            8, 4, 1, num_kv_heads=2, positions=p, context=ds.Context(left=3, right=1)
        ),
        BLC,
        8,
        reach=9,
        torch=False,
    )
