"""The laws: what holds for every operator and every model, in every mode.

A law is a function of a case and random numbers that raises AssertionError where it does not hold. `check`
runs one on seeded random cases and says how to see a failure again. The laws of failure and of state are
in `laws_state`.
"""

import math
from collections.abc import Callable, Sequence

import faults
import numpy as np

from dreamstream.stream.tree import leaves

from .case import Array, Case, Refused, Rng, together
from .drive import Row, alone, driver, offline, run, same, schedule

Law = Callable[[Case, Rng], None]
LAWS: dict[str, Law] = {}


def law(f: Law) -> Law:
    """Register a law under its function's name."""
    LAWS[f.__name__.replace("_", "-")] = f
    return f


# ---------------------------------------------------------------- comparing
def assert_close(case: Case, got: Array, wanted: Array, what: str, exact: bool = False) -> None:
    """max |a - b| <= 1e-5 max(1, max |b|), shapes equal; in float64 1e-10; NaN and infinities alike."""
    assert got.shape == wanted.shape, f"{what}: shape {got.shape}, expected {wanted.shape}"
    if not got.size:
        return
    if exact or got.dtype.kind != "f":
        assert np.array_equal(got, wanted.astype(got.dtype), equal_nan=got.dtype.kind == "f"), (
            f"{what}: values differ"
        )
        return
    wide = got.astype(np.float64)
    with np.errstate(over="ignore"):  # what the type can't hold is infinite
        wanted = np.where(np.isfinite(wanted.astype(got.dtype)), wanted, wanted.astype(got.dtype))
    finite = np.isfinite(wanted)
    assert np.array_equal(wide[~finite], wanted[~finite], equal_nan=True), f"{what}: NaN or infinity differ"
    scale = max(1.0, float(np.abs(wanted[finite]).max(initial=0.0)))
    tolerance = (1e-10 if got.dtype == np.float64 else 1e-5) * scale
    gap = np.abs(wide[finite] - wanted[finite])
    assert not gap.size or float(gap.max()) <= tolerance, f"{what}: off by {gap.max():g}, allowed {tolerance:g}"


def assert_same(got: Sequence[Array], wanted: Sequence[Array], what: str) -> None:
    """Equal to the bit, output by output."""
    assert len(got) == len(wanted), f"{what}: {len(got)} outputs, expected {len(wanted)}"
    for k, (a, b) in enumerate(zip(got, wanted)):
        assert a.shape == b.shape, f"{what}: output {k} has shape {a.shape}, expected {b.shape}"
        assert same(a, b), f"{what}: output {k} differs in its bits"


def streams(case: Case, rng: Rng, n: int) -> dict[str, list[Array]]:
    """n random streams; of several, one has frames enough for everything to happen."""
    data = {f"s{i}": case.stream(rng) for i in range(n)}
    if n > 1:
        frames = case.reach + int(rng.integers(2, case.reach + 4))
        lengths = case.lengths(rng, frames) if case.lengths else [frames] * len(case.inputs)
        data[f"s{int(rng.integers(n))}"] = case.data(rng, lengths)
    return data


# ---------------------------------------------------------------- values
@law
def values(case: Case, rng: Rng) -> None:
    """Offline, eager and engine give what the independent reference gives, shapes included."""
    data = streams(case, rng, 3)
    for mode in case.modes:
        result = alone(driver(mode, case, rng), data, rng)
        for i, arrays in data.items():
            wanted = case.truth(arrays)
            if wanted is None:
                continue
            assert len(result.frames[i]) == len(wanted)
            for k, (got, right) in enumerate(zip(result.frames[i], wanted)):
                assert_close(case, got, right, f"{mode}, output {k}, lengths {list(map(len, arrays))}", case.exact)


@law
def offline_is_the_same(case: Case, rng: Rng) -> None:
    """The untouched model on whole sequences, alone and in a batch, gives what it gives online."""
    lengths = case.random_lengths(rng)
    data = {f"s{i}": case.data(rng, lengths) for i in range(3)}
    if len({len(a) for a in data["s0"]}) > 1 and case.name != "cut":
        return
    results = {mode: alone(driver(mode, case, rng), data, rng) for mode in case.modes}
    dims = results["eager"].dims
    batches = [offline(case, [arrays], dims)[0] for arrays in data.values()]
    together_ = offline(case, list(data.values()), dims)
    for i, arrays, one, many in zip(data, data.values(), batches, together_):
        empty = not all(map(len, arrays))
        wanted = case.truth(arrays)
        for k, roles in enumerate(dims):
            pooled = not {"L", "B_L"} & set(roles)
            if pooled and empty:  # a plain tensor must hold something: NaN
                continue
            for what, got in (("alone", one[k]), ("in a batch", many[k])):
                if wanted is not None:
                    assert_close(
                        case, got, wanted[k], f"offline {what}, output {k}, lengths {lengths}", case.exact
                    )
                for mode, result in results.items():
                    online = result.frames[i][k]
                    assert got.dtype == online.dtype, f"{mode}: {online.dtype}, offline {got.dtype}"
                    assert_close(
                        case,
                        online,
                        got.astype(np.float64) if got.dtype.kind == "f" else got,
                        f"{mode} against offline {what}, output {k}, lengths {lengths}",
                        case.exact,
                    )


@law
def chunking(case: Case, rng: Rng) -> None:
    """However streams are cut and batched, they get the bits of one chunk alone."""
    data = streams(case, rng, int(rng.integers(1, 5)))
    if case.lengths is None and len(case.inputs) == 1:  # every phase of what repeats
        base = int(rng.integers(0, 2 * case.reach + 2))
        data.update({f"phase {k}": case.data(rng, [base + k]) for k in range(4)})
    for mode in case.modes:
        whole = alone(driver(mode, case, rng), data, rng)
        for style in ("random", "frames"):
            cut = run(driver(mode, case, rng), schedule(case, rng, data, style), data)
            for i, arrays in data.items():
                assert_same(
                    cut.frames[i], whole.frames[i], f"{mode}, {style} chunks, lengths {list(map(len, arrays))}"
                )


@law
def counts(case: Case, rng: Rng) -> None:
    """Every call gives as many frames, from the same position on, in every mode."""
    data = streams(case, rng, 3)
    calls = schedule(case, rng, data)
    results = {mode: run(driver(mode, case, rng), calls, data) for mode in case.modes}
    eager = results["eager"]
    for mode, result in results.items():
        assert result.counts == eager.counts, f"{mode} and eager differ in lengths or starts"
        assert result.dims == eager.dims, f"{mode}: dimensions {result.dims}, eager {eager.dims}"
    for i, arrays in data.items():
        wanted = case.truth(arrays)
        if wanted is not None:
            assert [len(f) for f in eager.frames[i]] == [len(f) for f in wanted]


# ---------------------------------------------------------------- finality
def final_frames(case: Case, base: Sequence[Array], frames: Sequence[int], horizon: int) -> list[int] | None:
    """Per output, how many frames no future can change: NaN in all of the unseen future, at every length."""
    prefix: list[Array] | None = None
    for lengths in case.futures(frames, horizon):
        unseen = [
            np.concatenate([b[:n].astype(np.float64), np.full((m - n, *b.shape[1:]), np.nan)])
            for b, n, m in zip(base, frames, lengths)
        ]
        try:
            outputs = case.dependence(unseen)
        except Refused:
            continue
        flat = [np.asarray(y, np.float64).reshape(len(y), math.prod(y.shape[1:])) for y in outputs]
        if prefix is None:
            prefix = flat
        for k, y in enumerate(flat):
            n = min(len(y), len(prefix[k]))
            with np.errstate(all="ignore"):
                alike = np.abs(y[:n] - prefix[k][:n]) <= 1e-9 * (1 + np.abs(y[:n]))
                alike |= np.isinf(y[:n]) & (y[:n] == prefix[k][:n])
            good = alike.all(1)
            prefix[k] = prefix[k][: n if good.all() else int(np.argmin(good))]
    return None if prefix is None else [len(p) for p in prefix]


@law
def finality(case: Case, rng: Rng) -> None:
    """A frame leaves in the first call that makes it final: never before, never after."""
    horizon = min(case.reach + 1, 24 if len(case.inputs) == 1 else 8 if len(case.inputs) == 2 else 5)
    most = min(case.reach + 6, 20) if len(case.inputs) == 1 else 8
    path = _path(case, rng, most)
    base = [i.frames(rng, n) for i, n in zip(case.inputs, path[-1])]
    finals = [final_frames(case, base, then, horizon) for then in path[1:]]
    for mode in case.modes:
        d = driver(mode, case, rng)
        emitted: list[int] = []
        data = {"s": base}
        for step, (now, then, final) in enumerate(zip(path, path[1:], finals)):
            result = d.call((Row("s", step == 0, False, tuple(zip(now, then))),), data)
            emitted = [a + len(rows[0]) for a, rows in zip(emitted or [0] * len(result.frames), result.frames)]
            if not any(then):  # a stream begins with its first frame: what pads stand before it waits for that
                assert not any(emitted), f"{mode}: frames before the stream's first"
                continue
            if final is None:
                continue
            for k, (n, m) in enumerate(zip(emitted, final)):
                assert n <= m, f"{mode}: early; after {then} frames output {k} has given {n}, but {m} are final"
                assert n == m or case.late, f"{mode}: late; after {then} frames output {k} has given {n} of {m}"


def _path(case: Case, rng: Rng, most: int) -> list[tuple[int, ...]]:
    """Frames so far, call by call; no call is longer than a few frames."""
    at = (0,) * len(case.inputs)
    out = [at, at]
    rates = [i.rate for i in case.inputs]
    for _ in range(200):
        step = [1] if len(at) == 1 else [int(rng.integers(0, 4)) for _ in at]
        nxt = tuple(n + s for n, s in zip(at, step))
        if nxt != at and together(rates, nxt, case.skew):
            if case.name in ("limit", "table"):  # they refuse at once
                try:
                    case.expected([i.frames(rng, n) for i, n in zip(case.inputs, nxt)])
                except Refused:
                    break
            out.append(nxt)
            at = nxt
        if min(at) >= most:
            break
    return out


# ---------------------------------------------------------------- independence
@law
def batching(case: Case, rng: Rng) -> None:
    """What a stream gets does not depend on who else is in its batch, nor on the number of threads."""
    data = streams(case, rng, 4)
    calls = schedule(case, rng, data)
    for mode in case.modes:
        batched = run(driver(mode, case, rng), calls, data)
        for i in data:
            own = [tuple(r for r in call if r.id == i) for call in calls]
            single = run(driver(mode, case, rng), [c for c in own if c], {i: data[i]})
            assert_same(single.frames[i], batched.frames[i], f"{mode}: alone against in a batch")
    if "engine" in case.modes:
        threaded = run(driver("engine", case, rng, threads=2), calls, data)
        for i in data:
            assert_same(threaded.frames[i], batched.frames[i], "two threads against one")


@law
def padding(case: Case, rng: Rng) -> None:
    """What lies behind a row's frames in a padded array is never read: the drivers put NaN there."""
    data = streams(case, rng, 3)
    calls = schedule(case, rng, data)
    for mode in case.modes:
        results = []
        for form in ("list", "padded"):
            d = driver(mode, case, rng)
            d.form = form
            results.append(run(d, calls, data))
        for i in data:
            assert_same(results[1].frames[i], results[0].frames[i], f"{mode}: padded arrays against a list")


@law
def callers_memory(case: Case, rng: Rng) -> None:
    """Inputs are not written to; that callers overwrite inputs and outputs after each call changes nothing.

    The drivers always do so; here every stream is handed over in its caller's own memory.
    """
    data = streams(case, rng, 2)
    for mode in case.modes:
        whole = alone(driver(mode, case, rng), data, rng)
        for i in data:
            d = driver(mode, case, rng)
            d.form = "adopted"
            got = run(d, schedule(case, rng, {i: data[i]}), data)
            assert_same(got.frames[i], whole.frames[i], f"{mode}: in the caller's memory")


@law
def plain_arrays(case: Case, rng: Rng) -> None:
    """`Engine.step` on arrays gives what the engine gives for StreamTensors, in the layout without B."""
    if "engine" not in case.modes:
        return
    data = streams(case, rng, 3)
    calls = schedule(case, rng, data)
    tensors, arrays = driver("engine", case, rng), driver("engine", case, rng)
    for call in calls:
        result = tensors.call(call, data)
        given = arrays.step(call, data)
        assert list(given) == [r.id for r in call]
        for n, r in enumerate(call):
            for k, (array, roles) in enumerate(zip(leaves(given[r.id]), result.dims)):
                kept = [d for d in roles if d != "B"]
                frames = np.moveaxis(array, kept.index("L") if "L" in kept else 0, 0)
                assert same(np.ascontiguousarray(frames), np.ascontiguousarray(result.frames[k][n])), (
                    f"output {k} differs"
                )
                assert array.flags.owndata and array.flags.writeable


@law
def allocation(case: Case, rng: Rng) -> None:
    """After warm-up, calls no larger than those before allocate nothing in the engine."""
    if "engine" not in case.modes or case.whole or case.grows:
        return
    lengths = case.random_lengths(rng)
    data = {f"s{i}": case.data(rng, lengths) for i in range(3)}
    calls = schedule(case, rng, data)
    every = tuple(Row(i, True, True, tuple((0, n) for n in lengths)) for i in data)
    faults.install()
    try:
        d = driver("engine", case, rng)
        run(d, [every, *calls], data)
        before = faults.stats()["calls"]
        for _ in range(2):
            run(d, [*calls, every], data)
        assert faults.stats()["calls"] == before, "the engine allocated after its warm-up"
        d.engine.close()
        del d
        assert faults.stats()["bad_releases"] == 0
    finally:
        faults.uninstall()
