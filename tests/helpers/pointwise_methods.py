"""Cases of elementwise methods, for test_tensor_methods.py."""

from __future__ import annotations

from operator import attrgetter

from dreamstream.operations import ELEMENTWISE, UNARY

__all__ = ["FLOAT", "INTEGER", "REAL"]


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


#: Of integers, too, with integers as results.
REAL = {
    "trunc": [lambda d: d.x.trunc(), lambda d: d.odd.trunc()],
    "nan_to_num": [lambda d: d.odd.nan_to_num(), lambda d: d.odd.nan_to_num(1, 2, -3)],
    "isposinf": [lambda d: d.odd.isposinf()],
    "isneginf": [lambda d: d.odd.isneginf()],
    "fmod": [lambda d: d.x.fmod(d.p), lambda d: d.x.fmod(3), lambda d: d.column.fmod(d.p)],
    "fmax": _pairs("fmax")["fmax"],
    "fmin": _pairs("fmin")["fmin"],
    "heaviside": [lambda d: d.x.heaviside(d.y), lambda d: d.odd.heaviside(d.x)],
    "addcmul": [
        lambda d: d.x.addcmul(d.y, d.row),
        lambda d: d.x.addcmul(d.column, d.row, value=2),
    ],
}

FLOAT = {
    **_odd(*(r.name for r in UNARY if r.doc and r.integers is None)),
    **_odd("tan", "exp2", "frac", "sinc", "signbit", "deg2rad", "rad2deg"),
    "logit": [
        lambda d: d.x.logit(),
        lambda d: d.x.sigmoid().logit(),
        lambda d: d.odd.logit(1e-3),
    ],
    **_pairs("atan2", "hypot", "copysign", "logaddexp", "xlogy"),
    "fmod": [*_pairs("fmod")["fmod"], lambda d: (d.odd * 1e7).fmod(3), lambda d: d.x.fmod(0)],
    "remainder": [
        *_pairs("remainder")["remainder"],
        lambda d: (d.odd * 1e7) % 3,
        lambda d: (d.x * 1e7).remainder(-0.7),
        lambda d: d.odd % 0,
    ],
    "floor_divide": [
        *_pairs("floor_divide")["floor_divide"],
        lambda d: d.x // 0.1,
        lambda d: d.odd // -0.5,
        lambda d: d.odd // 0,
    ],
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

OF_FLOATS = [r.name for r in UNARY if r.doc and r.integers is None]
INTEGER = {
    name: [lambda d, name=name: _called(d.x, name)]
    for name in ("tan", "exp2", "sinc", "signbit", "deg2rad", *OF_FLOATS)
} | {
    "atan2": [lambda d: d.x.atan2(d.y)],
    "copysign": [lambda d: d.x.copysign(d.y)],
    "xlogy": [lambda d: d.x.xlogy(d.p)],
}
