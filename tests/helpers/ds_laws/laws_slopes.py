"""The laws of slopes: of every operator by itself, as `docs/internals/gradients.md` has them.

They are held in float64, whatever the case's type is; models have no operator of their own, and nothing to hold.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .case import Array, Case, Refused, Rng
from .laws import law
from .slopes import Driven, chunked, loss, random_slopes, whole

__all__: list[str] = []

#: Ways to bring numbers to where a function is defined that is so for some only.
DOMAINS: tuple[Callable[[Array], Array], ...] = (
    lambda x: x,
    lambda x: 0.05 + 0.9 * np.tanh(np.abs(x)),
    lambda x: np.abs(x) + 1.1,
)

Arrays = Sequence[Any]


def _cases(case: Case, rng: Rng, n: int) -> Iterator[tuple[Case, list[list[Array]]]]:
    """Cases of the operator in float64 that have slopes, and three streams of each."""
    from .operators import GENERATORS

    found = 0
    for _ in range(4 * n if case.module is None else 0):
        made = GENERATORS[case.name](rng, "float64")
        if not Driven(made).op.differentiable or found == n:
            continue
        found += 1
        yield made, [_stream(made, rng) for _ in range(3)]


def _stream(case: Case, rng: Rng) -> list[Array]:
    """The longest of some streams that are not refused."""
    streams: list[list[Array]] = []
    while len(streams) < 3:
        stream = case.stream(rng)
        try:
            case.expected(stream)
        except Refused:
            continue
        streams.append(stream)
    return max(streams, key=lambda s: max(map(len, s)))


def _each(change: Callable[[Array], Array], arrays: Arrays) -> list[Any]:
    return [change(x) if x is not None and x.dtype.kind == "f" else x for x in arrays]


def _smooth(case: Case, rng: Rng, streams: list[list[Array]]) -> list[list[Array]]:
    """The streams moved a little, so that none has equal numbers, and to where the operator is defined."""
    streams = [_each(lambda x: x + 0.03 * rng.standard_normal(x.shape), s) for s in streams]
    weights = case.weights
    for domain in DOMAINS:
        moved, case.weights = [_each(domain, s) for s in streams], _each(domain, weights)
        if all(np.isfinite(y).all() for outputs in whole(case, moved)[1] for y in outputs):
            return moved
    case.weights = weights
    return streams


def _directions(rng: Rng, arrays: Arrays) -> list[Any]:
    return [rng.standard_normal(a.shape) if a is not None and a.dtype.kind == "f" else None for a in arrays]


def _moved(arrays: Arrays, directions: Arrays, h: float) -> list[Any]:
    return [a if d is None else a + h * d for a, d in zip(arrays, directions)]


def _along(slopes: Arrays, directions: Arrays) -> float:
    pairs = zip(slopes, directions)
    return float(sum((s * d).sum() for s, d in pairs if s is not None and d is not None))


def _difference(
    case: Case, streams: list[list[Array]], gs: list[list[Array]], along: list[list[Any]], sideways: list[Any]
) -> tuple[float, float]:
    """The central difference along these directions, and how far it may be from the slope.

    Where the function has a corner nearby, or a pole, differences of two widths disagree: then it says nothing.
    """
    found, most = [], 1.0
    for h in (1e-5, 2.5e-6):
        ends = []
        for step in (h, -h):
            there = [_moved(s, d, step) for s, d in zip(streams, along)]
            outputs = whole(case, there, _moved(case.weights, sideways, step))[1]
            ends.append(sum(loss(y, g) for y, g in zip(outputs, gs)))
        found.append((ends[0] - ends[1]) / (2 * h))
        most += abs(ends[0]) + abs(found[-1])
    tolerance = 1e-6 * most
    return found[0], tolerance if abs(found[0] - found[1]) < tolerance else np.inf


def _close(got: Any, wanted: Any, what: str) -> None:
    assert (got is None) == (wanted is None), f"{what}: one has a slope, the other none"
    if got is not None:
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10 * scale, err_msg=what)


@law
def slopes(case: Case, rng: Rng) -> None:
    """Slopes along random directions, of all inputs or of all weights, are central differences."""
    held = tried = 0
    for made, given in _cases(case, rng, 16):
        streams = _smooth(made, rng, given)
        finite = [s for s, ys in zip(streams, whole(made, streams)[1]) if all(np.isfinite(y).all() for y in ys)]
        streams = finite or streams
        driven, outputs = whole(made, streams, record=True)
        gs = [random_slopes(rng, ys) for ys in outputs]
        dx, dw = driven.backward(dict(enumerate(gs)))
        for of_weights in (False, True):
            along = [[None] * len(s) if of_weights else _directions(rng, s) for s in streams]
            sideways = _directions(rng, made.weights) if of_weights else [None] * len(made.weights)
            wanted, tolerance = _difference(made, streams, gs, along, sideways)
            got = _along(dw, sideways) + sum(_along(dx[r], along[r]) for r in range(len(streams)))
            tried += 1
            if np.isfinite(tolerance) and (finite or np.isfinite(got)):
                what = "weights" if of_weights else "inputs"
                assert abs(got - wanted) < 2 * tolerance, f"{what} of {made}: {got}, not {wanted}"
                held += 1
        if held >= 8:
            break
    assert held or not tried, "it is never smooth"


@law
def slopes_in_chunks(case: Case, rng: Rng) -> None:
    """Slopes of inputs and weights of chunks, in batches of any membership, are those of whole streams."""
    for made, streams in _cases(case, rng, 6):
        driven, outputs = whole(made, streams, record=True)
        gs = dict(enumerate([random_slopes(rng, ys) for ys in outputs]))
        dx, dw = driven.backward(gs)
        cut, again = chunked(made, rng, streams)
        assert [[len(y) for y in ys] for ys in again] == [[len(y) for y in ys] for ys in outputs]
        got_x, got_w = cut.backward(gs)
        for r in range(len(streams)):
            for i, (a, b) in enumerate(zip(got_x[r], dx[r])):
                _close(a, b, f"input {i} of {made}")
        for i, (a, b) in enumerate(zip(got_w, dw)):
            _close(a, b, f"weight {i} of {made}")


@law
def slopes_of_calls(case: Case, rng: Rng) -> None:
    """Without states' slopes, those of a call's own frames and of its weights are as if it were the last one."""
    for made, streams in _cases(case, rng, 2):
        cut, _ = chunked(made, rng, streams)
        for rows, record, lengths in cut.calls:
            given = [
                rng.standard_normal((int(n.sum()), *shape)) if dtype == "float64" else None
                for n, (dtype, shape, _, _) in zip(lengths, record.op.outputs)
            ]
            inputs = [True] * record.op.n_values
            wants = [w is not None and w.dtype.kind == "f" for w in cut.weights]
            dropped = record.backward(given, inputs, wants, None, False)
            kept = record.backward(given, inputs, wants, [None] * len(rows), True)
            assert dropped[2] == [None] * len(rows)
            for part in (0, 1):
                for i, (a, b) in enumerate(zip(dropped[part], kept[part])):
                    _close(a, b, f"{('input', 'weight')[part]} {i} of {made}")


@law
def slopes_alone(case: Case, rng: Rng) -> None:
    """A stream's slopes have the same bits alone and in a batch."""
    for made, streams in _cases(case, rng, 2):
        driven, outputs = whole(made, streams, record=True)
        gs = [random_slopes(rng, ys) for ys in outputs]
        together, _ = driven.backward(dict(enumerate(gs)))
        for r, stream in enumerate(streams):
            one, _ = whole(made, [stream], record=True)
            for a, b in zip(one.backward({0: gs[r]})[0][0], together[r]):
                assert (a is None and b is None) or a.tobytes() == b.tobytes(), f"other bits: {made}"
