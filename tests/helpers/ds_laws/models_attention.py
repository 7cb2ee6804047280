"""Layers of attention, as stacks that see a context; see `models`. torch says offline what they say elsewhere."""

from __future__ import annotations

from typing import Any

import dreamstream as ds

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
