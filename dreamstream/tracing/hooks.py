"""The plain meaning of what a copy does: every hook gives what Python gives.

A tracer is a subclass. It says which values are *symbolic*: those that have no truth and no number yet. A truth of
one is True, False, or an undecided object, which goes through the hooks from there on.
"""

import functools
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from .callees import Callees
from .nodes import HOOKS, SITES
from .site import Site


class Symbolic:
    """A value without a truth yet. ``decide`` gives True, False, or an object for which both are possible."""

    def decide(self) -> Any:
        return self


class Undecided(TypeError):
    """A condition has no truth, and nothing that traces says what to do."""


class Loop:
    """What a tracer knows of a loop that runs; a tracer's own replaces it."""

    solved = False
    """Of a ``while``: names are given by ``after`` behind it."""
    scans = False
    """Of a ``for``: names are given by ``carried`` at the head of its body, and by ``after`` behind it."""

    def carried(self, name: str) -> Any:
        raise NotImplementedError

    def after(self, name: str) -> Any:
        raise NotImplementedError


_LOOP = Loop()


class Hooks(Callees):
    """Plain meaning of all constructs.

    Methods that a copy calls are ``of``, ``test`` and those below it; a tracer overrides ``symbolic``, ``ways``,
    ``sides``, ``other_side``, ``choose``, ``joined``, ``held``, ``checked``, ``rounds``, ``loop``, ``iterate``,
    ``gathered``, ``refuse``. An undecided truth has ``negated()``, ``both(other)``, ``either(other)``.
    """

    unbound = object()
    """What stands for a name that has no value."""
    operators = operator
    piece, read = slice, getattr
    """What copies in which operators are calls (`Spelled`) call for them, for slices and attributes."""

    def __init__(self) -> None:
        super().__init__()
        for builtin, replacement in _frames_builtins().items():
            self.stand_in(builtin, replacement)
        for original in (map, filter, functools.reduce):
            self.stand_in(original, functools.partial(self._given_first, original))
        self.stand_in(sorted, self._sorted)

    # --------------------------------------------------------------------------------------------- truths
    def symbolic(self, value: Any) -> bool:
        return isinstance(value, Symbolic)

    def test(self, value: Any) -> Any:
        """Return the truth of a value: True, False, undecided, or None where Python is to ask a plain value."""
        if value is True or value is False:
            return value
        return value.decide() if self.symbolic(value) else None

    def truth(self, value: Any) -> Any:
        """Return the truth of a value, a plain one's too."""
        w = self.test(value)
        return bool(value) if w is None else w

    def not_(self, w: Any) -> Any:
        return w.negated() if w is not True and w is not False else not w

    def tand(self, w: Any, other: Any) -> Any:
        """Return the truth of ``and`` where the first is not False."""
        if w is True or other is False:
            return other
        return w if other is True else w.both(other)

    def tor(self, w: Any, other: Any) -> Any:
        """Return the truth of ``or`` where the first is not True."""
        if w is False or other is True:
            return other
        return w if other is False else w.either(other)

    def sure(self, w: Any, site: Site) -> Any:
        """Return a truth where only a decided one will do: ifs of comprehensions, guards of ``match``."""
        return w if w is True or w is False else self.refuse(w, site)

    def check(self, w: Any, site: Site) -> Any:
        """Return the truth of an ``assert``."""
        return w if w is True or w is False else self.checked(w, site)

    def checked(self, w: Any, site: Site) -> Any:
        """Return True where an undecided assertion is to be held later."""
        return self.refuse(w, site)

    def holds(self, a: Any, b: Any) -> bool:
        """Return whether ``held`` is to say if a is in b: one of them is symbolic, or holds what is."""
        return self.symbolic(a) or (type(b) in (tuple, list) and any(map(self.symbolic, b)))

    def held(self, a: Any, b: Any) -> Any:
        """Return the truth of ``a in b`` where ``holds``."""
        return a in b

    def contains(self, a: Any, b: Any) -> Any:
        """Return the truth of ``a in b``, a plain one's too."""
        return self.held(a, b) if self.holds(a, b) else a in b

    def refuse(self, w: Any, site: Site) -> NoReturn:
        """Raise for an undecided truth that must be decided here."""
        raise Undecided(f"{site}: `{site.text}` is neither true nor false ({w!r})")

    # --------------------------------------------------------------------------------------------- branches
    def ways(self, w: Any, site: Site, seen: dict[str, Any]) -> Any:
        """Say what becomes of an undecided ``if``: a truth, or what has the following methods, by which both run.

        ``then(seen)`` is called after the first branch, ``back(name)`` gives what each name held before,
        ``merge(seen)`` is called after the second branch, ``merged(name)`` gives what each name holds from there
        on. ``seen`` are the function's variables.
        """
        return self.refuse(w, site)

    def sides(self, w: Any, site: Site) -> Any:
        """Called where a truth is undecided, before what depends on it is evaluated in an expression.

        So it is before the right side of ``and``, ``or`` or a chained comparison, and before both sides of a
        conditional expression, with ``other_side`` between them. Returns a truth, or ``w``, or what is to go on in
        its place: ``tand``, ``tor``, ``join`` or ``pick`` ends what begins here. The site says what the sides do.
        """
        return w

    def other_side(self, w: Any) -> None:
        """Called between the sides of an undecided conditional expression."""

    def pick(self, a: Any, b: Any, w: Any) -> Any:
        """Return the value of ``a if w else b``; a side that wasn't evaluated is None."""
        return a if w is True else b if w is False else self.choose(w, a, b)

    def choose(self, w: Any, a: Any, b: Any) -> Any:
        raise Undecided(f"a conditional expression is neither one nor the other ({w!r})")

    def join(self, w: Any, v: Any, other: Any, is_or: bool) -> Any:
        """Return ``v or other`` or ``v and other``, where ``w``, the truth of ``v``, does not decide it."""
        return other if w is True or w is False else self.joined(w, v, other, is_or)

    def joined(self, w: Any, v: Any, other: Any, is_or: bool) -> Any:
        raise Undecided(f"the first operand of `{'or' if is_or else 'and'}` is neither true nor false ({w!r})")

    # --------------------------------------------------------------------------------------------- loops
    def loop(self, site: Site) -> Loop:
        """Called before a loop, with its site."""
        return _LOOP

    def rounds(self, loop: Loop, w: Any, site: Site, seen: dict[str, Any]) -> bool:
        """Say whether a ``while`` runs once more, its condition being undecided."""
        return self.refuse(w, site)

    def iterate(self, iterable: Iterable[Any], site: Site, loop: Loop | None) -> Iterable[Any]:
        """Return what a ``for`` or a comprehension (which has no loop) goes over.

        The caller's frame, ``sys._getframe(1)``, is the function's: its ``variables`` are what the loop finds.
        """
        return iterable

    def gathered(self, made: list[Any]) -> Any:
        """Return the value of a list comprehension of one ``for`` and no ``if``."""
        return made

    # --------------------------------------------------------------------------------------------- variables
    @staticmethod
    def seen() -> dict[str, Any]:
        """Return the variables of the function that calls."""
        return variables(sys._getframe(1))

    def holds_symbols(self, values: Any) -> bool:
        if isinstance(values, (tuple, list)):
            return any(map(self.holds_symbols, values))
        return any(map(self.holds_symbols, values.values())) if isinstance(values, dict) else self.symbolic(values)

    def _given_first(self, original: Callable[..., Any], f: Any, *args: Any) -> Any:
        """A builtin whose first argument is a function."""
        return original(f if f is None else self.of(f), *args)

    def _sorted(self, *args: Any, key: Any = None, **keywords: Any) -> Any:
        return sorted(*args, key=key if key is None else self.of(key), **keywords)


def variables(frame: Any) -> dict[str, Any]:
    """Return a frame's variables without those that a copy has of its own, but for values that it returns."""
    return {n: v for n, v in frame.f_locals.items() if n[:1] != "." and n != HOOKS and n != SITES}


def _written(frame: Any) -> dict[str, Any]:
    """Return a frame's variables as they are written."""
    return {n: v for n, v in frame.f_locals.items() if n[:1] != "." and " " not in n}


def _frames_builtins() -> dict[Any, Callable[..., Any]]:
    """Builtins that look at their caller's variables: they leave out those of copies."""

    def alike(real: Callable[..., Any], result: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            return real(*args) if args else result(_written(sys._getframe(1)))

        return call

    return {locals: alike(locals, dict), vars: alike(vars, dict), dir: alike(dir, sorted)}
