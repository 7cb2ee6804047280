"""The law of streams that have run for long: what they give does not depend on how far they are."""

import math
from fractions import Fraction
from typing import Any

from snapshot_bytes import parse, shift

import dreamstream as ds
from dreamstream.operations import row_of

from .case import Case, Rng
from .drive import Row, driver, same, schedule
from .laws import law

SMALL = math.lcm(*range(1, 17), 64) * 3 * 5 * 5 * 7  # a whole number of the periods of cases, and of tiles of keys


def _distance(engine: Any, power: int) -> int:
    """Whole periods, about 2^power frames of input 0."""
    rates = [Fraction(num, den) for node in engine._core.nodes for _, _, num, den in node["outputs"]]
    rates += [Fraction(s.rate) for s in engine.inputs]
    period = math.lcm(SMALL, *((r / Fraction(engine.rate)).denominator for r in rates))
    return period * max(1, (1 << power) // period)


def _stopped(case: Case, rng: Rng) -> tuple[Any, Any, Any] | None:
    """A driver whose stream s0 is beyond all that is peculiar to starts, its data, and the calls that remain."""
    for _ in range(4):
        n = 8 * case.reach + 40
        data = {"s0": case.data(rng, case.lengths(rng, n) if case.lengths else [n] * len(case.inputs))}
        calls = schedule(case, rng, data)
        d = driver("engine", case, rng)
        for k, call in enumerate(calls[:-1]):
            try:
                d.call(call, data)
            except ds.ShapeError as error:
                assert "beyond the table" in str(error)
                return None
            if "s0" in d.ids() and min(parse(d.state("s0")).frames) >= 3 * case.reach + 16:
                return d, data, calls[k + 1 :]
    return None


@law
def far(case: Case, rng: Rng) -> None:
    """A stream near its start and one that has run for days give the same bits, at positions just as far apart."""
    stopped = _stopped(case, rng) if "engine" in case.modes and not case.grows else None
    if stopped is None:
        return
    d, data, calls = stopped
    data["far"] = data["s0"]
    names = {node["name"] for node in d.engine._core.nodes}
    by_position = any(row_of(name).by_position for name in names)
    by = _distance(d.engine, int(rng.choice([31, 32, 41, 54])))
    state = shift(d.state("s0"), d.engine, by)
    try:
        d.put("far", state)
    except ds.FormatError as error:
        refused = d.engine.state_bytes_per_frame or names & {"table", "limit"}
        assert refused, f"a stream can't be {by} frames further: {error}"
        return
    assert d.state("far") == state
    for call in filter(None, calls):
        both = tuple(Row(i, r.sos, r.eos, r.cuts) for r in call for i in ("s0", "far"))
        result = d.call(both, data)
        for k, (rows, starts) in enumerate(zip(result.frames, result.starts)):
            moved = by * Fraction(d.engine.outputs[k].rate) / Fraction(d.engine.rate)
            assert starts[1] - starts[0] == moved, f"output {k} starts at {starts}, expected {moved} apart"
            assert rows[0].shape == rows[1].shape, f"output {k}: {len(rows[1])} frames, near {len(rows[0])}"
            assert by_position or same(*rows), f"output {k} differs in its bits, {by} frames further"
