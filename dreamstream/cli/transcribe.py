"""``dreamstream transcribe`` and ``listen``: recordings, and what is said right now, as words."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

import dreamstream as ds

from .. import models
from .._core import shown
from ..data.progress import Progress
from ..data.values import in_frames
from ..decode import log_probabilities
from ..decode.hypotheses import Word, as_dict
from ..errors import FormatError
from ..stream.tree import leaves
from .arguments import Commands, add_command, add_threads, at_least
from .audio_file import AudioFile
from .decoding import add_decoder, decoder_of, subtitles
from .plot import plot_words, require_matplotlib
from .recognisers import tokens_beside
from .run import as_taken, engine_at, opened, samples_only, seconds_of, steps


def _model_of(args: argparse.Namespace) -> Any:
    """Return the engine of the model that is asked for; without one the package's own, a module."""
    if args.model and args.tokens is None:
        beside = tokens_beside(args.model)
        if not beside.exists():
            raise FormatError(f"{args.model} needs --tokens FILE, what its scores stand for; there is no {beside}")
        args.tokens = str(beside)
    if args.model is None and args.tokens is not None:
        raise FormatError("--tokens goes with --model: the package's own model has its tokens")
    if args.model is None:
        return models.Commands(pretrained=True).eval()
    return samples_only(args.model, ds.load(args.model, threads=args.threads))


# ---------------------------------------------------------------------- recordings
def _scores(file: AudioFile) -> npt.NDArray[Any]:
    """Return log probabilities of a file's new frames; the file ends before the first that are no numbers."""
    scores = log_probabilities(in_frames(file.new[0], file.engine.stream_axis(0)))
    if (bad := np.isnan(scores).any(axis=1)).any():
        file.ended, scores = True, scores[: int(bad.argmax())]
        file.fault = FormatError(
            f"{file.path}: before {file.seconds:.2f} s there are samples that are no numbers, or far too large"
        )
    return scores


def transcribe(args: argparse.Namespace) -> int:
    """Print what is said in recordings."""
    form = next((name for name in ("srt", "vtt") if getattr(args, name)), None)
    if form and len(args.audio) > 1:
        raise FormatError(f"--{form} is of one recording; {len(args.audio)} are given")
    if args.plot is not None:
        require_matplotlib(args.plot)
    model = _model_of(args)
    faults: list[str] | None = [] if len(args.audio) > 1 else None
    with ExitStack() as stack:
        files = opened(args.audio, model, args.threads, args.chunk_ms, stack, faults=faults)
        decoder = decoder_of(args, args.model, model)
        heard: dict[str, list[tuple[Word, float]]] = {file.path: [] for file in files}  # and when it was final
        started: set[str] = set()
        for file in files:
            file.keeps_samples = args.plot is not None
        with Progress(seconds_of(files), args.json) as progress:
            for _, fed in steps(files, args.chunk_ms):
                progress.advance(len(fed) * args.chunk_ms / 1000)
                scores = {f.path: _scores(f) for f in fed}
                starts = [f.path for f in fed if f.path not in started]
                started.update(starts)
                texts = decoder.step(scores, sos=starts, eos=[f.path for f in fed if f.ended])
                for file in fed:
                    known = heard[file.path]
                    new, _ = texts[file.path].since(known[-1][0].end if known else 0.0)
                    known += [(word, file.seconds) for word in new]
    for file in files:
        words = [word for word, _ in heard[file.path]]
        text = " ".join(word.text for word in words)
        if args.json:
            print(json.dumps({"file": file.path, "text": text, "words": [as_dict(word) for word in words]}))
        elif form:
            print(subtitles(words, form), end="")
        else:
            print(shown(f"{file.path}  {text}" if len(files) > 1 else text, True))
    if args.plot is not None:
        plot_words(args.plot, files, heard)
    faults = [*(faults or ()), *(str(file.fault) for file in files if file.fault is not None)]
    for text in faults:
        print(f"dreamstream transcribe: {shown(text, True)}", file=sys.stderr)
    return 1 if faults else 0


# ---------------------------------------------------------------------- right now
def listen(args: argparse.Namespace) -> int:
    """Print what is said right now, from a microphone or from samples on standard input."""
    model = _model_of(args)
    decoder = decoder_of(args, args.model, model)
    rate = int(model.rate if isinstance(model, ds.Engine) else model.sample_rate)
    engine, _, _ = engine_at(rate, model, args.threads)
    n = max(1, rate * args.chunk_ms // 1000)
    dim = sys.stdout is not None and sys.stdout.isatty() and not args.json
    said, found = 0.0, None
    with ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        chunks = _raw(n) if args.source == "-" else stack.enter_context(_microphone(args.source, rate, n))
        for first, last, samples in _marked(chunks):
            sos, eos = "live" if first else (), "live" if last else ()
            out = leaves(engine.step({"live": as_taken(engine, samples)}, sos=sos, eos=eos)["live"])
            scores = log_probabilities(in_frames(out[0], engine.stream_axis(0)))
            found = decoder.step({"live": scores}, sos=sos, eos=eos)["live"]
            new, pending = found.since(said)
            _show(new, pending, args.json, dim)
            said = new[-1].end if new else said
    if dim and found is not None:
        print()
    return 0


def _show(new: Sequence[Word], pending: str, as_json: bool, dim: bool) -> None:
    """Print words that are final now; on a terminal, those that aren't dimly behind them."""
    if as_json:
        for word in new:
            print(json.dumps(as_dict(word)), flush=True)
        return
    text, pending = shown(" ".join(word.text for word in new), True), shown(pending, True)
    if dim:
        print(f"\x1b[K{text}{' ' if text else ''}\x1b7\x1b[2m{pending}\x1b[0m\x1b8", end="", flush=True)
    elif text:
        print(text, flush=True)


def _marked(chunks: Iterator[Any]) -> Iterator[tuple[bool, bool, Any]]:
    """Yield chunks, and before each whether it is the first, and the last."""
    first, held = True, next(chunks, np.empty(0, np.float32))
    for chunk in chunks:
        yield first, False, held
        first, held = False, chunk
    yield first, True, held


def _raw(n: int) -> Iterator[npt.NDArray[Any]]:
    """Yield samples of 16 bits, little-endian, of standard input."""
    rest = b""
    source: Any = sys.stdin.buffer
    while data := source.read1(2 * n):
        data = rest + data
        rest = data[len(data) // 2 * 2 :]
        yield np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.float32) / 32768


@contextlib.contextmanager
def _microphone(source: str | None, rate: int, n: int) -> Iterator[Iterator[npt.NDArray[Any]]]:
    try:
        import sounddevice
    except (ImportError, OSError) as error:  # of the library PortAudio
        raise ImportError(
            f"a microphone needs the package sounddevice ({error}): pip install 'dreamstream[microphone]'; "
            f"or send samples of 16 bits at {rate} Hz: arecord -t raw -f S16_LE -r {rate} | dreamstream listen -"
        ) from None
    device: Any = int(source) if source and source.isdigit() else source
    with sounddevice.InputStream(
        samplerate=rate, channels=1, dtype="float32", blocksize=n, device=device
    ) as stream:
        yield (stream.read(n)[0][:, 0] for _ in iter(int, 1))


# ---------------------------------------------------------------------- the commands
def add(commands: Commands) -> None:
    """Add the commands."""
    own = "a .dsm that gives scores of --tokens; by default the ten commands that come with the package"
    parser = add_command(commands, "transcribe", "print what is said in recordings")
    parser.add_argument("audio", nargs="+", metavar="FILE", help="recordings; - is standard input")
    parser.add_argument("--model", metavar="MODEL", help=own)
    add_decoder(parser, required=False)
    add_threads(parser)
    parser.add_argument("--chunk-ms", type=at_least(1, int), default=320, metavar="N", help="fed at a time (320)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a line per recording, with words, times and confidence")
    form.add_argument("--srt", action="store_true", help="as subtitles")
    form.add_argument("--vtt", action="store_true", help="as subtitles of the web")
    drawn = "draw the first recordings, their words, and when each was final; needs matplotlib"
    parser.add_argument("--plot", metavar="PNG", help=drawn)
    parser.set_defaults(run=transcribe)
    parser = add_command(commands, "listen", "print what is said right now")
    text = "a microphone's name or number; - is standard input, raw samples of 16 bits at the model's rate"
    parser.add_argument("source", nargs="?", metavar="DEVICE", help=text)
    parser.add_argument("--model", metavar="MODEL", help=own)
    add_decoder(parser, required=False)
    add_threads(parser)
    parser.add_argument("--chunk-ms", type=at_least(1, int), default=80, metavar="N", help="heard at a time (80)")
    parser.add_argument("--json", action="store_true", help="a line per word")
    parser.set_defaults(run=listen)
