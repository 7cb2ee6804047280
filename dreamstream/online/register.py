"""How a user's own module or function streams, in terms of operators that exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from types import FunctionType
from typing import Any, TypeVar

from ..array.scores import Scores
from ..array.symbolic import Symbolic
from ..stream.rules import Length
from ..stream.tree import leaves
from .front import is_module_class

F = TypeVar("F", bound=Callable[..., Any])

#: What is registered: for classes, functions that make masks by the identity of their code, and by names.
_CLASSES: dict[type, Callable[..., Any]] = {}
_MASKS: dict[int, FunctionType] = {}
_NAMES: dict[str, Callable[..., Any]] = {}


def register(target: Any) -> Any:
    """Say how modules of a class stream: decorate a function ``(module, *inputs)``.

    It is called instead of the module's forward in online calls and captures, and must give what the
    forward gives for whole sequences. Subclasses are included, unless they are registered themselves or have a
    forward of their own. Of the layers below such a module only those that the function calls have to stream.

    Given a function that makes a mask of lengths, say by a loop over frames, it lets that be called with integers
    wherever a forward gives it the length of a stream, or a stream whose shape it looks at; the mask is looked at
    as one that is written out. Registering it anew changes nothing, nor does it change any other call.

    Given the full name of a class or function, as ``"package.module.name"``, the package need not be imported:
    decorate ``(module, *inputs)`` for a class, or ``(function, *inputs)`` for a function, which is called where a
    forward gives it a length or a stream; ``"*.name"`` are all methods of that name.

    Examples
    --------
    ::

        @ds.register(LastFramesPadded)
        def stream(module, x):
            return F.conv1d(F.pad(x, (module.left, 0)), module.weight)

        ds.register(chunk_mask)  # (size, chunk) -> (size, size)

        @ds.register("package.subsampling.check_short")
        def longer(function, module, size):
            return False, -1
    """
    if inspect.isfunction(target):
        _MASKS[id(target.__code__)] = target
        return target
    if isinstance(target, str) and "." in target:
        return partial(_keep, _NAMES, target)
    if not is_module_class(target):
        raise TypeError(
            "register takes a class of modules, a function of Python that makes masks, or the full name of a class "
            f"or function, got {target!r}"
        )
    return partial(_keep, _CLASSES, target)


def _keep(table: dict[Any, Callable[..., Any]], target: Any, function: F) -> F:
    table[target] = function
    registered_for.cache_clear()
    return function


def length_in(args: Any) -> Any:
    """Return a length of a stream among arguments, or of one of them; None without any."""
    for x in leaves(args):
        inner = stands_for(x)
        if isinstance(inner, Symbolic):
            return inner.length
        if hasattr(type(inner), "says"):
            inner = next(inner.lengths(), None)
        elif getattr(inner, "is_stream", False) and getattr(inner, "edge", None):
            inner = next((s for s in inner.shape if isinstance(s, Length)), None)
        if isinstance(inner, Length):
            return inner
    return None


def stands_for(x: Any) -> Any:
    """Return what a tensor of torch stands for; scores of attention refuse to be asked."""
    return x if isinstance(x, Scores) else getattr(x, "_inner", x)


def called_with_numbers(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the mask that a function makes of lengths, found out by calls with integers."""
    return type(length_in((args, kwargs))).note_call(function, args, kwargs)


def full_name(x: Any) -> str:
    """Return the full name of a class or function."""
    return f"{getattr(x, '__module__', '')}.{getattr(x, '__qualname__', '')}"


@lru_cache(maxsize=1024)
def registered_for(kind: Any) -> Callable[..., Any] | None:
    """Return what is registered for a class, or the nearest one that it derives from and has the forward of."""
    home = getattr(getattr(kind, "forward", None), "__globals__", {}).get("__name__", "")
    if home != kind.__module__ and f"{home}.*" in _NAMES:  # a decorator's, of whatever class it is put on
        return _NAMES[f"{home}.*"]
    for cls in kind.__mro__:
        found = _CLASSES.get(cls) or _NAMES.get(full_name(cls))
        if found is not None:
            return found if getattr(kind, "forward", None) is getattr(cls, "forward", None) else None
    return None


def instead_of(function: FunctionType) -> Callable[..., Any] | None:
    """Return what is registered for a function."""
    if id(function.__code__) in _MASKS:
        return called_with_numbers
    return _NAMES.get(full_name(function)) or _NAMES.get(f"*.{function.__name__}")
