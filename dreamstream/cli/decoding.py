"""What commands that turn sound into words share: their model's decoder, and subtitles."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import Any
from unicodedata import category

import dreamstream as ds

from ..decode import CTCDecoder, Endpoints
from ..decode.hypotheses import Word
from ..decode.kenlm import MAGIC
from ..errors import FormatError
from ..models import Commands
from .arguments import at_least

ENDPOINTS = Endpoints(silence=2.4, trailing_silence=0.8, length=0)  # no length: it would cut words in two

#: The decoder's options that a file may have, by the names that wav2letter has for them.
_OF_WAV2LETTER = {
    "beamSize": "beam",
    "beamSizeToken": "beam_size_token",
    "beamThreshold": "beam_threshold",
    "lmWeight": "lm_weight",
    "wordScore": "word_score",
    "unkScore": "unk_score",
    "silScore": "sil_score",
    "logAdd": "log_add",
}


#: The options that `add_decoder` adds beside ``--tokens``.
DECODER_OPTIONS = ("blank", "lexicon", "lm", "lm_weight", "word_score", "hotwords", "beam", "decoder_options")

#: Names that toolkits give to the blank.
_BLANKS = ("<blank>", "<blk>")


def add_decoder(parser: argparse._ActionsContainer, required: bool = True) -> None:
    """Add the options of a decoder."""
    parser.add_argument("--tokens", required=required, metavar="FILE", help="a token per line, or `token number`")
    text = f"the blank, or its number (the only one of {' '.join(_BLANKS)}, or else 0)"
    parser.add_argument("--blank", metavar="N", help=text)
    parser.add_argument("--lexicon", metavar="FILE", help="a line `word token token ...` each")
    parser.add_argument("--lm", metavar="FILE", help="an n-gram language model: ARPA, or KenLM's binary")
    parser.add_argument("--lm-weight", type=float, metavar="W", help="of its base-10 logarithms (1)")
    parser.add_argument("--word-score", type=float, metavar="S", help="added for each word (0)")
    parser.add_argument("--hotwords", metavar="FILE", help="a phrase per line, with a tab before its weight")
    text = "hypotheses; 0: greedy (16; of the ten commands 0)"
    parser.add_argument("--beam", type=at_least(0, int), metavar="N", help=text)
    text = "options of the decoder as a JSON object, as wav2letter's decoder_options.json; others count more"
    parser.add_argument("--decoder-options", metavar="FILE", help=text)


def decoder_of(args: argparse.Namespace, name: str | None, model: ds.Engine | Commands) -> CTCDecoder:
    """Return the decoder that is asked for, of the package's own model or the first output of an engine.

    An output that is no ``(L, tokens)`` raises FormatError, and so does an option that would change nothing.
    """
    tokens: list[str] | bytes
    rate: int | Fraction
    if isinstance(model, Commands):
        tokens, rate, beam = model.tokens, model.rate, 0  # greedily a word is final at once
    else:
        tokens, rate, beam = Path(args.tokens).read_bytes(), model.outputs[0].rate, 16
    given = {name: value for name in DECODER_OPTIONS if (value := getattr(args, name)) is not None}
    options: dict[str, Any] = {"beam": beam} | (_options(args.decoder_options) if args.decoder_options else {})
    options |= {name: given[name] for name in ("beam", "lm_weight", "word_score") if name in given}
    if "lm_weight" in given and "lm" not in given:
        raise FormatError("--lm-weight goes with --lm")
    for name in ("lm", "hotwords", "word_score"):
        if name in given and not options["beam"]:
            option = name.replace("_", "-")
            raise FormatError(f"--{option} chooses among hypotheses; a beam of 0 has none, give --beam 16")
    for name in given.keys() & {"lexicon", "lm", "hotwords"}:
        options[name] = _model(given[name]) if name == "lm" else Path(given[name]).read_bytes()
    try:
        blank = _blank(args.blank, tokens)
        decoder = CTCDecoder(tokens, blank=blank, endpoints=ENDPOINTS, rate=float(rate), **options)
    except FormatError as error:
        files = {"tokens": args.tokens, "lexicon": args.lexicon, "language": args.lm, "hotwords": args.hotwords}
        path = next((path for what, path in files.items() if path and str(error).startswith(what)), None)
        raise error if path is None else FormatError(f"{path}: {error}") from error
    except OverflowError as error:  # of the number of a blank or of hypotheses
        raise FormatError(f"an option of the decoder is too large: {error}") from error
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


def _options(path: str) -> dict[str, Any]:
    """Return the decoder's options that a file has, by the decoder's own names."""
    try:
        given = json.loads(Path(path).read_bytes())
        if not isinstance(given, dict):
            raise FormatError(f"expected an object, got {given!r:.60}")
        if (criterion := given.pop("criterionType", "CTC")) not in ("CTC", 1):
            raise FormatError(f"the decoder is of CTC, not of {criterion!r:.60}")
        given.pop("eosScore", None)  # which no decoder of wav2letter's uses either
        options: dict[str, Any] = {}
        for name, value in given.items():
            own = str(_OF_WAV2LETTER.get(name, name))
            if own not in _OF_WAV2LETTER.values():
                raise FormatError(f"{name!r:.60} is none of {', '.join(_OF_WAV2LETTER.values())}")
            kind: Any = {"beam": int, "beam_size_token": int, "log_add": bool}.get(own, float)
            options[own] = kind(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(f"{path}: {error}") from error
    return options


def _blank(given: str | None, tokens: list[str] | bytes) -> int:
    """Return the number of the blank."""
    if given is not None and given.isdecimal():
        return int(given)
    names = tokens if isinstance(tokens, list) else CTCDecoder(tokens, beam=0, sil="").tokens
    found = [n for n, name in enumerate(names) if name in (_BLANKS if given is None else (given,))]
    if given is None:
        return found[0] if len(found) == 1 else 0
    if not found:
        raise FormatError(f"--blank {given}: expected a number, or one of the tokens")
    return found[0]


def _model(path: str) -> bytes | Path:
    """Return a language model: a binary stays where it is; what else there is may come from a pipe."""
    with open(path, "rb") as file:
        begin = file.read(len(MAGIC))
        return Path(path) if begin == MAGIC else begin + file.read()


def captions(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield runs of words between pauses of 0.8 seconds, each of 6 seconds at most."""
    run: list[Word] = []
    for word in words:
        if run and (word.start - run[-1].end > 0.8 or word.end - run[0].start > 6.0):
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
        f"{_one_line(' '.join(word.text for word in run), form)}\n"
        for n, run in enumerate(captions(words), 1)
    ]
    return "\n".join((["WEBVTT\n"] if form == "vtt" else []) + parts)


def _one_line(text: str, form: str) -> str:
    """Return a text in which nothing ends the caption or, in ``vtt``, is read as a tag."""
    line = " ".join("".join(" " if category(c) == "Cc" else c for c in text).split())
    return escape(line, quote=False) if form == "vtt" else line


def _time(seconds: float, mark: str) -> str:
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"
