"""Layers of other packages whose forwards ask what a stream can't answer, as they stream.

They are known by the names of their classes, so that no package is loaded for them; a class that writes a forward
of its own is not one of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ...errors import NotStreamableError
from ...nn.functional.resampling import Resampling
from ...stream.where import user_line
from ..functional import combine, expert_linear, pad_to_multiple
from .constants import Constant, dtype_of
from .mode import current


# ---------------------------------------------------------------------- torchaudio
def _resample(module: Any, waveform: Any) -> Any:
    """It asks for the length as a number; the operator has its kernel."""
    forward = current()
    x = forward.unwrap(waveform)
    resampling = Resampling(
        module.orig_freq,
        module.new_freq,
        module.lowpass_filter_width,
        module.rolloff,
        module.resampling_method,
        module.beta,
    )
    if resampling.same:
        return waveform
    kernel = Constant(module.kernel.to(dtype_of(x.dtype.name)), forward.arrays)
    return forward._wrapped(resampling.apply(x, kernel))


def _decibels(module: Any, x: Any) -> Any:
    """It looks at the whole stream where it has a `top_db`."""
    if module.top_db is not None:
        raise NotStreamableError(
            f"AmplitudeToDB at {user_line()}: top_db cuts below the loudest value of the whole stream; "
            "AmplitudeToDB(top_db=None) streams"
        )
    return type(module).forward(module, x)


# ---------------------------------------------------------------------- neural codecs
def _whole_frames(module: Any, x: Any, *_: Any, **__: Any) -> Any:
    """SEANet's convolutions pad to whole frames, and ask how to mirror what is too short for it.

    Its cache of what was padded, where it has one, belongs to its own way of streaming.
    """
    normalised = getattr(module.conv, "conv", None)
    conv = module.conv if normalised is None else normalised
    kernel, stride, dilation = conv.kernel_size[0], conv.stride[0], conv.dilation[0]
    if stride > 1 and dilation > 1:
        return type(module).forward(module, x)
    total = (kernel - 1) * dilation + 1 - stride
    right = 0 if module.causal else total // 2
    y = module.conv(pad_to_multiple(x, stride, (total - right, right), module.pad_mode))
    return module.norm(y) if getattr(module, "norm_type", None) == "time_group_norm" else y


def _snake(module: Any, x: Any) -> Any:
    """It is a scripted function, which streams don't pass."""
    return x + (module.alpha + 1e-9).reciprocal() * torch.sin(module.alpha * x).pow(2)


# ---------------------------------------------------------------------- separation and enhancement
def _demucs(model: Any, mix: Any) -> Any:
    """It pads until no layer leaves a frame over: lengths that fit are shortest, shortest + step, ..."""
    if model.normalize or model.resample != 1:
        raise NotStreamableError(
            f"Demucs at {user_line()}: normalize=True divides by the whole stream, and resample by blocks; "
            "Demucs(normalize=False, resample=1) streams"
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


# ---------------------------------------------------------------------- recognition
def _subsampling(module: Any, x: Any, lengths: Any) -> Any:
    """It asks how many numbers there are, to split what some devices can't hold."""
    if not module.conv2d_subsampling:
        return type(module).forward(module, x, lengths)
    y, lengths = module.conv(x, lengths)
    return module.out(y.transpose(1, 2).flatten(2)), lengths


def _uncached(module: Any, x: Any) -> Any:
    """It keeps what it has computed for the last length."""
    twin = copy.copy(module)
    twin.cached_sequence_length = -1
    return type(module).forward(twin, x)


# ---------------------------------------------------------------------- mixtures of experts
def _experts(module: Any, hidden: Any, index: Any, weights: Any) -> Any:
    """They loop over the experts that are hit, in whichever of transformers' ways is configured."""
    k = index.shape[-1]

    def products(x: Any, name: str) -> Any:
        weight = getattr(module, name).to(x.dtype)
        weight = weight.transpose(1, 2) if module.is_transposed else weight
        bias = getattr(module, f"{name}_bias").to(x.dtype) if module.has_bias else None
        return expert_linear(x, index, weight, bias).unflatten(-1, (k, -1))

    first = products(hidden, "gate_up_proj" if module.has_gate else "up_proj")
    inner = module._apply_gate(first) if module.has_gate else module.act_fn(first)
    out = products(inner.flatten(-2), "down_proj")
    if getattr(module, "has_post_expert_norm", False):
        out = module.post_expert_norm(out)
    return combine(out.flatten(-2), weights.to(hidden.dtype))


#: By where forwards are from: a decorator's, of whatever class it is put on, or a class's own.
OF_OTHERS: dict[str, Callable[..., Any]] = {
    "torchaudio.transforms._transforms.AmplitudeToDB": _decibels,
    "torchaudio.transforms._transforms.Resample": _resample,
    "audiocraft.modules.conv.StreamableConv1d": _whole_frames,
    "encodec.modules.conv.SConv1d": _whole_frames,
    "speechtokenizer.modules.conv.SConv1d": _whole_frames,
    "transformers.models.encodec.modeling_encodec.EncodecConv1d": _whole_frames,
    "transformers.models.mimi.modeling_mimi.MimiConv1d": _whole_frames,
    "dac.nn.layers.Snake1d": _snake,
    "snac.layers.Snake1d": _snake,
    "denoiser.demucs.Demucs": _demucs,
    **{
        f"transformers.models.{model}.modeling_{model}.{start}RotaryPositionalEmbedding": _uncached
        for model, start in (
            ("wav2vec2_conformer", "Wav2Vec2Conformer"),
            ("wav2vec2_bert", "Wav2Vec2Bert"),
            ("seamless_m4t", "SeamlessM4TConformer"),
        )
    },
    "nemo.collections.asr.parts.submodules.subsampling.ConvSubsampling": _subsampling,
    "transformers.integrations.moe": _experts,
}
