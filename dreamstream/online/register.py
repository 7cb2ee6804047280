"""How a user's own module or function streams, in terms of operators that exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, overload

from .front import is_module_class
from .registered import CLASSES, MASKS, NAMES, registered_for
from .tracer import TRACER

F = TypeVar("F", bound=Callable[..., Any])


@overload
def register(target: str) -> Callable[[F], F]: ...


@overload
def register(target: Any) -> Any: ...


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
        MASKS[id(target.__code__)] = target
        TRACER.forget()
        return target
    if isinstance(target, str) and "." in target:
        return partial(_keep, NAMES, target)
    if not is_module_class(target):
        raise TypeError(
            "register takes a class of modules, a function of Python that makes masks, or the full name of a "
            f"class or function, got {target!r}"
        )
    return partial(_keep, CLASSES, target)


def _keep(table: dict[Any, Callable[..., Any]], target: Any, function: F) -> F:
    table[target] = function
    registered_for.cache_clear()
    TRACER.forget()
    return function
