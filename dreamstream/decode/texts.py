"""Files of decoders from what Python programs have: lists, dicts, paths, bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FormatError
from . import kenlm

File = str | bytes | os.PathLike[str]
"""A path, or the bytes of a file."""


def as_file(given: File) -> str | bytes:
    """Return a path as text; bytes as they are."""
    return given if isinstance(given, bytes) else os.fspath(given)


def _line(what: str, text: str) -> str:
    if "\n" in text or "\r" in text:
        raise FormatError(f"{what}: expected texts of one line, got {text!r}")
    return text


def read_tokens(tokens: Sequence[str] | File, blank: int) -> bytes | str:
    """Return a list of tokens as the file that C reads; an empty token is only the blank."""
    if isinstance(tokens, (str, bytes, os.PathLike)):
        return as_file(tokens)
    lines = []
    for i, token in enumerate(tokens):
        if not isinstance(token, str):
            raise TypeError(f"tokens: expected texts, got {type(token).__name__}")
        name = token or ("<blank>" if i == blank else "")
        if not name or (name != " " and name != name.strip(" \t")):
            raise FormatError(f"tokens: expected a token without spaces around it, got {token!r} as number {i}")
        lines.append(f"{_line('tokens', name)} {i}\n")
    return "".join(lines).encode()


def read_model(model: File | None, spelled: bytes | str | None) -> dict[str, Any]:
    """Return a language model as what C reads: its file, or of KenLM's binaries their words and what scores them.

    `spelled` is the file whose lines begin with words that a binary without a list may have.
    """
    if model is None:
        return {}
    file = as_file(model)
    if _content(file, len(kenlm.MAGIC)) != kenlm.MAGIC:
        return {"lm": file}
    if isinstance(file, bytes):
        raise FormatError("language model: give the path of KenLM's binary, which its package reads")
    words = (line.split()[0] for line in _content(spelled).splitlines() if line.strip()) if spelled else ()
    text, order, score = kenlm.open_binary(file, words)
    return {"lm": text, "lm_order": order, "lm_score": score}


def _content(file: bytes | str, most: int = -1) -> bytes:
    if isinstance(file, bytes):
        return file[:most] if most >= 0 else file
    with open(file, "rb") as opened:
        return opened.read(most)


Spellings = Mapping[str, str | Sequence[str] | Sequence[Sequence[str]]]
"""How each word is spelled: by tokens, or in several ways."""


def _spellings(given: str | Sequence[str] | Sequence[Sequence[str]]) -> list[str]:
    """Return the ways to spell a word, each as its tokens with spaces between."""
    if isinstance(given, str):
        return [given]
    if all(isinstance(token, str) and " " not in token for token in given):
        return [" ".join(map(str, given))]
    return [ways if isinstance(ways, str) else " ".join(ways) for ways in given]


def read_lexicon(lexicon: Spellings | Iterable[str] | File | None, sil: str | None) -> bytes | str | None:
    """Return a lexicon as the file that C reads; of words alone every letter is a token, and `sil` ends each."""
    if lexicon is None or isinstance(lexicon, (str, bytes, os.PathLike)):
        return None if lexicon is None else as_file(lexicon)
    if isinstance(lexicon, Mapping):
        lines = [(word, tokens) for word, given in lexicon.items() for tokens in _spellings(given)]
    else:
        lines = [(word, " ".join([*word, *([sil] if sil else [])])) for word in lexicon]
    for word, _ in lines:
        if {" ", "\t"} & set(word.strip()):  # what is behind it would be taken for tokens
            raise FormatError(f"lexicon: expected words without spaces, got {word!r}")
    return "".join(_line("lexicon", f"{word}\t{tokens}") + "\n" for word, tokens in lines).encode()


def read_hotwords(hotwords: Mapping[str, float] | Iterable[str] | File | None) -> bytes | str | None:
    """Return phrases as the file that C reads; text is a path only as a `Path`."""
    if hotwords is None or isinstance(hotwords, bytes):
        return hotwords
    if isinstance(hotwords, os.PathLike):
        return as_file(Path(hotwords))
    if isinstance(hotwords, str):
        hotwords = [hotwords]
    if isinstance(hotwords, Mapping):
        lines = [f"{_line('hotwords', phrase)}\t{float(weight)!r}\n" for phrase, weight in hotwords.items()]
    else:
        lines = [_line("hotwords", phrase) + "\n" for phrase in hotwords]
    return "".join(lines).encode()
