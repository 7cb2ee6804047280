"""Random cases of all operators of the registry, and references of those that have theirs beside them.

A function of a file here that is named after an operator draws its cases, or is its reference: the type that it
returns says which. `GENERATORS` and `REFERENCES` of a file have what is made otherwise.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module

from ..case import Case, Rng
from ..reference import REFERENCES, named

__all__ = ["GENERATORS"]

GENERATORS: dict[str, Callable[[Rng, str], Case]] = {}

for _file in pkgutil.iter_modules(__path__):
    _module = import_module(f".{_file.name}", __name__)
    GENERATORS.update(named(_module, "Case") | getattr(_module, "GENERATORS", {}))
    REFERENCES.update(named(_module, "list[Array]") | getattr(_module, "REFERENCES", {}))
