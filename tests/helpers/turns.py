"""Ways that cases take by turns: one each in the default tier, all of them in the slow one."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

__all__ = ["by_turns"]


def by_turns(
    names: Iterable[str],
    ways: Sequence[Any],
    has: Callable[[str, Any], bool] = lambda name, way: True,
    one_in: int = 1,
) -> list[Any]:
    """Pair every name with every way; all but one pair of a name are marked slow.

    Which pair is left follows from the name alone, so that it stays where other names come and go.

    Parameters
    ----------
    has : callable
        Whether a name takes its turn with a way; the slow tier has the pair all the same.
    one_in : int
        Of so many names one takes a turn at all.
    """
    pairs = []
    for name in names:
        takes = [way for way in ways if has(name, way)]
        k = zlib.crc32(name.encode()) % max(1, len(takes) * one_in)
        turn = takes[k] if k < len(takes) else None
        pairs += [pytest.param(name, way, marks=[pytest.mark.slow] * (way != turn)) for way in ways]
    return pairs
