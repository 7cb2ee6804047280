"""``dreamstream demo``: a recording as many concurrent streams, compared with the offline model."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

import dreamstream as ds

from .. import nn
from ..config import config
from ..data import AudioReader
from ..data.progress import Progress
from ..models import SileroVAD
from ..nn import functional as F
from .arguments import Commands, add_threads, at_least

Array = npt.NDArray[Any]
Span = tuple[float, float]
"""From and to, in seconds."""

SAMPLE_RATE = 16000
WINDOW, STEP = 400, 160  # samples per analysis window and from one to the next: 25 ms, 10 ms
MOST_ROWS = 12  # of the table of calls
TOLERANCE = 1e-4  # relative: two float32 computations that sum in different orders


# ---------------------------------------------------------------------- the network
class DemoNetwork(nn.Module):
    """Raw audio in, 50 frames of class scores per second out.

    A filter bank on windows of 25 ms, convolutions that look back *and ahead*, residuals, an LSTM. The
    filters are a filter bank's; all other weights are random, so the classes mean nothing.
    """

    def __init__(self, bands: int = 64, channels: int = 96, hidden: int = 128, classes: int = 16) -> None:
        super().__init__()
        self.bands = bands
        self.filters = nn.Linear(WINDOW, 2 * bands, bias=False)
        self.conv = nn.Conv1d(bands, channels, 5, padding=2)
        self.blocks = nn.ModuleList([nn.Conv1d(channels, channels, 5, padding=2) for _ in range(2)])
        self.down = nn.Conv1d(channels, hidden, 3, stride=2, padding=1)
        self.rnn = nn.LSTM(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)
        self._set_weights(np.random.default_rng(29))

    def _set_weights(self, rng: np.random.Generator) -> None:
        for name, parameter in self.named_parameters():
            shape = parameter.shape
            gain = 5.0 if name == "head.weight" else 1.0 if len(shape) > 1 else 0.1
            parameter.numpy()[...] = gain / math.sqrt(math.prod(shape[1:])) * rng.standard_normal(shape)
        # Cosines and sines under a Hann window, at frequencies that are evenly spaced in mel.
        lowest, highest = (1127 * math.log1p(f / 700) for f in (60, 7600))
        frequencies = 700 * np.expm1(np.linspace(lowest, highest, self.bands) / 1127)
        phases = 2 * np.pi / SAMPLE_RATE * frequencies[:, None] * np.arange(WINDOW)
        window = np.hanning(WINDOW) / np.hanning(WINDOW).sum() * 2
        self.filters.weight.numpy()[...] = np.concatenate([np.cos(phases), np.sin(phases)]) * window

    def forward(self, x: Any) -> Any:
        """Return log-probabilities ``(B, L // 320, classes)``, about, of samples ``(B, L)``."""
        x = self.filters(x.unfold(1, WINDOW, STEP))
        power = x[..., : self.bands].square() + x[..., self.bands :].square()
        x = (power + 1e-6).log() * 0.4 + 5.0
        x = F.relu(self.conv(x.transpose(1, 2)))
        for block in self.blocks:
            x = x + F.relu(block(x))
        x, _ = self.rnn(self.down(x).transpose(1, 2))
        return F.log_softmax(self.head(x), dim=-1)


def offline(model: nn.Module, samples: Array) -> Array:
    """Return the untouched model's output for one whole recording, frame by frame."""
    outputs: Array = np.asarray(model(ds.tensor(samples[None].astype(np.float32) / 32768)))
    output: Array = outputs[0]
    return output


# ---------------------------------------------------------------------- the streams
@dataclass
class _Caller:
    """One stream: what is sent, and what came out so far."""

    id: str
    samples: Array
    begins: int  # the round in which it starts
    spoken: list[Span] = field(default_factory=list)  # where excerpts of the recording lie, if not everywhere
    sent: int = 0
    outputs: list[Array] = field(default_factory=list)
    gap: float = 0.0  # the largest difference to the offline model

    @property
    def n_frames(self) -> int:
        return sum(map(len, self.outputs))

    def output(self) -> Array:
        return np.concatenate(self.outputs)


def _read_speech() -> Array:
    """Return the recording that comes with the package, int16."""
    path = resources.files("dreamstream") / "assets" / "speech.wav"
    with path.open("rb") as file, AudioReader(file, dtype="int16") as recording:
        return recording.read()


def _callers(n_streams: int, seconds: float | None, rng: np.random.Generator) -> list[_Caller]:
    """Cut excerpts of random places and lengths; every eighth is very short, the first of them empty."""
    speech = _read_speech()
    longest = len(speech) if seconds is None else max(1, int(seconds * SAMPLE_RATE))
    speech = np.resize(speech, max(longest, len(speech)))  # repeated where it is too short
    out = []
    for i in range(n_streams):
        n = int(rng.uniform(0.05, 1) * longest)
        if i % 8 == 3:
            n = 0 if i == 3 else min(n, int(rng.integers(1, 3 * WINDOW)))
        at = int(rng.integers(0, len(speech) - n + 1))
        out.append(_Caller(f"caller-{i + 1:02d}", speech[at : at + n], int(rng.integers(0, 24)) * (i > 3)))
    return out


def _with_pauses(callers: Sequence[_Caller], rng: np.random.Generator) -> None:
    """Cut what each caller says in pieces of up to three seconds, with some of faint noise around them."""
    for c in callers:
        if not len(c.samples):
            continue
        parts, at = [], 0
        for piece in np.array_split(c.samples, 1 + len(c.samples) // (3 * SAMPLE_RATE)):
            pause = rng.integers(-8, 9, int(rng.uniform(0.8, 2.5) * SAMPLE_RATE)).astype(np.int16)
            at += len(pause)
            c.spoken.append((at / SAMPLE_RATE, (at + len(piece)) / SAMPLE_RATE))
            at += len(piece)
            parts += [pause, piece]
        c.samples = np.concatenate([*parts, rng.integers(-8, 9, SAMPLE_RATE).astype(np.int16)])


def _seconds(callers: Sequence[_Caller]) -> float:
    return sum(len(c.samples) for c in callers) / SAMPLE_RATE


def _traffic(
    callers: Sequence[_Caller], rng: np.random.Generator
) -> Iterator[tuple[dict[str, Array], list[str], list[str]]]:
    """Yield what arrives in each round, chunks and the ids that start and end, until all have ended."""
    waiting, number = list(callers), 0
    live: list[_Caller] = []
    while waiting or live:
        starting = [c for c in waiting if c.begins <= number]
        waiting = [c for c in waiting if c.begins > number]
        live += starting
        number += 1
        chunks: dict[str, Array] = {}
        ending = []
        for c in live:
            if c not in starting and rng.random() < 0.2:  # nothing arrives
                continue
            typical = rng.choice([0, 0.005, 0.05, 0.2, 0.8], p=[0.05, 0.15, 0.4, 0.35, 0.05])
            stop = c.sent + int(typical * rng.uniform(0.5, 1.5) * SAMPLE_RATE)
            chunks[c.id] = c.samples[c.sent : stop]
            c.sent = min(stop, len(c.samples))
            # The end is sometimes known with the last chunk, sometimes only afterwards.
            if c.sent == len(c.samples) and rng.random() < 0.5:
                ending.append(c)
        live = [c for c in live if c not in ending]
        if chunks:
            yield chunks, [c.id for c in starting], [c.id for c in ending]


# ---------------------------------------------------------------------- the demo
def _stream(
    engine: ds.Engine,
    callers: Sequence[_Caller],
    rng: np.random.Generator,
    quiet: bool,
    line: Callable[[_Caller, float], str] | None,
) -> list[float]:
    """Feed all streams to their ends; return the seconds that each step took.

    Parameters
    ----------
    line : callable, optional
        Says what the last frame of a stream holds, and the seconds at which it lies: for ten of them.
    """
    by_id = {c.id: c for c in callers}
    total = _seconds(callers)
    latencies: list[float] = []
    to_show = total / 10
    with Progress(total, quiet) as progress:
        for chunks, sos, eos in _traffic(callers, rng):
            begin = time.perf_counter()
            outputs = engine.step(chunks, sos=sos, eos=eos)
            latencies.append(time.perf_counter() - begin)
            for i, frames in outputs.items():
                by_id[i].outputs.append(frames)
            progress.advance(sum(map(len, chunks.values())) / SAMPLE_RATE)
            if line is not None and not quiet and progress.done >= to_show:
                c = by_id[max(outputs, key=lambda i: len(outputs[i]))]
                if len(outputs[c.id]):
                    to_show = progress.done + total / 10
                    said = line(c, (c.n_frames - 1) / float(engine.outputs[0].rate))
                    progress.say(
                        f"{said}; {len(sos)} starting, {len(eos)} ending of {len(chunks)} streams in this step"
                    )
    return latencies


def _class_of(c: _Caller, seconds: float) -> str:
    best = c.outputs[-1][-1]
    return f"  {c.id:10} at {seconds:5.2f} s: class {best.argmax():2}, probability {math.exp(best.max()):.2f}"


def _compare(
    model: nn.Module, engine: ds.Engine, callers: Sequence[_Caller], quiet: bool
) -> tuple[int, float, list[str]]:
    """Compare what came out with the offline model; of every third stream also with the engine in one piece.

    Returns
    -------
    tuple of (int, float, list of str)
        Frames, largest difference to the offline model, and what does not hold.
    """
    frames, worst, wrong = 0, 0.0, []
    with Progress(_seconds(callers), quiet) as progress:
        for i, c in enumerate(callers):
            streamed, whole = c.output(), offline(model, c.samples)
            progress.advance(len(c.samples) / SAMPLE_RATE)
            frames += len(streamed)
            if streamed.shape != whole.shape:
                wrong.append(f"{c.id} gave {len(streamed)} frames, the offline model {len(whole)}")
                continue
            gap = c.gap = float(np.abs(streamed - whole).max(initial=0))
            worst = max(worst, gap)
            if not gap <= TOLERANCE * max(1.0, float(np.abs(whole).max(initial=0))):  # so that NaN fails
                wrong.append(f"{c.id} differs from the offline model by {gap:g}")
            elif i % 3 == 0 and not _same_bits(engine, c):
                wrong.append(f"{c.id} differs in its bits from the engine with this stream alone, in one chunk")
    return frames, worst, wrong


def _same_bits(engine: ds.Engine, c: _Caller) -> bool:
    at_once: Array = engine.step({c.id: c.samples}, sos=[c.id], eos=[c.id])[c.id]
    return at_once.tobytes() == c.output().tobytes()


def trained() -> SileroVAD | None:
    """Return a network with trained weights, where they are installed."""
    try:
        return SileroVAD(pretrained=True).eval()
    except ImportError:
        return None


def _in_words(spans: Sequence[Span]) -> str:
    return ", ".join(f"{begin:.1f}-{end:.1f}" for begin, end in spans) or "-"


def _table(callers: Sequence[_Caller], rate: float) -> Iterator[str]:
    """Yield for each call where somebody was put, where the network hears somebody, and how exact that is."""
    rows = [("call", "seconds", "somebody speaks at", "is heard at", "offline differs by")]
    for c in callers[:MOST_ROWS]:
        spans = _in_words(c.spoken), _in_words(SileroVAD.spoken(c.output(), rate))
        rows.append((c.id, f"{len(c.samples) / SAMPLE_RATE:.1f}", *spans, f"{c.gap:.1e}"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for name, seconds, spoken, heard, gap in rows:
        yield f"  {name:{widths[0]}}  {seconds:>{widths[1]}}  {spoken:{widths[2]}}  {heard:{widths[3]}}  {gap}"
    if len(callers) > MOST_ROWS:
        yield f"  and {len(callers) - MOST_ROWS} calls more"


def demo(args: argparse.Namespace) -> int:
    """Stream many excerpts of a recording at once and compare with the offline model."""

    def say(text: str = "") -> None:
        if not args.quiet:
            print(text)

    vad = trained()
    model = vad or DemoNetwork().eval()
    engine = ds.compile(model, ("B", "L"), rate=SAMPLE_RATE, threads=args.threads)
    rate = float(engine.outputs[0].rate)
    rng = np.random.default_rng(args.seed)
    callers = _callers(args.streams, args.seconds, rng)
    if vad is not None:
        _with_pauses(callers, rng)
    engine.warmup(min(args.streams, 32), SAMPLE_RATE // 5)
    seconds = _seconds(callers)
    n_weights = sum(p.numel() for p in model.parameters())
    if vad is not None:
        say(f"{len(callers)} calls, {seconds:.1f} s, at the same time and in random chunks, through Silero VAD")
        say(f"({n_weights:,} trained weights), which says for each 32 ms whether somebody speaks:")
    else:
        say(
            f"{len(callers)} streams, {seconds:.1f} s of speech, through a network of {n_weights:,} random weights"
        )
        say("(25 ms windows, non-causal convolutions, residuals, LSTM); classes mean nothing, but must agree.")
        say("With trained weights it says where somebody speaks: pip install --no-deps silero-vad")
    latencies = _stream(engine, callers, rng, args.quiet, None if vad is not None else _class_of)
    frames, worst, wrong = _compare(model, engine, callers, args.quiet)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        print(f"dreamstream demo: MISMATCH: {wrong[0]}{more}", file=sys.stderr)
        return 1
    for line in _table(callers, rate) if vad is not None else ():
        say(line)
    spent = sum(latencies)
    p50, p90, p99 = (1000 * float(np.percentile(latencies, q)) for q in (50, 90, 99))
    say()
    say(f"offline model   {frames} frames, as many as streamed; largest difference {worst:.1e}")
    say("one at a time   every third stream again, alone and in one chunk: the same bits")
    say(
        f"delay           {engine.delay} samples, {engine.delay / SAMPLE_RATE * 1000:.1f} ms "
        f"({engine.delay / SAMPLE_RATE * rate:.1f} output frames)"
    )
    factor = f"factor {spent / seconds:.5f}: " if seconds else ""
    say(f"real time       {factor}{spent:.3f} s for {seconds:.1f} s of audio, {engine.threads} thread(s)")
    say(f"step latency    50 %: {p50:.2f} ms, 90 %: {p90:.2f} ms, 99 %: {p99:.2f} ms, of {len(latencies)} steps")
    say(f"state           {engine.state_size} bytes per stream; weights {engine.weights_size:,} bytes, shared")
    say(f"kernels         {config()['kernels']}")
    if vad is not None:
        say("your recording  dreamstream run SileroVAD call.wav --compare-offline")
    return 0


def add(commands: Commands) -> None:
    """Add the command to the command line's."""
    about = "stream a recording as many concurrent streams and compare with the offline model"
    parser = commands.add_parser("demo", help=about, description=f"{about[0].upper()}{about[1:]}.")
    parser.add_argument("--streams", type=at_least(1, int), default=24, metavar="N", help="streams (24)")
    parser.add_argument(
        "--seconds",
        type=at_least(0, float),
        metavar="S",
        help="the longest excerpt; by default the recording, which is repeated for more",
    )
    parser.add_argument(
        "--seed", type=at_least(0, int), default=0, metavar="N", help="of excerpts, chunks, starts and ends (0)"
    )
    add_threads(parser)
    parser.add_argument("--quiet", action="store_true", help="print nothing but a mismatch")
    parser.set_defaults(run=demo)
