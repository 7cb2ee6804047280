"""Tensors inside what forwards take and return: nested tuples, named tuples, lists and dicts, and dataclasses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from operator import is_
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
    """Return ``fn(x)``; of a dataclass's instance a copy that holds what `fn` gives of all that it holds.

    One of which nothing changes is returned itself, as a configuration.
    """
    if not is_dataclass(x) or isinstance(x, type):
        return fn(x)
    before = {field.name: getattr(x, field.name) for field in fields(x)}
    after = map_leaves(before, lambda leaf: map_fields(leaf, fn))
    if all(map(is_, leaves(before), leaves(after))):
        return x
    out = copy.copy(x)
    for name, value in after.items():
        object.__setattr__(out, name, value)  # of frozen ones, too
    return out


def without_dataclasses(tree: Any) -> Any:
    """Return the same structure with dicts in place of dataclasses, of which fields that are None are left out."""

    def opened(x: Any) -> Any:
        if not is_dataclass(x) or isinstance(x, type):
            return x
        found = ((field.name, getattr(x, field.name)) for field in fields(x))
        return without_dataclasses({name: value for name, value in found if value is not None})

    return map_leaves(tree, opened)
