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

import torch

from ..array import scans
from ..nn import functional as native
from .forward.replay import REPLAY
from .forward.running import current


def _once(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run a function of native streams on torch streams, so that the next call at this place can repeat it."""
    forward = current()

    def run() -> Any:
        given = [forward.unwrap(a) for a in args]
        named = {k: forward.unwrap(v) for k, v in kwargs.items()}
        return forward._wrapped(forward.watched(function, *given, **named))

    return forward.replayed(function, args, kwargs, run)


def of_streams(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of native streams as one of torch streams, inside a forward."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return REPLAY.function(_once, function, *args, **kwargs)

    return run


__all__ = sorted(name for name in native.__all__ if hasattr(getattr(native, name), "torch_lacks"))

globals().update({name: of_streams(getattr(native, name)) for name in __all__})


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, dim: int = 1) -> tuple[Any, Any]:
    """As `dreamstream.nn.functional.scan`, of torch's tensors, of streams inside a forward and of plain ones."""
    return scans.scan(f, init, xs, dim, torch.stack)


def linear_recurrence(a: Any, b: Any, h0: Any = None, dim: int = 1) -> Any:
    """As `dreamstream.nn.functional.linear_recurrence`, of torch's tensors."""
    return scans.scan(scans.recurrence_step, h0, (a, b), dim, torch.stack, "linear_recurrence")[1]
