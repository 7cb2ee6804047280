"""Modules in the place of packages that models of others import, and do without when they run."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any


class Blank:
    """What a model inherits from, or makes one of."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass


def _attribute(of: Any, name: str) -> Any:
    """A class where the name has a capital letter, else anything."""
    if name.startswith("__"):
        raise AttributeError(name)
    made = type(name, (Blank,), {}) if name[:1].isupper() else Anything()
    setattr(of, name, made)
    return made


class Anything:
    """Is called, decorates, has any attribute, and nothing in it."""

    __getattr__ = _attribute

    def __len__(self) -> int:
        return 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not options else self


class StandIn(types.ModuleType):
    """Has any attribute."""

    __path__: Sequence[str] = ()
    __version__ = "1.0"
    __getattr__ = _attribute


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins for modules of some names and what is in them, with the attributes that are given.

    Parameters
    ----------
    given : mapping
        Attributes by the module's name. A module with a `__path__` is a package of which its own file is not run.
    """

    def __init__(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        self.given = given

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        inside = (n for n, own in self.given.items() if fullname.startswith(n + ".") and "__path__" not in own)
        found = fullname in self.given or any(inside)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if found else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(self.given.get(module.__name__, {}))

    def forget(self) -> None:
        """Take the stand-ins away again."""
        for name, module in list(sys.modules.items()):
            if isinstance(module, StandIn) and getattr(module.__spec__, "loader", None) is self:
                del sys.modules[name]
