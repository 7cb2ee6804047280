"""What commands that turn sound into words share: their model's decoder, and subtitles."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from fractions import Fraction

import dreamstream as ds

from ..decode import CTCDecoder, Endpoints
from ..decode.hypotheses import Word
from ..errors import FormatError
from ..models import Commands
from .arguments import at_least

ENDPOINTS = Endpoints(silence=2.4, trailing_silence=0.8, length=15.0)


def add_decoder(parser: argparse._ActionsContainer, required: bool = True) -> None:
    """Add the options of a decoder."""
    parser.add_argument("--tokens", required=required, metavar="FILE", help="a token per line, or `token number`")
    parser.add_argument("--blank", type=at_least(0, int), default=0, metavar="N", help="the blank's number (0)")
    parser.add_argument("--lexicon", metavar="FILE", help="a line `word token token ...` each")
    parser.add_argument("--lm", metavar="FILE", help="an n-gram language model, as ARPA")
    parser.add_argument("--lm-weight", type=float, default=1.0, metavar="W", help="of its base-10 logarithms (1)")
    parser.add_argument("--word-score", type=float, default=0.0, metavar="S", help="added for each word (0)")
    parser.add_argument("--hotwords", metavar="FILE", help="a phrase per line, with a tab before its weight")
    parser.add_argument(
        "--beam", type=at_least(0, int), metavar="N", help="hypotheses; 0: greedy (16; of the ten commands 0)"
    )


def decoder_of(args: argparse.Namespace, name: str | None, model: ds.Engine | Commands) -> CTCDecoder:
    """Return the decoder that is asked for, of the package's own model or the first output of an engine.

    Raises
    ------
    FormatError
        For an output that is no ``(L, tokens)``.
    """
    tokens: list[str] | bytes
    rate: int | Fraction
    if isinstance(model, Commands):
        tokens, rate, beam = model.tokens, model.rate, 0  # greedily a word is final at once
    else:
        tokens, rate, beam = _content(args.tokens), model.outputs[0].rate, 16
    decoder = CTCDecoder(
        tokens,
        beam=beam if args.beam is None else args.beam,
        blank=args.blank,
        lexicon=None if args.lexicon is None else _content(args.lexicon),
        lm=None if args.lm is None else _content(args.lm),
        lm_weight=args.lm_weight,
        word_score=args.word_score,
        hotwords=None if args.hotwords is None else _content(args.hotwords),
        endpoints=ENDPOINTS,
        rate=float(rate),
    )
    if isinstance(model, Commands):
        return decoder
    output = model.outputs[0]
    sizes = [d for d in output.dimensions if d not in ("B", "L")]
    if output.rate == 0 or sizes != [len(decoder.tokens)]:
        raise FormatError(
            f"{name} gives {output.dimensions}; for the {len(decoder.tokens)} tokens of {args.tokens} it is "
            f'("B", "L", {len(decoder.tokens)})'
        )
    return decoder


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


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
