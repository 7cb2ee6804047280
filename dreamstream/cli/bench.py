"""``dreamstream bench``: how fast a model steps, by number of streams and size of chunks."""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

import dreamstream as ds

from .. import models, nn
from ..errors import FormatError
from .arguments import (
    FUNCTION,
    Commands,
    add_numbers,
    add_threads,
    at_least,
    described,
    named_model,
    require_function,
)
from .plot import new_figure, require_matplotlib

Array = npt.NDArray[Any]
Step = Callable[[], Any]
"""One step of all streams, on chunks that are ready."""

WARMUP, LEAST = 3, 20  # steps: not counted, and counted at least
FOR_STREAMS = "with those for starts and ends; one with caches written by hand has fewer and may be faster"
PEERS = ("torch", "onnxruntime")
COLUMNS = ("streams", "chunk_ms", "engine", "p50_ms", "p90_ms", "p99_ms", "real_time_factor", "streams_per_core")


# ---------------------------------------------------------------------- what is stepped
def _load(args: argparse.Namespace, stack: ExitStack) -> tuple[ds.Engine, Any, Any]:
    """Return the engine, and the model with its spec where it is one in Python."""
    require_function(args.model)
    if FUNCTION.fullmatch(args.model):
        model, spec, rate = stack.enter_context(described(args.model))
    else:
        found = named_model(args.model)
        if found is None:
            return stack.enter_context(ds.load(args.model, threads=args.threads)), None, None
        model = found().eval()
        spec, rate = model.spec, model.sample_rate
    engine = ds.compile(model, spec, rate=rate, threads=args.threads, verify=False)
    return stack.enter_context(engine), model, spec


def _frames(engine: ds.Engine, chunk_ms: float, rate: float | None) -> list[int]:
    """Return the frames of a chunk, per input."""
    first = engine.inputs[0].rate
    if rate is None and first == 1:
        raise FormatError(
            "the model does not know its rate: give --rate, frames of its first input per second, or compile it "
            "with rate="
        )
    per_second = Fraction(first) if rate is None else Fraction(rate)
    frames = [Fraction(chunk_ms) / 1000 * per_second * x.rate / first for x in engine.inputs]
    if len(frames) > 1 and any(n.denominator != 1 for n in frames):
        raise FormatError(
            f"{chunk_ms:g} ms are {', '.join(map(str, frames))} frames of the inputs; give another size"
        )
    if frames[0] < 1:
        raise FormatError(f"{chunk_ms:g} ms are less than a frame; give a larger --chunk-ms")
    return [int(n) for n in frames]


def _chunks(engine: ds.Engine, frames: Sequence[int], n: int) -> list[Array]:
    """Return noise for n streams, per input, with a dimension B."""
    rng = np.random.default_rng(0)
    out = []
    for info, length in zip(engine.inputs, frames):
        shape = [n if d == "B" else length if isinstance(d, str) else d for d in info.dimensions]
        noise = rng.standard_normal(shape) if info.dtype.startswith("float") else np.zeros(shape)
        out.append(noise.astype(info.dtype))
    return out


def _engine(engine: ds.Engine, chunks: Sequence[Array], n: int) -> Step:
    ids = [f"stream-{i}" for i in range(n)]
    axes = [info.dimensions.index("B") for info in engine.inputs]
    rows = {i: [np.ascontiguousarray(np.take(c, r, a)) for c, a in zip(chunks, axes)] for r, i in enumerate(ids)}
    if len(chunks) == 1:
        given: dict[str, Any] = {i: arrays[0] for i, arrays in rows.items()}
    else:
        names = [info.name for info in engine.inputs]
        given = {i: dict(zip(names, arrays)) for i, arrays in rows.items()}
    once = [info.name for info in engine.inputs if info.once]
    starting = {i: {name: given[i].pop(name) for name in once} for i in ids if once}
    engine.step(starting, sos=ids)
    return lambda: engine.step(given)


def _torch(module: Any, chunks: Sequence[Array], n: int, threads: int) -> Step:
    """The model in torch, its states as arguments and results: `dreamstream.torch.functionalize`."""
    import torch

    torch.set_num_threads(threads)
    single = len(chunks) == 1
    lengths = [torch.full((n,), c.shape[p.dims.index("L")]) for c, p in zip(chunks, module.inputs)]
    given = [torch.from_numpy(c) for c in chunks]
    x, length = (given[0], lengths[0]) if single else (tuple(given), tuple(lengths))
    yes, no = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    with torch.inference_mode():
        _, _, states = module(x, length, yes, no, module.initial(n))

    def step() -> None:
        nonlocal states
        with torch.inference_mode():
            _, _, states = module(x, length, no, no, states)

    return step


def _onnxruntime(
    module: Any, model: Any, spec: Any, rates: Any, chunks: Sequence[Array], n: int, threads: int
) -> tuple[Step, int]:
    """The model as ONNX, of just this many rows and frames: `dreamstream.export.onnx`; and its number of nodes."""
    import onnxruntime
    from onnx import load_from_string

    from ..export import onnx

    file = io.BytesIO()
    frames = chunks[0].shape[module.inputs[0].dims.index("L")]
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        manifest = onnx(model, spec, file, rate=rates, rows=n, frames=frames)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed: dict[str, Any] = {"sos": np.ones(n, bool), "eos": np.zeros(n, bool)}
    for port, chunk in zip(manifest["inputs"], chunks):
        feed |= {port["name"]: chunk, port["lengths"]: np.full(n, chunk.shape[port["dims"].index("L")])}
    for state in manifest["states"]:
        shape = (n, *state["dims"][1:])
        feed[state["name"]] = np.broadcast_to(np.array(state["initial"], state["dtype"]), shape)
    names = [state["name"] for state in manifest["states"]]
    fetched = [o["name"] for o in manifest["outputs"]] + [state["next"] for state in manifest["states"]]

    def step() -> None:
        found = session.run(fetched, feed)
        feed.update(zip(names, found[len(manifest["outputs"]) :]))
        feed["sos"] = no

    no = np.zeros(n, bool)
    return step, len(load_from_string(file.getvalue()).graph.node)


# ---------------------------------------------------------------------- measuring
def _times(steps: dict[str, Step], seconds: float) -> dict[str, Array]:
    """Return the seconds of every step; all take turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(WARMUP):
            step()
    stop = time.perf_counter() + seconds * len(steps)
    while time.perf_counter() < stop or len(next(iter(times.values()))) < LEAST:
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - begin)
    return {name: np.array(t) for name, t in times.items()}


def _rows(args: argparse.Namespace, notes: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Measure; yield a row per number of streams, size of chunks and engine; `notes` gets words on an engine."""
    with ExitStack() as stack:
        engine, model, spec = _load(args, stack)
        sizes = [(ms, _frames(engine, ms, args.rate)) for ms in args.chunk_ms]
        peers = _peers(args.beside, model)
        rates = {info.name: info.rate for info in engine.inputs} if len(engine.inputs) > 1 else engine.rate
        module = ds.torch.functionalize(model, spec, rates) if peers else None
        for n in args.streams:
            for chunk_ms, frames in sizes:
                chunks = _chunks(engine, frames, n)
                steps = {"dreamstream": _engine(engine, chunks, n)}
                if "torch" in peers:
                    steps["torch"] = _torch(module, chunks, n, args.threads)
                if "onnxruntime" in peers:
                    steps["onnxruntime"], nodes = _onnxruntime(module, model, spec, rates, chunks, n, args.threads)
                    notes["onnxruntime"] = (
                        f"runs the graph of dreamstream.export.onnx, {nodes} nodes {FOR_STREAMS}"
                    )
                for name, times in _times(steps, args.seconds).items():
                    p50, p90, p99 = (1000 * float(np.percentile(times, q)) for q in (50, 90, 99))
                    figures = (p50, p90, p99, p50 / chunk_ms, n * chunk_ms / p50 / args.threads)
                    yield dict(zip(COLUMNS, (n, chunk_ms, name, *(float(f"{x:.4g}") for x in figures))))
                engine.reset()


def _peers(beside: Sequence[str] | None, model: Any) -> list[str]:
    """Return what is measured beside: as asked for, else what is installed where the model is torch's."""
    if beside is None:
        foreign = model is not None and not isinstance(model, nn.Module)
        needs = {"torch": ("torch",), "onnxruntime": ("torch", "onnx", "onnxruntime")}
        return [p for p in PEERS if foreign and all(map(importlib.util.find_spec, needs[p]))]
    if beside and model is None:
        raise FormatError("--beside needs a model in Python, FILE.py:FUNCTION or a name; a model file has none")
    return [p for p in PEERS if p in beside]


# ---------------------------------------------------------------------- the command
def bench(args: argparse.Namespace) -> int:
    """Measure the steps of a model."""
    if args.plot:
        require_matplotlib(args.plot)
    rows: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    for row in _rows(args, notes):
        if not rows and not args.json:
            print("  streams  chunk  engine       50 %        90 %        99 %   real-time   streams")
            print("           ms                    ms          ms          ms      factor  per core")
        rows.append(row)
        n, chunk, name, p50, p90, p99, factor, per_core = row.values()
        line = (
            f"  {n:7}  {chunk:5g}  {name:11} {p50:9.4g}   {p90:9.4g}   {p99:9.4g}   {factor:9.3g}  {per_core:8.4g}"
        )
        print(json.dumps(row) if args.json else line, flush=True)
    if not args.json:
        for name, note in notes.items():
            print(f"{name} {note}")
    if args.plot:
        _plot(args.plot, args.model, rows)
    return 0


def _plot(path: str, model: str, rows: Sequence[dict[str, Any]]) -> None:
    """Draw latency and real-time factor over the number of streams, a line per engine and size of chunks."""
    figure = new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    for name, chunk in dict.fromkeys((r["engine"], r["chunk_ms"]) for r in rows):
        mine = [r for r in rows if (r["engine"], r["chunk_ms"]) == (name, chunk)]
        streams = [r["streams"] for r in mine]
        half, most = ([r[column] for r in mine] for column in ("p50_ms", "p99_ms"))
        (line,) = left.plot(streams, half, "o-", label=f"{name}, {chunk:g} ms")
        left.fill_between(streams, half, most, alpha=0.15, color=line.get_color())
        right.plot(streams, [r["real_time_factor"] for r in mine], "o-", color=line.get_color())
    left.set_title(f"{os.path.basename(model)}: ms per step, 50 % to 99 %")
    right.axhline(1, linestyle=":", color="0.5")
    right.set_title("real-time factor")
    ticks = sorted({r["streams"] for r in rows})
    for axes in (left, right):
        axes.set(xlabel="streams", xscale="log", yscale="log")
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.set_xticks([], minor=True)
    left.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def add(commands: Commands) -> None:
    """Add the command to the command line's."""
    parser = commands.add_parser(
        "bench",
        help="measure how fast a model steps",
        description="Measure how long one step takes for so many streams and chunks of such a size, in "
        "mid-stream, on noise: the 50th, 90th and 99th percentile in milliseconds; the real-time factor, the "
        "first of these over the chunk's duration; and how many streams one core carries at that. Beside it, for "
        "a torch model, torch itself with states as arguments (dreamstream.torch.functionalize) and onnxruntime "
        "on the exported model, where they are installed, all streams in one batch. What is exported has nodes "
        "for starts and ends of streams, which a graph with caches written by hand has not.",
    )
    text = (
        "a model file, FILE.py:FUNCTION as for convert (the file is executed), or one of "
        f"{', '.join(models.COMPLETE)}, with random weights"
    )
    parser.add_argument("model", metavar="MODEL", help=text)
    add_numbers(parser, "--streams", 1, int, [1, 8, 32])
    add_numbers(parser, "--chunk-ms", 0.01, float, [40.0, 200.0])
    text = "frames a second of the first input"
    parser.add_argument("--rate", type=at_least(1e-3, float), metavar="R", help=text)
    parser.add_argument("--seconds", type=at_least(0, float), default=1.0, metavar="S", help="per figure (1)")
    text = "what to measure beside; by default all that can be for a torch model"
    parser.add_argument("--beside", nargs="*", choices=PEERS, help=text)
    parser.add_argument("--json", action="store_true", help="print a line per row")
    parser.add_argument("--plot", metavar="PNG", help="draw latency and real-time factor (needs matplotlib)")
    add_threads(parser)
    parser.set_defaults(run=bench)
