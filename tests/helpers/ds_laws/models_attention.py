"""Layers of attention, as stacks that see a context; see `models`. torch says offline what they say elsewhere."""

from __future__ import annotations

from typing import Any

import dreamstream as ds
from dreamstream.models import U2Encoder

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


def _u2(**options: Any) -> Any:
    usual = {"cnn_module_kernel": 3, "decoding_chunk_size": 2, "num_decoding_left_chunks": 1}
    return lambda nn, F: U2Encoder(7, 4, 2, 6, 2, **{**usual, **options})


_layer("u2-conformer", _u2(), BLC, 7, reach=70, torch=False)
_layer(
    "u2-causal",
    _u2(causal=True, input_layer="linear", cnn_module_norm="layer_norm"),
    BLC,
    7,
    reach=12,
    torch=False,
)
