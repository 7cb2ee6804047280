"""Slopes of every operator: by central differences in float64, and of chunked and ragged runs as of whole files."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from ds_laws import GENERATORS
from ds_laws.case import Refused
from slopes import chunked, loss, random_slopes, whole

from dreamstream import _core, dispatch

#: Operators that could be differentiated and have no backward yet: this list only gets shorter.
MISSING: set[str] = {
    "expert_linear",
    "combine",
    "attention",
    "cross_attention",
    "rotary",
    "reduce_frames",
    "var_frames",
    "softmax_sum",
    "cumulative",
    "sort",
    "overlap_add",
    "resample",
    "reduce_features",
    "topk",
    "gather",
    "rfft",
    "irfft",
    "fft",
    "ifft",
    "cast",
}


def differentiable(case) -> bool:
    types = [(i.dtype, i.features, i.rate.numerator, i.rate.denominator) for i in case.inputs]
    return bool(dispatch.operator(case.name, case.attributes, types, case.weights).differentiable)


def cases(name: str, n: int, law: str):
    """Random cases of an operator in float64 that have slopes, and streams of them."""
    for index in range(n):
        rng = np.random.default_rng([zlib.crc32(f"{law} {name}".encode()), index])
        case = GENERATORS[name](rng, "float64")
        if not differentiable(case):
            continue
        streams = []
        while len(streams) < 3:
            stream = case.stream(rng)
            try:
                case.expected(stream)
            except Refused:
                continue
            streams.append(stream)
        yield case, rng, streams


NAMES = [n for n in GENERATORS if n not in MISSING]

#: Functions that are defined for some numbers only, and how any number becomes one of those.
DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow"), lambda x: np.abs(x) + 0.1),
    **dict.fromkeys(("asin", "acos", "atanh"), lambda x: 0.9 * np.tanh(x)),
    "acosh": lambda x: np.abs(x) + 1.1,
}


def within(name, arrays):
    """The arrays in a function's domain."""
    move = DOMAINS.get(name, lambda x: x)
    return [move(x) if x is not None and x.dtype.kind == "f" else x for x in arrays]


def moved(arrays, directions, h):
    return [a if d is None else a + h * d for a, d in zip(arrays, directions)]


def directions(rng, arrays):
    return [rng.standard_normal(a.shape) if a is not None and a.dtype.kind == "f" else None for a in arrays]


def dot(slopes, along) -> float:
    return float(sum((s * d).sum() for s, d in zip(slopes, along) if s is not None and d is not None))


def numeric(case, streams, gs, along, sideways) -> tuple[float, float]:
    """The central difference along these directions, and how far it may be from the slope.

    Where the function has a corner nearby, or a pole, differences of two widths disagree: then it says nothing.
    """
    found, most = [], 1.0
    for h in (1e-5, 2.5e-6):
        ends = []
        for step in (h, -h):
            there = [moved(s, d, step) for s, d in zip(streams, along)]
            outputs = whole(case, there, moved(case.weights, sideways, step))[1]
            ends.append(sum(loss(y, g) for y, g in zip(outputs, gs)))
        found.append((ends[0] - ends[1]) / (2 * h))
        most += abs(ends[0]) + abs(found[-1])
    tolerance = 1e-6 * most
    return found[0], tolerance if abs(found[0] - found[1]) < tolerance else np.inf


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_central_differences(name):
    """The slope along random directions, of all inputs or of all weights, of a whole ragged batch."""
    held = tried = 0
    for case, rng, streams in cases(name, 12, "differences"):
        streams = [
            [x + 0.03 * rng.standard_normal(x.shape) if x.dtype.kind == "f" else x for x in s] for s in streams
        ]
        streams = [within(name, s) for s in streams]
        case.weights = within(name, case.weights)
        driven, outputs = whole(case, streams, record=True)
        gs = [random_slopes(rng, ys) for ys in outputs]
        dx, dw = driven.backward(dict(enumerate(gs)))
        for of_weights in (False, True, False, True):
            along = [[None] * len(s) if of_weights else directions(rng, s) for s in streams]
            sideways = directions(rng, case.weights) if of_weights else [None] * len(case.weights)
            expected, tolerance = numeric(case, streams, gs, along, sideways)
            got = dot(dw, sideways) + sum(dot(dx[r], along[r]) for r in range(len(streams)))
            tried += 1
            if np.isfinite(tolerance):
                assert abs(got - expected) < 2 * tolerance, f"{case}: {got}, not {expected} ({of_weights=})"
                held += 1
    assert held > tried / 3 or not tried


def close(a, b, what, case):
    if a is None or b is None:
        assert a is None and b is None
        return
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * scale, err_msg=f"{what} of {case}")


@pytest.mark.parametrize("name", NAMES)
def test_chunked_slopes_are_those_of_whole_files(name):
    for case, rng, streams in cases(name, 8, "chunked"):
        driven, outputs = whole(case, streams, record=True)
        gs = dict(enumerate([random_slopes(rng, ys) for ys in outputs]))
        dx, dw = driven.backward(gs)
        cut, again = chunked(case, rng, streams)
        for a, b in zip(again, outputs):
            for y, z in zip(a, b):
                assert y.shape == z.shape
        got_x, got_w = cut.backward(gs)
        for r in range(len(streams)):
            for i, (a, b) in enumerate(zip(got_x[r], dx[r])):
                close(a, b, f"input {i}", case)
        for i, (a, b) in enumerate(zip(got_w, dw)):
            close(a, b, f"weight {i}", case)


def test_every_operator_has_a_backward_or_says_that_calculus_ends():
    missing = {o["name"] for o in _core.operators() if not (o["backward"] or o["constant"])}
    assert missing == MISSING
