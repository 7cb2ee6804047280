"""Lineage and rates: which edges of a forward advance together.

Every edge has a ``cid``: two edges of equal cid have equal frame counts in every call, whatever the
stream. A cid is a nested tuple of strings and integers: ``("in", i)`` for input i, ``("op", n)`` for
what the n-th operation made if it changes counts, ``("sync", a, b, …)`` for edges brought together.
It is hashable, and becomes lists in JSON; `as_cid` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from ...errors import StreamMismatchError

__all__ = [
    "ONE", "Cid", "as_cid", "entry", "joined", "lineages", "read_rate", "require_equal_rates", "same_lineage",
]  # fmt: skip

Cid = tuple[Any, ...]

#: The rate of the reference clock.
ONE = Fraction(1)


def entry(index: int) -> Cid:
    """Return the cid of a forward's input."""
    return ("in", index)


def lineages(op: Any, input_cid: Cid, ordinal: int) -> list[Cid]:
    """Return the cids of all outputs of an operator, which says whether it keeps counts (`same_counts`).

    Outputs of another rate than the first have a lineage of their own.
    """
    rates = [tuple(signature[2:]) for signature in op.outputs]
    first = input_cid if op.same_counts else ("op", ordinal)
    return [
        first if o == 0 or (op.same_counts and rate == rates[0]) else ("op", ordinal, o)
        for o, rate in enumerate(rates)
    ]


def same_lineage(cids: Iterable[Cid]) -> bool:
    """Return whether all edges advance together, so that combining them needs no sync."""
    return len(set(cids)) <= 1


def joined(cids: Iterable[Cid]) -> Cid:
    """Return the cid of edges after they were brought together.

    It depends on the set of lineages only: order, repetition and nesting don't matter, because a
    sync's counts are the least of all its inputs' counts.

    Examples
    --------
    >>> joined([("op", 3), joined([("in", 0), ("op", 3)])])
    ('sync', ('in', 0), ('op', 3))
    """
    parts: set[Cid] = set()
    for cid in cids:
        parts.update(cid[1:] if cid[:1] == ("sync",) else (cid,))
    if not parts:
        raise ValueError("joined() needs at least one cid")
    if len(parts) == 1:
        return parts.pop()
    return ("sync", *sorted(parts, key=json.dumps))


def as_cid(data: Any) -> Any:
    """Return a cid read from JSON: lists become tuples, at every depth."""
    return tuple(as_cid(d) for d in data) if isinstance(data, (list, tuple)) else data


def require_equal_rates(rates: Sequence[Fraction | int], what: str) -> Fraction:
    """Return the rate that all operands share, or raise StreamMismatchError, which names two that differ."""
    first = Fraction(rates[0])
    for rate in rates[1:]:
        if rate != first:
            raise StreamMismatchError(
                f"{what}: operands of different rates, {first} and {Fraction(rate)}; "
                "bring them to one rate first (stride, x[..., ::k], stacking, upsampling), or give the inputs "
                "theirs, by rate="
            )
    return first


def read_rate(value: Any, what: str = "a rate") -> Fraction:
    """Return a rate, an integer, float or Fraction, exactly; StreamMismatchError unless it is positive."""
    try:
        rate = Fraction(value).limit_denominator(1 << 20) if isinstance(value, float) else Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise StreamMismatchError(f"{what} is a number or Fraction, got {value!r}") from None
    if rate <= 0:
        raise StreamMismatchError(f"{what} must be positive, got {value}")
    if max(rate.numerator, rate.denominator) >= 2**31:
        raise StreamMismatchError(f"{what} is a quotient of numbers below 2**31, got {value}")
    return rate
