"""Streaming a case in any mode of the door, by a caller from hell.

`Eager` and `Compiled` are the same to use: calls go in, and every output's frames come out per row with
their starts. Around each call the driver hands over its own arrays, in one of the forms that callers
have (a list, a padded array whose padding is NaN, the caller's memory itself), checks that nobody wrote
into them, then overwrites them, and after having copied them, the outputs as well.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream.stream.tree import leaves

from .case import Array, Case, Rng, pick, together

Data = Mapping[str, Sequence[Array]]


@dataclass(frozen=True)
class Row:
    """One stream's part in a call: frames [low, high) of every input."""

    id: str
    sos: bool
    eos: bool
    cuts: tuple[tuple[int, int], ...]


Call = tuple[Row, ...]


@dataclass
class Result:
    """What a call gave: per output and row the frames, and the position of the first."""

    frames: list[list[Array]]
    starts: list[list[int]]
    dims: list[tuple[Any, ...]]


def same(a: Array, b: Array) -> bool:
    """Whether two arrays are equal to the bit."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


# ---------------------------------------------------------------- the caller's arrays
def _seen(case: Case, stored: Array, lead: int = 0) -> Array:
    """[frames][features], or with lead 1 [B][frames][features], seen in the layout's order of dimensions."""
    places: dict[Any, int] = {"L": lead, "B": 0}
    kept = [d for d in case.layout if lead or d != "B"]
    return stored.transpose([places[d] if isinstance(d, str) else d + lead + 1 for d in kept])


def _outwards(case: Case, stored: Array, lead: int = 0) -> Array:
    """The same, and so it lies in memory."""
    return np.ascontiguousarray(_seen(case, stored, lead))


def strided(rng: Rng, array: Array, dtype: Any = None) -> Array:
    """The same values in another layout of memory: with gaps, backwards, in Fortran's order; or as float64."""
    kind = int(rng.integers(5))
    if kind == 0 and array.ndim:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if kind == 1 and array.ndim:
        return np.flip(np.flip(array, 0).copy(), 0)
    if kind == 2 and array.dtype == np.float32 and dtype is None:
        return array.astype(np.float64)
    return np.asfortranarray(array) if kind == 3 else array


#: Arrays handed over in one call, and what they held.
_Handed = list[tuple[Array, Array]]


def _own(array: Array, handed: _Handed) -> Array:
    handed.append((array, array.copy()))
    return array


def spoil(array: Array) -> None:
    """Overwrite an array with what must not be seen again."""
    if array.flags.writeable:
        array[...] = {"f": np.nan, "i": -(1 << 40), "b": True}[array.dtype.kind]


class _Driver:
    """What both modes have in common: making StreamTensors, reading them, ids."""

    mode = ""

    def __init__(self, case: Case, rng: Rng) -> None:
        self.case = case
        self.rng = np.random.default_rng(rng.integers(1 << 40))
        self.form = ""  # of the arrays handed over; empty: a random one each time

    def tensors(self, call: Call, data: Data, handed: _Handed, restart: bool) -> list[Any]:
        names = [d if isinstance(d, str) else None for d in self.case.layout]
        ids, sos, eos = [r.id for r in call], [r.sos for r in call], [r.eos for r in call]
        out = []
        for k, given in enumerate(self.case.inputs):
            parts = [data[r.id][k][slice(*r.cuts[k])] for r in call]
            options: dict[str, Any] = {"ids": ids, "sos": sos, "eos": eos, "names": names, "rate": given.rate}
            form = self.form or pick(self.rng, "list", "padded", "adopted")
            if form == "adopted" and len(call) == 1:
                mine = [_own(_seen(self.case, p.copy()), handed) for p in parts]  # frames lie one after another
                out.append(ds.as_stream_tensor(mine, **options))
            elif form == "padded" or not call:
                width = max([len(p) for p in parts], default=0) + int(self.rng.integers(0, 3))
                array = (
                    np.stack([np.concatenate([p, given.poison(width - len(p), p.shape[1:])]) for p in parts])
                    if call
                    else (np.zeros((0, width, *given.features), given.dtype))
                )
                array = _own(_outwards(self.case, array, 1), handed)
                out.append(ds.stream_tensor(array, lengths=[len(p) for p in parts], **options))
            else:
                mine = [_own(strided(self.rng, _outwards(self.case, p.copy()), p.dtype), handed) for p in parts]
                out.append(ds.stream_tensor(mine, **options))
            out[-1].restart = restart
        return out

    def read(self, result: Any, call: Call) -> Result:
        frames, starts, dims = [], [], []
        for y in leaves(result):
            assert y.ids == [r.id for r in call]
            assert list(y.sos) == [r.sos for r in call] and list(y.eos) == [r.eos for r in call]
            rows = [np.moveaxis(y[r.id].numpy(), y.stream_axis, 0).copy() for r in call]
            assert [len(r) for r in rows] == list(y.lengths)
            frames.append(rows)
            starts.append(list(y.starts))
            dims.append(y._straight())  # features as they are seen, however they are stored
        for y in leaves(result):
            spoil(y.value)
        return Result(frames, starts, dims)

    def call(self, call: Call, data: Data, restart: bool = False) -> Result:
        """Advance the rows' streams."""
        handed: _Handed = []
        tensors = self.tensors(call, data, handed, restart)
        try:
            result = self.send(tensors)
        finally:
            for array, before in handed:
                assert same(array, before), "a call wrote into its caller's input"
        out = self.read(result, call)
        for array, _ in handed:
            spoil(array)
        return out

    def send(self, tensors: list[Any]) -> Any:
        raise NotImplementedError

    def states(self) -> dict[str, bytes]:
        """All that is remembered, by id."""
        return {i: self.state(i) for i in self.ids()}

    def ids(self) -> list[str]:
        raise NotImplementedError

    def state(self, stream_id: str) -> bytes:
        raise NotImplementedError


class Eager(_Driver):
    """A patched module."""

    mode = "eager"

    def __init__(self, case: Case, rng: Rng, model: Any = None, patched: Any = None, **options: Any) -> None:
        super().__init__(case, rng)
        self.module = case.patched(model, **options) if patched is None else patched

    def send(self, tensors: list[Any]) -> Any:
        return self.module(*tensors)

    def ids(self) -> list[str]:
        return list(self.module.live_ids)

    def state(self, stream_id: str) -> bytes:
        return self.module.get_state([stream_id])[stream_id]

    def put(self, stream_id: str, state: bytes) -> None:
        self.module.set_state({stream_id: state})

    def fork(self, stream_id: str, new_id: str) -> None:
        self.put(new_id, self.state(stream_id))

    def reset(self, ids: Any = None) -> None:
        self.module.reset(ids)

    def fresh(self) -> Eager:
        """The same model in another module."""
        return Eager(self.case, self.rng)


class Compiled(_Driver):
    """An engine, by StreamTensors or by its dict of arrays."""

    mode = "engine"

    def __init__(self, case: Case, rng: Rng, model: Any = None, **options: Any) -> None:
        super().__init__(case, rng)
        self.options = options
        self.engine = case.engine(model, **options)

    def send(self, tensors: list[Any]) -> Any:
        return self.engine(*tensors)

    def ids(self) -> list[str]:
        return list(self.engine.ids)

    def state(self, stream_id: str) -> bytes:
        return self.engine.snapshot(stream_id)

    def put(self, stream_id: str, state: bytes) -> None:
        self.engine.restore(state, stream_id)

    def fork(self, stream_id: str, new_id: str) -> None:
        self.engine.fork(stream_id, new_id)

    def reset(self, ids: Any = None) -> None:
        self.engine.reset(ids)

    def fresh(self) -> Compiled:
        """The same model in another engine."""
        return Compiled(self.case, self.rng, **self.options)

    def step(self, call: Call, data: Data) -> dict[str, Any]:
        """Advance by plain arrays, in the layout without B."""
        given = {}
        for r in call:
            arrays = [
                strided(self.rng, _outwards(self.case, data[r.id][k][slice(*r.cuts[k])]))
                for k in range(len(self.case.inputs))
            ]
            given[r.id] = arrays[0] if len(arrays) == 1 else dict(zip(self.case.names, arrays))
        return self.engine.step(given, sos=[r.id for r in call if r.sos], eos=[r.id for r in call if r.eos])


def driver(mode: str, case: Case, rng: Rng, **options: Any) -> Any:
    """A driver of a mode."""
    return {"eager": Eager, "engine": Compiled}[mode](case, rng, **options)


# ---------------------------------------------------------------- offline
def plain(case: Case, streams: Sequence[Sequence[Array]]) -> list[Any]:
    """The inputs as plain tensors: whole sequences of equal lengths, in one batch."""
    return [ds.tensor(_outwards(case, np.stack([s[k] for s in streams]), 1)) for k in range(len(case.inputs))]


def offline(
    case: Case, streams: Sequence[Sequence[Array]], dims: Sequence[tuple[Any, ...]], model: Any = None
) -> list[list[Array]]:
    """The untouched model on plain tensors; all streams of equal lengths, in one batch.

    `dims` are the outputs' dimensions, as a streamed call has them. Returns per stream and output its frames.
    """
    model = case.model() if model is None else model
    outputs = leaves(model(*plain(case, streams)))
    assert len(outputs) == len(dims)
    out: list[list[Array]] = [[] for _ in streams]
    for y, roles in zip(outputs, dims):
        array = np.asarray(y)
        assert array.ndim == len(roles), f"offline the output has {array.ndim} dimensions, online {roles}"
        for b in range(len(streams)):
            row, kept = array, list(roles)
            if "B" in kept:
                axis = kept.index("B")
                row = np.take(array, b if array.shape[axis] > 1 else 0, axis=axis)  # a table has one for all
                kept.remove("B")
            out[b].append(np.moveaxis(row, kept.index("L"), 0) if "L" in kept else row[None])
    return out


# ---------------------------------------------------------------- schedules
def schedule(case: Case, rng: Rng, data: Data, style: str = "random") -> list[Call]:
    """Calls that bring streams from start to end.

    "whole": each in one chunk, alone. "frames": all together, frame by frame, their ends afterwards. "random":
    in random batches of random chunks, empty ones among them, at the start and at the end too.
    """
    lengths = {i: [len(a) for a in arrays] for i, arrays in data.items()}
    if style == "whole":
        return [(Row(i, True, True, tuple((0, n) for n in full)),) for i, full in lengths.items()]
    calls: list[Call] = []
    at: dict[str, list[int]] = {}
    todo = list(data)
    while todo:
        rows = [i for i in todo if rng.random() < 0.7] if style == "random" else list(todo)
        out = []
        for i in [rows[k] for k in rng.permutation(len(rows))]:
            now, full = at.get(i, [0] * len(case.inputs)), lengths[i]
            sos, done = i not in at, now == full
            end = rng.random() < 0.15 if style == "random" else done
            nxt = (
                full
                if end
                else [0] * len(full)
                if sos and rng.random() < 0.2
                else _advance(case, rng, now, full, style)
            )
            end = end or (nxt == full and rng.random() < 0.3 and style == "random")
            out.append(Row(i, sos, end, tuple(zip(now, nxt))))
            at[i] = nxt
            if end:
                todo.remove(i)
        calls.append(tuple(out))
    return [c for c in calls if c or rng.random() < 0.2]


def _advance(case: Case, rng: Rng, now: Sequence[int], full: Sequence[int], style: str) -> list[int]:
    """Go on by some frames; several inputs stay within their skew."""
    most = 1 if style == "frames" else int(pick(rng, 0, 1, 1, 2, 3, 5, 17, 60))
    if len(now) == 1:
        return [min(full[0], now[0] + most)]
    rates = [i.rate for i in case.inputs]
    for _ in range(20):
        nxt = [min(n, a + int(rng.integers(0, most + 1))) for a, n in zip(now, full)]
        if nxt != list(now) and together(rates, nxt, case.skew):
            return nxt
    slowest = min(range(len(now)), key=lambda k: (now[k] / rates[k], full[k] - now[k] == 0))
    nxt = [min(n, a + (k == slowest)) for k, (a, n) in enumerate(zip(now, full))]
    if together(rates, nxt, case.skew):
        return nxt
    nxt = [min(n, a + 1) for a, n in zip(now, full)]
    return nxt if together(rates, nxt, case.skew) else list(full)


def part_of(case: Case, rng: Rng, full: Sequence[int], start: Sequence[int] | None = None) -> list[int]:
    """Some frames of every input between start and full, within the skew."""
    start = [0] * len(full) if start is None else list(start)
    rates = [i.rate for i in case.inputs]
    for _ in range(20):
        found = [int(rng.integers(a, n + 1)) for a, n in zip(start, full)]
        if together(rates, found, case.skew):
            return found
    return start


# ---------------------------------------------------------------- whole runs
@dataclass
class Run:
    """All that came out: per stream and output its frames end to end; per call its lengths and starts."""

    frames: dict[str, list[Array]]
    counts: list[list[list[tuple[int, int]]]]
    dims: list[tuple[Any, ...]]


def run(d: Any, calls: Sequence[Call], data: Data, got: dict[str, list[list[Array]]] | None = None) -> Run:
    """Make calls and lay the outputs end to end; their starts must be where the last call ended."""
    parts: dict[str, list[list[Array]]] = {} if got is None else got
    counts, dims = [], []
    for call in calls:
        result = d.call(call, data)
        dims = result.dims or dims
        for k, rows in enumerate(result.frames):
            for r, frames in zip(call, rows):
                if r.sos and k == 0:
                    parts[r.id] = [[] for _ in result.frames]
                so_far = sum(len(f) for f in parts[r.id][k])
                start = result.starts[k][call.index(r)]
                assert start == so_far, f"{d.mode}: output {k} of {r.id} starts at {start} after {so_far} frames"
                parts[r.id][k].append(frames)
        counts.append(
            [[(len(f), s) for f, s in zip(rows, starts)] for rows, starts in zip(result.frames, result.starts)]
        )
    frames = {i: [np.concatenate(p) for p in outputs] for i, outputs in parts.items()}
    return Run(frames, counts, dims)


def alone(d: Any, data: Data, rng: Rng) -> Run:
    """Each stream by itself in one chunk."""
    return run(d, schedule(d.case, rng, data, "whole"), data)


def copied(d: Eager) -> Eager:
    """The module and its live streams, copied."""
    return Eager(d.case, d.rng, patched=copy.deepcopy(d.module))
