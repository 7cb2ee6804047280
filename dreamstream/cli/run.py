"""``dreamstream run``: audio files through a model, as concurrent streams."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

import dreamstream as ds

from .. import models, nn
from .._core import shown
from ..data import AudioReader
from ..data.progress import Progress
from ..data.values import in_frames, in_lists
from ..engine.verify import TOLERANCE, difference
from ..errors import DreamStreamError, FormatError
from ..stream.tree import leaves
from . import folder
from .arguments import FUNCTION, Commands, add_command, add_threads, at_least, fault_of, named_model
from .audio_file import AudioFile
from .outputs import Output, check_path, open_output
from .plot import plot, require_matplotlib

Array = npt.NDArray[Any]


class _Resampled(nn.Module):
    """A model behind a resampler."""

    def __init__(self, model: nn.Module, orig_freq: int, new_freq: int) -> None:
        super().__init__()
        self.resample = nn.Resample(orig_freq, new_freq)
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(self.resample(x))


# ---------------------------------------------------------------------- what is asked for
def _load(args: argparse.Namespace) -> Any:
    """Return the model, or the engine of a model file."""
    name, weights = args.model, args.weights
    if FUNCTION.fullmatch(name) or name.endswith(".py"):
        raise FormatError(f"{name} is Python; dreamstream convert FILE.py:FUNCTION OUT.dsm writes a file for run")
    found = named_model(name)
    if found is None:
        engine = ds.load(name, threads=args.threads)
        if weights is not None:
            raise FormatError(f"--weights goes with a model's name; {name} has its weights")
        return samples_only(name, engine)
    if weights is None:
        return found(pretrained=True).eval()
    model = found().eval()
    model.load_state_dict(weights)
    return model


def samples_only(name: str, engine: ds.Engine) -> ds.Engine:
    """Return an engine that takes samples at a rate that recordings can have."""
    first = engine.inputs[0]
    if len(engine.inputs) > 1 or any(n != 1 for n in first.features) or first.dtype != "float32":
        text = ", ".join(f"{x.name}: {x.dimensions} {x.dtype}" for x in engine.inputs)
        raise FormatError(f'{name} takes {text}; run feeds samples, ("B", "L") or ("B", 1, "L") float32')
    if first.rate == 1 or first.rate.denominator != 1:
        raise FormatError(
            f"{name} was compiled with the rate {first.rate}, which is no sample rate: ds.compile(…, rate=16000)"
        )
    return engine


def as_taken(engine: ds.Engine, samples: Array) -> Array:
    """Return samples in the input's dimensions, those of size 1 beside L."""
    return samples.reshape([-1 if d == "L" else 1 for d in engine.inputs[0].dimensions if d != "B"])


def engine_at(rate: int, model: Any, threads: int | None) -> tuple[Any, Any, Any]:
    """Return engine, model and front for recordings of a sample rate."""
    if isinstance(model, nn.Module):
        own = rate == model.sample_rate
        whole = model if own else _Resampled(model, rate, model.sample_rate).eval()
        return ds.compile(whole, model.spec, rate=rate, threads=threads, verify=False), whole, None
    front = None
    if rate != model.rate:
        resample = nn.Resample(rate, int(model.rate)).eval()
        front = ds.compile(resample, ("B", "L"), rate=rate, threads=threads, verify=False)
    return model, None, front


def opened(
    paths: list[str], model: Any, threads: int | None, chunk_ms: int, stack: ExitStack, routes: bool = False,
    faults: list[str] | None = None,
) -> list[AudioFile]:  # fmt: skip
    """Open files, until the stack closes them; one engine per sample rate, or that of a model file.

    With `routes` engines keep how they route tokens among experts. With `faults` what is wrong with a file goes
    there, and the others are opened.
    """
    twice = {p for p in paths if paths.count(p) > 1}
    if twice:
        raise FormatError(f"{sorted(twice)[0]} is given twice")
    engines: dict[int, tuple[Any, Any, Any]] = {}
    files = []
    for path in paths:
        try:
            reader = stack.enter_context(AudioReader(path))
        except (DreamStreamError, OSError) as error:
            if faults is None:
                raise
            faults.append(fault_of(error))
            continue
        rate = reader.sample_rate
        if rate not in engines:
            engine, _, front = engines[rate] = engine_at(rate, model, threads)
            for each in (engine, front) if front else (engine,):
                each.warmup(len(paths), max(1, int(each.rate) * chunk_ms // 1000))
            if routes:
                engine.keep_statistics(history=True)
        files.append(AudioFile(path, reader, *engines[rate]))
    return files


# ---------------------------------------------------------------------- streaming
def steps(files: list[AudioFile], chunk_ms: int) -> Iterator[tuple[float, list[AudioFile]]]:
    """Feed a chunk of every file per step; yield the seconds that it took, and whom it fed."""
    while live := [f for f in files if not f.ended]:
        for engine in {id(f.engine): f.engine for f in live}.values():
            fed = [f for f in live if f.engine is engine]
            chunks, starting = {}, [f.path for f in fed if f.samples == 0]
            for f in fed:
                chunks[f.path] = f.next(max(1, f.reader.sample_rate * chunk_ms // 1000))
            begin = time.perf_counter()
            for front in {id(f.front): f.front for f in fed if f.front}.values():
                mine = [f for f in fed if f.front is front]
                chunks |= _step(front, mine, chunks, starting)
            out = _step(engine, fed, chunks, starting)
            seconds = time.perf_counter() - begin
            for f in fed:
                f.add(leaves(out[f.path]))
            yield seconds, fed


def _step(engine: ds.Engine, fed: list[AudioFile], chunks: dict[str, Any], starting: list[str]) -> dict[str, Any]:
    """Advance the streams of some files."""
    paths = [f.path for f in fed]
    given = {p: as_taken(engine, chunks[p]) for p in paths}
    return engine.step(given, sos=[p for p in starting if p in paths], eos=[f.path for f in fed if f.ended])


def _new_frames(file: AudioFile) -> Iterator[dict[str, Any]]:
    """Describe the frames of the file's last step, for JSON."""
    for k, info in enumerate(file.engine.outputs):
        frames = in_frames(file.new[k], file.engine.stream_axis(k))
        for n, frame in enumerate(frames, file.frames(k) - len(frames)):
            start = float(n / info.rate) if info.rate else 0.0
            line: dict[str, Any] = {"file": file.path, "start": round(start, 9)}
            if len(file.new) > 1:
                line["output"] = info.name
            yield {**line, "values": in_lists(np.atleast_1d(frame))}


# ---------------------------------------------------------------------- the whole at once
def _whole(file: AudioFile) -> list[Array]:
    """Return what the offline model says of the whole file: an engine alone says it in one step."""
    samples = file.recording()
    if file.model is not None:
        whole = map(np.asarray, leaves(file.model(ds.tensor(samples[None]))))
        return [w if info.rate == 0 else w[0] for w, info in zip(whole, file.engine.outputs)]
    chunk = {"whole": samples}
    for engine in (file.front, file.engine):
        if engine is not None:
            chunk = engine.step({"whole": as_taken(engine, chunk["whole"])}, sos="whole", eos="whole")
    return leaves(chunk["whole"])


def _compared_with(file: AudioFile) -> str:
    """Return what `_whole` gives: as a model file holds no model in Python, its engine is held against itself."""
    return "the offline model" if file.model is not None else "the same engine given the whole file at once"


def _compare(file: AudioFile) -> tuple[float, str]:
    """Return the largest difference to the whole at once, relative to the larger of 1 and its values.

    The text says what does not hold; it is empty where all does.
    """
    worst = 0.0
    for k, expected in enumerate(_whole(file)):
        got = file.output(k)
        if file.engine.outputs[k].rate == 0:
            expected = expected[: len(got)]
        if got.shape != expected.shape:
            return math.inf, f"{file.path} gave {got.shape}, {_compared_with(file)} {expected.shape}"
        worst = max(worst, difference(got, expected, file.engine.stream_axis(k))[1])
    wrong = "" if worst <= TOLERANCE else f"{file.path} differs from {_compared_with(file)} by {worst:g}"
    return worst, wrong


# ---------------------------------------------------------------------- the command
def run(args: argparse.Namespace) -> int:
    """Stream audio files through a model."""
    if folder.is_asked(args):
        return folder.run(args, _load(args))
    if args.int16 and not (args.output or "").endswith(".wav"):
        raise FormatError(f"--int16 goes with a .wav file, got {args.output or 'no -o'}")
    if args.plot:
        require_matplotlib(args.plot)  # this and paths before all the work
    for path in filter(None, (args.output, args.plot)):
        check_path(path, args.audio)
    model = _load(args)
    hears = isinstance(model, models.SileroVAD)
    with ExitStack() as stack:
        files = opened(args.audio, model, args.threads, args.chunk_ms, stack, bool(args.plot))
        output = None
        if args.output:
            output = stack.enter_context(open_output(args.output, files, args.int16))
        for file in files:
            file.keeps_samples = bool(args.compare_offline or args.plot)
            file.keeps_outputs = file.keeps_samples or (output is not None and output.keeps(file)) or hears
        latencies = _stream(args, files, output)
        if output is not None:
            output.finish(files)
    compared = [_compare(f) for f in files] if args.compare_offline else []
    worst = max((gap for gap, _ in compared), default=None)
    if args.plot:
        plot(args.plot, files, latencies, args.chunk_ms)
    frames = sum(f.frames(0) for f in files)
    delay = max(f.delay for f in files)
    if args.json:
        summary: dict[str, Any] = {"frames": frames, "delay": delay if math.isfinite(delay) else None}
        exact = worst is None or math.isfinite(worst)
        summary["max_difference"] = worst if exact else None
        if compared:
            summary["compared_with"] = _compared_with(files[0])
        if hears:
            summary["spoken"] = {f.path: [[round(t, 6) for t in span] for span in _spoken(f)] for f in files}
        print(json.dumps(summary))
    else:
        for f in files:
            about = _heard(f) if hears else _values(f)
            print(f"{shown(f.path)}  {f.seconds:.2f} s, {f.frames(0)} frames  {about}".rstrip())
        _print_summary(files, latencies, frames, worst)
    wrong = [text for _, text in compared if text]
    faults = [str(f.fault) for f in files if f.fault is not None]
    for text in (*_notes(args, files, output), *faults, *([f"MISMATCH: {'; '.join(wrong)}"] if wrong else [])):
        print(f"dreamstream run: {shown(text, True)}", file=sys.stderr)
    return 1 if wrong or faults else 0


def _notes(args: argparse.Namespace, files: list[AudioFile], output: Output | None) -> Iterator[str]:
    """Say what is no fault, and may surprise."""
    for f in files:
        if not any(f.frames(k) for k in range(len(f.new))):
            yield f"{f.path} gave no frames; it lasts {f.seconds:.3f} s"
    if output is not None and output.beyond:
        become = "are clipped, as --int16 asks" if args.int16 else "stay as they are, which players may clip"
        of = f"{output.beyond} samples in {output.frames} frames"
        yield f"{output.path}: {of} are beyond full scale and {become}"


def _stream(args: argparse.Namespace, files: list[AudioFile], output: Output | None) -> list[float]:
    """Stream all files, write what comes, and return the seconds of each step."""
    latencies = []
    try:
        with Progress(seconds_of(files), args.json) as progress:
            for seconds, fed in steps(files, args.chunk_ms):
                latencies.append(seconds)
                progress.advance(len(fed) * args.chunk_ms / 1000)
                for file in fed:
                    if output is not None:
                        output.add(file)
                    if args.json:
                        for line in _new_frames(file):
                            print(json.dumps(line), flush=True)
    except BaseException as error:
        text = f"stopped after {sum(f.seconds for f in files):.2f} s of audio"
        if output is not None:
            if not (isinstance(error, OSError) and error.filename == output.path):
                output.finish(files)
            n = f"{output.frames} frames were" if output.frames else "nothing was"
            text += f"; {n} written to {output.path}"
        if output is not None or isinstance(error, KeyboardInterrupt):
            print(f"dreamstream run: {shown(text, True)}", file=sys.stderr)
        raise
    return latencies


def seconds_of(files: list[AudioFile]) -> float:
    """Return how long the files last; those that don't say so count for nothing."""
    return sum((f.reader.frames or 0) / f.reader.sample_rate for f in files)


def _values(file: AudioFile) -> str:
    return f"values {file.least:.4f} to {file.most:.4f}, mean {file.mean:.4f}" if file.frames(0) else ""


def _spoken(file: AudioFile) -> list[tuple[float, float]]:
    """Return where somebody speaks in a file, in seconds."""
    if not file.frames(0):
        return []
    return models.SileroVAD.spoken(file.output(0), float(file.engine.outputs[0].rate))


def _heard(file: AudioFile) -> str:
    """Return where somebody speaks in a file, in lines."""
    spans = _spoken(file)
    lines = [f"somebody speaks for {sum(b - a for a, b in spans):.2f} s" if spans else "nobody speaks"]
    return "\n".join([*lines, *(f"  {begin:9.2f} to {end:9.2f} s" for begin, end in spans)])


def _print_summary(files: list[AudioFile], latencies: list[float], frames: int, worst: float | None) -> None:
    audio = sum(f.seconds for f in files)
    slowest = max(files, key=lambda f: f.delay)
    engine, rate = slowest.engine, slowest.reader.sample_rate
    print(f"frames          {frames}, of {len(files)} file(s), together in {len(latencies)} steps")
    if worst is not None:
        n = sum(len(f.new) for f in files)
        if slowest.model is not None:
            print(f"compared        {n} output(s) with the offline model on each whole file")
            print(f"offline model   largest difference {worst:.1e}")
        else:
            print(
                f"compared        {n} output(s) with {_compared_with(slowest)}, as a .dsm holds no offline model"
            )
            print(f"whole file      largest difference {worst:.1e}")
    finite = math.isfinite(slowest.delay)
    delay = f"{slowest.delay} samples, {slowest.delay / rate * 1000:.1f} ms" if finite else "until the end"
    print(f"delay           {delay}")
    spent = sum(latencies)
    factor = f"factor {spent / audio:.5f}: " if audio else ""
    print(f"real time       {factor}{spent:.3f} s for {audio:.1f} s of audio")
    p50, p90, p99 = (1000 * float(np.percentile(latencies, q)) for q in (50, 90, 99))
    print(f"step latency    50 %: {p50:.2f} ms, 90 %: {p90:.2f} ms, 99 %: {p99:.2f} ms")
    print(f"state           {engine.state_size} bytes per stream; weights {engine.weights_size:,} bytes, shared")


def _output_path(text: str) -> str:
    if os.path.splitext(text)[1] not in (".npy", ".npz", ".csv", ".wav", ".jsonl"):
        raise argparse.ArgumentTypeError(f"expected a .npy, .npz, .csv, .wav or .jsonl file, got {text}")
    return text


def add(commands: Commands) -> None:
    """Add the command to the command line's."""
    further = (
        ", all of them at the same time. Files of another sample rate are resampled, in the stream; of several "
        "channels the mean is taken."
    )
    parser = add_command(commands, "run", "stream audio files through a model", further)
    parser.add_argument("model", metavar="MODEL", help=f"a .dsm file, or one of {', '.join(models.COMPLETE)}")
    text = (
        "WAV files, each given once; others with soundfile installed; - is standard input; with -o OUT.jsonl "
        "also folders, of which all recordings are run"
    )
    parser.add_argument("audio", metavar="AUDIO", nargs="+", help=text)
    parser.add_argument("--weights", metavar="FILE", help="a .safetensors file; by default that of silero-vad")
    parser.add_argument("--chunk-ms", type=at_least(1, int), default=100, metavar="N", help="audio per step (100)")
    text = (
        "also run the offline model on each whole file, or, as a .dsm holds none, the same engine; fail "
        "where they differ"
    )
    parser.add_argument("--compare-offline", action="store_true", help=text)
    text = (
        "print a line {file, start (seconds), values} per output frame, as they come; last a summary "
        "{frames, delay (samples), max_difference, compared_with}"
    )
    parser.add_argument("--json", action="store_true", help=text)
    text = (
        "draw waveform, outputs with their delay, the latency of steps, and for mixtures of experts which "
        "of them were chosen when, and how often (needs matplotlib)"
    )
    parser.add_argument("--plot", metavar="PNG", help=text)
    text = (
        "write all outputs as they come: .csv, .npz (an array per file, when it has ended), .npy (one file), "
        ".wav (one output of samples, float32), .jsonl (a line {file, model, frames, values} per file that has "
        "ended; run again, it goes on with the files that have none)"
    )
    parser.add_argument("-o", "--output", metavar="OUT", type=_output_path, help=text)
    text = "write integers to the .wav; says how many samples were clipped"
    parser.add_argument("--int16", action="store_true", help=text)
    text = "processes that read for a .jsonl (0)"
    parser.add_argument("--workers", type=at_least(0, int), default=0, metavar="N", help=text)
    text = "a Ray whose machines run the files of a .jsonl, in so many workers: its head's address, or `local`"
    parser.add_argument("--ray", metavar="ADDRESS", help=text)
    add_threads(parser)
    parser.set_defaults(run=run)
