"""Random cases of all operators of the registry: files have `GENERATORS`, some also `REFERENCES`."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module

from ..case import Case, Rng
from ..reference import REFERENCES

__all__ = [
    "GENERATORS",
]

GENERATORS: dict[str, Callable[[Rng, str], Case]] = {}

for _file in pkgutil.iter_modules(__path__):
    _module = import_module(f".{_file.name}", __name__)
    GENERATORS.update(getattr(_module, "GENERATORS", {}))
    REFERENCES.update(getattr(_module, "REFERENCES", {}))
