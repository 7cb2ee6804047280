"""Tensors inside what forwards take and return: nested tuples, named tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable
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
