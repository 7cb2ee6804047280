"""Lengths as sums: whose frames they count, how they are written, what earlier calls found out of equal ones.

A sum is a number and multiples of edges and of what was made of a `length`: its quotient `by` a number, or the
greater of both, as `op` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..foreign import inner_of

__all__ = [
    "Made", "Unknown", "edges_of", "fact", "index_of", "key_of_length", "length_maker", "of_positions",
    "origin_of", "recalled", "remembered", "text_of",
]  # fmt: skip


class Made(NamedTuple):
    """A length that is divided by a number and rounded down, "//", or is that number at least, "max"."""

    length: Any
    by: int
    op: str = "//"


def edges_of(atom: Any) -> list[Any]:
    """Return the edges whose frames a part of a sum counts."""
    return [e for _, a in atom.length.terms for e in edges_of(a)] if hasattr(atom, "by") else [atom]


def text_of(length: Any, names: dict[Any, str]) -> str:
    """Return a sum for messages, with names of its edges by lineage."""
    out = ""
    for coefficient, atom in length.terms:
        part = names.get(getattr(atom, "cid", None), "")
        if hasattr(atom, "by"):
            inner = text_of(atom.length, names)
            part = f"({inner}) // {atom.by}" if " + " in inner or " - " in inner else f"{inner} // {atom.by}"
            part = f"max({inner}, {atom.by})" if atom.op == "max" else part
        size = abs(coefficient)
        part = part if size == 1 else f"{part} * {size}"
        sign = "-" if coefficient < 0 else "+"
        out = f"{out} {sign} {part}" if out else f"-{part}" if coefficient < 0 else part
    return out if not length.plus else f"{out} {'-' if length.plus < 0 else '+'} {abs(length.plus)}"


def of_positions(x: Any) -> bool:
    """Whether something is computed of positions, which knows what lengths mean beside it."""
    return hasattr(inner_of(x), "library")


def origin_of(cid: Any) -> str:
    """Say, for messages, where a lineage begins."""
    return f"input {cid[1]}" if isinstance(cid, tuple) and cid[0] == "in" else "what the forward computes"


class Unknown(Exception):
    """Something of which no other call can know that the same was asked for."""


def key_of_length(x: Any, edges: list[Any]) -> tuple[Any, ...]:
    """Return a key of a length; the edges whose frames it counts are appended to `edges`."""
    key: list[Any] = [x.plus]
    for times, atom in x.terms:
        if hasattr(atom, "by"):
            key += (times, atom.op, atom.by, key_of_length(atom.length, edges))
        else:
            key += (times, atom.line)
            edges.append(atom)
    return tuple(key)


def index_of(edge: Any, edges: Sequence[Any]) -> int:
    """Return which of the edges it is."""
    found = next((i for i, e in enumerate(edges) if e is edge), None)
    if found is None:
        raise Unknown
    return found


def length_maker(out: Any, edges: Sequence[Any]) -> Callable[..., Any]:
    """Return what makes the same length of other edges of the same lines; it leaves its second argument alone.

    A length that counts the frames of another edge raises Unknown.
    """
    kind, plus = type(out), out.plus
    # The edge of a length whose own frames have cancelled out is any of the others.
    first = next((i for i, e in enumerate(edges) if e is out.edge), 0)
    parts: list[Any] = [
        (times, a.op, a.by, length_maker(a.length, edges)) if hasattr(a, "by") else (times, index_of(a, edges))
        for times, a in out.terms
    ]

    def length_of(e: Sequence[Any], *_: Any) -> Any:
        made: Any = object.__new__(kind)
        made.edge, made.plus = e[first], plus
        made.terms = tuple([(p[0], e[p[1]] if len(p) == 2 else Made(p[3](e), p[2], p[1])) for p in parts])
        return made

    return length_of


#: Facts of lengths that a line holds; a forward whose numbers change from call to call asks for ever others.
_MOST = 256


def fact(line: Any, key: Any, find: Callable[[], Any]) -> Any:
    """Return what was found out of lengths before, by its key, or find it."""
    known = line.facts.setdefault("lengths", {})
    if key not in known:
        found = find()
        if len(known) >= _MOST:
            known.clear()
        known[key] = found
    return known[key]


def remembered(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let what a method of lengths makes of equal ones, and of equal numbers, be found once."""

    def found(self: Any, other: Any) -> Any:
        if (type(other) is int or hasattr(other, "terms")) and hasattr(self.edge, "line"):
            return recalled(method, (self, other), lambda: method(self, other))
        return method(self, other)

    return found


def recalled(what: Any, given: Sequence[Any], find: Callable[[], Any]) -> Any:
    """Return the length, the number or None that was found of equal lengths and numbers, or find it."""
    edges: list[Any] = []
    key = (what, *[key_of_length(x, edges) if hasattr(x, "terms") else x for x in given])

    def maker() -> Callable[..., Any]:
        out = find()
        return length_maker(out, edges) if hasattr(out, "terms") else lambda *_: out

    return fact(edges[0].line, key, maker)(edges)
