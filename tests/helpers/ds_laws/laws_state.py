"""The laws of failure and of state: a failed call is no call, and what a stream remembers is data."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import faults
import numpy as np

import dreamstream as ds
from dreamstream.online.session import Call as SessionCall, Session

from .case import Array, Case, Rng, together
from .drive import Call, Result, Row, Run, alone, copied, driver, part_of, run, same, schedule
from .laws import assert_close, assert_same, law, streams

Data = dict[str, list[Array]]


class _Abandoned(Exception):
    """What a user's own code raises."""


def _equal(a: Result, b: Result) -> bool:
    return a.starts == b.starts and all(same(x, y) for p, q in zip(a.frames, b.frames) for x, y in zip(p, q))


@contextmanager
def unchanged(d: Any, what: str) -> Iterator[None]:
    """Every stream is as it was, to the byte."""
    ids, before = d.ids(), d.states()
    yield
    assert d.ids() == ids, f"{d.mode}, {what}: streams {d.ids()} are live, before {ids}"
    after = d.states()
    for i in ids:
        assert after[i] == before[i], f"{d.mode}, {what}: the state of {i} changed"


def _refused(d: Any, act: Callable[[], Any], errors: Any, ids: Sequence[str] | None, what: str) -> None:
    with unchanged(d, what):
        try:
            act()
        except errors as error:
            if ids is not None:
                assert set(error.ids) == set(ids), f"{d.mode}, {what}: the error names {error.ids}, not {ids}"
        else:
            raise AssertionError(f"{d.mode}, {what}: nothing was raised")


# ---------------------------------------------------------------- a failed call is no call
@contextmanager
def interrupted_at(operation: int) -> Iterator[None]:
    """Within it, eager calls are interrupted at their n-th operation."""
    admit = Session.admit

    def admitted(self: Session, *args: Any, **kwargs: Any) -> SessionCall:
        call = admit(self, *args, **kwargs)
        call.fail_at = operation
        return call

    Session.admit = admitted  # type: ignore[method-assign]
    try:
        yield
    finally:
        Session.admit = admit  # type: ignore[method-assign]


@law
def failed_call(case: Case, rng: Rng) -> None:
    """A call that is cut off, wherever, changes nothing; the calls after it give what they would have."""
    data = streams(case, rng, 3)
    calls = schedule(case, rng, data)
    for mode in case.modes:
        untroubled = driver(mode, case, rng)
        troubled = driver(mode, case, rng)
        for call in calls:
            for name, fail in _failures(troubled, call, data):
                with unchanged(troubled, name):
                    fail()
            wanted = untroubled.call(call, data)
            assert _equal(troubled.call(call, data), wanted), f"{mode}: another outcome after failed calls"


def _failures(d: Any, call: Call, data: Data) -> Iterator[tuple[str, Callable[[], None]]]:
    if d.mode == "eager":
        saved = d.states()
        for k in range(1000):
            done = []

            def cut_off(k: int = k, done: list[bool] = done) -> None:
                try:
                    with interrupted_at(k):
                        d.call(call, data)
                except KeyboardInterrupt:
                    return
                done.append(True)
                d.reset()  # it went through: undo it
                for i, state in saved.items():
                    d.put(i, state)

            yield f"interrupted at operation {k}", cut_off
            if done:
                break
        yield "the user's own exception at the end", lambda: _abandon(d, call, data)
    yield from _bad_calls(d, call, data)


def _abandon(d: Any, call: Call, data: Data) -> None:
    def stop() -> None:
        raise _Abandoned

    if not hasattr(d.module, "after"):
        return
    d.module.after = stop
    try:
        d.call(call, data)
    except _Abandoned:
        pass
    else:
        raise AssertionError("nothing was raised")
    finally:
        d.module.after = None


def _bad_calls(d: Any, call: Call, data: Data) -> Iterator[tuple[str, Callable[[], None]]]:
    """Calls that must be refused: the same one with a fault."""
    nothing = tuple((0, 0) for _ in d.case.inputs)
    more = {**data, "unknown": [i.poison(0) for i in d.case.inputs]}

    def refuse(
        bad: Call, errors: Any, ids: Sequence[str] | None, what: str, **options: Any
    ) -> tuple[str, Callable[[], None]]:
        return what, lambda: _refused(d, lambda: d.call(bad, more, **options), errors, ids, what)

    yield refuse((*call, Row("unknown", False, False, nothing)), ds.StreamIdError, ["unknown"], "an unknown id")
    if call:
        yield refuse((*call, call[0]), ds.StreamIdError, [call[0].id], "an id twice")
    if len(d.case.inputs) > 1:
        far = [1 + 50 * (k == 0) for k in range(len(d.case.inputs))]
        more["apart"] = [i.poison(n) for i, n in zip(d.case.inputs, far)]
        row = Row("apart", True, False, tuple((0, n) for n in far))
        if not together([i.rate for i in d.case.inputs], far, d.case.skew):
            yield refuse((*call, row), ds.StreamMismatchError, ["apart"], "inputs too far apart")
    if d.case.wrong is not None:
        more["wrong"] = d.case.wrong(np.random.default_rng(len(call)))
        row = Row("wrong", True, False, tuple((0, len(a)) for a in more["wrong"]))
        yield refuse((*call, row), ds.StreamIndexError, ["wrong"], "an index out of range")
        yield refuse((row, *call), ds.StreamIndexError, ["wrong"], "an index out of range, first")
    live = [i for i in d.ids() if i not in {r.id for r in call}]
    if live:
        yield refuse((*call, Row(live[0], True, False, nothing)), ds.StreamIdError, live[:1], "sos on a live id")
    if call and d.case.inputs[0].features:
        yield "rows of another shape", lambda: _misshapen(d, call, data)


def _misshapen(d: Any, call: Call, data: Data) -> None:
    """Frames with twice the features: of one row for an engine, which must refuse it; else of all rows."""
    victims = [call[-1].id] if d.mode == "engine" else [r.id for r in call]
    odd = {i: [np.concatenate([a[0], a[0]], axis=1), *a[1:]] if i in victims else a for i, a in data.items()}
    if d.mode == "engine":
        _refused(d, lambda: d.step(call, odd), ds.ShapeError, victims, "a row of another shape")
        return
    saved = d.states()
    try:
        d.call(call, odd)
    except ds.DreamStreamError:
        return
    d.reset()  # an operator may take frames of any kind, and has nothing to compare them with
    for i, state in saved.items():
        d.put(i, state)


def _with_failing_memory(d: Any, call: Call, data: Data) -> Result:
    """Make a call again and again, each time with one allocation more, until it needs no more."""
    for nth in range(1, 200):
        failures = faults.stats()["failures"]
        result = None
        ids, states = d.ids(), d.states()
        faults.arm(nth)
        try:
            result = d.call(call, data)
        except MemoryError:
            pass
        finally:
            faults.arm(0)
        if result is not None:
            assert faults.stats()["failures"] == failures, "an allocation failed, and nothing was raised"
            return result
        assert d.ids() == ids and d.states() == states, f"the {nth}th allocation failed, and streams changed"
    raise AssertionError("two hundred allocations in one call")


@law
def failed_allocation(case: Case, rng: Rng) -> None:
    """Where memory can't be had, for whichever allocation of a call, every stream is as it was."""
    if "engine" not in case.modes:
        return
    data = streams(case, rng, 3)
    calls = schedule(case, rng, data)
    untroubled = driver("engine", case, rng)
    faults.install()
    try:
        troubled = driver("engine", case, rng)
        for call in calls:
            assert _equal(_with_failing_memory(troubled, call, data), untroubled.call(call, data))
        troubled.engine.close()
        del troubled
        assert faults.stats()["bad_releases"] == 0
    finally:
        faults.uninstall()


@law
def refused_length(case: Case, rng: Rng) -> None:
    """A length that can't be is refused, at its end or at once, by id; no stream is touched."""
    if case.refused is None:
        return
    data = streams(case, rng, 2)
    data["odd"] = case.data(rng, case.refused(rng))
    full = {i: [len(a) for a in arrays] for i, arrays in data.items()}
    part = {i: part_of(case, rng, n) for i, n in full.items()}
    part["odd"] = [0 for _ in case.inputs] if part["odd"] == full["odd"] else part["odd"]
    before = tuple(Row(i, True, False, tuple((0, n) for n in part[i])) for i in ("s0", "odd"))
    rest = (
        Row("s0", False, True, tuple(zip(part["s0"], full["s0"]))),
        Row("odd", False, True, tuple(zip(part["odd"], full["odd"]))),
        Row("s1", True, True, tuple((0, n) for n in full["s1"])),
    )
    fine = {i: data[i] for i in ("s0", "s1")}
    for mode in case.modes:
        whole = alone(driver(mode, case, rng), fine, rng)
        d = driver(mode, case, rng)
        got: dict[str, list[list[Array]]] = {}
        run(d, [before], data, got)
        errors = (ds.ShapeError, ds.StreamLimitError)
        _refused(d, lambda d=d: d.call(rest, data), errors, ["odd"], "a length that can't be")
        result = run(d, [(rest[0], rest[2])], data, got)
        assert d.ids() == ["odd"]
        for i in fine:
            assert_same(result.frames[i], whole.frames[i], f"{mode}: after a refusal")


@law
def unstreamable(case: Case, rng: Rng) -> None:
    """What needs the whole stream is refused unless it may wait, and holds its limit if it may."""
    if not case.whole:
        return
    data = {"s": case.data(rng, [5] * len(case.inputs))}
    every = (Row("s", True, True, tuple((0, 5) for _ in case.inputs)),)
    d = driver("eager", case, rng, unstreamable="raise") if case.module is None else None
    if d is not None:
        _refused(
            d, lambda: d.call(every, data), ds.NotStreamableError, None, "a layer that needs the whole stream"
        )
    for mode in case.modes:
        if mode == "engine":
            try:
                driver(mode, case, rng, unstreamable="raise")
            except ds.NotStreamableError:
                pass
            else:
                raise AssertionError("compiled, but it needs the whole stream")
        d = driver(mode, case, rng, buffer_limit=4)
        _refused(d, lambda d=d: d.call(every, data), ds.StreamLimitError, ["s"], "five frames of four")
        short = {"s": [a[:4] for a in data["s"]]}
        run(d, schedule(case, rng, short), short)


# ---------------------------------------------------------------- state is data
@law
def reset(case: Case, rng: Rng) -> None:
    """A stream that was forgotten, or is restarted, starts as a new one does."""
    data = streams(case, rng, 3)
    calls = schedule(case, rng, data)
    for mode in case.modes:
        wanted = run(driver(mode, case, rng), calls, data)
        d = driver(mode, case, rng)
        for how in ("all", "one by one", "restart"):
            run(d, calls[: int(rng.integers(1, len(calls) + 1))], data)
            live = d.ids()
            if how == "all":
                d.reset()
            elif how == "one by one":
                for i in live:
                    d.reset([i])
            if how != "restart":
                assert d.ids() == [], f"{mode}: {d.ids()} live after a reset"
                _same_run(run(d, calls, data), wanted, f"{mode}, reset {how}")
                continue
            everything = tuple(
                Row(i, True, True, tuple((0, len(a)) for a in arrays)) for i, arrays in data.items()
            )
            result = d.call(everything, data, restart=True)
            whole = alone(driver(mode, case, rng), data, rng)
            for n, i in enumerate(data):
                assert_same([rows[n] for rows in result.frames], whole.frames[i], f"{mode}: restarted")
            assert d.ids() == []


def _same_run(got: Run, wanted: Run, what: str) -> None:
    assert got.counts == wanted.counts, f"{what}: other lengths or starts"
    assert got.frames.keys() == wanted.frames.keys()
    for i in wanted.frames:
        assert_same(got.frames[i], wanted.frames[i], what)


def _run_from(d: Any, calls: Sequence[Call], data: Data, before: dict[str, list[list[Array]]]) -> Run:
    return run(d, calls, data, {i: [list(p) for p in parts] for i, parts in before.items()})


@law
def snapshots(case: Case, rng: Rng) -> None:
    """A state that is taken and set again, here or in a fresh engine or module, goes on as if never stopped."""
    data = streams(case, rng, 3)
    calls = schedule(case, rng, data)
    at = int(rng.integers(0, len(calls) + 1))
    for mode in case.modes:
        wanted = run(driver(mode, case, rng), calls, data)
        d = driver(mode, case, rng)
        before: dict[str, list[list[Array]]] = {}
        run(d, calls[:at], data, before)
        states = d.states()
        assert all(isinstance(s, bytes) for s in states.values())
        assert d.states() == states, f"{mode}: taking a state changes it"
        fresh = d.fresh()
        for i in rng.permutation(sorted(states)):
            fresh.put(str(i), states[str(i)])
        assert fresh.states() == states, f"{mode}: a state that was set reads otherwise"
        places = [("a fresh one", fresh)]
        if mode == "eager":
            places.append(("a copy of the module", copied(d)))
        for i in states:  # go astray, then come back
            d.call((Row(i, False, False, tuple((0, 0) for _ in case.inputs)),), {i: data[i]})
        d.reset()
        for i, state in states.items():
            d.put(i, state)
        for name, place in [*places, ("the same", d)]:
            got = _run_from(place, calls[at:], data, before)
            for i in wanted.frames:
                assert_same(
                    got.frames[i], wanted.frames[i], f"{mode}: restored in {name} before call {at} of {len(calls)}"
                )


@law
def forks(case: Case, rng: Rng) -> None:
    """A fork and its origin go on independently of each other."""
    lengths = {i: case.random_lengths(rng) for i in ("origin", "fork")}
    cut = part_of(case, rng, [min(pair) for pair in zip(*lengths.values())])
    branches = {i: case.data(rng, n) for i, n in lengths.items()}
    for a, b, n in zip(*branches.values(), cut):
        b[:n] = a[:n]
    first = (Row("origin", True, False, tuple((0, n) for n in cut)),)
    for mode in case.modes:
        wanted = alone(driver(mode, case, rng), branches, rng)
        d = driver(mode, case, rng)
        got: dict[str, list[list[Array]]] = {}
        run(d, [first], branches, got)
        d.fork("origin", "fork")
        assert set(d.ids()) == {"origin", "fork"}
        got["fork"] = [list(p) for p in got["origin"]]
        middle = {i: part_of(case, rng, n, cut) for i, n in lengths.items()}
        order = [Row(i, False, False, tuple(zip(cut, middle[i]))) for i in ("fork", "origin")]
        order += [Row(i, False, True, tuple(zip(middle[i], lengths[i]))) for i in ("fork", "origin")]
        result = run(d, [(r,) for r in order], branches, got)
        for i in branches:
            assert_same(result.frames[i], wanted.frames[i], f"{mode}: the {i}")


# ---------------------------------------------------------------- empty rows
@law
def empty_rows(case: Case, rng: Rng) -> None:
    """Streams that start, go on and end with nothing in their chunks; calls without rows."""
    data = streams(case, rng, 2)
    nothing = {i: tuple((0, 0) for _ in arrays) for i, arrays in data.items()}
    full = {i: tuple((0, len(a)) for a in arrays) for i, arrays in data.items()}
    end = {i: tuple((len(a), len(a)) for a in arrays) for i, arrays in data.items()}
    ids = list(data)
    calls: list[Call] = [
        tuple(Row(i, True, False, nothing[i]) for i in ids),
        (),
        (Row(ids[0], False, False, nothing[ids[0]]),),
        tuple(Row(i, False, False, full[i]) for i in ids),
        (Row(ids[1], False, False, end[ids[1]]),),
        tuple(Row(i, False, True, end[i]) for i in reversed(ids)),
        tuple(Row(i, True, True, nothing[ids[0]]) for i in ("again", "and again")),
    ]
    data = {**data, "again": [i.poison(0) for i in case.inputs], "and again": [i.poison(0) for i in case.inputs]}
    for mode in case.modes:
        d = driver(mode, case, rng)
        whole = alone(driver(mode, case, rng), data, rng)
        got = run(d, calls, data)
        assert d.ids() == []
        for i in data:
            assert_same(got.frames[i], whole.frames[i], f"{mode}: with empty rows")


# ---------------------------------------------------------------- weights
@law
def edited_weights(case: Case, rng: Rng) -> None:
    """Eager calls see weights as they are now; an engine has those it was compiled with."""
    if not any(p.numel() for p in case.model().parameters()):
        return
    data = streams(case, rng, 2)
    edited = case.model()
    _edit(edited, rng)
    for mode in case.modes:
        model = case.model()
        old = alone(driver(mode, case, rng), data, rng)
        new = alone(driver(mode, case, rng, model=edited), data, rng)
        d = driver(mode, case, rng, model=model)
        _same_run(alone(d, data, rng), old, f"{mode}: before the edit")
        _edit(model, rng)
        again = alone(d, data, rng)
        _same_run(again, new if mode == "eager" else old, f"{mode}: after the edit")
        if case.module is None:
            weights = [None if w is None else w.numpy() for w in model.weights()] if mode == "eager" else None
            for i, arrays in data.items():
                for got, right in zip(again.frames[i], case.expected(arrays, weights)):
                    assert_close(case, got, right, f"{mode}: after the edit", case.exact)


def _edit(model: Any, rng: Rng) -> None:
    """Change all weights, by so little that recurrences stay bounded: in their memory, or by new arrays."""
    for p in model.parameters():
        if rng.random() < 0.5:
            p.numpy()[...] += 0.25
        else:
            p.data = ds.tensor(np.asarray(p.numpy() + 0.25, p.numpy().dtype))
