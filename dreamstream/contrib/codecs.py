"""Layers of neural codecs."""

from __future__ import annotations

from typing import Any

import torch

from ..online.register import register
from ..online.tracer import own_forward
from ..torch.functional import pad_to_multiple


@register("audiocraft.modules.conv.StreamableConv1d")
@register("encodec.modules.conv.SConv1d")
@register("speechtokenizer.modules.conv.SConv1d")
@register("transformers.models.encodec.modeling_encodec.EncodecConv1d")
@register("transformers.models.mimi.modeling_mimi.MimiConv1d")
def whole_frames(module: Any, x: Any, *_: Any, **__: Any) -> Any:
    """SEANet's convolutions pad to whole frames, and ask how to mirror what is too short for it.

    Its cache of what was padded, where it has one, belongs to its own way of streaming.
    """
    normalised = getattr(module.conv, "conv", None)
    conv = module.conv if normalised is None else normalised
    kernel, stride, dilation = conv.kernel_size[0], conv.stride[0], conv.dilation[0]
    if stride > 1 and dilation > 1:
        return own_forward(module, x)
    total = (kernel - 1) * dilation + 1 - stride
    right = 0 if module.causal else total // 2
    y = module.conv(pad_to_multiple(x, stride, (total - right, right), module.pad_mode))
    return module.norm(y) if getattr(module, "norm_type", None) == "time_group_norm" else y


@register("moshi.modules.conv.StreamingConv1d")
def behind_its_start(module: Any, x: Any) -> Any:
    """Moshi's convolutions begin with zeros, or the first frame; what they keep serves their own streaming."""
    if module._streaming_state is not None:
        return own_forward(module, x)
    left = module._padding_total
    mode = "replicate" if left and module.pad_mode == "replicate" else "constant"
    for fits in (x.size(-1) % module._stride == 0, mode == "constant" or x.size(-1) >= left):
        if isinstance(fits, bool):
            assert fits, "frames that the convolution's stride leaves over"
        else:
            fits.require()
    return module.conv(torch.nn.functional.pad(x, (left, 0), mode=mode) if left else x)
