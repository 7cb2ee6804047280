"""Language models of KenLM's binaries, by the package of that name.

A binary doesn't name its n-grams, so words are scored when they are met. What the decoder in C gets is the list of
the words, and a function that scores the last of some words behind the others.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import FormatError

MAGIC = b"mmap lm "
_FORMAT = MAGIC + b"http://kheafield.com/code format version 5\n\0"
_HEADER = struct.Struct("<88xB11x?7xQ")  # order, whether words stand at the end, their number

Score = Callable[[bytes], float]
"""From the numbers of words (uint32) to the base-10 logarithm of the last one's probability."""


def open_binary(path: str, fallback: Iterable[bytes]) -> tuple[bytes, int, Score]:
    """Return a binary's words, one a line, how many words in a row it sees, and what scores them.

    Words that aren't at the end of the binary (``build_binary -v``) are those of `fallback` that it knows.
    FormatError is raised for a file that KenLM doesn't read, and for one without words where `fallback` has none;
    ImportError without the package kenlm.
    """
    order, words = _words_at_end(path)
    try:
        import kenlm
    except ImportError:
        raise ImportError(f"{path} is KenLM's: pip install 'dreamstream[kenlm]', or give its ARPA file") from None
    try:
        model = kenlm.LanguageModel(path)
    except (OSError, RuntimeError) as error:
        raise FormatError(f"language model: {' '.join(str(error).split())[:300]}") from error
    if not words:
        words = [word for word in dict.fromkeys((b"<s>", b"</s>", *fallback)) if word in model]
        if len(words) < 3:
            raise FormatError("language model: a binary without its words needs a lexicon; or build it without -v")
    return b"".join(word + b"\n" for word in words), order, _scorer(kenlm, model, words)


def _words_at_end(path: str) -> tuple[int, list[bytes]]:
    """Return a binary's order, and the words that stand at its end, if they do: the first is ``<unk>``."""
    with open(path, "rb") as file:
        head = file.read(_HEADER.size)
        if not head.startswith(_FORMAT) or len(head) < _HEADER.size:
            raise FormatError("language model: expected a binary of KenLM's format 5 that is complete")
        order, has_words, n = _HEADER.unpack(head)
        if not 1 <= order <= 6:
            raise FormatError(f"language model: expected an order of 1 to 6, got {order}")
        with contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data:
            end = len(data) if has_words else 0
            at = end
            while (at := data.rfind(b"<unk>\0", 0, at)) > 0:
                words = data[at:end].split(b"\0")[:-1]
                if len(words) in (n, n + 1):  # `<unk>` may not have been counted
                    return order, words
    if has_words:
        raise FormatError("language model: expected the words at the end of KenLM's binary")
    return order, []


def _scorer(kenlm: Any, model: Any, words: list[bytes]) -> Score:
    """Return what scores words by their numbers, and remembers the latest scores."""
    try:
        texts = [word.decode() for word in (*words, b"<unk>")]
    except UnicodeDecodeError as error:
        raise FormatError(f"language model: expected words in UTF-8, got {error.object!r:.60}") from None

    @lru_cache(1 << 17)
    def score(numbers: bytes) -> float:
        before, after = kenlm.State(), kenlm.State()
        model.NullContextWrite(before)
        found = 0.0
        for i, number in enumerate(np.frombuffer(numbers, np.uint32).tolist()):
            if i == 0 and texts[number] == "<s>" and len(numbers) > 4:
                model.BeginSentenceWrite(after)
            else:
                found = model.BaseScore(before, texts[number], after)
            before, after = after, before
        return found

    return score
