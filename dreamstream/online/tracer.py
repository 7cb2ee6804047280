"""What a forward's private copy asks: of truths and numbers of lengths, and what runs in a function's place.

A forward that streams runs as a copy (`dreamstream.tracing`) whose constructs ask the `TRACER`. What is no length
has its plain meaning.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from types import FrameType, FunctionType
from typing import Any, ClassVar, NoReturn, cast

from .. import _core
from ..array import for_loops
from ..array.deferred import Deferred, as_number, has_formula
from ..array.frame_branches import FrameBranch, one_of, undecided
from ..array.frame_numbers import Computed, FrameNumber, FrameTruth, LoopNumber, refuse
from ..array.lengths_as_numbers import settled
from ..array.loop_lists import Gathered
from ..array.verdicts import Verdict
from ..operations.refusals import LOOPS_WHILE
from ..stream.foreign import inner_of
from ..stream.rules import (
    Apart,
    Branch,
    Comparison,
    Length,
    Loop,
    Token,
    changed_in_place,
    chosen,
    open_branch,
    trusted,
)
from ..stream.tree import leaves, map_leaves
from ..tracing import Hooks, NoCopy, Site, variables
from ..tracing.callees import wanted
from ..tracing.copies import Converted, converted
from . import registered
from .homes import ATOMS

#: Frames for which a function is asked whether it makes a tensor.
_TRIED = 48

#: Rooms of this package's functions on tensors.
_OF_TENSORS = tuple(f"{__name__.partition('.')[0]}.{room}." for room in ("array", "nn"))
#: Kinds of sites, and names, of functions that may make a tensor of lengths as numbers.
_LOOPS = ("for", "while", "comprehension")
_MAKERS = frozenset((
    "np", "numpy", "range", "arange", "empty", "eye", "full", "linspace", "ones", "tensor", "tril", "triu",
    "zeros",
))  # fmt: skip


def _bared(x: Any) -> Any:
    """Return the number that a tensor of lengths is."""
    return as_number(inner) if has_formula(inner := inner_of(x)) else x


def _is_verdict(x: Any) -> bool:
    return isinstance(inner_of(x), Verdict)


# ---------------------------------------------------------------------- Python's functions of numbers
def _int(x: Any = 0, *more: Any, **base: Any) -> Any:
    number = _bared(x)
    return math.trunc(number) if isinstance(number, Token) else int(number, *more, **base)


def _float(x: Any = 0.0) -> Any:
    number = _bared(x)
    return number if isinstance(number, Token) else float(number)


def _bool(x: Any = False) -> Any:
    return TRACER.truth(x)


def _sqrt(x: Any) -> Any:
    number = _bared(x)
    return number**0.5 if isinstance(number, Token) else math.sqrt(number)


def _extreme(python: Callable[..., Any], greater: bool) -> Callable[..., Any]:
    """Return Python's max or min for lengths, too."""

    def extreme(*values: Any, **options: Any) -> Any:
        given = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
        numbers = [_bared(v) for v in given]
        if options or not any(isinstance(v, Token) for v in numbers):
            return python(*values, **options)
        best, *others = numbers
        for value in others:
            best = _better(value, best, greater)
        return best

    return extreme


def _better(value: Any, best: Any, greater: bool) -> Any:
    """Return the greater or smaller of two, of which one is a length.

    Where no length is both, it is the one that it is in all but short streams; others are refused at their ends.
    """
    loop = next((x.loop for x in (value, best) if isinstance(x, LoopNumber)), None)
    if loop is not None and {type(value), type(best)} - {int, FrameNumber}:
        asked: Any = FrameTruth(loop, operator.ge if greater else operator.le, value, best)
    else:
        asked = value >= best if greater else value <= best
    if isinstance(asked, FrameTruth):
        return one_of(asked, value, best)
    if not isinstance(asked, Comparison):
        return value if asked else best
    with suppress(Apart):
        found = chosen(asked, value, best)
        if isinstance(found, Length) and found.in_most():
            TRACER.settle_lengths()
        return found
    answer = trusted(asked, "soon")
    if answer is None:
        asked.refuse()
    asked.require(answer)
    return value if answer else best


# ---------------------------------------------------------------------- functions that are given lengths
def _registered(instead: Callable[..., Any], original: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run what is registered for a function where a length is among its arguments, else the function."""
    if registered.length_in((args, kwargs)) is None:
        return TRACER.copied(original)(*args, **kwargs)
    return instead(original, *args, **kwargs)


@lru_cache(maxsize=256)
def _settling(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs a function on numbers in the place of lengths that are some in all but short streams."""

    def run(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = settled(f.__name__, args, kwargs)
        return f(*args, **kwargs)

    return run


def _asking(original: Any, copy: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run a function's copy; if it asks for lengths as numbers and makes a tensor of them, note that it does."""
    try:
        return copy(*args, **kwargs)
    except Exception:  # what Python, or torch, says of a length that is no number
        length = registered.length_in((args, kwargs))
        if length is None or not _makes_tensor(original, args, kwargs, length.edge.entry.library):
            raise
    length.edge.entry.misused = None
    return registered.called_with_numbers(original, *args, **kwargs)


def _makes_tensor(function: Any, args: Any, kwargs: Any, library: Any) -> bool:
    """Whether a function that is given numbers in place of lengths returns a tensor of so many."""
    args, kwargs = map_leaves((args, kwargs), inner_of)
    given = leaves((args, kwargs))
    if any(getattr(x, "edge", None) is not None and not (isinstance(x, Length) or has_formula(x)) for x in given):
        return False  # of streams it may know more than their shapes
    try:
        with library.evaluating():
            out = Deferred(library, function, args, kwargs).at(lambda _: _TRIED)
    except Exception:  # what it asks for is no number either
        return False
    return hasattr(out, "masked_fill") and _TRIED in out.shape


# ---------------------------------------------------------------------- what copies ask
class _While:
    """A ``while`` that runs; of one that streams answer differently one round does."""

    scans = False

    def __init__(self) -> None:
        self._open: Loop | None = None
        self._is_known = False

    def goes_on(self, asked: Comparison, site: Site, frame: FrameType, seen: dict[str, Any]) -> bool:
        """Return whether another round runs."""
        if self._open is not None:
            self._open.end(asked, seen)
            self._is_known = True
            return False
        self._open = Loop(asked, site, frame, seen)
        return True

    @property
    def solved(self) -> bool:
        """Whether `after` gives the variables behind it."""
        if self._open is not None and not self._is_known:
            self._open.end(False, variables(sys._getframe(1)))
            self._is_known = True
        return self._is_known

    def after(self, name: str) -> Any:
        """Return what a variable is behind it."""
        return cast(Loop, self._open).after(name)


class Tracer(Hooks):
    """The meaning of a forward's constructs where lengths of streams take part."""

    instead: ClassVar[dict[Any, Callable[..., Any]]] = {
        int: _int,
        float: _float,
        bool: _bool,
        math.sqrt: _sqrt,
        max: _extreme(max, True),
        min: _extreme(min, False),
        **for_loops.INSTEAD,
    }

    def __init__(self) -> None:
        super().__init__()
        known = self._known, Converted, self._stand_ins, self.direct, self._builtins, self._awaited
        self.of = partial(_core.callee, *known, super().of)  # type: ignore[method-assign]
        self.test = partial(_core.truth, self.test)  # type: ignore[method-assign]

    def settle_lengths(self) -> None:
        """Give functions on tensors numbers, from now on, for lengths that are some in all but short streams."""
        self.of = self._of_settled  # type: ignore[method-assign]

    def _of_settled(self, f: Any) -> Any:
        found = super().of(f)
        own = found is f and type(f) is FunctionType and f.__module__.startswith(_OF_TENSORS)
        return _settling(f) if own else found

    # ------------------------------------------------------------------ truths
    def symbolic(self, value: Any) -> bool:
        """Whether something is a length, or says something of lengths or of a call's values."""
        if type(value) in ATOMS:
            return False
        return isinstance(_bared(value), (Length, Comparison, Computed)) or _is_verdict(value)

    def test(self, value: Any) -> Any:
        """Return the comparison of lengths that says whether something is true; None for what Python is to ask."""
        if isinstance(value, (bool, Comparison)):
            return value
        if isinstance(value, Computed):
            return undecided(value)
        if _is_verdict(value):
            return inner_of(value)
        number = value.length if isinstance(value, Gathered) else _bared(value)
        if isinstance(number, Length):
            return number.compare(0, "ne")
        return number if isinstance(number, Comparison) else None

    def not_(self, w: Any) -> Any:
        return w.opposite() if isinstance(w, (Comparison, FrameTruth, Verdict)) else not w

    def refuse(self, w: Comparison, site: Site) -> NoReturn:
        w.refuse()

    def checked(self, w: Any, site: Site | None = None) -> bool:
        if isinstance(w, Verdict):
            return w.holds(True)
        w.require()
        return True

    def held(self, a: Any, b: Any) -> Any:
        number = _bared(a)
        if not isinstance(b, (tuple, list, range, set, frozenset)):
            return a in b
        found: Any = False
        for each in b:
            same = self.truth(number == each)
            found = same if found is False else found if found is True else self.tor(found, same)
        return found

    # ------------------------------------------------------------------ choices
    def ways(self, w: Any, site: Site, seen: dict[str, Any], above: int = 1) -> Any:
        if isinstance(w, FrameTruth) and site.then_raises == site.else_raises:
            return FrameBranch(w, site, seen)
        if isinstance(w, Verdict):
            return w.holds(site.else_raises) if site.then_raises != site.else_raises else w.refuse()
        if site.then_raises != site.else_raises:
            w.require(site.else_raises)
            return site.else_raises
        answer = self._answer(w, site, seen)
        return Branch(w, site, sys._getframe(above), seen) if answer is None else answer

    def sides(self, w: Any, site: Site) -> Any:
        if isinstance(w, FrameTruth):
            if site.kind == "conditional" or site.escapes or site.effects:
                FrameBranch(w, site, {})
            return w
        if isinstance(w, Verdict) and site.kind == "conditional":
            w.refuse()
        if isinstance(w, Verdict) or (site.kind != "conditional" and not (site.escapes or site.effects)):
            return w
        answer = self._answer(w, site, {})
        if answer is None:
            Branch(w, site, sys._getframe(1), {})
        return w if answer is None else answer

    def _answer(self, w: Comparison, site: Site, seen: dict[str, Any]) -> bool | None:
        """Return the answer that all but short streams give, where the other can't be taken too; else None."""
        lasting = next(iter((*site.escapes, *site.effects)), None) or changed_in_place(site, seen)
        answer = None if site.in_while or (site.plain and lasting is None) else trusted(w)
        if answer is not None:
            w.require(answer)
        elif lasting is not None:
            w.refuse_for_all(*lasting)
        return answer

    def other_side(self, w: Any) -> None:
        if isinstance(w, FrameTruth):
            w.loop.within[-1] = (w, False)
        else:
            open_branch(w.edge.entry).then({})

    def choose(self, w: Any, a: Any, b: Any) -> Any:
        if not isinstance(w, FrameTruth):
            return open_branch(w.edge.entry).chosen(a, b)
        w.loop.within.pop()
        return one_of(w, a, b)

    def joined(self, w: Any, v: Any, other: Any, is_or: bool) -> Any:
        if isinstance(w, FrameTruth):
            return one_of(w, v, other) if is_or else one_of(w, other, v)
        if isinstance(w, Verdict):
            w.refuse()
        if isinstance(v, Comparison):
            return (self.tor if is_or else self.tand)(w, self.truth(other))
        nothing = 0 if isinstance(v, Length) else v  # what an `and` gives where its first operand is false
        yes, no = (v, other) if is_or else (other, nothing)
        try:
            return chosen(w, yes, no)
        except Apart:
            answer = trusted(w)
        if answer is None:
            w.refuse()
        w.require(answer)
        return yes if answer else no

    # ------------------------------------------------------------------ loops
    def loop(self, site: Site) -> Any:
        return _While() if site.kind == "while" else for_loops.ForLoop(site)

    def iterate(self, iterable: Any, site: Site, loop: Any) -> Any:
        return for_loops.iterate(iterable, site, loop, sys._getframe(1))

    def gathered(self, made: list[Any]) -> Any:
        return for_loops.gathered(made)

    def rounds(self, loop: Any, w: Comparison, site: Site, seen: dict[str, Any]) -> bool:
        if site.indexes:
            refuse(LOOPS_WHILE)
        if isinstance(w, FrameTruth):
            w.require()
        if site.escapes or site.effects or changed_in_place(site, seen) is not None:
            w.refuse()
        return cast(_While, loop).goes_on(w, site, sys._getframe(1), seen)

    # ------------------------------------------------------------------ callees
    def stands_for(self, f: Any) -> Any:
        """Return what is called in a function's place: what is registered, or what makes masks of numbers."""
        found = super().stands_for(f)
        if found is not None or not isinstance(f, FunctionType):
            return found
        instead = registered.instead_of(f)
        if instead is not None:
            return partial(_registered, instead, f)
        if f.__qualname__ == f.__name__ and wanted(f) and self._makes(f):
            return partial(_asking, f, self.copied(f))
        return None

    def _makes(self, f: FunctionType) -> bool:
        """Whether a function may make a tensor of lengths as numbers: it has loops, or calls what makes some."""
        try:
            sites = converted(f).sites.cell_contents
        except NoCopy:  # it runs as it is, and may
            return True
        return any(s.kind in _LOOPS for s in sites) or not _MAKERS.isdisjoint(f.__code__.co_names)


TRACER = Tracer()


def forward_of(module: Any) -> Callable[..., Any]:
    """Return what a streaming call of a module runs."""
    kind: Any = type(module)
    instead = registered.registered_for(kind)
    if instead is None and "forward" in module.__dict__:
        return cast(Callable[..., Any], TRACER.of(module.forward))
    forward: Callable[..., Any] = TRACER.of(instead or kind.forward)
    return partial(forward, module)


def own_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the forward that a module's class has, whatever is registered for it."""
    return TRACER.copied(type(module).forward)(module, *args, **kwargs)
