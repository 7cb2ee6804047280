"""What happens outside a forward where an operation can't keep ids and lengths: a padded tensor, and a warning."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from contextvars import ContextVar

from ..errors import StreamFallbackWarning, StreamMismatchError
from ..source_line import user_line
from .within import within

_POLICY: ContextVar[str] = ContextVar("dreamstream_fallback", default="warn")


def on_fallback(policy: str) -> AbstractContextManager[str]:
    """Choose what happens where an operation can't keep a stream tensor's metadata.

    Parameters
    ----------
    policy : {"warn", "raise", "ignore"}
        Warn (the default) and go on with a plain padded tensor, raise `StreamMismatchError`, or go on.
    """
    if policy not in ("warn", "raise", "ignore"):
        raise ValueError(f'on_fallback takes "warn", "raise" or "ignore", got {policy!r}')
    return within(_POLICY, policy)


def report_fallback(what: str) -> None:
    """Do what `on_fallback` chose about a result that can't keep the metadata."""
    message = f"{what} at {user_line()} can't keep ids and lengths: the result is a plain tensor"
    policy = _POLICY.get()
    if policy == "raise":
        raise StreamMismatchError(message)
    if policy == "warn":
        warnings.warn(message, StreamFallbackWarning, stacklevel=5)
