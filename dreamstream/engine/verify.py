"""verify: an engine against its model, on random chunks of random streams."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ShapeError, StreamLimitError
from ..stream.tree import leaves
from .engine import Engine
from .source import Source, source_of
from .spec import InputSpec
from .ties import Choices

TOLERANCE = 1e-4
"""Two orders of summation, the engine's and OpenBLAS's, through many layers."""

MOST_ELEMENTS = 200_000
"""Of the first input, in the longest stream by default: what keeps a compile quick."""

MOST_SCORES = 200_000_000
"""Of attention, where every frame of the longest stream meets every other, as it does offline."""


@dataclass(frozen=True)
class Report:
    """What `verify` saw.

    Attributes
    ----------
    streams, frames : int
        Streams run to their ends, output frames compared.
    max_difference : float
        The largest difference, relative to the larger of 1 and the outputs' largest value.
    ok : bool
        Whether frames agree in number, and values within 1e-4.
    tied : int
        Choices (of experts: topk, sort, argmax, ..., and comparisons) where the model took the engine's, since
        another order of sums had made it choose another of equals, within 1e-4; 0 where the outputs agree without.
    """

    streams: int
    frames: int
    max_difference: float
    ok: bool
    tied: int = 0
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None


def verify(
    model: Any,
    engine: Engine,
    n_streams: int = 3,
    n_frames: int | None = None,
    seed: int = 0,
    lengths: Sequence[int] | None = None,
) -> Report:
    """Stream random chunks through the engine and compare with the model's offline output.

    Where they differ, the model is run again, choosing as the engine did among what is nearly tied.

    Parameters
    ----------
    n_streams : int
        Streams, together in random batches.
    n_frames : int, optional
        Frames of the longest, by default enough to see every layer.
    seed : int
    lengths : sequence of int, optional
        Frames of each stream, in place of random ones, for a model that takes some lengths only. Without it,
        where the model refuses a length, multiples of whole numbers above it are tried.

    Returns
    -------
    Report

    Raises
    ------
    ShapeError
        Where nothing was compared: the model refuses all these lengths, or has no frames for them.
    StreamLimitError
        Where ``max_streams`` or ``buffer_limit`` leaves room for no stream at all.
    """
    if not isinstance(engine, Engine):
        raise TypeError(f"verify takes a model and the engine made of it, got {type(engine).__name__}")
    rng, source = np.random.default_rng(seed), source_of(model)
    streams: dict[str, Any] = {}
    expected: dict[str, list[Any]] = {}
    refused: ShapeError | None = None
    wanted = _lengths(engine, n_frames, n_streams, rng) if lengths is None else list(lengths)
    for i, n in enumerate(wanted):
        multiples = MULTIPLES if lengths is None else (1,)  # a model that refuses a length may take one above it
        for tried in dict.fromkeys(-(-n // m) * m for m in multiples):
            whole = random_inputs(rng, engine, tried)
            try:
                expected[f"\0verify {i}"] = _offline(source, engine, whole)
            except ShapeError as error:
                refused = error
                continue
            streams[f"\0verify {i}"] = whole
            break
    if refused is not None and not streams:
        raise ShapeError(
            f"nothing could be compared: {type(model).__name__} itself refuses streams of {_listed(wanted)} "
            f"frames and the like ({str(refused) or type(refused.__cause__).__name__}); say which lengths it "
            "takes, lengths=[...] of ds.compile or ds.verify"
        )
    choices = Choices(engine, TOLERANCE)
    got = _within_limits(engine, streams, rng, choices, last=lengths is not None or n_frames is not None)
    if not got:
        return verify(model, engine, n_streams=n_streams, n_frames=max(256, 4 * max(wanted)), seed=seed)
    report = _compared(engine, got, expected)
    if not report.frames and report.max_difference == 0:
        raise ShapeError(
            f"nothing was compared: {type(model).__name__} has no frames for streams of {_listed(wanted)}; give "
            "longer ones, ds.verify(model, engine, n_frames=...)"
        )
    if report.ok or not choices.edges:
        return report
    for name in got:
        with choices.of(name):
            expected[name] = _offline(source, engine, streams[name])
    return replace(_compared(engine, got, expected), tied=choices.tied) if choices.tied else report


def _compared(engine: Engine, got: dict[str, list[Any]], expected: dict[str, list[Any]]) -> Report:
    frames, worst, shapes = 0, 0.0, None
    for name in got:
        for k, whole_output in enumerate(expected[name]):
            if engine.outputs[k].rate == 0 and len(got[name][k]) == 0:
                continue  # a vector over no frames: none leaves, whatever is made of it offline
            n, gap = difference(got[name][k], whole_output, engine.stream_axis(k))
            frames, worst = frames + n, max(worst, gap)
            if shapes is None and got[name][k].shape != whole_output.shape:
                shapes = got[name][k].shape, whole_output.shape
    return Report(len(got), frames, worst, worst <= TOLERANCE, 0, shapes)


#: A model that takes some lengths only takes multiples, most often of one of these.
MULTIPLES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 64, 80, 100, 128, 160, 256, 320, 480, 512, 640, 1024)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _lengths(engine: Engine, n_frames: int | None, n_streams: int, rng: np.random.Generator) -> list[int]:
    known = [int(n) for n in (engine.receptive_field, engine.delay) if math.isfinite(n)]
    bound = beyond = others = max(256, MOST_ELEMENTS // math.prod(engine.inputs[0].features))
    if scores := _scores(engine):
        bound, beyond, others = min(bound, max(256, math.isqrt(int(MOST_SCORES / scores)))), 256, 1024
    most = n_frames if n_frames is not None else min(max([24, *(n + min(2 * n, beyond) for n in known)]), bound)
    return [most, *(int(rng.integers(0, min(most, others) + 1)) for _ in range(n_streams - 1))]


def _scores(engine: Engine) -> float:
    """Return the scores of attention that a model computes offline, per squared frame of the first input."""
    seen = (node["outputs"][0] for node in engine._core.nodes if node["name"] == "attention")
    return float(sum(shape[0] * (Fraction(num, den) / engine.rate) ** 2 for _, shape, num, den in seen))


def random_inputs(rng: np.random.Generator, engine: Engine, n: int) -> dict[str, Any]:
    """Return a stream of random numbers by input, `n` frames of the first; all memories are of one length."""
    out, once = {}, 0
    for s in engine.inputs:
        once = once or (int(rng.integers(1, 12)) if s.once else 0)
        out[s.name] = _random(rng, s, once if s.once else int(n * s.rate / engine.rate))
    return out


def _random(rng: np.random.Generator, spec: InputSpec, n: int) -> Any:
    shape = spec.shape_of(n)
    if spec.dtype == "float32":
        return rng.standard_normal(shape, dtype=np.float32)
    return rng.integers(0, 2, shape).astype(spec.dtype)


def _offline(source: Source, engine: Engine, inputs: dict[str, Any]) -> list[Any]:
    """Return the outputs for whole sequences, without B; ShapeError where the model refuses their length."""
    # Copies: a forward may write into its inputs.
    whole = {s.name: np.expand_dims(inputs[s.name], s.dimensions.index("B")).copy() for s in engine.inputs}
    for name, given in engine.lengths.items():
        spec = next(s for s in engine.inputs if s.name == given.of)
        n = inputs[spec.name].shape[spec.axes[0]]
        whole[name] = np.array([1.0], np.float32) if given.relative else np.array([n])
    result = source.offline(whole, engine.by_name)
    outputs = zip(result, engine.outputs)
    # An output without L keeps its B as the axis of one frame, in front; one that joins them has B's one row. A
    # forward that squeezes leaves no B of one stream.
    return [
        t
        if "B" not in o.dimensions
        else (np.moveaxis(t, o.dimensions.index("B"), 0) if t.ndim == len(o.dimensions) else t[None])
        if "L" not in o.dimensions
        else t.squeeze(b)
        if (b := o.dimensions.index("B")) < t.ndim and t.shape[b] == 1
        else t
        for t, o in outputs
    ]


def _within_limits(
    engine: Engine, streams: dict[str, Any], rng: np.random.Generator, choices: Choices, last: bool
) -> dict[str, list[Any]]:
    """Run all streams together; where one is refused one by one, without those that are.

    They are too long for a limit, or of lengths that a comparison in the forward leaves out; of these the `last`
    may not be all.
    """
    got: dict[str, list[Any]] = {}
    refused: StreamLimitError | ShapeError | None = None
    for group in (streams, *({i: x} for i, x in streams.items())):
        try:
            with choices.watched(group):
                got.update(_stream(engine, group, rng))
        except (StreamLimitError, ShapeError) as error:
            if isinstance(error, ShapeError) and "require: " not in str(error):
                raise
            refused = error
        finally:
            engine.reset([i for i in engine.ids if i in group])
        if got and group is streams:
            break
    if isinstance(refused, ShapeError) and not got:
        if not last:
            return got
        reason = str(refused).partition(" (stream")[0]
        raise ShapeError(f"nothing could be compared: {reason}; give other lengths, lengths=[...]")
    if refused is not None and not got:
        raise refused
    return got


def _stream(engine: Engine, streams: dict[str, Any], rng: np.random.Generator) -> dict[str, list[Any]]:
    """Return the outputs of all streams, in random chunks, laid end to end."""
    first = engine.inputs[0]
    collected: dict[str, list[list[Any]]] = {i: [[] for _ in engine.outputs] for i in streams}
    done = dict.fromkeys(streams, 0)
    while done:
        chunks, sos, eos = {}, [i for i, at in done.items() if at == 0 and not collected[i][0]], []
        for i, at in done.items():
            total = streams[i][first.name].shape[first.axes[0]]
            stop = min(total, at + int(rng.integers(0, max(2, total // 3))))
            if stop == total:
                eos.append(i)
            chunks[i] = {
                s.name: _cut(engine, s, streams[i][s.name], at, stop, total)
                for s in engine.inputs
                if i in sos or not s.once
            }
            done[i] = stop
        for i, out in engine.step(chunks, sos, eos).items():
            for parts, array in zip(collected[i], leaves(out)):
                parts.append(array)
        for i in eos:
            del done[i]
    return {
        i: [np.concatenate(parts, engine.stream_axis(k)) for k, parts in enumerate(outputs)]
        for i, outputs in collected.items()
    }


def _cut(engine: Engine, spec: InputSpec, array: Any, at: int, stop: int, total: int) -> Any:
    """Return an input's frames for frames at..stop of the first input, all of one that is given once."""
    if spec.once:
        return array
    ratio, axis = spec.rate / engine.rate, spec.axes[0]
    high = array.shape[axis] if stop == total else int(stop * ratio)
    return array[(slice(None),) * axis + (slice(int(at * ratio), high),)]


def difference(got: Any, whole: Any, axis: int) -> tuple[int, float]:
    """Return the number of frames and the largest difference, relative to the larger of 1 and the values.

    NaN equals NaN, an infinity itself; for other shapes the difference is infinite. What was rounded to float16
    may be one step of its numbers apart.
    """
    if got.shape != whole.shape:
        return 0, math.inf
    same = (got == whole) | (np.isnan(got) & np.isnan(whole))
    with np.errstate(invalid="ignore"):  # of infinities
        gaps = np.abs(got.astype(np.complex128 if got.dtype.kind == "c" else np.float64) - whole)
        if got.dtype == np.float16:
            gaps = np.maximum(gaps - np.spacing(np.abs(got)), 0.0)
        gaps = np.where(same, 0.0, gaps)
    gaps = np.where(np.isnan(gaps), math.inf, gaps)
    scale = float(np.abs(whole[np.isfinite(whole)]).max(initial=1.0))
    return got.shape[axis], float(gaps.max(initial=0.0)) / scale
