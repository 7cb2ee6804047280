"""How a user's own module streams, in terms of operators that exist."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from .front import is_module_class

__all__ = ["forward_of", "is_registered", "register"]

F = TypeVar("F", bound=Callable[..., Any])

_STREAMING: dict[type, Callable[..., Any]] = {}


def register(cls: type) -> Callable[[F], F]:
    """Say how modules of a class stream: decorate a function ``(module, *inputs)``.

    It is called instead of the module's forward in online calls and captures, and must give what the
    forward gives for whole sequences. Subclasses are included unless they are registered themselves.

    Examples
    --------
    ::

        @ds.register(LastFramesPadded)
        def stream(module, x):
            return F.conv1d(F.pad(x, (module.left, 0)), module.weight)
    """
    if not is_module_class(cls):
        raise TypeError(f"register takes a class of modules, got {cls!r}")

    def keep(function: F) -> F:
        _STREAMING[cls] = function
        return function

    return keep


def is_registered(module: Any) -> bool:
    """Whether the module's class, or one that it derives from, is registered."""
    return any(c in _STREAMING for c in type(module).__mro__)


def forward_of(module: Any) -> Callable[..., Any]:
    """Return what a streaming call of the module runs."""
    for cls in type(module).__mro__:
        if cls in _STREAMING:
            return partial(_STREAMING[cls], module)
    forward: Callable[..., Any] = module.forward
    return forward
