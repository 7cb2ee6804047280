"""Functions, classes, exceptions, what looks at frames, and the rest of the language."""

# fmt: off
# ruff: noqa
import collections
import contextlib
import copy
import enum
import functools
import inspect
import itertools
import math
import operator
import os.path as paths
import sys
import typing
import warnings
from dataclasses import dataclass, field, replace
from math import ceil as up

from .calls import calls

GLOBAL = 0
LOG = []


# ---------------------------------------------------------------------------------------------- functions
def maker(k):
    count = 0
    def add(n=3):
        nonlocal count
        if n > 1:
            count += n + k
        return count
    def get(): return count
    return add, get


@calls((2,), (0,))
def closures(n):
    add, get = maker(5)
    first = add(n)
    return first, add(), get(), [f() for f in [lambda: n, lambda n=n: n + 1]]


@calls((3,))
def late_cells(n):
    def f():
        return g() if n else None
    def g():
        return later
    later = n + 1
    first = f()
    later += 1
    return first, f(), [h() for h in [lambda i=i: i for i in range(2)] + [lambda: i for i in range(2)]]


@calls((2,))
def nonlocal_in_a_branch(n):
    total = 0
    def f(x):
        if x:
            nonlocal total
            total = x
        else:
            total = -1
        return total
    return f(n), f(0), total


@calls((2,), (0,))
def global_in_a_branch(n):
    if n:
        global GLOBAL
        GLOBAL = n
    result = GLOBAL
    GLOBAL = 0
    return result


@calls((1,))
def arguments(x, *args, k: int = 3, **more):
    def g(a, /, b, *c, d=4, **e): return a, b, c, d, sorted(e.items())
    return g(*(1, 2, 3), **{"d": x, "z": k}), g(1, b=2), args, more


@calls((0, 1, 2), (1,), (0, 5))
def bad_calls(a, b, /, c=0, *, d=None): return (a if a else b), c or d


@calls((3,))
def defaults(n, f=lambda v, w=2: v if v > w else w, *, g=max):
    def inner(a=n if n > 1 else 0, *, b=n or 1): return a, b
    return f(n), g(n, 1), inner(), inner(9, b=8)


@calls((5,))
def recursive(n):
    return 1 if n <= 1 else n * recursive(n - 1)


@calls((4,))
def recursive_inside(n):
    def fib(k): return k if k < 2 else fib(k - 1) + fib(k - 2)
    return fib(n)


@calls((5,))
def lambdas(x):
    f = lambda a, b=x: a if a > b else b
    g, h = (lambda: x and 1), (lambda: x or 2)
    return f(3), f(9), g(), h(), sorted([3, 1, 2], key=lambda v: -v if x else v), list(map(lambda v: not v, [0, 1]))


PAIR = [lambda x: x + 1 if x else 0, lambda x: x + 2 if x else 0]
TWINS = (lambda x: x and 1), (lambda x: x and 1)


@calls((1,), (0,))
def lambdas_of_one_line(x): return [f(x) for f in PAIR], [f(x) for f in TWINS]


def twice(f):
    @functools.wraps(f)
    def inner(*a, **k): return ("twice", f(*a, **k), f(*a, **k))
    return inner


@calls((1,), (0,))
@twice
@twice
def decorated(x, y=2):
    return x if x else y


def with_argument(k):
    def decorate(f):
        def inner(x): return f(x) if k else None
        return inner
    return decorate


@calls((3,))
def decorated_inside(x):
    @with_argument(1)
    @twice
    def f(v): return v or x
    return f(0)


@functools.lru_cache(None)
def cached(x):
    return x + 1 if x else 0


@calls((3,))
def uses_a_cache(x):
    cached.cache_clear()  # so that each run runs the same lines
    return cached(x), cached(0), cached(0), cached.cache_info()


@calls((3,))
def partials(n):
    def f(a, b, c=0): return a if b else c
    g = functools.partial(f, n, c=9)
    return g(1), g(0), functools.partial(g, 0)(), functools.reduce(lambda a, b: a or b, [0, n])


@functools.singledispatch
def dispatched(x): return x if x else "other"
@dispatched.register
def _(x: int): return -x if x > 1 else x
@dispatched.register(list)
def _(x): return x and x[0]


@calls((3,), (1.5,), ([],), (0,))
def single_dispatch(x): return dispatched(x)


@contextlib.contextmanager
def context(a):
    yield a if a else "none"


class Suppress:
    def __enter__(self): return self
    def __exit__(self, *a): return True


@calls((0,), (2,))
def withs(x):
    with context(x) as y, context(3) as z:
        if y == 2: return y
        with Suppress():
            raise ValueError
        return y, z


# ---------------------------------------------------------------------------------------------- classes
class Base:
    __secret = 3
    def __init__(self, a=1): self.a = a if a else None
    def f(self, x, *, k=2): return x * k
    @property
    def p(self): return self.__secret
    @classmethod
    def c(cls, x): return cls.__name__, x if x else None
    @staticmethod
    def s(x, y=1): return x and y
    def __call__(self, x): return x if x else "none"
    def __len__(self): return 4
    def __getitem__(self, i):
        if i > 3: raise IndexError(i)
        return i


class Derived(Base):
    __secret = 4
    def f(self, x, *, k=2):
        r = super().f(x, k=k)
        if r > 10:
            r = super(Derived, self).f(r)
        return r + self.__secret + self.__hidden(x) + __class__.__secret
    def __hidden(self, __x):
        def inner(): return __x if __x > 2 else -__x
        return inner()
    def __call__(self, x): return super().__call__(x) if x else "derived"
    def g(self, n):
        for i in range(n):
            yield super().f(i)


@calls((1,), (30,), (0,))
def methods(x):
    d = Derived()
    bound = d.f
    return (bound(x), d.f(x, k=5), d.p, d.c(x), Derived.c(0), d.s(x), Base.f(d, 3), Derived.f(d, 1), d(x), list(d.g(3)),
            functools.partial(d.f, k=7)(x), len(d), list(d), 3 in d, max(d), operator.methodcaller("f", 2)(d))


class _Private:
    __x = 1
    def get(self, __y=2, **k):
        self.__z = __y
        return self.__x, self.__z, k, [v for v in vars(self)], _Private__x if False else 0


@calls((5,))
def mangled(n): return _Private().get(n, a=1), _Private().get()


@calls((3,))
def classes_inside(n):
    @dataclass
    class P:
        a: int = n
        b: list = None
        def total(self): return self.a if self.b is None else len(self.b)
        z = 1 if n else 2
        def __bool__(self): return False
        @property
        def double(self): return self.a * 2 if self.a else 0
    class Q(P):
        def total(self): return super().total() + 1 if True else 0
        class Inner:
            def f(self): return n and 1
    p = P()
    return (p.total(), P(1, [1]).total(), Q().total(), (p or 5), bool(p and 1), P.__qualname__, Q.total.__qualname__,
            Q.Inner().f(), Q.Inner.f.__qualname__, p.double, p.z, P.total.__name__)


class Color(enum.Enum):
    RED = 1
    def brighter(self): return self if self.value > 1 else "red"


@calls()
def other_kinds_of_classes():
    P = collections.namedtuple("P", "a b")
    class T(typing.NamedTuple):
        a: int
        def s(self): return self.a or 5
    @dataclass
    class F:
        x: list = field(default_factory=lambda: [1] if True else [])
    return P(1, 2), T(0).s(), Color.RED.brighter(), F().x, replace(F(), x=2), type("X", (), {"f": lambda s: s and 1})().f() is not None


@calls((2,))
def attributes(n):
    class O: pass
    o = O()
    o.x = o.y = 1
    if n: o.x = n
    else: o.z = 3
    o.x += 1
    del o.y
    return vars(o), getattr(o, "q", n or 1), hasattr(o, "y")


# ---------------------------------------------------------------------------------------------- exceptions
@calls((0,), (1,), ("a",), (2,))
def tries(x):
    out = []
    try:
        out.append(10 / x)
        if x == 1: raise KeyError("k")
    except ZeroDivisionError as e:
        out.append(str(e))
    except (KeyError, TypeError) as e:
        out.append(type(e).__name__)
        if x == "a": return out
    else:
        out.append("else")
    finally:
        out.append("finally")
    return out


@calls((0,), (1,), (2,))
def finally_wins(x):
    for i in range(2):
        try:
            if x == 0: continue
            if x == 1: break
            return "tried"
        finally:
            if x == 2: return "finally"
    return i


@calls((0,), (1,))
def lines_of_errors(n):
    x = [1]
    if n:
        y = (x[0] +
             x[5])
    return 1 // n


@calls()
def chains_of_exceptions():
    try:
        try: raise ValueError("a")
        except ValueError as e: raise KeyError("b") from e
    except KeyError as e:
        return repr(e.__cause__), e.__traceback__.tb_lineno


@calls((0,), (1,))
def raises_deep_inside(n):
    def f(x):
        return g(x) if x else h(x)
    def g(x): raise KeyError(
        x)
    h = lambda x: [1 / v for v in [x]]
    return f(n) or None


@calls()
def reraises():
    try:
        {}["missing"] or 1
    except KeyError:
        if True:
            raise


@calls(())
def an_unbound_name():
    for i in ():
        pass
    return i


@calls((0,))
def exits(x):
    try:
        sys.exit(x or 3)
    except SystemExit as e:
        return e.code


# ---------------------------------------------------------------------------------------------- what looks at frames
@calls((2,))
def frames(n):
    def who(): return sys._getframe(1).f_code.co_name, inspect.stack()[1].function, sys._getframe(1).f_lineno
    return who(), sys._getframe(0).f_code.co_firstlineno


@calls((2,))
def warned(n):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        def f(): warnings.warn("hey", stacklevel=2)
        if n:
            f()
    return w[0].lineno, w[0].filename.rpartition("/")[2]


@calls((2,), (0,))
def sees_its_variables(n):
    a = n or 1
    if n:
        b = 2
    inside = [sorted(locals()) for _ in (1,)][0]
    return sorted(locals()), sorted(vars()), dir(), "a" in inside, eval("a + n"), locals()["a"]


@calls((1,))
def variables_in_finally(x):
    try:
        if x:
            return "one"
        return "two"
    finally:
        LOG[:] = sorted(locals())


@calls()
def what_finally_saw(): return variables_in_finally(1), list(LOG)


@calls((5,))
def names_of_functions(n):
    """A docstring."""
    def g():
        "inner"
        return g.__doc__
    return g(), g.__name__, g.__qualname__, g.__module__, (lambda: 0).__qualname__, names_of_functions.__doc__


@calls((1,))
def only_a_docstring(x):
    """Nothing else."""


# ---------------------------------------------------------------------------------------------- everything else
@calls((1,), ((1, 2),), ((0, 0),), ({"a": 5, "b": 1},), ("x",), ([1, 2, 3],), (None,), (Base(7),))
def matches(v):
    match v:
        case 1: return "one"
        case (a, b) if a and b > 1: return a + b
        case {"a": x, **rest}: return x, rest
        case [a, *more]: r = len(more)
        case str() as s: r = s
        case Base(a=q) if q: r = q
        case None | False: r = "none"
        case _: r = "other"
    return r


@calls((3.14159, "é"), (0, ""))
def f_strings(x, s):
    return f"{x:.3f} {s!r:>10} {x if s else 'no'} {'{'}{x:{6 if s else 8}.1f} {x=} {(s or 'empty')!s} {s and 1}"


@calls((6,))
def builtins_of_numbers(n):
    return (int(n / 4), float(n), round(2.5), max(n, 3), min([n, 2], default=0), abs(-n), math.ceil(n / 4), up(n / 4),
            math.sqrt(n), len("abc"), divmod(n, 4), sum([n, 1]), isinstance(n, int), int("11", base=2), list(range(n)))


@calls((3,))
def shadowed_builtins(n):
    int_ = int
    def int2(v): return "mine"
    max = lambda *a: "shadow"
    len = str
    return int_(2.7), int2(2), max(1, 2), (lambda int: int(3))(str), type(n)(4.5), len(n)


@calls(([3, 1, 2],))
def subscripts(items):
    items = list(items)
    items[0], items[1:2] = items[1], [9, 9]
    items[-1] += 1
    del items[0]
    d = {}
    d["a"] = d.get("a", 0) or 7
    d["a"] += 1 if items else 2
    x = y = z = items
    (a, *b), c = items, 4
    return items, d, a, b, c, x is y, items[1:][0 if a else 1], items[:: -1 if a else 1]


@calls((1,))
def annotated(x: "int", y: int = 3) -> str:
    z: int = x
    w: "list[int]"
    if z: v: int = 4
    holder = [0]
    holder[0]: int = z or 1
    return z + y + v, holder


@calls((1,))
def imports(n):
    import os.path as p, json
    from math import floor as c
    if n:
        import string
    return p.basename("a/b"), json.dumps({}), c(1.2), string.digits[:2], paths.sep, copy.copy([1])


@calls((5,))
def many_elifs(x):
    if x == 0: r = 0
    elif x == 1: r = 1
    elif x == 2: r = 2
    elif x == 3: r = 3
    elif x == 4: r = 4
    elif x == 5:
        r = 5
    elif x == 6: r = 6
    return r


@calls((1,), (0,))
def several_statements_in_a_line(x): y = x; z = y or 2; return z if y else -z


@calls((3,))
def operators(x):
    x += 1; x -= 2; x *= 3; x **= 2; x //= 2; x %= 7; x <<= 2; x |= 1; x ^= 5
    return x, -x, ~x, +x, x @ Matrix(), [*[x], *()], {**{"a": x}}, (*[1],), x if x < 3 else x > 2


class Matrix:
    def __rmatmul__(self, other): return "product" if other else None


@calls(([1, 2, 3],))
def higher_order(items):
    def odd(v): return v if v % 2 else None
    return (list(map(odd, items)), list(filter(odd, items)), sorted(items, key=odd and (lambda v: -v)),
            list(filter(None, items)), list(itertools.takewhile(lambda v: v < 3, items)), max(items, key=lambda v: -v),
            sorted(items, reverse=True), list(map(operator.add, items, items)))
