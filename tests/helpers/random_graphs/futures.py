"""By brute force: what could have been said, and when; what an output depends on; what must be kept.

A frame of an output is final once no future can change it, or that it exists. What the future holds is
unknown: its frames are NaN, and it may end after any number of them. So a sequence is run offline at every
length up to a horizon, each time with NaN behind what has been seen so far; what is the same in all runs is
final. The runs are those of a model's `sums`, in float64.
"""

import io
import json
import math
import struct
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream.errors import DreamStreamError
from dreamstream.stream.tree import leaves

from .drivers import InEngine
from .totals import Totals
from .trial import Subject, batch_rows, offline

Array = Any
Frames = tuple[int, ...]
Key = tuple[int, int]  # node (below 0: an input) and array of it (below 0: carried; else frames kept)


def emissions(subject: Subject, engine: ds.Engine, seen: list[Frames], rng: np.random.Generator) -> Array:
    """Return the frames ``(seen, outputs)`` that leave for streams of these lengths, eager as in the engine.

    -1 for streams that are refused.
    """
    streams = [[rng.standard_normal((n, x.size)) for n, x in zip(frames, subject.inputs)] for frames in seen]
    counts = []
    for driver in (subject.patched(rng), InEngine(engine, subject.inputs, rng)):
        out = np.full((len(seen), len(subject.dims)), -1)
        rows = list(range(len(seen)))
        while rows:
            ids = [str(r) for r in rows]
            arrays = batch_rows(subject, [[d.astype(np.float32) for d in streams[r]] for r in rows])
            try:
                frames, _ = driver.step(ids, [True] * len(ids), [False] * len(ids), arrays)
            except DreamStreamError as error:
                rows = [r for r in rows if str(r) not in error.ids]
                continue
            out[rows] = np.array([[len(f) for f in o] for o in frames]).T
            driver.drop(ids)
            break
        counts.append(out)
    assert np.array_equal(*counts), "eager and engine let out different frames"
    return counts[0]


def finality(
    subject: Subject, seen: list[Frames], n_lengths: int, horizon: int, rng: np.random.Generator
) -> tuple[Array, bool]:
    """Return how many frames ``(seen, outputs)`` are final, -1 where no future is possible.

    Also whether every future could be run: where some lengths are refused, more may seem final than is.

    Parameters
    ----------
    seen : list of tuple of int
        Frames so far, per input.
    n_lengths : int
        Futures reach up to so many frames of the fastest input.
    horizon : int
        ... and no further than this behind what has been seen.
    """
    fast = max(x.rate for x in subject.inputs)
    clock = next(i for i, x in enumerate(subject.inputs) if x.rate == fast)
    data = [rng.standard_normal((n_lengths + 8, x.size)) for x in subject.inputs]
    now = np.array(seen).reshape(len(seen), -1)
    futures = _futures(subject, n_lengths)
    totals = Totals(subject.inputs, futures, False, subject.draft.buffer_limit)
    ends = [y.edge.counts[:, 3] for y in leaves(subject.model.forward(*totals.tensors))]
    ended = Totals(subject.inputs, futures, True, subject.draft.buffer_limit)
    subject.model.forward(*ended.tensors)
    final = np.full((len(seen), len(subject.dims)), 1 << 40)
    told = np.zeros(len(seen), bool)  # whether a future has said anything
    fenced = np.zeros(len(seen), bool)  # near a length that no stream may reach
    values: list[Any] = [None] * len(subject.dims)  # per output (seen, frames, features): the first run's
    for f, future in enumerate(futures):
        rows = np.flatnonzero((now <= future).all(1) & (future[clock] - now[:, clock] <= horizon))
        if f in totals.refused:
            fenced[rows] = True
            continue
        if not len(rows):
            continue
        for k, end in enumerate(ends):  # it may end here, even where that is refused then
            final[rows, k] = np.minimum(final[rows, k], end[f])
        outputs = None
        if f not in ended.refused:
            outputs = offline(subject, subject.double.sums, _unseen(data, future, now[rows]), np.float64)
        for k, y in enumerate(outputs or []):
            y = y.reshape(*y.shape[:2], math.prod(y.shape[2:]))
            if values[k] is None:
                values[k] = np.full((len(seen), 0, y.shape[2]), np.nan)
            missing = y.shape[1] - values[k].shape[1]
            values[k] = np.pad(values[k], [(0, 0), (0, max(0, missing)), (0, 0)], constant_values=np.nan)
            fresh = rows[~told[rows]]
            values[k][fresh, : y.shape[1]] = y[~told[rows]]
            first = values[k][rows, : y.shape[1]]
            same = (np.abs(y - first) <= 1e-9 * (1 + np.abs(first))).all(2)  # False for NaN
            run = np.where(same.all(1), y.shape[1], np.argmin(same, 1)) if y.shape[1] else 0
            final[rows, k] = np.minimum(final[rows, k], run)
        told[rows] |= outputs is not None
    final[~told | fenced] = -1
    return final, not ended.refused


def _futures(subject: Subject, n_lengths: int) -> list[Frames]:
    """Return all lengths that streams may end with, shortest first."""
    if len(subject.inputs) == 1:
        return [(n,) for n in range(n_lengths)]
    fast = [x.rate == 1 for x in subject.inputs]
    pairs = [tuple(n if f else m for f in fast) for n in range(n_lengths) for m in range(n_lengths // 2 + 4)]
    return [p for p in pairs if subject.together(p)]


def _unseen(data: list[Array], future: Frames, seen: Array) -> list[Array]:
    """Return a row per entry of `seen`: the data up to `future`, NaN from what has been seen on."""
    out = []
    for k, d in enumerate(data):
        rows = np.repeat(d[None, : future[k]], len(seen), 0)
        rows[np.arange(future[k])[None] >= seen[:, k : k + 1]] = np.nan
        out.append(rows)
    return out


# ---------------------------------------------------------------- delay and receptive field
def delays_and_fields(
    subject: Subject, known: Array, rates: list[Fraction], rng: np.random.Generator
) -> list[tuple[float, float]]:
    """Return each output's delay and receptive field, measured.

    Parameters
    ----------
    known : (n_lengths, outputs) array
        Frames out after n frames of the first input, and as many of the others as belong to them.
    rates : list of Fraction
        Of the outputs.
    """
    n_lengths = len(known)
    first = subject.inputs[0]
    lengths = [int((n_lengths - 1) * x.rate / first.rate) for x in subject.inputs]
    data = [rng.standard_normal((n, x.size)) for n, x in zip(lengths, subject.inputs)]
    batch = [np.repeat(d[None], n_lengths, 0) for d in data]
    for i in range(n_lengths - 1):
        batch[0][i, i] = np.nan  # row i lacks frame i; the last row lacks none
    outputs = offline(subject, subject.double.sums, batch, np.float64)
    measured = []
    for k, rate in enumerate(rates):
        if rate == 0 or known[-1, k] == known[n_lengths // 2, k]:  # from then on it waits for the end
            measured.append((math.inf, math.inf))
            continue
        n_known = int(known[-1, k])
        when = np.searchsorted(known[:, k], np.arange(n_known), side="right")  # frames at which m is known
        delay = max(int(n) - 1 - math.floor(m * first.rate / rate) for m, n in enumerate(when))
        field = math.nan
        if outputs is not None:
            field = 0
            touched = np.isnan(outputs[k]).any(tuple(range(2, outputs[k].ndim)))
            for m in range(n_known // 2, n_known):
                reads = np.flatnonzero(touched[:, m])
                if len(reads):
                    field = max(field, int(when[m]) - int(reads[0]))
        measured.append((delay, field))
    return measured


# ---------------------------------------------------------------- what is kept
def arrays(snapshot: bytes) -> dict[Key, int]:
    """Return the bytes of every array that a snapshot holds (docs/snapshot_format.md)."""
    at = 32
    (n_inputs,) = struct.unpack_from("<Q", snapshot, at)
    at += 8 + 8 * n_inputs
    (n_entries,) = struct.unpack_from("<Q", snapshot, at)
    at += 8
    sizes = {}
    for _ in range(n_entries):
        node, array, _, n_bytes = struct.unpack_from("<qqqQ", snapshot, at)
        sizes[node, array] = n_bytes
        at += 32 + -(-n_bytes // 8) * 8
    assert at == len(snapshot) - 8, "the snapshot's layout is another one"
    return sizes


def homes(engine: ds.Engine) -> dict[Key, Key]:
    """Return for every edge of the model as captured where the engine keeps its frames.

    A node that the engine has removed gave what its first input is: that one's home is its own.
    """
    file = io.BytesIO()
    engine.save(file, format="json")
    graph = json.loads(file.getvalue())["dreamstream"]["graph"]
    here = {node["id"] for node in engine._core.nodes}
    edges = [(-1 - i, 0) for i in range(len(graph["inputs"]))]
    found = {edge: edge for edge in edges}
    for j, node in enumerate(graph["nodes"]):
        for k in range(node["outputs"]):
            edges.append((j, k))
            found[j, k] = (j, k) if j in here else found[edges[node["inputs"][0]]]
    return found


def kept(snapshot: bytes, home: dict[Key, Key]) -> dict[Key, int]:
    """Return the bytes of every array that the engine keeps for what is in a snapshot."""
    sizes: Counter[Key] = Counter()
    for key, n_bytes in arrays(snapshot).items():
        sizes[home.get(key, key)] = max(sizes[home.get(key, key)], n_bytes)
    return sizes


def most_kept(subject: Subject, engine: ds.Engine, n_frames: int, rng: np.random.Generator) -> dict[Key, int]:
    """Return the most bytes of every array that streams hold between any two calls.

    One stream goes far; the first frames come one by one. With several inputs more streams start, to see
    how far apart they may be.
    """
    driver, home = InEngine(engine, subject.inputs, rng), homes(engine)
    most: Counter[Key] = Counter()
    for walk in range(1 if len(subject.inputs) == 1 else 8):
        at, sos = [0] * len(subject.inputs), True
        while at[0] < (n_frames if walk == 0 else 40):
            i = int(rng.integers(len(at)))
            for _ in range(int(rng.integers(1, 12))):  # one input runs ahead as far as it may
                to = list(at)
                to[i] += int(rng.integers(1, 4)) if len(at) == 1 and at[0] > 60 else 1
                if not subject.together(to):
                    break
                parts = [rng.standard_normal((b - a, x.size)) for a, b, x in zip(at, to, subject.inputs)]
                driver.step(["a"], [sos], [False], batch_rows(subject, [[p.astype(np.float32) for p in parts]]))
                sos, at = False, to
                for key, n_bytes in kept(driver.snapshot("a"), home).items():
                    most[key] = max(most[key], n_bytes)
        driver.drop(["a"])
    return most
