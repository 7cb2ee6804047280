"""One random model through everything that the streaming contract promises.

`run` draws a model and streams it in eager mode and in an engine, in random ragged batches with joins, ends,
restarts, forks, snapshots, failures and misuse, and compares with the model offline.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import faults
import numpy as np

import dreamstream as ds
from dreamstream.errors import DreamStreamError, OutOfMemoryError, ShapeError, StreamIdError, StreamMismatchError
from dreamstream.stream.tree import leaves

from .drafts import Draft, build, draft
from .drivers import Eager, Frames, InEngine, canonical, failing_at
from .totals import Input, Totals

Array = Any

#: Operators that hold a stream against `buffer_limit`.
LIMITED = {"limit", "spread", "flip"}


# ---------------------------------------------------------------- the model and what it says offline
@dataclass
class Subject:
    """A random model and the facts about it that need no streaming."""

    draft: Draft
    model: Any  # float32, not patched
    double: Any  # float64, not patched
    dims: list[tuple[Any, ...]]  # of each output
    n_operations: int
    operators: set[str]

    @classmethod
    def of(cls, seed: int) -> Subject:
        """Return the random model of a seed."""
        drawn = draft(seed)
        return cls.made(drawn, build(drawn))

    @classmethod
    def made(cls, options: Draft, model: Any) -> Subject:
        """Return any model with the inputs and options of a draft."""
        totals = Totals(options.inputs, [[0] * len(options.inputs)], False, options.buffer_limit)
        outputs = leaves(model.forward(*totals.tensors))
        dims = [y.dims for y in outputs]
        return cls(options, model, copy.deepcopy(model).double(), dims, totals.n_operations, totals.operators)

    @property
    def inputs(self) -> list[Input]:
        return self.draft.inputs

    def together(self, frames: Any) -> bool:
        """Whether inputs may be as far apart as this."""
        times = [Fraction(int(n)) / x.rate for n, x in zip(frames, self.inputs)]
        return max(times) - min(times) < (self.draft.skew + 1) / min(x.rate for x in self.inputs)

    def compiled(self, model: Any = None, threads: int = 1) -> ds.Engine:
        spec = {x.name: x.spec for x in self.inputs}
        return ds.compile(
            self.model if model is None else model,
            spec,
            rate={x.name: x.rate for x in self.inputs},
            unstreamable="buffer" if self.draft.buffered else "raise",
            buffer_limit=self.draft.buffer_limit,
            skew=self.draft.skew,
            threads=threads,
            verify=False,
        )

    def patched(self, rng: np.random.Generator, model: Any = None) -> Eager:
        return Eager(
            copy.deepcopy(self.model if model is None else model),
            self.inputs,
            rng,
            unstreamable="buffer" if self.draft.buffered else "raise",
            buffer_limit=self.draft.buffer_limit,
            skew=self.draft.skew,
        )


def arrange(frames: Array, x: Input) -> Array:
    """Bring ``[..., frames, features]`` into an input's order without B."""
    return np.swapaxes(frames, -1, -2) if x.layout == "BFL" else frames


def offline(
    subject: Subject, forward: Any, data: list[Array], dtype: Any = np.float32, tensor: Any = ds.tensor
) -> list[Array] | None:
    """Return a forward's outputs ``[streams][frames][features...]``, or None where it refuses the lengths.

    ``data`` holds ``[streams][frames][features]`` per input.
    """
    tensors = []
    for x, frames in zip(subject.inputs, data):
        rows = np.ascontiguousarray(arrange(np.asarray(frames, dtype), x))
        tensors.append(tensor(rows.swapaxes(0, 1).copy() if x.layout == "LBF" else rows))
    try:
        outputs = leaves(forward(*tensors))
    except ShapeError:
        return None
    return [canonical(y, dims) for y, dims in zip(outputs, subject.dims)]


# ---------------------------------------------------------------- streams
@dataclass
class Stream:
    """One sequence on its way."""

    name: str
    data: list[Array]  # per input [frames][features]
    at: list[int]  # frames handed over
    live: bool = False
    got: list[list[Array]] = field(default_factory=list)  # per output, frames so far
    replaces: Stream | None = None  # what runs under this name until the restart succeeds
    whole: dict[str, list[Array]] = field(default_factory=dict)  # per mode, all of it in one chunk


class Trial:
    """The streams of one model in both modes."""

    def __init__(self, subject: Subject, rng: np.random.Generator, stats: Counter[str]) -> None:
        self.subject, self.rng, self.stats = subject, rng, stats
        self.faults = rng.random() < 0.2
        if self.faults:
            faults.install()
        eager = subject.patched(rng)
        engine = InEngine(subject.compiled(eager.model if rng.random() < 0.5 else None), subject.inputs, rng)
        self.drivers: dict[str, Any] = {"eager": eager, "engine": engine}
        self.n_outputs = len(subject.dims)
        self.done: list[Stream] = []
        self.open: list[Stream] = []
        self.n_named = 0

    def close(self) -> None:
        if self.faults:
            faults.uninstall()

    # ---------------------------------------------------------------- drawing
    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def noise(self, n: int, x: Input) -> Array:
        return self.rng.standard_normal((n, x.size), dtype=np.float32)

    def fresh_name(self) -> str:
        self.n_named += 1
        return f"s{self.n_named}"

    def lengths(self, least: list[int] | None = None) -> list[int]:
        """Draw how many frames a stream has of every input."""
        r, inputs = self.rng, self.subject.inputs
        n = int(r.choice([0, 1, 2, *r.integers(0, 13, 2), *r.integers(0, 61, 2), r.integers(0, 121)]))
        if least is not None:
            n += max(int(m / x.rate) for m, x in zip(least, inputs))
        if len(inputs) == 1:
            return [n]
        near = range(max(0, n // 2 - 4), n // 2 + 6)
        fast = [x.rate == 1 for x in inputs]
        pairs = [[n if f else m for f in fast] for m in near]
        pairs = [
            p
            for p in pairs
            if self.subject.together(p) and (least is None or all(a <= b for a, b in zip(least, p)))
        ]
        return pairs[r.integers(len(pairs))] if pairs else list(least or [0] * len(inputs))

    def start(self, name: str) -> Stream:
        """Draw a stream, and have it said in one chunk, alone, in each mode."""
        data = [self.noise(n, x) for n, x in zip(self.lengths(), self.subject.inputs)]
        return self.checked(Stream(name, data, [0] * len(data), got=[[] for _ in range(self.n_outputs)]))

    def advance(self, s: Stream) -> list[int]:
        """Draw how far a stream is handed over next."""
        full = [len(d) for d in s.data]
        new = [min(full[0], s.at[0] + int(self.rng.choice([0, 1, 1, 2, 3, 5, 17, 40])))]
        if len(full) == 1:
            return new
        fits = [m for m in range(s.at[1], full[1] + 1) if self.subject.together([new[0], m])]
        return [new[0], fits[self.rng.integers(len(fits))]] if fits else list(s.at)

    # ---------------------------------------------------------------- whole streams
    def checked(self, s: Stream) -> Stream:
        """Fill in `whole`: in each mode in one chunk, close to offline; nothing where it is refused."""
        subject = self.subject
        lengths = [len(d) for d in s.data]
        totals = Totals(subject.inputs, [lengths], True, subject.draft.buffer_limit)
        counted = leaves(subject.model.forward(*totals.tensors))
        missing = [y.edge.counts[0, 3] < 0 for y in counted]
        batch = [d[None] for d in s.data]
        exact = offline(subject, subject.double.forward, batch, np.float64)
        if totals.refused:
            assert exact is None or totals.would_broadcast() or totals.operators & LIMITED, f"refused: {lengths}"
            for mode, driver in self.drivers.items():
                try:
                    driver.step(["alone"], [True], [True], batch_rows(subject, [s.data]))
                except DreamStreamError as error:
                    assert error.ids == ("alone",), (mode, error)
                else:
                    raise AssertionError(f"{mode} takes lengths {lengths} that can't be")
            self.stats["refused"] += 1
            return s
        nothing = bool(totals.pooled_nothing())
        assert exact is not None or totals.cut_short() or nothing, f"offline refuses {lengths}"
        for mode, driver in self.drivers.items():
            frames, starts = driver.step(["alone"], [True], [True], batch_rows(subject, [s.data]))
            assert not any(map(any, starts)), starts
            s.whole[mode] = [f[0] for f in frames]
            if exact is not None:
                may_be_nan = bool(totals.pooled_of_nothing())
                there = [k for k, gone in enumerate(missing) if not gone]
                self.compare(mode, s.whole[mode], batch, [y[0] for y in exact], there, nothing, may_be_nan)
        assert [len(y) for y in s.whole["eager"]] == [len(y) for y in s.whole["engine"]], lengths
        self.stats["frames"] += sum(len(y) for y in s.whole["eager"])
        return s

    def compare(
        self,
        mode: str,
        got: list[Array],
        batch: list[Array],
        exact: list[Array],
        there: list[int],
        nothing: bool,
        may_be_nan: bool,
    ) -> None:
        """Hold a whole stream against float64: at most 4 times as far off as float32 offline is.

        `there`: the outputs for which the stream is long enough; others have no frames. `nothing`: where one frame
        is made of all, none could be made. `may_be_nan`: a mean of no frames is there.
        """
        single = offline(self.subject, self.subject.model.forward, batch)
        assert single is not None
        for k, (a, b, c) in enumerate(zip(got, exact, single)):
            c = c[0]
            if k not in there:
                assert len(a) == 0, f"output {k} in {mode}: {len(a)} frames of a stream that is too short"
                continue
            if nothing and len(a) == 0 and "L" not in self.subject.dims[k]:
                continue
            assert a.shape == b.shape == c.shape, (
                f"output {k} in {mode}: {a.shape}, offline {b.shape} and {c.shape}"
            )
            if not a.size:
                continue
            if may_be_nan and np.isnan(b).any():
                assert np.array_equal(np.isnan(a), np.isnan(b)), (
                    f"output {k} in {mode}: NaN elsewhere than offline"
                )
                a, b, c = (np.nan_to_num(y) for y in (a, b, c))
            largest = np.abs(b).max()
            assert np.isfinite(largest), f"output {k}: not finite offline"
            gap, bound = np.abs(a - b), max(4 * np.abs(c - b).max(), 1e-6 * largest)
            if gap.max() > bound:
                self.stats["ill-conditioned"] += 1
                bound = bound + 8 * self.sensitivity(batch, exact, k)
                assert (gap <= bound).all(), f"output {k} in {mode}: off by {gap.max():.3g} of {largest:.3g}"

    def sensitivity(self, batch: list[Array], exact: list[Array], k: int) -> Array:
        """Return how far float64 moves at most where inputs and weights are off by float32's rounding."""
        most = np.zeros_like(exact[k])
        for _ in range(8):
            model = copy.deepcopy(self.subject.double)
            for p in model.parameters():
                p.detach().copy_(ds.tensor(self.shaken(p.detach().numpy())))
            y = offline(
                self.subject, model.forward, [self.shaken(x.astype(np.float64)) for x in batch], np.float64
            )
            assert y is not None
            most = np.maximum(most, np.abs(y[k][0] - exact[k]))
        return most

    def shaken(self, x: Array) -> Array:
        return x * (1 + 4e-7 * self.rng.uniform(-1, 1, x.shape))

    # ---------------------------------------------------------------- calls
    def play(self) -> None:
        """Random calls until all streams have ended."""
        self.open = [self.start(self.fresh_name()) for _ in range(self.rng.integers(1, 6))]
        n_streams = len(self.open)
        for _ in range(400):
            if not self.open:
                break
            self.call()
            live = [s for s in self.open if s.live and s.replaces is None]
            if live and n_streams < 9 and self.chance(0.1):
                self.fork(live[self.rng.integers(len(live))])
                n_streams += 1
            if live and self.chance(0.1):
                self.go_astray(live[self.rng.integers(len(live))])
            if live and n_streams < 9 and self.chance(0.06):
                old = live[self.rng.integers(len(live))]
                if old in self.open:
                    new = self.start(old.name)
                    new.replaces = old
                    self.open[self.open.index(old)] = new
                    n_streams += 1
            if live and self.chance(0.02):
                self.move()
            if live and self.chance(0.02):
                self.validate(live[0])
        assert not self.open, "streams that never end"
        for mode, driver in self.drivers.items():
            assert driver.ids == [], (mode, driver.ids)

    def call(self) -> None:
        """One call with some of the streams, in both modes."""
        chosen = [s for s in self.open if self.chance(0.7)] or [self.open[self.rng.integers(len(self.open))]]
        self.rng.shuffle(chosen)  # type: ignore[arg-type]
        eos = [self.chance(0.12) for _ in chosen]
        to = [[len(d) for d in s.data] if e else self.advance(s) for s, e in zip(chosen, eos)]
        sos = [not s.live for s in chosen]
        rows = batch_rows(self.subject, [[d[a:b] for d, a, b in zip(s.data, s.at, t)] for s, t in zip(chosen, to)])
        given = ([s.name for s in chosen], sos, eos, rows, any(s.replaces for s in chosen))
        if self.chance(0.3):
            self.interrupt(given)
        if self.chance(0.2) and all(s.whole for s in chosen):
            self.misuse(given)
        said: dict[str, tuple[Frames, list[list[int]]]] = {}
        refused: dict[str, DreamStreamError] = {}
        for mode, driver in self.drivers.items():
            before = self.memory(driver)
            try:
                said[mode] = self.step(mode, driver, given)
            except DreamStreamError as error:
                refused[mode] = error
                assert self.memory(driver) == before, f"{mode}: a refused call left its mark"
        if refused:
            self.refuse(chosen, refused)
            return
        self.stats["calls"] += 1
        (frames, starts), (other, other_starts) = said["eager"], said["engine"]
        assert starts == other_starts
        assert [[len(f) for f in o] for o in frames] == [[len(f) for f in o] for o in other]
        for r, s in enumerate(chosen):
            for k in range(self.n_outputs):
                so_far = sum(map(len, s.got[k]))
                assert starts[k][r] == so_far, (starts[k][r], so_far)
                for mode in s.whole:  # nothing to compare with where the end will be refused
                    part, whole = said[mode][0][k][r], s.whole[mode][k][so_far:]
                    assert np.array_equal(part, whole[: len(part)], equal_nan=True), (
                        f"output {k} in {mode} from frame {so_far} on: other bits than in one chunk, alone"
                    )
                s.got[k].append(frames[k][r])
            s.at, s.live, s.replaces = to[r], True, None
            if eos[r]:
                self.open.remove(s)
                self.done.append(s)
                self.stats["streams"] += 1
                assert [sum(map(len, g)) for g in s.got] == [len(w) for w in s.whole["eager"]]

    def step(self, mode: str, driver: Any, given: Any) -> tuple[Frames, list[list[int]]]:
        """One step; an engine now and then runs out of memory first."""
        if mode == "engine" and self.faults and self.chance(0.3):
            before = self.memory(driver)
            faults.arm(int(self.rng.integers(1, 4)))
            try:
                out: tuple[Frames, list[list[int]]] = driver.step(*given)
                return out
            except OutOfMemoryError:
                self.stats["out of memory"] += 1
            finally:
                faults.arm(0)
            assert self.memory(driver) == before, "running out of memory left its mark"
        out = driver.step(*given)
        return out

    def memory(self, driver: Any) -> dict[str, bytes]:
        return {i: driver.snapshot(i) for i in driver.ids}

    def refuse(self, chosen: list[Stream], refused: dict[str, DreamStreamError]) -> None:
        """Both modes refuse the same streams, which can't be; the others can go on without them."""
        assert set(refused) == {"eager", "engine"}, f"refused only by {refused}"
        eager, engine = refused["eager"], refused["engine"]
        assert type(eager) is type(engine), (eager, engine)
        # Eager names those of the operation at which it stopped, an engine those of all.
        assert eager.ids and set(eager.ids) <= set(engine.ids), (eager, engine)
        for s in chosen:
            if s.name not in engine.ids:
                continue
            assert not s.whole, f"{s.name}: {engine}"
            self.open.remove(s)
            self.stats["refused at the end"] += 1
            if s.replaces is not None:  # the restart failed: what it would have replaced is still there
                self.open.append(s.replaces)
            elif s.live:
                for driver in self.drivers.values():
                    driver.drop([s.name])

    def interrupt(self, given: Any) -> None:
        """Be interrupted at the k-th operation of an eager call."""
        driver = self.drivers["eager"]
        before = self.memory(driver)
        try:
            with failing_at(int(self.rng.integers(self.subject.n_operations))):
                driver.step(*given)
        except KeyboardInterrupt:
            self.stats["interrupted"] += 1
        except DreamStreamError:
            pass  # refused before it came so far
        else:
            raise AssertionError("not interrupted")
        assert self.memory(driver) == before, "an interrupted call left its mark"

    def misuse(self, given: Any) -> None:
        """Ids that can't be, and inputs too far apart: refused by name, and nothing changes."""
        ids, sos, eos, rows, restart = given
        error: type[DreamStreamError] = StreamIdError
        way = self.rng.choice(["twice", "unknown", "live", "apart"])
        live = self.drivers["engine"].ids
        if way == "unknown":
            bad: Any = ([*ids, "nobody"], [*sos, False], [*eos, False], [[*r, r[0]] for r in rows], restart)
            named = {"nobody"}
        elif way == "live" and live and not (set(live) & set(ids)):
            bad = ([*ids, live[0]], [*sos, True], [*eos, False], [[*r, r[0]] for r in rows], False)
            named = {live[0]}
        elif way == "apart" and len(rows) > 1:
            far = [self.noise(40, x) if k == 0 else self.noise(0, x) for k, x in enumerate(self.subject.inputs)]
            more = [arrange(f, x) for f, x in zip(far, self.subject.inputs)]
            bad = ([*ids, "far"], [*sos, True], [*eos, False], [[*r, m] for r, m in zip(rows, more)], restart)
            named, error = {"far"}, StreamMismatchError
        else:
            bad = ([*ids, ids[0]], [*sos, sos[0]], [*eos, eos[0]], [[*r, r[0]] for r in rows], restart)
            named = {ids[0]}
        for mode, driver in self.drivers.items():
            before = self.memory(driver)
            try:
                driver.step(*bad)
            except error as raised:
                assert set(raised.ids) == named, (mode, way, raised)
            else:
                raise AssertionError(f"{mode} takes {way}")
            assert self.memory(driver) == before, (mode, way)
        self.stats["misused"] += 1

    def fork(self, s: Stream) -> None:
        """Go on under another name, with other frames from here on."""
        name = self.fresh_name()
        for driver in self.drivers.values():
            driver.fork(s.name, name)
        full = self.lengths(s.at)
        data = [
            np.concatenate([d[:a], self.noise(n - a, x)])
            for d, a, n, x in zip(s.data, s.at, full, self.subject.inputs)
        ]
        new = Stream(name, data, list(s.at), True, [list(g) for g in s.got])
        self.open.append(self.checked(new))
        self.stats["forks"] += 1

    def go_astray(self, s: Stream) -> None:
        """Remember a stream, take it elsewhere, drop it, and put it back."""
        for driver in self.drivers.values():
            remembered = driver.snapshot(s.name)
            frames = 5 if len(self.subject.inputs) == 1 else 0
            rows = [[arrange(self.noise(frames, x), x)] for x in self.subject.inputs]
            done = list(driver.done[s.name]) if isinstance(driver, InEngine) else []
            try:
                driver.step([s.name], [False], [self.chance(0.3)], rows)
            except DreamStreamError as error:
                assert error.ids == (s.name,)
            if s.name in driver.ids:
                driver.drop([s.name])
            driver.restore(remembered, s.name)
            assert driver.snapshot(s.name) == remembered
            if isinstance(driver, InEngine):
                driver.done[s.name] = done
        self.stats["astray"] += 1

    def move(self) -> None:
        """Go on in another copy of the model, and in another engine, from what the first ones remember."""
        engine = InEngine(self.subject.compiled(threads=2), self.subject.inputs, self.rng)
        engine.done = self.drivers["engine"].done
        new = {"eager": self.subject.patched(self.rng), "engine": engine}
        for mode, driver in self.drivers.items():
            states = self.memory(driver)
            for i, state in states.items():
                new[mode].restore(state, i)
            assert self.memory(new[mode]) == states, mode
        self.drivers = new
        self.stats["moves"] += 1

    def in_double(self) -> None:
        """Eager streaming in float64 says what float64 says offline."""
        streams = [s for s in self.done if s.whole][:3]
        if not streams:
            return
        driver = self.subject.patched(self.rng, self.subject.double)
        got: list[list[list[Array]]] = [[[] for _ in range(self.n_outputs)] for _ in streams]
        at = [[0] * len(s.data) for s in streams]
        for last in (False, False, True):
            to = []
            for s, a in zip(streams, at):
                s.at = a
                to.append([len(d) for d in s.data] if last else self.advance(s))
            wide = [
                [d[a:b].astype(np.float64) for d, a, b in zip(s.data, p, t)] for s, p, t in zip(streams, at, to)
            ]
            ids, sos = [s.name for s in streams], [s.name not in driver.ids for s in streams]
            frames, _ = driver.step(ids, sos, [last] * len(ids), batch_rows(self.subject, wide))
            at = to
            for k, rows in enumerate(frames):
                for g, row in zip(got, rows):
                    g[k].append(row)
        for s, parts in zip(streams, got):
            exact = offline(self.subject, self.subject.double.forward, [d[None] for d in s.data], np.float64)
            for k, y in enumerate(exact or []):
                a, b = np.concatenate(parts[k]), y[0]
                assert a.dtype == np.float64
                assert len(a) == len(s.whole["eager"][k])
                most = 1e-9 * max(1, np.abs(b).max(initial=0))
                np.testing.assert_allclose(a[: len(b)], b[: len(a)], 0, most, err_msg=f"output {k} in float64")

    def validate(self, s: Stream) -> None:
        """Run the eager model offline amid its live streams."""
        model = self.drivers["eager"].model.offline()
        batch = [d[None] for d in s.data]
        now, before = (offline(self.subject, m.forward, batch) for m in (model, self.subject.model))
        model.online()
        assert (now is None) == (before is None)
        for a, b in zip(now or [], before or []):
            assert np.allclose(a, b, 1e-4, 1e-4, equal_nan=True)


def batch_rows(subject: Subject, streams: list[list[Array]]) -> list[list[Array]]:
    """Return ``rows[input][row]`` in each input's order."""
    return [[arrange(s[k], x) for s in streams] for k, x in enumerate(subject.inputs)]


def run(seed: int, stats: Counter[str]) -> Subject:
    """Run one model; an AssertionError says what broke."""
    subject = Subject.of(seed)
    trial = Trial(subject, np.random.default_rng([seed, 1]), stats)
    try:
        trial.play()
        trial.in_double()
    finally:
        trial.close()
    stats["models"] += 1
    stats["nodes"] += sum(k != "repair" for k in subject.draft.kinds)
    return subject
