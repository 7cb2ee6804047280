"""How cases are shared out: ways by turns, one each in the default tier, and many small cases in one test."""

import copy
import functools
import inspect
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark import ParameterSet


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
    argument: str | Sequence[str], values: Iterable[Any], size: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test that many values of an argument are given to, as `pytest.mark.parametrize` does.

    So many of them are one test, for pytest takes longer to set up and report one than small ones run. A failure
    names its value; a skip skips what is left of the block. Each value finds `rng` at its beginning, other
    fixtures as the last one left them.

    Parameters
    ----------
    argument : str or sequence of str
        A name, or several, of which each value is a tuple.
    values : iterable
        What is given; those of `by_turns` keep their marks.
    """
    names = [argument] if isinstance(argument, str) else list(argument)
    cases = [ParameterSet.extract_from(value, force_tuple=len(names) == 1) for value in values]
    of_marks: dict[tuple[str, ...], list[tuple[int, ParameterSet]]] = {}
    for numbered in enumerate(cases):
        of_marks.setdefault(tuple(mark.name for mark in numbered[1].marks), []).append(numbered)
    blocks = []
    for alike in of_marks.values():
        for k in range(0, len(alike), size):
            block = alike[k : k + size]
            ends = "-".join(_shown(i, case.values) for i, case in (block[0], block[-1]))
            blocks.append(pytest.param([case.values for _, case in block], marks=block[0][1].marks, id=ends))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            for value in given.pop(names[0]):
                own = {"rng": copy.deepcopy(given["rng"])} if "rng" in given else {}
                try:
                    test(**{**given, **own}, **dict(zip(names, value)))
                except Exception as error:
                    shown = ", ".join(f"{n}={v!r}" for n, v in zip(names, value))
                    raise AssertionError(f"{shown}: {type(error).__name__}: {error}") from error

        signature = inspect.signature(test)
        kept = [p for name, p in signature.parameters.items() if name not in names[1:]]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return pytest.mark.parametrize(names[0], blocks)(run)

    return decorate


def _shown(index: int, value: Sequence[Any]) -> str:
    """How an end of a block is named: by its first value where that is a word or a number, else by its place."""
    return str(value[0]) if isinstance(value[0], (str, int)) else str(index)
