"""Layers and functions of packages that recognise speech."""

from __future__ import annotations

import copy
from typing import Any

from ..online.register import register
from ..online.registered import called_with_numbers
from ..online.tracer import own_forward


@register("nemo.collections.asr.parts.submodules.subsampling.ConvSubsampling")
def subsampling(module: Any, x: Any, lengths: Any) -> Any:
    """It asks how many numbers there are, to split what some devices can't hold."""
    if not module.conv2d_subsampling:
        return own_forward(module, x, lengths)
    y, lengths = module.conv(x, lengths)
    return module.out(y.transpose(1, 2).flatten(2)), lengths


@register("nemo.collections.asr.modules.conv_asr.ConvASREncoder")
def convolutional(module: Any, audio_signal: Any, length: Any) -> Any:
    """It makes tables for its masks as long as the longest sequence that it has seen."""
    out, length = module.encoder(([audio_signal], length))
    return out[-1] if length is None else (out[-1], length)


@register("nemo.collections.asr.parts.submodules.jasper.MaskedConv1d")
def unmasked(module: Any, x: Any, lens: Any) -> Any:
    """Its masks hide what pads a batch; streams have no padding."""
    twin = copy.copy(module)
    twin.use_mask = False
    return own_forward(twin, x, lens)


@register("wenet.utils.mask.subsequent_chunk_mask")
@register("wenet.utils.mask.add_optional_chunk_mask")
def chunk_mask(function: Any, *args: Any, **kwargs: Any) -> Any:
    """They make masks by loops over lengths."""
    return called_with_numbers(function, *args, **kwargs)
