"""Ifs, truths, loops, comprehensions, generators."""

# fmt: off
# ruff: noqa
from .calls import calls


class Truth:
    """Counts how often its truth is asked."""
    def __init__(self, *answers): self.answers, self.asked = list(answers), 0
    def __bool__(self):
        self.asked += 1
        return self.answers.pop(0) if self.answers else True


class NoTruth:
    def __bool__(self):
        raise ValueError("it has no truth")
    def __contains__(self, item):
        raise KeyError(item)
    def __lt__(self, other):
        return self


# ---------------------------------------------------------------------------------------------- ifs and truths
@calls((1,), (5,), (-3,), (0,))
def if_elif_else(x):
    kind = "none"
    if x > 3:
        kind = "big"
    elif x < 0:
        kind = "negative"
    elif x:
        kind = "small"
    else:
        return kind, None
    return kind, x


@calls((True, True), (True, False), (False, True), (False, False))
def nested_ifs(a, b):
    if a:
        if b:
            return 1
        else:
            r = 2
    else:
        if b: r = 3
        else:
            r = 4
        r += 10
    return r


@calls((0,), (7,), (12,))
def early_returns(x):
    if x == 0:
        return "zero"
    y = x * 2
    if y > 20:
        return "big", y
    z = y + 1
    if z % 3:
        if z > 10:
            return z
        return -z
    return "end"


@calls((0,), (1,), (2,))
def returns_of_nothing(x):
    if x == 1:
        return
    if x == 2:
        return None
    x += 1


@calls(({},), ({"a": 0},), ({"a": 3},))
def unbound_in_one_branch(d):
    if "a" in d:
        value = d["a"]
    return value


@calls((0,), (1,))
def deleted_in_a_branch(x):
    y = x
    if x:
        del y
    return y


@calls((3, 4), (0, 5), (0, 0), ("", []), (None, "x"))
def and_or_not(a, b):
    return (a and b, a or b, not a, not (a and b), (not a) or (b and not a), a and b or 7, a or b and 9,
            not not a, a and not b, (a or b) and (b or a))


@calls((1, 0, 2), (0, 0, 0), (1, 1, 1))
def long_operators(a, b, c):
    return a and b and c, a or b or c, a and (b or c), a or (b and c) or not c


@calls()
def asked_once():
    a, b, c, d, e = Truth(True, False), Truth(True), Truth(False), Truth(False), Truth(False, False, True)
    if a and b:
        first = 1
    second = c or b
    third = 1 if d else 2
    rounds = 0
    while not e:
        rounds += 1
    return first, second is b, third, rounds, [t.asked for t in (a, b, c, d, e)]


@calls((0,), (1,), (2,), (3,), (4,), (5,), (6,))
def no_truth(which):
    x = NoTruth()
    if which == 0:
        if x:
            pass
    elif which == 1:
        return x and 1
    elif which == 2:
        return 1 if x else 2
    elif which == 3:
        return [i for i in range(3) if x]
    elif which == 4:
        while x:
            pass
    elif which == 5:
        return 5 in x
    return (0 <
            x < 3)


@calls((4,), (-1,), (10,))
def conditional_expressions(x):
    a = "big" if x > 3 else "small" if x > 0 else "none"
    b = (x if x else 1) + (2 if not x else 3)
    return a, b, [1 if x > 5 else 2, 3][0], (lambda: 4 if x else 5)()


@calls((1,), (0,))
def one_side_only(x):
    done = []
    a = done.append("then") if x else done.append("else")
    b = x and done.append("and")
    c = x or done.append("or")
    return done, a, b, c


@calls((1, 2, 3), (3, 2, 1), (1, 5, 3), (2, 2, 2))
def chained_comparisons(a, b, c):
    seen = []
    def see(v):
        seen.append(v)
        return v
    return (see(a) < see(b) < see(c), see(a) <= see(b) != see(c) > see(1), seen, 1 < 2 < 3,
            a is not None is not b, a in (b, c) in ([True], [False]), a < b in (True, 2), a == b == c)


@calls((2, [1, 2]), ("a", "bag"), (5, {4: 1}), (None, (None,)))
def memberships(x, items):
    return x in items, x not in items, not x in items, (x in items) == True, [x in [i] for i in items]


@calls((2,), (-1,), (0,))
def asserts(x):
    assert x != 0
    assert x > 0, f"bad {x}"
    assert (x, "never empty")[0]
    return x


@calls((None,), (3,))
def is_none(x):
    if x is None:
        x = 5
    y = x if x is not None and x != 3.0 else -1
    return x, y, x is None or y


@calls((3,), ("x",))
def constants_as_conditions(x):
    if True:
        a = x
    if 0:
        a = None
    while 1:
        break
    b = x if "text" else None
    return a, b, True and x, False or x, not None


# ---------------------------------------------------------------------------------------------- loops
@calls((0,), (7,), (8,), (-20,))
def while_with_else(t):
    n = 0
    while t % 8:
        t += 1
        n += 1
        if n > 5:
            break
    else:
        n = -n
    return t, n


@calls((5,), (0,))
def for_with_else(n):
    out = []
    for i in range(n):
        if i == 1:
            continue
        if i == 4:
            break
        out.append(i)
    else:
        out.append("else")
    return out


@calls((4,))
def nested_loops(n):
    out = []
    for i in range(n):
        for j in range(i):
            if j == 2: break
            k = j
            while k < 2:
                k += 1
                if k == 1: continue
                out.append((i, j, k))
        else:
            out.append("else")
            continue
        out.append("broke")
    return out, i, j


@calls(([(1, 2), (3, 4)],), ([],))
def unpacking_targets(pairs):
    a = None
    d = {}
    for a, (b) in pairs:
        pass
    for d["last"], *rest in pairs:
        d.setdefault("rest", []).append(rest)
    return a, d


@calls((3,))
def carried_through_a_loop(n):
    h, out = None, []
    for t in range(n):
        if h is None:
            h = t
        h = h * 2 + t
        out.append(h)
    return h, out, t


@calls()
def generators_are_closed_at_once():
    log = []
    def numbers():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")
    for x in numbers():
        log.append(x)
        break
    log.append("after")
    return log


@calls((3,))
def iterators_are_shared(n):
    it, out = iter(range(10)), []
    for a in it:
        out.append(a + next(it))
        if a > n:
            break
    return out, list(it), list(zip(range(n), "abc")), list(enumerate("ab", n)), [x for x in reversed([1, 2])]


@calls((3,))
def iterates_what_changes(n):
    items = [1]
    for i in items:
        if i < n:
            items.append(i + 1)
    for i in *items, *"ab":
        last = i
    return items, last


# ---------------------------------------------------------------------------------------------- comprehensions
@calls((4,), (0,))
def comprehensions(n):
    a = [i * j for i in range(n) for j in range(i) if i % 2 if j or i]
    b = {i: -i if i % 2 else i for i in range(n)}
    c = sorted({i and 3 for i in range(n)})
    d = list(x if x else 5 for x in (y + 1 for y in range(n)) if x != 2)
    e = [[k for k in range(j)] for j in range(n)]
    f = any(i == 2 for i in range(n)) and all(i < n for i in range(n))
    return a, b, c, d, e, f


@calls((3,), (0,))
def comprehension_over_conditions(n):
    a = [x for x in (range(3) if n else range(4))]
    b = [x for x in (n and [1]) or [2]]
    c = [x for x in (lambda: [1, 2] if n else [3])()]
    d = [x for x in range(4) if 0 < x < 3 if not x == n]
    e = [x for x in [n] if x in [3] if 1 < x < 9 in [True, 9]]
    return a, b, c, d, e, [x for x in ([1] if 0 <= n <= 2 else [2])]


@calls((4,))
def conditions_in_comprehensions(n):
    inside = [[i if j else -i for j in (0, 1)] for i in range(n) if i and i > 1 or i == 0]
    lazy = (i and i + n for i in range(n))
    n = 100
    return inside, list(lazy), {k: v or "none" for k, v in {"a": 0, "b": 1}.items()}


@calls((3,))
def generators_within_each_other(n):
    one = (i if i % 2 else -i for i in range(n))
    two = ((i, next(one, None)) if i else None for i in range(n))
    return list(two), list(one)


@calls(([1, 2, 3],), ([],))
def walrus(items):
    if (n := len(items)) > 2 and (m := n * 2):
        return n, m
    while (n := n + 1) < 5:
        pass
    return n, [w for q in items if (w := q)], [y := 1, y ** 2, *[z := i for i in range(3)]], z


# ---------------------------------------------------------------------------------------------- generators
@calls((3,), (0,))
def generators(n):
    def count(m):
        for i in range(m):
            got = yield i if i % 2 else -i
            if got:
                yield got
        return "end"
    def outer():
        result = yield from count(n)
        yield result
    it = count(4)
    out = [next(it), it.send(9), next(it)]
    it.close()
    return list(outer()), out


@calls((2,), (0,))
def yields(n):
    yield (yield n) if n else (yield -n)
    x = n and (yield "and")
    yield x, not (yield "not")


@calls()
def thrown_into():
    def g():
        while True:
            try:
                yield 1
            except KeyError as e:
                yield e.args
                if e.args == ("stop",):
                    return
    it = g()
    return next(it), it.throw(KeyError("a")), next(it), it.throw(KeyError("stop")), list(it)
