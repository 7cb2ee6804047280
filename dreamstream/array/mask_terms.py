"""From masks and terms to attention: the steps that changed scores are computed at lengths that show all of them.

Each step holds a deferred value, or a number. All of them are run, in their order, on zeros in the scores' place;
`dreamstream.stream.mask_recognition` reads from the values what each query sees, and what is added by distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

import numpy as np

from ..stream.context import Context
from ..stream.mask_recognition import (
    FAR,
    FARTHEST_TRIED,
    LONGEST,
    MASKED,
    NoNumbers,
    Recognised,
    Unrecognised,
    confirm,
    expected,
    extended,
    recognised,
)
from .deferred import FEW, LOWEST, Deferred
from .distance_tables import DistanceProduct, Rows, rows_of
from .lengths_as_numbers import frames_at, frames_for

#: The most periods' frames between numbers that are tried in place of one that is too great.
_MOST_STEPS = 256

#: What hides a score whose place it takes: beside any other one, a softmax gives it 0.
_FILLED = -1e3


def recognise(steps: Sequence[Any], keys: Any) -> Recognised:
    """Return what queries see, and what is added by distance, by steps on scores; or raise Unrecognised."""
    span = frames_of_one(keys)
    most = frames_shown_at_most(steps) // span

    def tried(steps: Sequence[Any]) -> Recognised:
        n = max(64, frames_shown(steps) // span)
        table = min(end_of_tables(deferred_in(steps)) // span, most)
        return recognised(lambda n: _added_always(steps, n, keys), min(n, most), most, table)

    def of_smaller(c: int, others: set[int]) -> Recognised:
        """Recognise steps with a number too great to be tried, by trying smaller numbers in its place."""
        period = math.lcm(*(x for x in others if x))
        near = c % period + period * (max(others | {FEW}) // period + 1)
        tries = [
            [step.exchanged(lambda x, by=near + k * period: x.replaced(c, by)) for step in steps] for k in range(3)
        ]
        if period > _MOST_STEPS or near + 2 * period > c or c in _numbers(tries[0]):
            raise Unrecognised(f"it looks at {c} frames, more than can be tried")
        found = extended([tried(x) for x in tries], (c - near) // period)
        reach = sum(n or 0 for n in vars(found.context).values())
        n = max(c, reach) + FEW if c <= FARTHEST_TRIED else LONGEST // 4
        confirm(found, lambda n: _added_always(steps, n, keys), min(n, most))
        return found

    def made() -> Recognised:
        every = _numbers(steps)
        others = {x for x in every if x <= FAR}
        try:
            return of_smaller(max(every), others) if len(every - others) == 1 else tried(steps)
        except Unrecognised:
            return tried(steps)

    found = _whatever_is_learned(steps, keys) if learned_in(steps, keys) else None
    if isinstance(found, Recognised):
        return found
    if found is not None and getattr(_entry(keys), "keeps_tape", True):
        raise Unrecognised(found)  # what is learned would not have all of its gradient
    out: Recognised = answered((), steps, keys, made)
    return out


def _whatever_is_learned(steps: Sequence[Any], keys: Any) -> Recognised | str:
    """Recognise steps by what is the same for different numbers in place of what is learned; else say why not.

    So a table of zeros, or one that happens to be a straight line, is still a number for each distance, and each
    has a gradient. The numbers of its bias are drawn ones: `Library.bias` computes those that are learned.
    """

    def drawn(low: float) -> list[Any]:
        return [step.exchanged(lambda x: x.varied(low)) for step in steps]

    def made() -> Recognised | str:
        found = []
        for low in LOWEST:
            try:
                found.append(recognise(drawn(low), keys))
            except NoNumbers as error:
                if low > 0:
                    return str(error)  # of negative numbers there may be no logarithm
            except Unrecognised as error:
                return str(error)
        same = all(map(found[0].holds, found))
        return found[0] if same else "what a query sees depends on what is learned"

    out: Recognised | str = answered(("whatever is learned",), drawn(LOWEST[0]), keys, made)
    return out


def learned_in(steps: Sequence[Any], keys: Any) -> list[Any]:
    """Return the tensors in steps whose gradients this call records."""
    return [t for x in deferred_in(steps) for t in x.learned()] if _library(keys).records(_entry(keys)) else []


def terms_by_distance(found: Recognised, steps: Sequence[Any], keys: Any) -> Any:
    """Return what is added to scores at the distances that were recognised, as a tensor of the library."""
    assert found.cells is not None
    at = added(steps, max(int(found.cells[0].max()), int(found.cells[1].max())) + 1, keys)
    rows, columns, own = map(_library(keys).array, found.cells)
    made, own = at[:, rows, columns], at[:, rows, own]
    hidden = own <= MASKED  # where a query does not see its own frame, what was recognised is what counts
    return (made - own.masked_fill(hidden, 0.0)).where(~hidden, _library(keys).array(found.bias).to(made.dtype))


def _library(keys: Any) -> Any:
    return _entry(keys).library


def _entry(keys: Any) -> Any:
    return keys.shape[2].edge.entry


def frames_of_one(keys: Any) -> int:
    """Return about how many frames of the forward's input give one key."""
    return max(1, frames_for(keys, LONGEST)[0] // LONGEST)


def end_of_tables(deferred: Sequence[Deferred]) -> int:
    """Return at how many frames all of the tables in them is looked at, or the most for which there is room."""

    def end_of(shape: tuple[int, ...]) -> int:
        pairs = max(LONGEST**2, math.prod(shape)) // math.prod(shape[:-2])
        return min(max(shape), math.isqrt(pairs))

    return max((end_of(shape) for x in deferred for shape in x.tables()), default=0)


def hide_keys(steps: Sequence[Any], keys: Any) -> bool:
    """Whether steps hide a key from any query."""

    def made() -> bool:
        return bool((_added_always(steps, min(max(64, frames_shown(steps)), LONGEST), keys) <= MASKED).any())

    return bool(answered(("hides",), steps, keys, made))


def rows_by_distance(
    term: DistanceProduct, steps: Sequence[Any], keys: Any, found: Recognised, scale: float
) -> tuple[Rows, Any]:
    """Return the term that a product of queries and positions is among steps, and its table."""

    @lru_cache(maxsize=4)
    def table(n: int) -> Any:
        return _table(term, n, keys)

    def made() -> tuple[Rows, Any]:
        which = rows_of(term, found, scale, lambda n: _added_always(steps, n, keys), table, frames_shown(steps))
        return which, table(which.keys)[:, which.columns]

    which, rows = answered(("rows", scale), [(term.table,), *steps], keys, made, steps)
    library = term.table.library
    return which, library.table(lambda: _table(term, which.keys, keys)[:, which.columns], rows, keys)


def seen_in(context: Context, keys: Any) -> Deferred:
    """Return whether queries see keys in a context."""
    return _of_pairs(keys, seen, context.chunk, context.left, context.right, context.keep)


def before_diagonal(keys: Any, diagonal: int) -> Deferred:
    """Return whether keys are before a diagonal, or on it."""
    return _of_pairs(keys, before, diagonal)


def before(n: int, diagonal: int) -> Any:
    return np.tri(n, k=diagonal, dtype=bool)


def seen(n: int, *sizes: Any) -> Any:
    return expected(Context(*sizes), n)


def _of_pairs(keys: Any, function: Callable[..., Any], *given: Any) -> Deferred:
    """Return what a function gives of the number of keys and of others, as a tensor of the library."""
    library = _library(keys)
    return Deferred(library, _as_tensor(library, function), (keys.shape[2], *given), {})


@lru_cache(maxsize=16)
def _as_tensor(library: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that gives the library's tensors: always the same one, whose answers are found again."""

    @wraps(function)
    def tensor(*given: Any) -> Any:
        return library.array(function(*given))

    return tensor


def product_within(x: Any) -> DistanceProduct | None:
    """Return the product of queries and a table that a deferred value is made of, if there is one."""
    return (
        next((n.func for n in x.nodes() if isinstance(n.func, DistanceProduct)), None)
        if isinstance(x, Deferred)
        else None
    )


def added(steps: Sequence[Any], n: int, keys: Any, frames: int | None = None) -> Any:
    """Return what steps add to scores of n keys, ``(1 or heads, n, n)``, at so many `frames` of the input."""
    given = frames_for(keys, n)[0] if frames is None else frames
    library = _library(keys)
    out, gone = library.array(np.zeros((1, n, n), np.float32)), False  # where scores are no more
    for step in steps:
        if step.name == "mul":
            out = out * step.by
            continue
        if step.name == "sum":
            out = out + step.value * added(step.by, n, keys, frames)
            continue
        at = operand(step, n, keys, given)
        if step.name == "times":
            out, gone = out * at, gone | (at == 0)
            if not (gone | (at == 1)).all():
                raise Unrecognised("scores are multiplied by positions, by other numbers than 0 and 1")
        elif step.name == "add":
            out = library.as_terms(out) + step.value * library.as_terms(at)
        else:
            at = at == 0 if step.name == "keep" else at != 0
            out, gone = out.masked_fill(at, step.value), gone | at
    out = out.masked_fill(gone & (out <= _FILLED) & (out > MASKED), MASKED)
    if bool((gone & (out > MASKED)).any()):
        raise Unrecognised("scores give way to numbers where they are not hidden")
    return out


def operand(step: Any, n: int, keys: Any, given: int) -> Any:
    """Return what a step does to n scores, ``(1 or heads, n, n)``, for so many frames of the forward's input."""
    spread = step.axes.spread
    if spread:  # the last pairs between others are continued from later ones
        more = frames_for(keys, n + spread.times)[0] - frames_for(keys, n)[0]
        at = step.axes.read(_whole(step, n + spread.times, keys, given + more), n + spread.times)
        if at is not None:
            return at[:, :n, :n]
    at = step.axes.read(whole := _whole(step, n, keys, given), n)
    if at is None:
        raise Unrecognised(f"it has the shape {tuple(whole.shape)} at {n} frames")
    return at


def _whole(step: Any, n: int, keys: Any, given: int) -> Any:
    return step.by.at(lambda length: frames_at(length, n, keys, given))


def deferred_in(steps: Sequence[Any]) -> list[Deferred]:
    """Return the deferred values of steps."""
    return [x for step in steps for x in step.deferred()]


def frames_shown(steps: Sequence[Any]) -> int:
    """Return how many frames show all that the steps' numbers say."""
    return max(x.frames for x in deferred_in(steps))


def frames_shown_at_most(steps: Sequence[Any]) -> int:
    """Return how many frames they can be looked at, as their tables end there."""
    return min((x.ends for x in deferred_in(steps) if x.ends is not None), default=LONGEST)


def _numbers(steps: Sequence[Any]) -> set[int]:
    return {math.ceil(abs(c)) for x in deferred_in(steps) for c in x.numbers()}


def answered(
    what: tuple[Any, ...], known: Sequence[Any], keys: Any, make: Callable[[], Any], steps: Sequence[Any] = ()
) -> Any:
    """Return the cached answer for equal steps; make it where there is none."""
    first, tensors = deferred_in(steps or known)[0], list[Any]()
    return first.answered((*what, *(first.key(x, keys, tensors) for x in known)), tensors, make)


def _table(term: DistanceProduct, n: int, keys: Any) -> Any:
    """Return the table of a product at n keys, ``(heads or 1, rows, features)``."""
    given = frames_for(keys, n)[0]
    whole = term.table.at(lambda length: frames_at(length, n, keys, given)).permute(*term.order)
    return whole.reshape(-1, *whole.shape[-2:])


def _added_always(steps: Sequence[Any], n: int, keys: Any) -> Any:
    """Return what is added to scores, as an array, where all streams of so many keys have the same."""
    least, most, own = frames_for(keys, n)
    out = [added(steps, own, keys, frames).cpu().numpy() for frames in {least, most}]
    if not np.array_equal(out[0], out[-1], equal_nan=True):
        raise Unrecognised("it depends on frames that attention does not see")
    return np.asarray(out[0])[:, :n, :n]
