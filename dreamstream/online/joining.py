"""Whether a model's own code may join B and L, so that its layers see frames by themselves.

A bidirectional layer then runs within each of them. Which it is shows when the forward runs; where nothing in a
model's code can join dimensions, it is known before.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from inspect import getclosurevars
from types import CodeType, FunctionType, ModuleType
from typing import Any

_JOINING = frozenset(("reshape", "view", "flatten", "unflatten", "rearrange", "Flatten", "Unflatten", "Rearrange"))
_KNOWN = ("dreamstream", "torch", "numpy", "math", "typing", "collections")


def may_join(modules: Iterable[Any]) -> bool:
    """Return whether code of all modules of a model, or functions that it reaches, may join dimensions."""
    names: set[str] = set()
    functions: list[Any] = []
    for module in modules:
        names.add(type(module).__name__)
        functions += vars(module).values()
        functions += [f for cls in type(module).__mro__ if not _known(cls) for f in vars(cls).values()]
    seen: set[int] = set()
    while functions:
        function = functions.pop()
        function = getattr(function, "__func__", function)
        if id(function) in seen or _known(function):
            continue
        seen.add(id(function))
        if isinstance(function, type):
            functions += vars(function).values()
        if not isinstance(function, FunctionType):
            continue
        codes = list(_codes(function.__code__))
        own = {name for code in codes for name in code.co_names}
        names |= own
        reached = [function.__globals__.get(name) for name in own]
        functions += getclosurevars(function).nonlocals.values()
        functions += reached
        functions += [
            getattr(m, n, None) for m in reached if isinstance(m, ModuleType) and not _known(m) for n in own
        ]
    return not _JOINING.isdisjoint(names)


def _codes(code: CodeType) -> Iterable[CodeType]:
    """Return a function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _known(what: Any) -> bool:
    """Whether something belongs to a package whose functions join nothing by other names."""
    home = what.__name__ if isinstance(what, ModuleType) else getattr(what, "__module__", None)
    if home == "builtins":  # so are functions and classes that a text was executed for
        return not isinstance(what, FunctionType) and getattr(builtins, what.__name__, None) is what
    return isinstance(home, str) and home.partition(".")[0] in _KNOWN
