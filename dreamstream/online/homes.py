"""Where a model holds values: its modules' attributes, containers, objects, and what its functions refer to."""

from __future__ import annotations

import random
import sys
from argparse import Namespace
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ..array.base import Base
from ..nn.parameter import Parameter

#: Packages whose objects, functions and classes are not looked into, but for their modules and containers.
_FOREIGN = frozenset({*sys.stdlib_module_names, "dreamstream", "numpy", "scipy", "torch"})
#: But for these, which have nothing but attributes.
_PLAIN = (Namespace, SimpleNamespace, UserDict, UserList)
ATOMS = frozenset({bool, bytes, complex, float, int, str, type(None)})
_GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)
_MISSING = object()


class Attributes(NamedTuple):
    """Values that stand in no dictionary of their own: slots, a class's attributes, a variable of a closure."""

    of: Any
    names: tuple[str, ...]

    def read(self) -> dict[str, Any]:
        if isinstance(self.of, type):
            return {n: v for n, v in vars(self.of).items() if not n.startswith("__")}
        found = {}
        for name in self.names:
            with suppress(AttributeError, ValueError):  # not set; a variable that is not bound yet
                found[name] = getattr(self.of, name)
        return found

    def write(self, then: dict[str, Any]) -> None:
        now = self.read()
        for name in now.keys() - then.keys():
            delattr(self.of, name)
        for name, value in then.items():
            if now.get(name, _MISSING) is not value:
                setattr(self.of, name, value)


class Globals(NamedTuple):
    """Those of a Python module's names that a function uses."""

    of: dict[str, Any]
    names: tuple[str, ...]

    def read(self) -> dict[str, Any]:
        return {n: self.of[n] for n in self.names if n in self.of}

    def write(self, then: dict[str, Any]) -> None:
        for name in self.names:
            if name not in then:
                self.of.pop(name, None)
            elif self.of.get(name, _MISSING) is not then[name]:
                self.of[name] = then[name]


class Array(NamedTuple):
    """The elements of an array."""

    of: Any

    def read(self) -> Any:
        return self.of.copy()

    def write(self, then: Any) -> None:
        self.of[...] = then


def _write_dict(kind: Any, home: Any, then: dict[Any, Any]) -> None:
    for key in [k for k in kind.keys(home) if k not in then]:
        kind.__delitem__(home, key)
    for key, value in then.items():
        if kind.get(home, key, _MISSING) is not value:
            kind.__setitem__(home, key, value)
    if list(kind.keys(home)) != list(then):  # what was deleted and came again stands last
        kind.clear(home)
        for key, value in then.items():
            kind.__setitem__(home, key, value)


def _write_list(home: list[Any], then: Any) -> None:
    list.__setitem__(home, slice(None), then)


def _write_set(home: set[Any], then: Any) -> None:
    set.clear(home)
    set.update(home, then)


def _write_deque(home: deque[Any], then: Any) -> None:
    deque.clear(home)
    deque.extend(home, then)


#: How each is read and written, by the builtin's own methods, whatever those of a subclass do.
_KINDS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    OrderedDict: (lambda home: dict(OrderedDict.items(home)), partial(_write_dict, OrderedDict)),
    dict: (dict.copy, partial(_write_dict, dict)),
    list: (list.copy, _write_list),
    set: (set.copy, _write_set),
    deque: (list, _write_deque),
    Array: (Array.read, Array.write),
    Attributes: (Attributes.read, Attributes.write),
    Globals: (Globals.read, Globals.write),
}


class Home:
    """A place of values."""

    __slots__ = ("name", "of", "path", "read", "write")

    def __init__(self, of: Any, path: str, name: str) -> None:
        self.of = of  #: The container, the dictionary of an object's attributes, or one of the classes above.
        self.path = path  #: Where it stands in the model.
        self.name = name  #: The attribute that holds it; empty for attributes themselves.
        kind = type(of) if type(of) in _KINDS else next(kind for kind in _KINDS if isinstance(of, kind))
        #: ``read(of)`` gives what it holds, for ``write(of, then)``.
        self.read, self.write = _KINDS[kind]
        if type(of) is OrderedDict:
            self.read = dict

    @property
    def is_array(self) -> bool:
        """Whether it holds numbers alone."""
        return isinstance(self.of, Array)

    @property
    def is_variable(self) -> bool:
        """Whether it holds variables, of closures and of Python modules, and not attributes."""
        return isinstance(self.of, Globals) or (
            isinstance(self.of, Attributes) and isinstance(self.of.of, CellType)
        )


class Homes(NamedTuple):
    """All that a model holds."""

    homes: list[Home]
    generators: list[Any]  #: Generators of random numbers.
    #: Of the user's, that modules' classes, hooks and attributes have; where all was asked for.
    functions: list[FunctionType]


def homes_of(model: Any, *, functions: bool) -> Homes:
    """Find where a model holds values; with `functions` also where its functions and classes do."""
    found = Homes([], [], [])
    seen: dict[int, Any] = {}
    waiting: list[tuple[Any, str, str]] = [(model, "", "")]
    while waiting:
        x, path, name = waiting.pop()
        if id(x) in seen:
            continue
        seen[id(x)] = x
        if not functions and isinstance(x, (type, FunctionType, MethodType, partial)):
            continue
        home = _home(x, path, name)
        if home is not None and (home.of is x or id(home.of) not in seen):
            seen[id(home.of)] = home.of
            found.homes.append(home)
        if isinstance(x, (dict, list, tuple)) and not x:
            continue
        if is_generator(x):
            found.generators.append(x)
        elif isinstance(x, FunctionType) and not is_foreign(x):
            found.functions.append(x)
        inside = [
            (y, where, own or name) for y, where, own in _inside(x, path, home, functions) if type(y) not in ATOMS
        ]
        waiting += reversed(inside)
    return found


def is_generator(x: Any) -> bool:
    """Whether it is a generator of random numbers: Python's, NumPy's, or torch's."""
    return isinstance(x, _GENERATORS) or (type(x).__name__ == "Generator" and hasattr(x, "initial_seed"))


def is_foreign(x: Any) -> bool:
    """Whether an object, function or class is of a package that is not looked into."""
    of = x if isinstance(x, (type, FunctionType)) else type(x)
    if of in _PLAIN:
        return False
    return (getattr(of, "__module__", None) or "builtins").partition(".")[0] in _FOREIGN


def _home(x: Any, path: str, name: str) -> Home | None:
    if type(x) in _KINDS:
        return Home(x, path, name)
    if isinstance(x, Base):  # a tensor of this package: the array that it holds may be written into
        array = None if x.is_stream or isinstance(x, Parameter) else x.numpy()
        return None if array is None or not array.flags.writeable else Home(Array(array), path, name)
    if isinstance(x, np.ndarray):
        return Home(Array(x), path, name) if x.flags.writeable and x.dtype.kind in "biufc" else None
    if isinstance(x, (dict, list, set, deque)):
        return Home(x, path, name)
    if isinstance(x, CellType):
        return Home(Attributes(x, ("cell_contents",)), path, name)
    if isinstance(x, FunctionType):
        names = tuple(dict.fromkeys(_names(x.__code__)))
        return None if is_foreign(x) else Home(Globals(x.__globals__, names), path, "")
    if isinstance(x, type):
        return None if is_foreign(x) else Home(Attributes(x, ()), path, "")
    if _is_module(x) or not (is_foreign(x) or isinstance(x, ModuleType)):
        own = _own(x)
        if isinstance(own, dict):
            return Home(own, path, "")
        slots = [n for kind in type(x).__mro__ for n in _slots(kind)]
        return Home(Attributes(x, tuple(slots)), path, "") if slots else None
    return None


def _is_module(x: Any) -> bool:
    return isinstance((_own(x) or {}).get("_modules"), dict)


def _own(x: Any) -> Any:
    """Return an object's attributes, without asking its ``__getattr__``, which may raise anything."""
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None


def _slots(kind: type) -> tuple[str, ...]:
    own = vars(kind).get("__slots__", ())
    return (own,) if isinstance(own, str) else tuple(n for n in own if n not in ("__dict__", "__weakref__"))


def _names(code: Any) -> Iterator[str]:
    """Yield the names that a function's code, and code within it, uses of its module."""
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _names(constant)


def _inside(x: Any, path: str, home: Home | None, functions: bool) -> Iterator[tuple[Any, str, str]]:
    """Yield what an object holds, with its path and the attribute that holds it; `home` is where it does."""
    if isinstance(x, dict):
        for key, value in list(x.items()):
            yield value, f"{path}[{key!r}]", ""
    elif isinstance(x, (list, tuple, deque)):
        for i, value in enumerate(list(x)):
            yield value, f"{path}[{i}]", ""
    elif isinstance(x, MethodType):
        yield from ((x.__func__, path, ""), (x.__self__, path, ""))
    elif isinstance(x, partial):
        yield from ((y, path, "") for y in (x.func, *x.args, *x.keywords.values()))
    elif isinstance(x, FunctionType):
        if home is not None:
            yield from ((y, path, "") for y in (*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()))
            for name, cell in zip(x.__code__.co_freevars, x.__closure__ or ()):
                yield cell, name, name
            for name, value in home.read(home.of).items():
                yield value, name, name
        elif hasattr(x, "__wrapped__"):
            yield x.__wrapped__, path, ""
    elif home is None:
        return
    elif isinstance(x, CellType):
        for value in home.read(home.of).values():
            yield value, path, path
    elif isinstance(x, type):
        for name, value in list(vars(x).items()):
            inner = getattr(value, "__func__", getattr(value, "fget", value))
            yield inner, f"{x.__name__}.{name}", name
        yield from ((base, base.__name__, "") for base in x.__bases__)
    elif isinstance(home.of, (dict, Attributes)):
        of_module = _is_module(x)
        for name, value in list(home.read(home.of).items()):
            own = of_module and name in ("_buffers", "_modules", "_parameters")
            if own:
                for key, inner in list(value.items()):
                    yield inner, f"{path}.{key}".lstrip("."), key
            yield value, path if own else f"{path}.{name}".lstrip("."), name
        if functions:
            yield type(x), type(x).__name__, ""
