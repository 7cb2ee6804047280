"""Transforms of torchaudio."""

from __future__ import annotations

from typing import Any

from ..errors import NotStreamableError
from ..nn.functional.resampling import Resampling
from ..online.register import register
from ..online.tracer import own_forward
from ..torch.forward.constants import Constant, dtype_of
from ..torch.forward.running import current


@register("torchaudio.transforms._transforms.Resample")
def at_another_rate(module: Any, waveform: Any) -> Any:
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


@register("torchaudio.transforms._transforms.AmplitudeToDB")
def decibels(module: Any, x: Any) -> Any:
    """It looks at the whole stream where it has a `top_db`."""
    if module.top_db is not None:
        raise NotStreamableError.here(
            "AmplitudeToDB: top_db cuts below the loudest value of the whole stream; AmplitudeToDB(top_db=None) "
            "streams"
        )
    return own_forward(module, x)
