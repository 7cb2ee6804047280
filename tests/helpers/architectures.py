"""How models written by others are held against their own offline runs: patched, compiled, and handed over."""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from elsewhere import moved

import dreamstream as ds
from dreamstream.stream import StreamMetadata
from dreamstream.stream.tree import leaves

torch.set_num_threads(1)

Rng = np.random.Generator

#: (row, begin, end, starts, ends) of each chunk of one call.
Call = list[tuple[int, int, int, bool, bool]]
#: Gives each output of a call, from which streams are taken by their ids.
Step = Callable[[Any, StreamMetadata], list[Any]]


def sequences(rng: Rng, features: Sequence[int], lengths: Sequence[int]) -> list[torch.Tensor]:
    """Random sequences ``(*features, L)``."""
    shapes = [(*features, n) for n in lengths]
    return [torch.from_numpy(rng.standard_normal(s).astype(np.float32)) for s in shapes]


def schedule(rng: Rng, lengths: Sequence[int], most: int) -> list[Call]:
    """Cut ragged sequences anywhere into chunks of up to `most` frames; some of the streams are in each call."""
    at, begun, live = [0] * len(lengths), set(), set(range(len(lengths)))
    calls: list[Call] = []
    while live:
        call: Call = []
        for row in sorted(live):
            if rng.random() < (0.3 if row in begun else 0.5):
                continue
            end = min(at[row] + int(rng.integers(0, most + 1)), lengths[row])
            ends = end == lengths[row] and bool(rng.random() < 0.7)
            call.append((row, at[row], end, row not in begun, ends))
            begun.add(row)
            at[row] = end
            if ends:
                live.discard(row)
        if call:
            calls.append(call)
    return calls


def chunks(xs: Sequence[torch.Tensor], call: Call, axis: int) -> tuple[Any, StreamMetadata]:
    """Return one call's chunks padded, with the batch first, and what is known about them."""
    width = max(end - begin for _, begin, end, _, _ in call)
    parts = []
    for row, begin, end, _, _ in call:
        part = xs[row].narrow(axis, begin, end - begin)
        hole = list(part.shape)
        hole[axis] = width - (end - begin)
        parts.append(torch.cat([part, part.new_zeros(hole)], axis))
    rows, begins, ends, sos, eos = zip(*call)
    meta = StreamMetadata([f"s{r}" for r in rows], sos, eos, [e - b for b, e in zip(begins, ends)])
    return torch.stack(parts), meta


def run(
    step: Step, xs: Sequence[torch.Tensor], calls: Sequence[Call], axis: int, at: Sequence[int], move: Any = None
) -> tuple[Any, Any]:
    """Run calls; return every stream's outputs laid end to end, and the shapes that each call gave.

    From the middle call on the step is the one that `move` gives: it takes the ids of the streams that are live.
    """
    out: list[Any] = [None] * len(xs)
    shapes = []
    live: set[str] = set()
    for n, call in enumerate(calls):
        if move is not None and n >= len(calls) // 2 and live:
            step, move = move(sorted(live)), None
        given = step(*chunks(xs, call, axis))
        for row, _, _, _, ends in call:
            live = live - {f"s{row}"} if ends else live | {f"s{row}"}
            parts = [torch.as_tensor(np.asarray(y[f"s{row}"])) for y in given]
            out[row] = [[*o, p] for o, p in zip(out[row] or [[]] * len(parts), parts)]
            shapes.append([tuple(p.shape) for p in parts])
    assert move is None, "no stream was live in the middle"
    return [[torch.cat(o, a) for o, a in zip(stream, at)] for stream in out], shapes


#: What torch says only because a sequence is too short; no frames come out then.
TOO_SHORT = re.compile("Kernel size can't be greater|Output size is too small|should be at least|non-zero size")


def offline(model: torch.nn.Module, xs: Sequence[torch.Tensor], dims: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the outputs for every whole sequence, None where torch finds it too short.

    An output whose dimensions have no L is a stream's one frame; `dims` are without B, as a forward that squeezes
    leaves them of one stream.
    """
    out: list[Any] = []
    for x in xs:
        try:
            with torch.no_grad():
                made = [y if y.ndim > len(d) else y[None] for y, d in zip(leaves(model(x[None])), dims)]
                out.append([y[0] if "L" in d else y for y, d in zip(made, dims)])
        except RuntimeError as error:
            if not TOO_SHORT.search(str(error)):
                raise
            out.append(None)
    return out


def errors(got: Any, wanted: Any, exact: Any) -> float:
    """Return how far outputs are from a float64 run, over what is allowed: 4 times torch's own float32's error."""
    if exact is None:
        assert all(0 in g.shape for g in got), "frames of a stream that is too short"
        return 0.0
    worst = 0.0
    for g, w, e in zip(got, wanted, exact, strict=True):
        assert g.shape == e.shape, (g.shape, e.shape)
        assert w.shape == e.shape
        if not e.numel():
            continue
        allowed = max(4 * float((w.double() - e).abs().max()), 1e-6 * float(e.abs().max()))
        worst = max(worst, float((g.double() - e).abs().max()) / allowed)
    return worst


def check(
    model: torch.nn.Module,
    spec: Sequence[Any],
    lengths: Sequence[int],
    most: int,
    policy: str = "raise",
    seed: int = 0,
    tokens: int = 0,
) -> list[float]:
    """Stream random chunks of ragged streams through a model, patched and compiled, and compare with offline.

    Every call must give equally many frames in both, the whole must be what the model gives offline, and nothing
    may come out of a stream that torch finds too short. In the midst of the first run all streams move: with their
    states to another patched copy, and with their snapshots to the engine of a saved file in another process.

    Parameters
    ----------
    model : torch.nn.Module
        It stays as it is.
    spec : tuple
        Dimensions of the input.
    lengths : sequence of int
        Frames of the streams.
    most : int
        The longest chunk; three times that in a second run.
    policy : {"raise", "buffer"}
        What to do with layers that need the whole stream.
    seed : int
    tokens : int
        How many numbers there are where the input is integers.

    Returns
    -------
    list of float
        The delay of every output in frames of the input.
    """
    rng = np.random.default_rng(seed)
    model = model.eval()
    axis = [d for d in spec if d != "B"].index("L")
    xs = sequences(rng, [d for d in spec if not isinstance(d, str)], lengths)
    xs = [x.movedim(-1, axis).contiguous() for x in xs]
    if tokens:
        xs = [torch.from_numpy(rng.integers(0, tokens, tuple(x.shape))) for x in xs]
    engine = ds.compile(model, spec, unstreamable=policy, verify=True, dtype="int64" if tokens else None)
    dims = [[d for d in o.dimensions if d != "B"] for o in engine.outputs]
    places = [d.index("L") if "L" in d else 0 for d in dims]
    wanted = offline(model, xs, dims)
    torch.set_default_dtype(torch.float64)
    try:
        exact = offline(copy.deepcopy(model).double(), [x if tokens else x.double() for x in xs], dims)
    finally:
        torch.set_default_dtype(torch.float32)
    names = [d if isinstance(d, str) else None for d in spec]

    def patched() -> tuple[Any, Step]:
        ours = ds.patch_module(copy.deepcopy(model), unstreamable=policy).online()

        def step(padded: torch.Tensor, meta: StreamMetadata) -> list[Any]:
            with torch.no_grad():
                return leaves(ours(ds.stream_tensor(padded, meta, names)))

        return ours, step

    def compiled(padded: torch.Tensor, meta: StreamMetadata) -> list[Any]:
        return leaves(engine(ds.stream_tensor(padded.numpy(), meta, names)))

    def to_a_copy(ids: list[str]) -> Step:
        other, step = patched()
        other.set_state(ours.get_state(ids))
        ours.reset()
        return step

    def to_another_process(ids: list[str]) -> Step:
        there = moved(engine)
        return lambda padded, meta: there(ds.stream_tensor(padded.numpy(), meta, names))

    ours, step = patched()
    for size, moves in ((most, (to_a_copy, to_another_process)), (3 * most, (None, None))):
        calls = schedule(rng, lengths, size)
        results = [run(s, xs, calls, axis, places, move) for s, move in zip((step, compiled), moves)]
        assert results[0][1] == results[1][1], "patched and compiled, calls gave different numbers of frames"
        for name, (outputs, _) in zip(("patched", "compiled"), results):
            for n, got, w, e in zip(lengths, outputs, wanted, exact, strict=True):
                ratio = errors(got, w, e)
                assert ratio <= 1, f"{name}: a stream of {n} frames is off by {ratio:.2f} times what is allowed"
    assert not ours.live_ids
    return [o.delay for o in engine.outputs]
