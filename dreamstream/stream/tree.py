"""Tensors inside what forwards take and return: nested tuples, named tuples, lists and dicts, and dataclasses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

_CONTAINERS = (dict, list, tuple)


def map_leaves(tree: Any, fn: Callable[[Any], Any]) -> Any:
    """Return the same structure with `fn` applied to everything that is no container, in order."""
    if isinstance(tree, dict):
        return {k: map_leaves(v, fn) if isinstance(v, _CONTAINERS) else fn(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        items = [map_leaves(v, fn) if isinstance(v, _CONTAINERS) else fn(v) for v in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return fn(tree)


def leaves(tree: Any) -> list[Any]:
    """Return everything that is no container, in order."""
    out: list[Any] = []
    left = [tree]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left.extend(reversed(item.values()))
        elif isinstance(item, (list, tuple)):
            left.extend(reversed(item))
        else:
            out.append(item)
    return out


def map_fields(x: Any, fn: Callable[[Any], Any]) -> Any:
    """Return a copy of a dataclass's instance with `fn` applied to what it holds, and ``fn(x)`` of all else."""
    if not is_dataclass(x) or isinstance(x, type):
        return fn(x)
    out = copy.copy(x)
    for field in fields(x):
        value = map_leaves(getattr(x, field.name), lambda leaf: map_fields(leaf, fn))
        object.__setattr__(out, field.name, value)  # of frozen ones, too
    return out


def without_dataclasses(tree: Any) -> Any:
    """Return the same structure with dicts in place of dataclasses, of which fields that are None are left out."""

    def opened(x: Any) -> Any:
        if not is_dataclass(x) or isinstance(x, type):
            return x
        found = ((field.name, getattr(x, field.name)) for field in fields(x))
        return without_dataclasses({name: value for name, value in found if value is not None})

    return map_leaves(tree, opened)
