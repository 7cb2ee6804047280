"""What lengths are as numbers, if a forward's input or attention's keys have a given number of frames."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from ..stream.mask_recognition import Unrecognised
from ..stream.rules import Length
from ..stream.tree import map_leaves

#: The most frames that any stream is taken to have.
MOST = 2**40


def count_of(length: Length, frames: int) -> int:
    """Return what `length` is when the forward's input has `frames` frames."""
    formula = length.formula()
    return length.apply(frames) if formula is None else int(formula.count.at(frames))


def frames_for(keys: Any, n: int) -> tuple[int, int, int]:
    """Return the fewest and most frames of the forward's input that give n keys or just above, and that number."""
    formula = keys.shape[2].formula()
    if formula is None:
        return n, n, n
    own = formula.count.at(least := first_of(formula.count, n))
    return least, first_of(formula.count, own + 1) - 1, own


def first_of(count: Any, n: int) -> int:
    """Return the least number of input frames at which `count`, which grows, is n or more."""
    high = 1
    while count.at(high) < n:
        high *= 2
        if high > MOST:
            raise Unrecognised(f"it looks at {n} frames, which no stream has")
    return bisect_left(range(high), n, high // 2 + 1, key=count.at)


def frames_at(length: Length, n: int, keys: Any, given: int) -> int:
    """Return what `length` is when the keys' stream has n frames and the forward's input has `given`."""
    if all(getattr(atom, "cid", None) == keys.edge.cid for _, atom in length.terms):
        return length.plus + n * sum(times for times, _ in length.terms)
    own, of = length.formula(), keys.shape[2].formula()
    if own is not None and of is not None and own.root == of.root:
        return int(own.count.at(given))
    more = length - keys.shape[2]
    if not isinstance(more, int):
        raise Unrecognised("it is as long as another stream")
    return n + more


def settled(name: str, args: Any, kwargs: Any) -> Any:
    """Replace lengths that are one number in all but short streams by that number, of a function's arguments.

    Bounds of slices and pads stay lengths, which their own rules take.
    """
    if name in ("narrow", "pad"):
        return args, kwargs

    def number(x: Any) -> Any:
        if type(x) is slice:
            return x if not isinstance(x.step, Length) else slice(x.start, x.stop, x.step.settled())
        return x.settled() if isinstance(x, Length) else x

    return map_leaves(args, number), map_leaves(kwargs, number)
