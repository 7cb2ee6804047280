"""Every operator beside torch's own function: one frame, a hundred, twenty thousand.

Usage: python benchmarks/operators.py [--frames 1 100 20000] [--operators ...] [--seconds S] [--json]; needs torch.
       python benchmarks/operators.py --features 1 16 256 --streams 1 16 128 --frames 1 100 --worst

One thread each, one stream or --streams, float32. operator_rows.py says sizes and functions; an operator that has
no row there is an error. Four things are timed, in turns, once the outputs of ours and torch's have been compared:

- torch: its function, on tensors in the layout that suits it best (the row's fastest), without gradients;
- eager: ours on a plain `dreamstream.Tensor`, offline;
- engine: `engine.step({id: frames})` in mid-stream, which copies frames in and out, and remembers what it must;
- empty: the same call where the model gives its first input back: what Python and the copies cost by themselves.
  Where the output is of another size, half of the difference between calls that give it, and the input, back is
  added.

The quotients are the engine ÷ torch, and (engine - empty) ÷ torch: the operator without the call. A row is marked
where the latter is above 1.3 (--mark), with the reason that operator_rows.py gives, or "?". At one frame torch's
figure is mostly that of its call, and ours that of Python's, some microseconds each; "eager" is Python at every
operation. Samples are as many calls as fill a millisecond, a figure is the least CPU time of
the samples: other programs only add to it, and a difference of two medians was mostly theirs. Rows that would be
marked are measured again, for longer. Where the operator takes less than the medians of engine and empty lie above
their least, that is the reason: nothing is known of it but that it is less. So it is where several streams take
less than 0.05 µs each: for torch they are one array.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import json
import re
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from machine import kernels, machine
from operator_rows import APPLY, CHANNELS, NO_ROW, REASONS, Apply1, Row, rows

import dreamstream as ds
from dreamstream import _core
from dreamstream.operations import OPERATORS

Call = Callable[[], Any]
SAMPLE = 1e-3  # seconds
CALLS_DIFFER = "less than calls of the same kind differ by"
OF_A_STREAM = 0.05  # microseconds: where a stream's frames lie is looked up for each
BY_STREAMS = f"at most {OF_A_STREAM} µs for each stream: for torch they are one array"
LIMITS = {"positive": (0.01, 3.0), "unit": (0.01, 0.99), "above": (1.01, 4.0)}  # of the numbers of a row


def turned(row: Row, x: np.ndarray) -> np.ndarray:
    """Frames (n, *features) as the row's callers have them."""
    return x if row.frames_first else np.ascontiguousarray(np.moveaxis(x, 0, -1))


def numbers(row: Row, n: int) -> list[np.ndarray]:
    """Frames of every input, (n, *features)."""
    rng = np.random.default_rng(0)
    shapes = [(n, *features) for features in row.features]
    if row.kind == "index":
        return [rng.integers(0, 1000, shape) for shape in shapes]
    if row.kind == "bool":
        return [rng.random(shape) < 0.5 for shape in shapes]
    if row.kind in LIMITS:
        return [rng.uniform(*LIMITS[row.kind], shape).astype(np.float32) for shape in shapes]
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def engine_of(row: Row, function: Any) -> tuple[Any, tuple[str, ...]]:
    """The row's operator compiled, or a function on the same inputs; and the inputs' names."""
    names = ("x", "y", "z")[: len(row.features)]
    specs: Any = {
        name: ("B", "L", *features) if row.frames_first else ("B", *features, "L")
        for name, features in zip(names, row.features)
    }
    dtype = {"index": "int64", "bool": "bool"}.get(row.kind, "float32")
    model = APPLY[len(names) - 1](function).eval()
    if len(names) == 1:
        return ds.compile(model, specs["x"], dtype=dtype, threads=1, verify=False), names
    return ds.compile(model, specs, dtype=dict.fromkeys(names, dtype), threads=1, verify=False), names


def stepper(row: Row, function: Any, n: int, streams: int = 1) -> tuple[Call, Any]:
    """Steps of n frames of each stream in mid-stream, and the engine."""
    engine, names = engine_of(row, function)
    arrays = [turned(row, x) for x in numbers(row, n)]
    past = [turned(row, x) for x in numbers(row, row.past)]
    single, ids = len(names) == 1, names_of(streams)
    chunk = dict.fromkeys(ids, arrays[0] if single else dict(zip(names, arrays)))
    engine.step(dict.fromkeys(ids, past[0] if single else dict(zip(names, past))), sos=ids)
    return lambda: engine.step(chunk)[ids[0]], engine


def names_of(streams: int) -> list[str]:
    """Ids of so many streams."""
    return [f"stream {i}" for i in range(streams)]


def passing(port: Any, array: np.ndarray, streams: int = 1) -> Call:
    """Steps that give these frames of an input or output back."""
    model = Apply1(lambda x: x).eval()
    engine = ds.compile(model, port.dimensions, dtype=array.dtype.name, threads=1, verify=False)
    engine.step({}, sos=names_of(streams))
    chunk = dict.fromkeys(names_of(streams), array)
    return lambda: engine.step(chunk)


def laid(row: Row, layout: str, x: np.ndarray) -> torch.Tensor:
    """Frames as torch's layout has them: of one stream, or of several."""
    t = torch.from_numpy(x)
    t = t[None] if x.ndim == 1 + len(row.features[0]) else t
    if layout == CHANNELS:
        return t.movedim(1, -1).contiguous()
    if layout == "channels last":
        return t.movedim(1, -1).contiguous(memory_format=torch.channels_last)
    return t


def compare(row: Row, layout: str, mine: np.ndarray, theirs: torch.Tensor) -> None:
    """Ours is (1, L, *features), or as callers have it; torch's as its layout says."""
    if layout in (CHANNELS, "channels last") and row.frames_first:
        theirs = theirs.movedim(-1, 1)
    wanted = theirs.numpy()
    assert mine.shape == wanted.shape, (row.operator, row.label, layout, mine.shape, wanted.shape)
    scale = max(1.0, float(np.abs(wanted.astype(np.float64)).max(initial=0.0)))
    gap = float(np.abs(mine.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)) / scale
    assert gap < 1e-4, (row.operator, row.label, layout, gap)


def calls_of(row: Row, n: int, streams: int = 1) -> dict[str, Call]:
    """What is timed, by name, after a comparison of one stream."""
    model = APPLY[len(row.features) - 1](row.ours).eval()
    n_frames = n * row.unit
    whole = numbers(row, n_frames + row.past)
    given = [ds.tensor(turned(row, x)[None]) for x in whole]
    calls: dict[str, Call] = {"eager": lambda: model(*given)}
    mine = np.asarray(calls["eager"]())
    for layout, function in row.torch.items():
        tensors = [laid(row, layout, x) for x in whole]
        compare(row, layout, mine, function(*tensors))
        if streams > 1:
            tensors = [laid(row, layout, np.stack([x] * streams)) for x in whole]
        calls[f"torch, {layout}"] = lambda function=function, tensors=tensors: function(*tensors)
    calls["engine"], engine = stepper(row, row.ours, n_frames, streams)
    plan = engine.summary()
    assert f" {row.operator} " in plan, f"{row.operator}, {row.label} is another operator:\n{plan}"
    calls["empty"], _ = stepper(row, lambda x, *_: x, n_frames, streams)
    x, y = turned(row, numbers(row, n_frames)[0]), calls["engine"]()
    if y.nbytes != x.nbytes and "L" in engine.outputs[0].dimensions:
        calls["input"], calls["output"] = (
            passing(p, a, streams) for p, a in ((engine.inputs[0], x), (engine.outputs[0], y))
        )
    return calls


def cost_of_empty(middle: dict[str, float]) -> float:
    """Of a call that copies what the operator's does; a way in, or out, is half of what giving back costs."""
    return middle["empty"] + (middle["output"] - middle["input"] if "output" in middle else 0.0) / 2


def reason_of(row: Row) -> str:
    """Why a row is slower than torch, which is told of 128 features; "" where nothing is."""
    label = re.sub(rf"\b{row.features[0][0]}\b", "128", row.label) if len(row.features[0]) == 1 else row.label
    keys = [(row.operator, at) for at in (row.label, label, "128")]
    return next((REASONS[key] for key in keys if key in REASONS), "")


def measure(row: Row, n: int, seconds: float, streams: int, mark: float) -> dict[str, Any]:
    """One row of the table: microseconds; `seconds` are of CPU time, ten times as many where it is marked."""
    calls = calls_of(row, n, streams)
    times: dict[str, list[float]] = {name: [] for name in calls}
    repeats = {}
    for name, call in calls.items():
        begin, done = time.thread_time(), 0
        while done < 2 or time.thread_time() - begin < SAMPLE:
            call()
            done += 1
        repeats[name] = max(1, int(SAMPLE / ((time.thread_time() - begin) / done)))
    for more in (seconds, 3 * seconds, 6 * seconds):
        stop = time.thread_time() + more
        while time.thread_time() < stop or len(times["empty"]) < 3:
            for name, call in calls.items():
                call()
                begin = time.thread_time()
                for _ in range(repeats[name]):
                    call()
                times[name].append(1e6 * (time.thread_time() - begin) / repeats[name])
        r = figures(row, n, streams, times)
        if r["ratio"] <= mark:
            break
    return r


def figures(row: Row, n: int, streams: int, times: dict[str, list[float]]) -> dict[str, Any]:
    """The row of the table that samples make."""
    middle = {name: min(t) for name, t in times.items()}
    layout = min((name for name in middle if name.startswith("torch")), key=lambda name: middle[name])
    empty = cost_of_empty(middle)
    own = max(0.0, middle["engine"] - empty)
    unsettled = sum(float(np.median(times[name])) - middle[name] for name in ("engine", "empty"))
    few = BY_STREAMS if streams > 1 and own < OF_A_STREAM * streams else ""
    return {
        "operator": row.operator,
        "label": row.label,
        "frames": n,
        "streams": streams,
        "torch": middle[layout],
        "layout": layout.removeprefix("torch, "),
        "eager": middle["eager"],
        "engine": middle["engine"],
        "empty": empty,
        "engine_ratio": middle["engine"] / middle[layout],
        "ratio": own / middle[layout],
        "eager_ratio": middle["eager"] / middle[layout],
        "reason": reason_of(row) or (CALLS_DIFFER if own < unsettled else "") or few,
    }


def text(r: dict[str, Any], mark: float) -> str:
    slow = r["ratio"] > mark
    cells = [
        f"`{r['operator']}`",
        r["label"],
        f"{r['frames']}" if r["streams"] == 1 else f"{r['streams']} × {r['frames']}",
        f"{r['torch']:.4g}",
        r["layout"],
        f"{r['eager']:.4g}",
        f"{r['engine']:.4g}",
        f"{r['empty']:.4g}",
        f"{r['eager_ratio']:.2f}",
        f"{r['engine_ratio']:.2f}",
        f"**{r['ratio']:.2f}**" if slow else f"{r['ratio']:.2f}",
        (r["reason"] or "?") if slow else "",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, nargs="+", default=[1, 100, 20000])
    parser.add_argument("--operators", nargs="+", help="all by default")
    parser.add_argument(
        "--features", type=int, nargs="+", help="sizes of rows of 128, as 1 16 256, and these rows only"
    )
    parser.add_argument("--streams", type=int, nargs="+", default=[1], help="streams in a step (1)")
    parser.add_argument("--worst", action="store_true", help="the worst ratio first, behind the last measurement")
    parser.add_argument("--seconds", type=float, default=0.05, help="of CPU time per row (0.05)")
    parser.add_argument("--mark", type=float, default=1.3, help="which rows are marked (1.3)")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", message="TF32")
    known = {o["name"] for o in _core.operators()}
    table = rows()
    have = {row.operator for row in table}
    no_row = {**NO_ROW, **{r.name: r.alone for r in OPERATORS.values() if r.alone and r.name not in have}}
    if missing := known - have - no_row.keys():
        sys.exit(f"operators.py: no row in operator_rows.py for {', '.join(sorted(missing))}")
    if wrong := (have | no_row.keys()) - known | (have & no_row.keys()):
        sys.exit(f"operators.py: operator_rows.py has too much: {', '.join(sorted(wrong))}")
    tell = (lambda *_: None) if args.json else print
    for line in machine(f"python {shlex.join(sys.argv)}", ("numpy", "torch")):
        tell(line)
    tell(kernels())
    tell("times     microseconds of CPU time of the one thread; the least of the samples\n")
    tell(
        "| operator | size | frames | torch | its layout | eager | engine | empty | eager ÷ torch "
        "| engine ÷ torch | (engine - empty) ÷ torch | why |\n|---|---|--:|--:|---|--:|--:|--:|--:|--:|--:|---|"
    )
    if args.features:
        sized = [row for row in table if set(row.features) == {(128,)} and "128" in row.label]
        table = [
            r._replace(features=((c,),) * len(r.features), label=r.label.replace("128", str(c)))
            for r in sized
            for c in args.features
        ]
    found, unfit = [], dict[str, str]()
    with torch.inference_mode():
        for row in table:
            chosen = not args.operators or row.operator in args.operators
            for n, streams in product(args.frames, args.streams) if chosen else ():
                try:
                    found.append(measure(row, n, args.seconds, streams, args.mark))
                except (ds.DreamStreamError, RuntimeError, ValueError, AssertionError) as error:
                    unfit[f"{row.operator} of {row.label}"] = str(error).partition(";")[0].partition("\n")[0]
                    break
                if not args.worst:
                    print(json.dumps(found[-1]) if args.json else text(found[-1], args.mark), flush=True)
    if args.worst:
        for r in sorted(found, key=lambda r: -r["ratio"]):
            print(json.dumps(r) if args.json else text(r, args.mark))
    slow = [r for r in found if r["ratio"] > args.mark]
    unexplained = sum(not r["reason"] for r in slow)
    tell(f"\n{len(slow)} rows above {args.mark}, {unexplained} of them without a reason. Without a row:\n")
    for name, why in (no_row | unfit).items():
        tell(f"- `{name}`: {why}")
    if unfit and not args.features:
        sys.exit(f"operators.py: {', '.join(unfit)} could not be measured")


if __name__ == "__main__":
    main()
