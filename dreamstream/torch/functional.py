"""Functions that torch has no name for, on torch streams inside a forward.

They are those of `dreamstream.nn.functional`, with their arguments; a forward that is written for streams, such as
what `ds.register` decorates, may use them::

    from dreamstream.torch.functional import pad_to_multiple

    @ds.register(ConvOfWholeFrames)
    def stream(module, x):
        return module.conv(pad_to_multiple(x, module.stride))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..nn import functional as native
from .forward.mode import current

__all__ = [
    "combine",
    "cumulative_mean",
    "cumulative_sum",
    "expert_linear",
    "overlap_add",
    "pad_to_multiple",
    "resample",
    "router",
    "running_mean",
]


def _of_streams(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        forward = current()
        given = [forward.unwrap(a) for a in args]
        return forward._wrapped(function(*given, **{k: forward.unwrap(v) for k, v in kwargs.items()}))

    return run


combine = _of_streams(native.combine)
cumulative_mean = _of_streams(native.cumulative_mean)
cumulative_sum = _of_streams(native.cumulative_sum)
expert_linear = _of_streams(native.expert_linear)
overlap_add = _of_streams(native.overlap_add)
pad_to_multiple = _of_streams(native.pad_to_multiple)
resample = _of_streams(native.resample)
router = _of_streams(native.router)
running_mean = _of_streams(native.running_mean)
