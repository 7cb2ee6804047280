"""A tracer for tests: a function runs once for all cases, and must give what it gives in each by itself.

An ``Each`` is a number, or a truth, that has a value for every case. A condition that holds in some is undecided:
both branches are entered, and what the names hold afterwards is selected case by case. So any function of numbers,
without effects, can be held against itself.
"""

import operator
import sys

from dreamstream.tracing import Hooks, Loop, Symbolic


class Refused(Exception):
    """A place that can't be entered both ways."""


class Each(Symbolic):
    def __init__(self, values):
        self.values = tuple(values)

    def decide(self):
        truths = {bool(v) for v, here in zip(self.values, PATH[-1]) if here}
        return truths.pop() if len(truths) == 1 else Each(map(bool, self.values))

    def negated(self):
        return Each(not v for v in self.values)

    def both(self, other):
        return Each(a and b for a, b in zip(self.values, other.values))

    def either(self, other):
        return Each(a or b for a, b in zip(self.values, other.values))

    def __bool__(self):
        raise Refused("asked for a truth where no copy runs")

    __hash__ = object.__hash__


#: In which cases what runs now does run, innermost last.
PATH = []


def values_of(v):
    return v.values if isinstance(v, Each) else [v] * len(PATH[0])


def safe(f, a, b):
    """Of cases that don't come here, anything may be computed."""
    try:
        return f(a, b)
    except (ZeroDivisionError, TypeError):
        return None


for _name in ("add", "sub", "mul", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne"):
    _f = getattr(operator, _name)
    setattr(Each, f"__{_name}__", lambda a, b, f=_f: Each(safe(f, x, y) for x, y in zip(a.values, values_of(b))))
    setattr(Each, f"__r{_name}__", lambda a, b, f=_f: Each(safe(f, x, y) for x, y in zip(values_of(b), a.values)))


def select(w, a, b):
    if a is b:
        return a
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(select(w, x, y) for x, y in zip(a, b))
    return Each(x if c else y for c, x, y in zip(w.values, values_of(a), values_of(b)))


class Ways:
    """An if that is entered both ways."""

    def __init__(self, w, site, before):
        self.w, self.site, self.before = w, site, before
        enter(w)

    def then(self, seen):
        self.one = seen
        turn(self.w)

    def back(self, name):
        return self.before.get(name, Hooks.unbound)

    def merge(self, seen):
        PATH.pop()
        self.two = seen

    def merged(self, name):
        one, two = (s.get(name, Hooks.unbound) for s in (self.one, self.two))
        if one is Hooks.unbound or two is Hooks.unbound:
            return two if one is Hooks.unbound else one
        return select(self.w, one, two)


def enter(w):
    PATH.append(tuple(p and bool(v) for p, v in zip(PATH[-1], w.values)))


def turn(w):
    PATH.pop()
    enter(w.negated())


class Rounds(Loop):
    """A while: cases that are done keep what they had."""

    def __init__(self):
        self.going = self.kept = None

    def keep(self, names, now):
        return {
            n: now[n] if n not in self.kept else select(self.going, now[n], self.kept[n])
            for n in names
            if n in now
        }

    def after(self, name):
        now = {name: sys._getframe(1).f_locals.get(name, Hooks.unbound)}
        return self.keep([name], now)[name]


class EveryCase(Hooks):
    def __init__(self):
        super().__init__()
        self.checks = []

    def ways(self, w, site, seen):
        if site.then_raises or site.else_raises:
            self.checks.append((w if site.else_raises else w.negated(), PATH[-1]))
            return site.else_raises
        self.refuse_effects(site)
        return Ways(w, site, seen)

    def refuse_effects(self, site):
        for what, line in (*site.escapes, *site.effects):
            raise Refused(f"{what} in line {line}")

    def sides(self, w, site):
        self.refuse_effects(site)
        enter(w.negated() if site.kind == "or" else w)
        return w

    def other_side(self, w):
        turn(w)

    def choose(self, w, a, b):
        PATH.pop()
        return select(w, a, b)

    def joined(self, w, v, other, is_or):
        PATH.pop()
        return select(w, v, other) if is_or else select(w, other, v)

    def tand(self, w, other):
        if w is not True:
            PATH.pop()
        return super().tand(w, other)

    def tor(self, w, other):
        if w is not False:
            PATH.pop()
        return super().tor(w, other)

    def held(self, a, b):
        return Each(x in [values_of(e)[i] for e in b] for i, x in enumerate(values_of(a))).decide()

    def checked(self, w, site):
        self.checks.append((w, PATH[-1]))
        return True

    def refuse(self, w, site):
        raise Refused(f"{site.kind} in line {site.line}")

    def loop(self, site):
        return Rounds()

    def rounds(self, loop, w, site, seen):
        self.refuse_effects(site)
        here = Each(PATH[-1])
        if loop.kept is None:
            loop.kept, loop.going, loop.solved = dict(seen), here, True
        loop.kept = loop.keep(site.names, seen)
        loop.going = loop.going.both(w)
        return any(loop.going.both(here).values)


def every(function, cases):
    """Run a function once for all cases; its results, an exception's name where a check fails."""
    hooks = EveryCase()
    PATH[:] = [(True,) * len(cases)]
    result = hooks.of(function)(Each(cases))
    assert len(PATH) == 1

    def value(v, i):
        return tuple(value(x, i) for x in v) if isinstance(v, tuple) else values_of(v)[i]

    failed = [any(here[i] and not w.values[i] for w, here in hooks.checks) for i in range(len(cases))]
    return ["raised" if failed[i] else value(result, i) for i in range(len(cases))]


def alone(function, cases):
    results = []
    for case in cases:
        try:
            results.append(function(case))
        except (AssertionError, ValueError):
            results.append("raised")
    return results
