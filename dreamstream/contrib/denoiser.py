"""Models of denoiser."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from ..errors import NotStreamableError
from ..online.register import register
from ..torch.functional import pad_to_multiple


@register("denoiser.demucs.Demucs")
def demucs(model: Any, mix: Any) -> Any:
    """It pads until no layer leaves a frame over: lengths that fit are shortest, shortest + step, ..."""
    if model.normalize or model.resample != 1:
        raise NotStreamableError.here(
            "Demucs: normalize=True divides by the whole stream, and resample by blocks; Demucs(normalize=False, "
            "resample=1) streams"
        )
    step, shortest = model.stride**model.depth, model.valid_length(1)
    offset = -shortest % step
    x = mix.unsqueeze(1) if mix.dim() == 2 else mix
    x = pad_to_multiple(F.pad(x, (0, offset)), step, least=shortest + offset)
    x = F.pad(x, (0, -offset))
    skips = []
    for encode in model.encoder:
        x = encode(x)
        skips.append(x)
    x = model.lstm(x.permute(2, 0, 1))[0].permute(1, 2, 0)
    for decode in model.decoder:
        x = decode(x + skips.pop())
    return x[..., : mix.size(-1)]
