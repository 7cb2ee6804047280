"""What commands that turn sound into words share: their model's decoder, and subtitles."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import dreamstream as ds

from ..decode import CTCDecoder, Endpoints
from ..decode.hypotheses import Word
from ..errors import FormatError
from ..models import Commands
from .arguments import add_threads, at_least
from .run import samples_only

_ENDPOINTS = Endpoints(silence=2.4, trailing_silence=0.8, length=15.0)


def add_decoder(parser: argparse.ArgumentParser) -> None:
    """Add the options of model and decoder."""
    own = "a .dsm that gives scores of tokens; by default the ten commands that come with the package"
    parser.add_argument("--model", metavar="MODEL", help=own)
    parser.add_argument("--tokens", metavar="FILE", help="the model's: a token per line, or `token number`")
    parser.add_argument("--blank", type=at_least(0, int), default=0, metavar="N", help="the blank's number (0)")
    parser.add_argument("--lexicon", metavar="FILE", help="a line `word token token ...` each")
    parser.add_argument("--lm", metavar="FILE", help="an n-gram language model, as ARPA")
    parser.add_argument("--lm-weight", type=float, default=1.0, metavar="W", help="of its base-10 logarithms (1)")
    parser.add_argument("--word-score", type=float, default=0.0, metavar="S", help="added for each word (0)")
    parser.add_argument("--hotwords", metavar="FILE", help="a phrase per line, with a tab before its weight")
    parser.add_argument(
        "--beam", type=at_least(0, int), metavar="N", help="hypotheses; 0: greedy (16; without --model 0)"
    )
    add_threads(parser)


def model_of(args: argparse.Namespace) -> Any:
    """Return the engine of the model that is asked for, or without one the package's own, a module.

    Raises
    ------
    FormatError
        For a model without tokens, tokens without a model, and a model that doesn't take samples.
    """
    if (args.model is None) != (args.tokens is None):
        raise FormatError("--model and --tokens go together: a model of your own has tokens of its own")
    if args.model is None:
        return Commands(pretrained=True).eval()
    return samples_only(args.model, ds.load(args.model, threads=args.threads))


def decoder_of(args: argparse.Namespace, model: Any) -> CTCDecoder:
    """Return the decoder that is asked for, of what `model_of` returned.

    Raises
    ------
    FormatError
        For an output that is no ``(L, tokens)``.
    """
    own = isinstance(model, Commands)
    rate = model.rate if own else model.outputs[0].rate
    decoder = CTCDecoder(
        model.tokens if own else _content(args.tokens),
        beam=(0 if own else 16) if args.beam is None else args.beam,  # words of ten are final at once
        blank=args.blank,
        lexicon=None if args.lexicon is None else _content(args.lexicon),
        lm=None if args.lm is None else _content(args.lm),
        lm_weight=args.lm_weight,
        word_score=args.word_score,
        hotwords=None if args.hotwords is None else _content(args.hotwords),
        endpoints=_ENDPOINTS,
        rate=float(rate),
    )
    if own:
        return decoder
    output = model.outputs[0]
    sizes = [d for d in output.dimensions if d not in ("B", "L")]
    if output.rate == 0 or sizes != [len(decoder.tokens)]:
        raise FormatError(
            f"{args.model} gives {output.dimensions}; for the {len(decoder.tokens)} tokens of {args.tokens} it is "
            f'("B", "L", {len(decoder.tokens)})'
        )
    return decoder


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def scores_of(frames: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return log probabilities ``(frames, tokens)`` of scores, be they normalized or not."""
    top = frames.max(axis=1, keepdims=True, initial=-np.inf)
    shifted = frames - np.where(np.isfinite(top), top, 0)
    out: npt.NDArray[Any] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out


def captions(words: Sequence[Word], pause: float = 0.8, length: float = 6.0) -> Iterator[list[Word]]:
    """Yield runs of words between pauses, of some seconds at most."""
    run: list[Word] = []
    for word in words:
        if run and (word.start - run[-1].end > pause or word.end - run[0].start > length):
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def subtitles(words: Sequence[Word], form: str) -> str:
    """Return words as the text of an ``srt`` or ``vtt`` file."""
    mark = "," if form == "srt" else "."
    parts = [
        f"{f'{n}{chr(10)}' if form == 'srt' else ''}{_time(run[0].start, mark)} --> {_time(run[-1].end, mark)}\n"
        f"{' '.join(word.text for word in run)}\n"
        for n, run in enumerate(captions(words), 1)
    ]
    return "\n".join((["WEBVTT\n"] if form == "vtt" else []) + parts)


def _time(seconds: float, mark: str) -> str:
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"
