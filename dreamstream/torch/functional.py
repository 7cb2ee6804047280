"""Functions that torch has no name for, on torch streams inside a forward.

They are those of `dreamstream.nn.functional` that `torch_lacks` marks, with their arguments; a forward that is
written for streams, such as what `ds.register` decorates, may use them::

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


def of_streams(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of native streams as one of torch streams, inside a forward."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        forward = current()
        given = [forward.unwrap(a) for a in args]
        named = {k: forward.unwrap(v) for k, v in kwargs.items()}
        return forward._wrapped(forward.watched(function, *given, **named))

    return run


__all__ = sorted(name for name in native.__all__ if hasattr(getattr(native, name), "torch_lacks"))

globals().update({name: of_streams(getattr(native, name)) for name in __all__})
