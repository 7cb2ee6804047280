"""What is known of deferred values from call to call.

A forward makes the same positions and masks of lengths in every call, of edges of the same lines. Equal ones have the
same `Facts`, as long as the session keeps what its calls did: their shape, their type, the number that they are. By
these, too, a call knows that the same is asked for as in the one before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from ..stream.edge import Edge
from ..stream.rules import BatchLength, BatchSize, Length
from .shape_of import ShapeOf
from .symbolic import Symbolic

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
#: The flag of classes that Python's `class` has made.
_OF_PYTHON = 1 << 9
#: Facts of how many deferred values a session keeps at most.
_MOST = 4096
_ATOMS = frozenset((str, type(None), type(...), type))


class Unknown(Exception):
    """Something of which no other call can know that the same was asked for."""


class Facts(dict[str, Any]):
    """What was found out about equal deferred values, by name; compared by identity."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def facts_of(x: Any) -> tuple[Facts, list[Edge]]:
    """Return what is known of a deferred value, and the edges whose lengths are in it, in order.

    Raises
    ------
    Unknown
        Where nothing can be known, as of one that holds a tensor that is learned.
    """
    found: Any = x.__dict__.get("_facts")
    if found is None:
        edges: list[Edge] = []
        try:
            found = _interned(x, edges), edges
        except Unknown:
            found = ()
        x.__dict__["_facts"] = found
    if not found:
        raise Unknown
    return found  # type: ignore[no-any-return]


def _interned(x: Any, edges: list[Edge]) -> Facts:
    func, library = x.func, x.library
    if not _lasts(func):
        raise Unknown
    parts = (*x.args, *(p for item in x.kwargs.items() for p in item))
    key = (type(x), func, x.constants, library.real(), *[key_of(part, edges, library) for part in parts])
    entry = edges[0].entry if edges else None
    known = getattr(entry, "facts", None)
    if known is None or any(edge.entry is not entry for edge in edges):
        raise Unknown
    facts = known.get(key)
    if facts is None:
        if len(known) > _MOST:
            known.clear()
        facts = known[key] = Facts()
    return facts  # type: ignore[no-any-return]


def _lasts(func: Any) -> bool:
    """Whether a function is the same in every call, and no object or closure that may hold values of one."""
    if type(func) is not FunctionType:
        owner = getattr(func, "__self__", None)  # of a builtin, whatever that is a function of
        return hasattr(func, "__objclass__") or (
            type(func) is BuiltinFunctionType and (owner is None or isinstance(owner, (type, ModuleType)))
        )
    if not func.__closure__ or func.__code__.co_filename.startswith(_PACKAGE):
        return True
    return getattr(sys.modules.get(func.__module__), func.__name__, None) is func


def key_of(x: Any, edges: list[Edge], library: Any) -> Any:
    """Return a key of an argument; the edges whose lengths are in it are appended to `edges`."""
    kind = type(x)
    if kind is int or kind is bool:
        return kind, x
    if kind is float:
        return x.hex()
    if kind in _ATOMS or kind in library.atoms:
        return x
    if kind is tuple or kind is list:
        return (kind, *[key_of(part, edges, library) for part in x])
    if kind is slice:
        return (kind, *[key_of(part, edges, library) for part in (x.start, x.stop, x.step)])
    if kind is Symbolic:
        return (x.roles, x.position, x.kind, *[key_of(part, edges, library) for part in (x.length, x.value)])
    if isinstance(x, (BatchSize, BatchLength)):
        length = key_of_length(x.length, edges) if isinstance(x, BatchLength) else ()
        return kind, x.times, length
    if isinstance(x, Length):
        return kind, key_of_length(x, edges)
    if hasattr(kind, "probe"):
        facts, own = facts_of(x)
        edges += own
        return facts
    if kind is dict:
        return (kind, *[(name, key_of(part, edges, library)) for name, part in x.items()])
    if kind is ShapeOf:
        return kind, key_of(x.shape, edges, library), x.dtype, x.device
    if isinstance(x, library.tensor):
        return library.content(x)
    if _holds_all(kind):
        return kind, key_of(vars(x), edges, library)
    raise Unknown


@lru_cache(maxsize=256)
def _holds_all(kind: type) -> bool:
    """Whether objects of a class are their attributes, as a model's configuration is, and nothing beside them."""
    classes = [cls for cls in kind.__mro__ if cls is not object]
    return not issubclass(kind, type) and all(
        cls.__flags__ & _OF_PYTHON and not vars(cls).get("__slots__") for cls in classes
    )


def key_of_length(x: Length, edges: list[Edge]) -> tuple[Any, ...]:
    """Return a key of a length; the edges whose frames it counts are appended to `edges`."""
    key: list[Any] = [x.plus]
    for times, atom in x.terms:
        if type(atom) is not Edge:  # what was rounded
            key += (times, atom.by, key_of_length(atom.length, edges))
        else:
            key += (times, atom.line)
            edges.append(atom)
    return tuple(key)


def recalled(x: Any, what: str, make: Callable[[], Any]) -> Any:
    """Return what was found out about an equal deferred value, or find it out.

    It is a number, a type, or a tuple of those and of lengths.
    """
    try:
        facts, edges = facts_of(x)
    except Unknown:
        return make()
    if what in facts:
        found = facts[what]
        return found(edges) if type(found) is FunctionType else found[0]
    out = make()
    try:
        facts[what] = _again(out, edges)
    except Unknown:
        pass
    return out


def _again(out: Any, edges: Sequence[Edge]) -> Any:
    """Return what makes the same with other edges of the same lines; a tuple of it where there are none in it."""
    if isinstance(out, Length):
        terms = []
        for times, atom in out.terms:
            at = next((i for i, edge in enumerate(edges) if edge is atom), None)
            if at is None:
                raise Unknown
            terms.append((times, at))
        first = next((i for i, edge in enumerate(edges) if edge is out.edge), None)
        if first is None:
            raise Unknown
        kind, plus = type(out), out.plus

        def length(edges: Sequence[Edge]) -> Length:
            made: Any = object.__new__(kind)
            made.edge, made.plus = edges[first], plus
            made.terms = tuple([(times, edges[at]) for times, at in terms])
            return made  # type: ignore[no-any-return]

        return length
    if type(out) is tuple:
        parts = [_again(part, edges) for part in out]
        if FunctionType in map(type, parts):
            return lambda edges: tuple([p(edges) if type(p) is FunctionType else p[0] for p in parts])
    elif hasattr(out, "edge") or hasattr(out, "probe"):
        raise Unknown
    return (out,)
