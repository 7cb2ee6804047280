"""``dreamstream demo``: what many callers say at once, as words, compared with the offline model."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
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
from ..decode import CTCDecoder
from ..models import Commands as Recogniser
from .arguments import Commands, add_command, add_threads, at_least
from .decoding import ENDPOINTS

Array = npt.NDArray[Any]

SAMPLE_RATE = 16000
SPOKEN = ("yes no up down", "left right on off", "stop go yes no", "up down left right")
"""The words of the recording that comes with the package, of four people, each as long as the others."""
MOST_ROWS = 12  # of the table of calls
PACE = 0.1  # seconds of a round, live: about what comes in one of each call
TOLERANCE = 1e-4  # relative: two float32 computations that sum in different orders


def offline(model: nn.Module, samples: Array) -> Array:
    """Return the untouched model's output for one whole recording, frame by frame."""
    outputs: Array = np.asarray(model(ds.tensor(samples[None].astype(np.float32) / 32768)))
    return outputs[0]


# ---------------------------------------------------------------------- the streams
@dataclass
class _Caller:
    """One stream: what is sent, and what came out so far."""

    id: str
    words: list[str]  # that are said
    samples: Array
    begins: int  # the round in which it starts
    sent: int = 0
    outputs: list[Array] = field(default_factory=list)
    heard: str = ""
    pending: str = ""  # of what is heard the part that may still change
    gap: float = 0.0  # the largest difference to the offline model

    def output(self) -> Array:
        return np.concatenate(self.outputs)


def _read_words() -> list[list[tuple[str, Array]]]:
    """Return for each person of the recording that comes with the package the words and their samples, int16."""
    path = resources.files("dreamstream") / "assets" / "commands.wav"
    with path.open("rb") as file, AudioReader(file, dtype="int16") as recording:
        pieces = iter(np.split(recording.read(), sum(len(words.split()) for words in SPOKEN)))
    return [list(zip(words.split(), pieces)) for words in SPOKEN]


def _callers(n_streams: int, most_words: int, rng: np.random.Generator) -> list[_Caller]:
    """Give each caller one person's words, in any order with pauses; every eighth says nothing or less."""
    people = _read_words()

    def pause(least: float, most: float) -> Array:
        return rng.integers(-8, 9, int(rng.uniform(least, most) * SAMPLE_RATE)).astype(np.int16)

    out = []
    for i in range(n_streams):
        said, parts = [], [pause(0.3, 1)]
        for _ in range(0 if i % 8 == 3 else int(rng.integers(0, most_words + 1))):
            word, samples = people[i % len(people)][int(rng.integers(0, 4))]
            said.append(word)
            parts += [samples, pause(0.1, 0.9)]
        silence = np.empty(0, np.int16) if i == 3 else pause(0, 0.03)
        samples = np.concatenate([*parts, pause(0.5, 1)]) if i % 8 != 3 else silence
        out.append(_Caller(f"caller-{i + 1:02d}", said, samples, int(rng.integers(0, 24)) * (i > 3)))
    return out


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
class _Lines:
    """A line per caller, drawn anew on a terminal after every round, which takes as long as it would live."""

    def __init__(self, callers: Sequence[_Caller], seconds: float, live: bool) -> None:
        self._callers, self._seconds, self._live = callers[:MOST_ROWS], seconds, live
        self._next, self._drawn = time.monotonic(), False

    def draw(self) -> None:
        """Draw them, final words bright and others dim, and wait for the next round."""
        if not self._live:
            return
        up = f"\x1b[{len(self._callers)}A" if self._drawn else ""
        lines = (f"  {c.id}  {c.heard} \x1b[2m{c.pending}\x1b[0m\x1b[K\n" for c in self._callers)
        print(up + "".join(lines), end="", flush=True)
        self._drawn = True
        self._next += self._seconds
        time.sleep(max(0.0, self._next - time.monotonic()))

    def clear(self) -> None:
        """Take them away."""
        if self._drawn:
            print(f"\x1b[{len(self._callers)}A\x1b[J", end="", flush=True)


def _stream(
    engine: ds.Engine, decoder: CTCDecoder, callers: Sequence[_Caller], rng: np.random.Generator, lines: _Lines
) -> list[float]:
    """Feed all streams to their ends; return the seconds that each step took, with its decoding."""
    by_id = {c.id: c for c in callers}
    latencies: list[float] = []
    for chunks, sos, eos in _traffic(callers, rng):
        begin = time.perf_counter()
        outputs = engine.step(chunks, sos=sos, eos=eos)
        texts = decoder.step(outputs, sos=sos, eos=eos)
        latencies.append(time.perf_counter() - begin)
        for i, text in texts.items():
            by_id[i].outputs.append(outputs[i])
            by_id[i].heard = text.final
            by_id[i].pending = text.text[len(text.final) :].strip()
        lines.draw()
    lines.clear()
    return latencies


def _compare(
    model: nn.Module, engine: ds.Engine, decoder: CTCDecoder, callers: Sequence[_Caller], quiet: bool
) -> tuple[int, float, list[str]]:
    """Compare what came out with the offline model; of every third stream also with the engine in one piece.

    Returned are the number of frames, the largest difference to the offline model, and what does not hold.
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
            heard = decoder.step({c.id: whole}, sos=c.id, eos=c.id)[c.id].final if np.isfinite(gap) else ""
            if not gap <= TOLERANCE * max(1.0, float(np.abs(whole).max(initial=0))):  # so that NaN fails
                wrong.append(f"{c.id} differs from the offline model by {gap:g}")
            elif heard != c.heard:
                wrong.append(f"{c.id} was heard to say {c.heard!r}, by the offline model {heard!r}")
            elif i % 3 == 0 and not _same_bits(engine, c):
                wrong.append(f"{c.id} differs in its bits from the engine with this stream alone, in one chunk")
    return frames, worst, wrong


def _same_bits(engine: ds.Engine, c: _Caller) -> bool:
    at_once: Array = engine.step({c.id: c.samples}, sos=[c.id], eos=[c.id])[c.id]
    return at_once.tobytes() == c.output().tobytes()


def word_errors(said: Sequence[object], heard: Sequence[object]) -> int:
    """Return how many words have to be put in, left out or replaced to make one of the other."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


def _table(callers: Sequence[_Caller]) -> Iterator[str]:
    """Yield for each call what was said, what was heard, and how exact that is."""
    rows = [("call", "seconds", "said", "heard", "offline differs by")]
    for c in callers[:MOST_ROWS]:
        words = " ".join(c.words) or "-", c.heard or "-"
        rows.append((c.id, f"{len(c.samples) / SAMPLE_RATE:.1f}", *words, f"{c.gap:.1e}"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for name, seconds, said, heard, gap in rows:
        yield f"  {name:{widths[0]}}  {seconds:>{widths[1]}}  {said:{widths[2]}}  {heard:{widths[3]}}  {gap}"
    if len(callers) > MOST_ROWS:
        yield f"  and {len(callers) - MOST_ROWS} calls more"


def demo(args: argparse.Namespace) -> int:
    """Transcribe many calls at once and compare with the offline model."""

    def say(text: str = "") -> None:
        if not args.quiet:
            print(text)

    model = Recogniser(pretrained=True).eval()
    engine = ds.compile(model, model.spec, rate=SAMPLE_RATE, threads=args.threads)
    decoder = CTCDecoder(model.tokens, beam=0, endpoints=ENDPOINTS, rate=model.rate)
    rng = np.random.default_rng(args.seed)
    callers = _callers(args.streams, args.words, rng)
    engine.warmup(min(args.streams, 32), SAMPLE_RATE // 5)
    seconds = _seconds(callers)
    n_weights = sum(p.numel() for p in model.parameters())
    say(f"{len(callers)} calls, {seconds:.1f} s, at the same time and in random chunks, through models.Commands")
    say(
        f"({n_weights:,} trained weights), which hears ten words; four people of Speech Commands (CC BY 4.0) "
        "say them:"
    )
    live = not args.quiet and not args.fast and sys.stdout is not None and sys.stdout.isatty()
    lines = _Lines(callers, PACE, live)
    latencies = _stream(engine, decoder, callers, rng, lines)
    frames, worst, wrong = _compare(model, engine, decoder, callers, args.quiet)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        print(f"dreamstream demo: MISMATCH: {wrong[0]}{more}", file=sys.stderr)
        return 1
    for line in _table(callers):
        say(line)
    spent = sum(latencies)
    p50, p90, p99 = (1000 * float(np.percentile(latencies, q)) for q in (50, 90, 99))
    said = sum(len(c.words) for c in callers)
    errors = sum(word_errors(c.words, c.heard.split()) for c in callers)
    say()
    say(f"word errors     {errors} of {said} words, {100 * errors / max(1, said):.1f} %")
    say(f"offline model   {frames} frames, as many as streamed; the same words; largest difference {worst:.1e}")
    say("one at a time   every third stream again, alone and in one chunk: the same bits")
    say(
        f"delay           {engine.delay} samples, {engine.delay / SAMPLE_RATE * 1000:.1f} ms "
        f"({engine.delay / SAMPLE_RATE * model.rate:.1f} output frames)"
    )
    factor = f"factor {spent / seconds:.5f}: " if seconds else ""
    say(f"real time       {factor}{spent:.3f} s for {seconds:.1f} s of audio, {engine.threads} thread(s)")
    say(f"step latency    50 %: {p50:.2f} ms, 90 %: {p90:.2f} ms, 99 %: {p99:.2f} ms, of {len(latencies)} steps")
    say(f"state           {engine.state_size} bytes per stream; weights {engine.weights_size:,} bytes, shared")
    say(f"kernels         {config()['kernels']}")
    say("your recording  dreamstream transcribe call.wav")
    return 0


def add(commands: Commands) -> None:
    """Add the command to the command line's."""
    parser = add_command(commands, "demo", "transcribe many calls at once, and compare with the offline model")
    parser.add_argument("--streams", type=at_least(1, int), default=24, metavar="N", help="calls (24)")
    text = "that a caller says at most (6)"
    parser.add_argument("--words", type=at_least(0, int), default=6, metavar="N", help=text)
    text = "of words, chunks, starts and ends (0)"
    parser.add_argument("--seed", type=at_least(0, int, 2**63), default=0, metavar="N", help=text)
    add_threads(parser)
    parser.add_argument("--fast", action="store_true", help="also on a terminal as fast as it goes, not live")
    parser.add_argument("--quiet", action="store_true", help="print nothing but a mismatch")
    parser.set_defaults(run=demo)
