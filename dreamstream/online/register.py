"""How a user's own module streams, in terms of operators that exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

from .front import is_module_class
from .mask_functions import note_calls

F = TypeVar("F", bound=Callable[..., Any])

_STREAMING: dict[type, Callable[..., Any]] = {}


def register(cls: Any) -> Any:
    """Say how modules of a class stream: decorate a function ``(module, *inputs)``.

    It is called instead of the module's forward in online calls and captures, and must give what the
    forward gives for whole sequences. Subclasses are included, unless they are registered themselves or have a
    forward of their own. Of the layers below such a module only those that the function calls have to stream.

    Given a function that makes a mask of lengths, say by a loop over frames, it lets that be called with integers
    wherever a forward gives it the length of a stream, or a stream whose shape it looks at; the mask is looked at
    as one that is written out. Registering it anew changes nothing, nor does it change any other call.

    Examples
    --------
    ::

        @ds.register(LastFramesPadded)
        def stream(module, x):
            return F.conv1d(F.pad(x, (module.left, 0)), module.weight)

        ds.register(chunk_mask)  # (size, chunk) -> (size, size)
    """
    if inspect.isfunction(cls):
        note_calls(cls)
        return cls
    if not is_module_class(cls):
        raise TypeError(
            f"register takes a class of modules, or a function of Python that makes masks, got {cls!r}"
        )

    def keep(function: F) -> F:
        _STREAMING[cls] = function
        registered_for.cache_clear()
        return function

    return keep


@lru_cache(maxsize=1024)
def registered_for(kind: Any) -> Callable[..., Any] | None:
    """Return what is registered for a class, or the nearest one that it derives from and has the forward of."""
    cls = next((c for c in kind.__mro__ if c in _STREAMING), None)
    if cls is None or getattr(kind, "forward", None) is not getattr(cls, "forward", None):
        return None
    return _STREAMING[cls]


def forward_of(module: Any) -> Callable[..., Any]:
    """Return what a streaming call of the module runs."""
    kind: Any = type(module)
    registered = registered_for(kind)
    return module.forward if registered is None else partial(registered, module)
