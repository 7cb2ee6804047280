"""The forward that is running, and what streams, sizes and torch's operators ask of it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch

from ...errors import ModeError, NotStreamableError
from ...stream.where import RETURNED
from .foreign_errors import COMPILED

#: The forward that is running, a `dreamstream.torch.forward.mode.Forward`, or None.
RUNNING: ContextVar[Any] = ContextVar("dreamstream_forward", default=None)

running = RUNNING.get  #: Returns the forward that is running, or None.


def current() -> Any:
    """Return the forward that is running; ModeError is raised where none is."""
    forward = RUNNING.get()
    if forward is None:
        raise ModeError.here("torch tensors are streams inside an online forward only")
    return forward


def call(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """What a stream calls by itself: the forward that is running, if one is."""
    forward = RUNNING.get(None)
    if forward is not None:
        return forward.call(func, args, kwargs)
    if func.__name__ == "__get__":  # a debugger that looks at it
        return getattr(torch.empty(0), func.__self__.__name__, None)
    raise ModeError.here(f"{func.__name__}: {RETURNED}")


def call_beneath(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Refuse what torch's functions are not asked about."""
    error = NotStreamableError.here(f"{func} on a stream inside a forward,", f": {COMPILED}")
    forward = RUNNING.get()
    if forward is not None:
        forward._beneath = error
    raise error


def note_alias(x: Any) -> None:
    if (forward := RUNNING.get()) is not None and forward.gradients is not None:
        forward.gradients.require_seen(x)


#: ``__torch_function__`` of what stands for sizes and constants of the batch.
CALL_OF_SIZES = classmethod(lambda cls, func, types, args=(), kwargs=None: call(func, types, args, kwargs or {}))
