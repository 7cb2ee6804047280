"""Sums of lengths and quotients as one multiple of one quotient, where counts show that they are.

``T // 4 * 4 + 4 * (T % 4 != 0)`` is ``(T + 3) // 4 * 4``: it goes up by as much, every so many frames. Where and
by how much is read off its values at some lengths, and held against the counts of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...errors import StreamLimitError
from .decide import SOON

__all__ = ["Stairs", "stairs"]

_STEPS = 1 << 10  # frames of an edge that are looked at


class Stairs(NamedTuple):
    """``(frames + before) // every * by + plus``, of the edge of this lineage."""

    cid: Any
    before: int
    every: int
    by: int
    plus: int

    def of(self, edges: Iterable[Any]) -> Any:
        """Return it as a length, of the one of these edges."""
        edge = next(e for e in edges if e.cid == self.cid)
        return (edge.entry.sizes.length(edge) + self.before) // self.every * self.by + self.plus


def stairs(length: Any, edges: Iterable[Any]) -> Stairs | None:
    """Return what a length is of the frames of one of these edges; None where it was not found.

    Parameters
    ----------
    length : Length
    edges : iterable of Edge
    """
    formula = length.formula()
    for edge in edges:
        frames = edge.entry.sizes.length(edge).formula()
        if frames is None or frames.root != formula.root:
            continue
        try:
            found = _read(edge.cid, frames.count, formula.count)
        except StreamLimitError:
            continue
        if found is not None and type(more := length - found.of([edge])) is int:
            return found._replace(plus=more)
    return None


def _read(cid: Any, frames: Any, count: Any) -> Stairs | None:
    """Return what goes up with an edge's frames as a count does; None where nothing does."""
    ups: list[tuple[int, int]] = []  # at how many frames, by how much
    last, at = (frames.at(SOON), count.at(SOON)), SOON
    while at < SOON + _STEPS and len(ups) < 3:
        at += 1
        now = frames.at(at), count.at(at)
        if now[0] == last[0]:
            if now[1] != last[1]:
                return None
            continue
        if now[1] != last[1]:
            ups.append((now[0], now[1] - last[1]))
        last = now
    if len(ups) < 3:
        return None
    (first, by), second, third = ups
    every = second[0] - first
    if by < 1 or second[1] != by or third != (first + 2 * every, by):
        return None
    return Stairs(cid, -first % every, every, by, 0)
