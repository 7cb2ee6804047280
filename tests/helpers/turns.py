"""How cases are shared out: ways by turns, one each in the default tier, and many small cases in one test."""

import functools
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


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


def in_blocks(
    argument: str, values: Sequence[Any], size: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test that many values of an argument are given to, as `pytest.mark.parametrize` does.

    So many of them are one test, for pytest takes longer to set up and report one than small ones run. A failure
    names its value; a skip skips what is left of the block.
    """
    blocks = [list(values[k : k + size]) for k in range(0, len(values), size)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            for value in given.pop(argument):
                try:
                    test(**{argument: value}, **given)
                except Exception as error:
                    raise AssertionError(f"{argument}={value!r}: {type(error).__name__}: {error}") from error

        return pytest.mark.parametrize(argument, blocks, ids=[f"{b[0]}-{b[-1]}" for b in blocks])(run)

    return decorate
