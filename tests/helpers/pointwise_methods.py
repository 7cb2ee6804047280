"""Cases of elementwise methods, for test_tensor_methods.py."""

import operator
from operator import attrgetter

import dreamstream as ds
from dreamstream.operations import BINARY, ELEMENTWISE, LOGICAL, UNARY


def _called(x, name):
    """A method without arguments; torch has some as functions alone."""
    if hasattr(x, name):
        return getattr(x, name)()
    import torch

    return attrgetter(ELEMENTWISE[name].torch)(torch)(x)


def _odd(*names):
    return {
        name: [
            lambda d, name=name: _called(d.x, name),
            lambda d, name=name: _called(d.odd, name),
            lambda d, name=name: _called(d.odd * 1e4, name),
            lambda d, name=name: _called(d.x * 1e-3, name),
        ]
        for name in names
    }


def _pairs(*names):
    return {
        name: [
            lambda d, name=name: getattr(d.x, name)(d.y),
            lambda d, name=name: getattr(d.odd, name)(d.x),
            lambda d, name=name: getattr(d.x, name)(d.odd),
            lambda d, name=name: getattr(d.odd, name)(d.odd.roll(1)),
            lambda d, name=name: getattr(d.column, name)(d.row),
        ]
        for name in names
    }


def _operators(rows, *cases):
    """Python's operators, of rows that are some."""
    ways = {row.name: getattr(operator, row.python) for row in rows if row.python}
    return {name: [lambda d, f=f, case=case: case(f, d) for case in cases] for name, f in ways.items()}


def _joined(*tables):
    """All cases of each name."""
    return {name: [c for t in tables for c in t.get(name, ())] for table in tables for name in table}


EXACT = [r for r in BINARY if r.integers and r.domain != "base"]
QUOTIENTS = [r.name for r in BINARY if r.domain == "quarters"]
OF_REALS = [r.name for r in BINARY if r.real and r.doc]

#: Of integers, too, with integers as results.
REAL = {
    **{n: c[:2] for n, c in _odd(*(r.name for r in UNARY if r.doc and r.integers)).items()},
    **_pairs(*(r.name for r in BINARY if r.integers and r.domain in ("any", "ties")), "fmax", "fmin"),
    "nan_to_num": [lambda d: d.odd.nan_to_num(), lambda d: d.odd.nan_to_num(1, 2, -3)],
    "isposinf": [lambda d: d.odd.isposinf()],
    "isneginf": [lambda d: d.odd.isneginf()],
    **{
        name: [
            lambda d, name=name: getattr(d.x, name)(d.p),
            lambda d, name=name: getattr(d.x, name)(3),
            lambda d, name=name: getattr(d.column, name)(d.p),
        ]
        for name in QUOTIENTS
    },
    **{r.name: [lambda d, r=r: getattr(d.x, r.name)(*(d.row,)[: r.operands - 1])] for r in LOGICAL},
    "heaviside": [lambda d: d.x.heaviside(d.y), lambda d: d.odd.heaviside(d.x)],
    "addcmul": [lambda d: d.x.addcmul(d.y, d.row), lambda d: d.x.addcmul(d.column, d.row, value=2)],
}
REAL = _joined(
    REAL,
    _operators(UNARY, lambda f, d: f(d.odd)),
    _operators(EXACT, lambda f, d: f(d.x, d.p), lambda f, d: f(d.column, d.p), lambda f, d: f(d.p, d.p)),
    _operators(EXACT, lambda f, d: f(d.odd, 1), lambda f, d: f(d.x, 2), lambda f, d: f(3, d.p)),
)

FLOAT = {
    **_odd(*(r.name for r in UNARY if r.doc and r.integers is None)),
    **_odd("tan", "exp2", "frac", "sinc", "signbit", "deg2rad", "rad2deg"),
    "logit": [lambda d: d.x.logit(), lambda d: d.x.sigmoid().logit(), lambda d: d.odd.logit(1e-3)],
    **_pairs(*OF_REALS, "logaddexp", "xlogy"),
    **{
        name: [
            *cases,
            lambda d, name=name: getattr(d.odd * 1e7, name)(3),
            lambda d, name=name: getattr(d.x * 1e7, name)(-0.7),
            lambda d, name=name: getattr(d.odd, name)(0),
        ]
        for name, cases in _pairs(*QUOTIENTS).items()
    },
    "lerp": [
        lambda d: d.x.lerp(d.y, 0.3),
        lambda d: d.x.lerp(d.y, 0.8),
        lambda d: d.x.lerp(d.y, -2),
        lambda d: d.x.lerp(d.y, d.x),
    ],
    "addcmul": REAL["addcmul"],
    "addcdiv": [lambda d: d.x.addcdiv(d.y, d.p), lambda d: d.x.addcdiv(d.y, d.p, value=0.3)],
    "heaviside": REAL["heaviside"],
}

#: torch has frac of floats alone.
OF_FLOATS = [r.name for r in UNARY if r.doc and r.integers is None and r.name != "frac"]
INTEGER = {
    name: [lambda d, name=name: _called(d.x, name)]
    for name in ("tan", "exp2", "sinc", "signbit", "deg2rad", *OF_FLOATS)
} | {
    **{name: [lambda d, name=name: getattr(d.x, name)(d.y.float())] for name in OF_REALS},
    "xlogy": [lambda d: d.x.xlogy(d.p), lambda d: d.x.xlogy(0.5)],
    "fmax": [lambda d: d.x.fmax(0.5) if isinstance(d.x, ds.Tensor) else d.x.clamp_min(0.5)],
}
INTEGER |= _joined(
    _operators(EXACT, lambda f, d: f(d.x, 0.5), lambda f, d: f(d.x, d.mask + 1)),
    _operators((r for r in EXACT if r.name not in ("sub", *QUOTIENTS)), lambda f, d: f(d.mask, d.x)),
)
