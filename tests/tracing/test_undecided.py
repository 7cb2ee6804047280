"""Conditions that are undecided: both branches run, in place, and names hold what a tracer selects."""

import re
import sys

import pytest
from every_case import EveryCase, Refused, alone, every

from dreamstream.tracing import Hooks, Loop, Site, Symbolic, Undecided, variables

# fmt: off
# ruff: noqa: B023, E701, E702, E731
CASES = list(range(24))
ACCEPTED = []


def accepted(f):
    ACCEPTED.append(f)
    return f


@accepted
def one_if(n):
    if n % 8:
        n = n + 8 - n % 8
    return n


@accepted
def if_and_else(n):
    if n > 10:
        k = n - 10
    else:
        k = n * 2
    return k, n


@accepted
def elifs(n):
    if n % 3 == 1:
        k = 2
    elif n % 3 == 2:
        k = 1
    elif n > 12:
        k = 12
    else:
        k = 0
    return n + k


@accepted
def nested(n):
    k = 0
    if n > 5:
        if n % 2:
            k = 1
            n = n + 1
        else:
            k = 2
        k = k + n
    return k * 10 + n


@accepted
def decided_within(n):
    if n > 5:
        if n > 3:
            k = 1
        else:
            k = None
    else:
        k = n if n < 6 else None
    return k


@accepted
def bound_in_one_branch(n):
    if n > 5:
        extra = n
    if n > 5:
        n = n + extra
    return n


@accepted
def names_are_put_back(n):
    k, m = n, 1
    if n % 2:
        k = k + 1
        m = k * 2
    else:
        m = k * 3
    return k, m


@accepted
def ands_and_ors(n):
    if (n > 3 and n % 2) or n > 20:
        n = n + 1
    if not (n > 5) and (n % 3 == 0 or n == 4):
        n = n * 2
    return n


@accepted
def values_of_ands_and_ors(n):
    k = n % 5 or 5
    m = n % 4 and n // (n % 4)
    return k, m, (n > 3 and n < 9) + 0, (n % 2 or n % 3 or 7)


@accepted
def conditionals(n):
    k = n if n > 4 else 4
    return (k + 1 if k % 2 else k) + (1 if not n % 3 else 2 if n % 3 == 1 else 3)


@accepted
def guarded_divisions(n):
    return (10 // n if n else 0) + (n and 20 // n) + (n == 0 or 6 // n) * 1


@accepted
def chains(n):
    if 3 < n <= 9:
        n = n + 100
    a = 2 < n % 7 < 5
    return n, a + 0, (0 <= n < 5) + 1


@accepted
def memberships(n):
    k = 1 if n in (1, 2, 3) else 0
    if n not in [4, 5]:
        k = k + 2
    return k


@accepted
def returns(n):
    if n > 10:
        return n, 1
    m = n * 2
    if m > 6:
        return m, 2
    return n, 3


@accepted
def returns_in_both(n):
    if n > 10:
        if n % 2:
            return n
        else:
            return -1 * n
    elif n == 3:
        k = 7
        return k
    return 0 if n else 1


@accepted
def asserts(n):
    assert n != 5, "five"
    if n > 7:
        assert n % 4 != 3
        m = n
    else:
        m = 0
    return m


@accepted
def raises(n):
    if n > 17:
        raise ValueError(n)
    if n % 2:
        m = 1
    else:
        if n == 4:
            message = "four"
            raise ValueError(message)
        m = 2
    return m


@accepted
def whiles(n):
    m = 0
    while n % 8:
        n = n + 1
        m = m + 2
    return n, m


@accepted
def whiles_with_two_sides(n):
    a, b = n, 10
    while a < b:
        a, b = a + 2, b - 1
    return a, b


@accepted
def a_while_that_is_decided(n):
    k = 3
    while k:
        k -= 1
        if n > k:
            n = n - 1
    return n


def helper(n, k=2):
    if n % k:
        return n + k
    return n


@accepted
def calls_others(n):
    pad = lambda v: v if v > 3 else 3
    return helper(n) + helper(n, k=3) + pad(n)


@accepted
def closures_and_loops(n):
    total = n
    for k in (2, 3):
        def f(v): return v // k if v % 2 else v
        if f(total) > 3:
            total = total + f(n)
    return total + sum([helper(n) if n > i else i for i in range(3)], 0)


@accepted
def walrus(n):
    if (k := n % 3) and (m := k * 2) > 2:
        n = n + m
    return n, k


@accepted
def matched(n):
    match (1, 2):
        case (a, b) if a < b:
            n = n + 1 if n > b else n
        case _:
            n = None
    return n


@accepted
def with_and_try(n):
    try:
        if n > 3:
            k = n
        else:
            k = 3
    finally:
        n = n + 1
    return n + k


@pytest.mark.parametrize("function", ACCEPTED, ids=lambda f: f.__name__)
def test_all_cases_at_once(function):
    assert every(function, CASES) == alone(function, CASES)


REFUSED = []


def refused(what):
    def note(f):
        REFUSED.append((f, what))
        return f
    return note


class Holder:
    x = 0
    def add_(self, n): self.x += n; return self
    def __iadd__(self, n): self.x += n; return self


HOLDER = Holder()
TOTAL = 0


@refused("HOLDER.x")
def sets_an_attribute(n):
    if n > 3:
        HOLDER.x = 1


@refused("d['a']")
def sets_an_item(n):
    d = {}
    if n > 3:
        d["a"] = n
    return d


@refused("d['a']")
def deletes_an_item(n):
    d = {"a": 1}
    if n > 3:
        del d["a"]


@refused("del")
def deletes_a_name(n):
    k = 1
    if n > 3:
        del k


@refused("print(n)")
def calls_as_a_statement(n):
    if n > 3:
        print(n)


@refused("HOLDER.add_(1)")
def calls_in_place(n):
    if n > 3:
        y = HOLDER.add_(1)
    else:
        y = 0
    return y


@refused("ys.append(n)")
def appends_in_a_conditional(n):
    ys = []
    return ys.append(n) if n > 3 else ys


@refused("ys.append(n)")
def appends_behind_an_and(n):
    ys = []
    n > 3 and ys.append(n)


@refused("HOLDER.add_(1)")
def in_place_behind_an_or(n):
    return n > 3 or HOLDER.add_(1)


@refused("ys.pop()")
def pops_in_a_condition(n):
    ys = [1]
    if n > 3 and ys.pop():
        n = 0
    return n


@refused("ys.pop()")
def pops_in_a_chain(n):
    ys = [1]
    return 3 < n < ys.pop()


@refused("return")
def returns_from_a_loop(n):
    for i in range(3):
        if n > i:
            return i


@refused("break")
def breaks(n):
    for i in range(3):
        if n > i:
            break
    return i


@refused("continue")
def continues(n):
    for i in range(3):
        if n > i:
            continue
    return i


@refused("yield")
def yields(n):
    if n > 3:
        yield n


@refused("TOTAL = …")
def assigns_a_global(n):
    global TOTAL
    if n > 3:
        TOTAL = n


@refused("ys.append(n)")
def an_effect_in_a_while(n):
    ys = []
    while n % 8:
        n = n + 1
        ys.append(n)


@refused("guard")
def a_guard(n):
    match 1:
        case _ if n > 3: return 1


@refused("guard")
def an_if_of_a_comprehension(n):
    return [i for i in range(4) if i < n]


@refused("asked for a truth")
def a_truth_in_an_iterable(n):
    return [i for i in (range(3) if n > 3 else range(4))]


@pytest.mark.parametrize("function, what", REFUSED, ids=lambda v: getattr(v, "__name__", ""))
def test_what_cannot_be_taken_back(function, what):
    with pytest.raises(Refused, match=re.escape(what)):
        result = every(function, CASES)
        list(result[0])
    assert HOLDER.x == 0


@pytest.mark.parametrize("function", [asserts, one_if, conditionals, values_of_ands_and_ors, whiles])
def test_plain_hooks_refuse_what_is_undecided(function):
    class Never(Symbolic):
        def __mod__(self, other): return self
        __gt__ = __ne__ = __mod__

    with pytest.raises(Undecided):
        Hooks().of(function)(Never())
# fmt: on


def test_a_side_may_be_decided_before_it_is_evaluated():
    class Decides(EveryCase):
        answer = True

        def sides(self, w, site):
            return self.answer

    def f(w):
        done = []
        a = done.append("then") or 1 if w else done.append("else") or 2
        b = w and done.append("and")
        c = w or done.append("or")
        if w and done.append("test"):
            pass
        return a, b is w, c is w, done

    hooks, w = Decides(), Symbolic()
    assert hooks.of(f)(w) == (1, False, True, ["then", "and", "test"])
    hooks.answer = False
    assert hooks.of(f)(w) == (2, True, False, ["else", "or"])


class Steps:
    """What a loop goes over in rounds of a tracer's own."""


class Carries(Loop):
    scans = True

    def __init__(self, log):
        self.log = log

    def carried(self, name):
        self.log.append(("carried", name))
        return self.values.get(name, Hooks.unbound)

    def after(self, name):
        self.log.append(("after", name))
        return ("after", self.values[name]) if name in self.values else Hooks.unbound


class Scans(Hooks):
    def __init__(self):
        super().__init__()
        self.log, self.sites = [], []

    def loop(self, site):
        self.sites.append(site)
        return Carries(self.log)

    def iterate(self, iterable, site, loop):
        if not isinstance(iterable, Steps):
            if loop is not None:
                loop.scans = False
            return iterable
        loop.values = variables(sys._getframe(1))
        return self.rounds_of(loop)

    def rounds_of(self, loop):
        for i in range(2):
            self.log.append(("round", i))
            yield i
            loop.values = variables(sys._getframe(1))


def test_a_loop_in_rounds():
    def f(steps):
        h, unused, out = 1, 5, []
        for t in steps:
            h = h * 10 + t
            fresh = h
            out.append(h)
        else:
            h = h, "else"
        return h, fresh, unused, out[1][0] if isinstance(out[1], list) else out

    hooks = Scans()
    h, fresh, unused, out = hooks.of(f)(Steps())
    (site,) = hooks.sites
    assert (site.names, site.live, site.held, site.later) == (
        ("h", "fresh"),
        ("h", "out"),
        ("out",),
        ("fresh", "h", "out"),
    )
    assert h == (("after", 101), "else")
    assert fresh == ("after", 101)
    assert unused == 5
    begin = [("carried", "h"), ("carried", "fresh"), ("carried", "out")]
    assert hooks.log == [
        ("round", 0), *begin, ("round", 1), *begin, ("after", "h"), ("after", "fresh"), ("after", "out"),
    ]  # fmt: skip


def test_a_site_says_where_it_is():
    site = Site("if", "a.py", 3, "f", "x > 1")
    assert str(site) == "a.py:3 in f"
