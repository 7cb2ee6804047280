"""What a forward's private copy asks: of truths and numbers of lengths, and what runs in a function's place.

A forward that streams runs as a copy (`dreamstream.tracing`) whose constructs ask the `TRACER`. What is no length has
its plain meaning.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from ..array.symbolic import Symbolic
from ..errors import DreamStreamError
from ..stream.rules import Apart, Branch, Comparison, Length, Loop, Token, chosen, open_branch, trusted
from ..stream.tree import leaves, map_leaves
from ..tracing.copies import Hooks, loops
from . import register

#: Frames for which a function is asked whether it makes a tensor.
_TRIED = 48


def _bared(x: Any) -> Any:
    """Return the number that a tensor of lengths is."""
    inner = getattr(x, "_inner", x)
    return inner.item() if isinstance(inner, Symbolic) else x


# ---------------------------------------------------------------------- Python's functions of numbers
def _int(x: Any = 0, *more: Any, **base: Any) -> Any:
    number = _bared(x)
    return math.trunc(number) if isinstance(number, Token) else int(number, *more, **base)


def _float(x: Any = 0.0) -> Any:
    number = _bared(x)
    return number if isinstance(number, Token) else float(number)


def _bool(x: Any = False) -> Any:
    return TRACER.test(x)


def _sqrt(x: Any) -> Any:
    number = _bared(x)
    return number**0.5 if isinstance(number, Token) else math.sqrt(number)


def _extreme(python: Callable[..., Any], greater: bool) -> Callable[..., Any]:
    """Return Python's max or min for lengths, too."""

    def extreme(*values: Any, **options: Any) -> Any:
        given = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
        if options or not any(isinstance(v, Token) for v in given):
            return python(*values, **options)
        best, *others = given
        for value in others:
            best = _better(value, best, greater)
        return best

    return extreme


def _better(value: Any, best: Any, greater: bool) -> Any:
    """Return the greater or smaller of two, of which one is a length.

    Where no length is both, it is the one that it is in all but short streams; others are refused at their ends.
    """
    asked = value >= best if greater else value <= best
    if not isinstance(asked, Comparison):
        return value if asked else best
    try:
        return chosen(asked, value, best)
    except Apart:
        answer = trusted(asked, "soon")
    if answer is None:
        asked.refuse()
    if not answer:
        value, best = best, value
        asked = value >= best if greater else value <= best
    if isinstance(asked, Comparison):
        asked.require()
    return value


#: What runs in place of Python's own functions.
_NUMBERS: dict[Any, Callable[..., Any]] = {
    int: _int,
    float: _float,
    bool: _bool,
    math.sqrt: _sqrt,
    max: _extreme(max, True),
    min: _extreme(min, False),
}


# ---------------------------------------------------------------------- functions that are given lengths
def _registered(instead: Callable[..., Any], original: Any, copied: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run what is registered for a function where a length is among its arguments, else the function."""
    if register.length_in((args, kwargs)) is None:
        return copied(*args, **kwargs)
    return instead(original, *args, **kwargs)


def _asking(original: Any, copied: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run a function; where it asks for lengths as numbers and makes a tensor of them, note that it does."""
    try:
        return copied(*args, **kwargs)
    except DreamStreamError:
        length = register.length_in((args, kwargs))
        if length is None or not _makes_tensor(original, args, kwargs, type(length).noting):
            raise
    length.edge.entry.misused = None
    return register.called_with_numbers(original, *args, **kwargs)


def _makes_tensor(function: Any, args: Any, kwargs: Any, noting: Any) -> bool:
    """Whether a function that is given numbers in place of lengths returns a tensor of so many."""
    args, kwargs = map_leaves((args, kwargs), register.stands_for)
    given = leaves((args, kwargs))
    if any(getattr(x, "edge", None) is not None and not isinstance(x, (Length, Symbolic)) for x in given):
        return False  # of streams it may know more than their shapes
    try:
        with noting.quietly():
            out = noting(function, args, kwargs).at(lambda _: _TRIED)
    except Exception:  # what it asks for is no number either
        return False
    return hasattr(out, "masked_fill") and _TRIED in out.shape


# ---------------------------------------------------------------------- what copies ask
class Tracer(Hooks):
    """The meaning of a forward's constructs where lengths of streams take part."""

    instead = Hooks.instead | _NUMBERS

    # ------------------------------------------------------------------ truths
    def test(self, value: Any) -> Any:
        """Return whether something is true, or the comparison of lengths that says so."""
        if value is True or value is False or isinstance(value, Comparison):
            return value
        number = _bared(value)
        if isinstance(number, Length):
            return number.compare(0, "ne")
        return number if isinstance(number, Comparison) else bool(value)

    def not_(self, asked: Any) -> Any:
        return asked.opposite() if isinstance(asked, Comparison) else not asked

    def tand(self, asked: Any, other: Any) -> Any:
        if not isinstance(asked, Comparison) or other is False:
            return other
        return asked if other is True else asked.both(other)

    def tor(self, asked: Any, other: Any) -> Any:
        if not isinstance(asked, Comparison) or other is True:
            return other
        return asked if other is False else asked.opposite().both(other.opposite()).opposite()

    def join(self, asked: Any, value: Any, other: Any, is_or: bool) -> Any:
        """Return `value and other`, or `value or other`, of which the first is undecided."""
        if not isinstance(asked, Comparison):
            return other
        if isinstance(value, Comparison):
            return (self.tor if is_or else self.tand)(asked, self.test(other))
        return self._chosen(asked, *((value, other) if is_or else (other, value)))

    def sure(self, asked: Any, where: str = "") -> bool:
        if isinstance(asked, Comparison):
            asked.refuse()
        return bool(asked)

    def check(self, asked: Any, where: Any) -> Any:
        if isinstance(asked, Comparison):
            asked.require()
            return True
        return asked

    def contains(self, a: Any, b: Any) -> Any:
        number = _bared(a)
        if not isinstance(number, Length) or not isinstance(b, (tuple, list, range, set, frozenset)):
            return a in b
        found: Any = False
        for each in b:
            found = self.tor(found, self.test(number == each)) if found is not True else True
        return found

    # ------------------------------------------------------------------ choices
    def side(self, asked: Any, first: bool) -> bool:
        """Whether a side of a conditional expression is evaluated; of one that is undecided both are."""
        if not isinstance(asked, Comparison):
            return asked is first
        frame = sys._getframe(1)
        if first:
            lines = range(frame.f_lineno, frame.f_lineno + 1)
            Branch(asked, lines, frame, {})
        else:
            branch = open_branch(asked.edge.entry)
            branch.then({})
        return True

    def pick(self, asked: Any, yes: Any, no: Any) -> Any:
        if not isinstance(asked, Comparison):
            return yes if asked else no
        branch = open_branch(asked.edge.entry)
        branch._after = {"": yes}
        branch.merge({"": no}, ("",))
        return branch.merged("")

    def _chosen(self, asked: Comparison, yes: Any, no: Any) -> Any:
        try:
            return chosen(asked, yes, no)
        except Apart:
            answer = trusted(asked)
        if answer is None:
            asked.refuse()
        asked.require(answer)
        return yes if answer else no

    def ways(self, asked: Any, site: Any, seen: Any) -> Any:
        """Return the answer that is taken to the test of an if, or the branch object that takes both."""
        escapes, effects = site.escapes, site.effects
        if site.then_raises != site.else_raises:
            asked.require(site.else_raises)
            return site.else_raises
        answer = trusted(asked)
        if answer is not None and (escapes or effects or not site.simple):
            asked.require(answer)
            return answer
        if escapes or effects:
            asked.refuse()
        return Branch(asked, site.lines, sys._getframe(1), seen)

    def rounds(self, loop: Any, asked: Any, site: Any) -> bool:
        """Return whether a while loop goes on; where that is undecided, one round tells what all do."""
        if loop.loop is None:
            if not isinstance(asked, Comparison):
                return bool(asked)
            frame = sys._getframe(1)
            loop.loop = Loop(asked, site.lines, frame, dict(frame.f_locals))
            return True
        loop.loop.end(asked, dict(sys._getframe(1).f_locals), site.names)
        loop.solved = True
        return False

    # ------------------------------------------------------------------ callees
    def of_function(self, f: FunctionType) -> Any:
        instead = register.instead_of(f)
        copied = super().of_function(f)
        if instead is not None:
            return partial(_registered, instead, f, copied)
        if copied is not f and f.__qualname__ == f.__name__ and loops(f.__code__):
            return partial(_asking, f, copied)
        return copied


TRACER = Tracer()


def forward_of(module: Any) -> Callable[..., Any]:
    """Return what a streaming call of a module runs."""
    registered = register.registered_for(type(module))
    return TRACER.of(module.forward) if registered is None else partial(TRACER.of(registered), module)


def own_forward(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the forward that a module's class has, whatever is registered for it."""
    return TRACER.of(type(module).forward)(module, *args, **kwargs)
