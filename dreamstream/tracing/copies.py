"""Copies of functions: new function objects over the same globals, cells and defaults, with code of our own.

Code is kept by the code that it was made from, as long as that lives.
"""

import threading
import types
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any, NamedTuple

from .nodes import HOOKS, SITES
from .source import NoCopy, compiled, find, place, qualified_name
from .spelled import Spelled
from .transform import Statements, transform


class Converted(NamedTuple):
    """The code of a function's copies."""

    code: types.CodeType
    sites: types.CellType
    closure: Callable[[tuple[types.CellType, ...]], tuple[types.CellType, ...]]
    """Puts the function's own cells, that of the sites and that of the hooks into the order that the code has."""


# By the code that a copy was made from, and whether operators are calls in it: its own, or why there is none.
_Known = dict[int, tuple["weakref.ref[types.CodeType]", Converted | str]]
_converted: _Known = {}
_spelled: _Known = {}
# By code of ours: that it is.
_ours: dict[int, "weakref.ref[types.CodeType]"] = {}
_lock = threading.RLock()


def is_copy(code: types.CodeType) -> bool:
    """Whether a code is a copy's, or stands within one."""
    return id(code) in _ours


def why_not(code: types.CodeType) -> str | None:
    """Return why functions of this code were not converted, or None where they were, or were never asked for."""
    known = _converted.get(id(code))
    return known[1] if known is not None and isinstance(known[1], str) else None


def converted(function: types.FunctionType, spelled: bool = False) -> Converted:
    """Return the code of a function's copies; `spelled`: of those in which operators are calls.

    NoCopy is raised where it can't be converted; why is also kept for ``why_not``.
    """
    code = function.__code__
    table = _spelled if spelled else _converted
    known = table.get(id(code))
    if known is None:
        with _lock:
            known = table.get(id(code))
            if known is None:
                known = _weak(code, table), _convert(function, Spelled if spelled else Statements)
                table[id(code)] = known
    if isinstance(known[1], str):
        raise NoCopy(known[1])
    return known[1]


def make(function: types.FunctionType, made: Converted, hooks: types.CellType) -> types.FunctionType:
    """Return a function object of converted code that shares all else with the original."""
    cells = made.closure((*(function.__closure__ or ()), made.sites, hooks))
    new = types.FunctionType(made.code, function.__globals__, function.__name__, function.__defaults__, cells)
    if function.__kwdefaults__ is not None:
        new.__kwdefaults__ = function.__kwdefaults__
    new.__qualname__, new.__module__, new.__doc__ = function.__qualname__, function.__module__, function.__doc__
    if function.__dict__:
        new.__dict__.update(function.__dict__)
    return new


def _convert(function: types.FunctionType, kind: type[Statements], deep: bool = False) -> Converted | str:
    code, name = function.__code__, qualified_name(function)
    try:
        found = find(function)
        sites = transform(found.node, code.co_filename, name, kind)
        made = compiled(found, code, (*code.co_freevars, HOOKS, SITES), name)
    except NoCopy as reason:
        return str(reason)
    except RecursionError as error:
        if deep:
            return f"{place(code)}: it is nested too deeply ({error})"
        with ThreadPoolExecutor(1) as thread:  # whose stack is empty, however deep the user's calls are
            return thread.submit(_convert, function, kind, deep=True).result()
    except (SyntaxError, ValueError) as error:
        return f"{place(code)}: what it is converted to can't be compiled ({error})"
    _note(made)
    names = (*code.co_freevars, SITES, HOOKS)
    order = [names.index(n) for n in made.co_freevars]
    closure = itemgetter(*order) if len(order) > 1 else lambda cells: tuple(cells[i] for i in order)
    return Converted(made, types.CellType(sites), closure)


def _note(code: types.CodeType) -> None:
    """Note a code, and those within it, as ours."""
    _ours[id(code)] = _weak(code, _ours)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _note(constant)


def _weak(code: types.CodeType, table: dict[int, Any]) -> "weakref.ref[types.CodeType]":
    """A reference by which a table forgets a code that is gone."""
    key = id(code)
    return weakref.ref(code, lambda _: table.pop(key, None))
