"""How a user's own module streams, in terms of operators that exist."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ..nn.module import Module

__all__ = ["forward_of", "is_registered", "register"]

F = TypeVar("F", bound=Callable[..., Any])

_STREAMING: dict[type[Module], Callable[..., Any]] = {}


def register(cls: type[Module]) -> Callable[[F], F]:
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
    if not (isinstance(cls, type) and issubclass(cls, Module)):
        raise TypeError(f"register takes a class of modules, got {cls!r}")

    def keep(function: F) -> F:
        _STREAMING[cls] = function
        return function

    return keep


def is_registered(module: Module) -> bool:
    """Whether the module's class, or one that it derives from, is registered."""
    return any(c in _STREAMING for c in type(module).__mro__)


def forward_of(module: Module) -> Callable[..., Any]:
    """Return what a streaming call of the module runs."""
    for cls in type(module).__mro__:
        if cls in _STREAMING:
            return partial(_STREAMING[cls], module)
    return module.forward
