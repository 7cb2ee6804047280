"""What variables hold in the body of a loop: tensors of either front end, in tuples, lists and dictionaries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..stream.foreign import inner_of
from ..stream.rules import Slots
from .loop_body import Body
from .loop_lists import Grown
from .stream_tensor import StreamTensor


def is_of_body(x: Any) -> bool:
    inner = inner_of(x)
    return type(inner) is StreamTensor and inner.edge is not None and isinstance(inner.edge.entry, Body)


def walk(value: Any, at: Callable[[Any, tuple[Any, ...]], Any], path: tuple[Any, ...] = ()) -> Any:
    """Return a value with `at` applied to all leaves of its tuples, lists and dicts."""
    value = value.items if type(value) is Slots else value
    kind = type(value)
    if kind is Grown or kind is list:
        return [walk(v, at, (*path, i)) for i, v in enumerate(list.__iter__(value))]
    if kind is deque:
        return deque([walk(v, at, (*path, i)) for i, v in enumerate(value)], value.maxlen)
    if issubclass(kind, tuple):
        items = [walk(v, at, (*path, i)) for i, v in enumerate(value)]
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    if kind is dict:
        return {k: walk(v, at, (*path, k)) for k, v in value.items()}
    parts = parts_of(value)
    if parts is not None:
        return put_together(value, [inner_of(at(part, (*path, name))) for name, part in zip(PARTS, parts)])
    return at(value, path)


PARTS = ("real", "imag")


def parts_of(value: Any) -> tuple[Any, Any] | None:
    """Return the parts of a complex value; None for any other."""
    inner = inner_of(value)
    return (inner.real, inner.imag) if getattr(type(inner), "in_parts", False) else None


def put_together(like: Any, parts: Sequence[Any]) -> Any:
    """Return the complex value of two parts, as another one is seen."""
    inner = inner_of(like)
    whole = type(inner)(*parts)
    return whole if inner is like else type(like).shell(whole)
