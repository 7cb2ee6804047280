"""What is registered for modules and functions, and how a function is called that makes a mask of lengths."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

from ..array.deferred import Deferred
from ..stream.foreign import inner_of
from ..stream.rules import Length
from ..stream.tree import leaves

#: What is registered: for classes, for functions that make masks by the identity of their code, and by names.
CLASSES: dict[type, Callable[..., Any]] = {}
MASKS: dict[int, FunctionType] = {}
NAMES: dict[str, Callable[..., Any]] = {}


def length_in(args: Any) -> Any:
    """Return a length of a stream among arguments, or of one of them; None without any."""
    for x in leaves(args):
        inner = inner_of(x)
        if isinstance(inner, Deferred):
            inner = next(inner.lengths(), None)
        elif getattr(inner, "is_stream", False) and getattr(inner, "edge", None):
            inner = next((s for s in inner.shape if isinstance(s, Length)), None)
        if isinstance(inner, Length):
            return inner
    return None


def called_with_numbers(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the mask that a function makes of lengths, found out by calls with integers."""
    return length_in((args, kwargs)).edge.entry.library.defer_call(function, args, kwargs)


def full_name(x: Any) -> str:
    """Return the full name of a class or function."""
    return f"{getattr(x, '__module__', '')}.{getattr(x, '__qualname__', '')}"


@lru_cache(maxsize=1024)
def registered_for(kind: Any) -> Callable[..., Any] | None:
    """Return what is registered for a class, or the nearest one that it derives from and has the forward of."""
    home = getattr(getattr(kind, "forward", None), "__globals__", {}).get("__name__", "")
    if home != kind.__module__ and f"{home}.*" in NAMES:  # a decorator's, of whatever class it is put on
        return NAMES[f"{home}.*"]
    for cls in kind.__mro__:
        found = CLASSES.get(cls) or NAMES.get(full_name(cls))
        if found is not None:
            return found if getattr(kind, "forward", None) is getattr(cls, "forward", None) else None
    return None


def instead_of(function: FunctionType) -> Callable[..., Any] | None:
    """Return what is registered for a function."""
    if id(function.__code__) in MASKS:
        return called_with_numbers
    return NAMES.get(full_name(function)) or NAMES.get(f"*.{function.__name__}")
