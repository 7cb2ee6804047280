"""What a decoder says of a stream: hypotheses, their tokens and words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .. import _core

MARK = "▁"
"""With which SentencePiece begins words."""

_FIELDS = [("token", "i4"), ("word", "i4"), ("start", "i8"), ("end", "i8"), ("confidence", "f4"), ("final", "i4")]
_TOKEN = np.dtype(_FIELDS, align=True)


class Word(NamedTuple):
    """A word and where it was said."""

    text: str
    start: float
    """Of its first token: in seconds where the decoder knows the rate, else in frames."""
    end: float
    confidence: float
    """The mean probability of its tokens in the frames in which they were said."""
    final: bool
    """Nothing that follows changes it."""


def as_dict(word: Word) -> dict[str, Any]:
    """Return a word as JSON has it."""
    times = {"start": round(word.start, 3), "end": round(word.end, 3)}
    return {"word": word.text, **times, "confidence": round(word.confidence, 4)}


class Texts:
    """How tokens become text."""

    def __init__(self, core: _core.Decoder, rate: float) -> None:
        self.tokens, self.words, self.separator = core.tokens, core.words, core.separator
        self.rate = rate
        marked = self.separator < 0 and any(t.startswith(MARK) for t in self.tokens)
        pieces = [t.replace(MARK, " ") if marked else t for t in self.tokens]
        if self.separator >= 0:
            pieces[self.separator] = " "
        self.pieces = pieces
        self.spelled = self.separator >= 0 or marked

    def text(self, tokens: Any) -> str:
        """Return the text of an array of tokens."""
        if self.words:
            return " ".join(text for text, _ in self.groups(tokens))
        pieces = [" " if i < 0 else self.pieces[i] for i in tokens["token"]]
        joined = ("" if self.spelled else " ").join(pieces)
        return " ".join(part for part in joined.split(" ") if part)

    def groups(self, tokens: Any) -> list[tuple[str, list[int]]]:
        """Return words, and the numbers of each one's tokens."""
        found: list[tuple[str, list[int]]] = []
        spelled, members = "", list[int]()

        def end() -> None:
            nonlocal spelled, members
            if spelled.strip():
                found.append((spelled.strip(), members))
            spelled, members = "", []

        for i, (token, word) in enumerate(zip(tokens["token"].tolist(), tokens["word"].tolist())):
            if token < 0:
                end()
            elif self.words:
                if token != self.separator:
                    members.append(i)
                if word >= 0:
                    spelled = self.words[word] if word < len(self.words) else "<unk>"
                    members = members or [i]  # a word of separators alone
                    end()
            elif token == self.separator:
                end()
            else:
                piece = self.pieces[token]
                if piece.startswith(" ") or not self.spelled:
                    end()
                spelled += piece
                members.append(i)
        if not self.words:
            end()
        return found


class Hypothesis:
    """One reading of a stream.

    Attributes
    ----------
    score : float
        Its logarithm: acoustics, language model, words and phrases together.
    """

    def __init__(self, texts: Texts, score: float, tokens: bytes, ended: bool) -> None:
        self._texts, self.score, self._ended = texts, score, ended
        self._tokens = np.frombuffer(tokens, _TOKEN)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r}, score={self.score:.4f})"

    @cached_property
    def tokens(self) -> list[int]:
        """The tokens' numbers; -1 where an utterance ended."""
        return self._tokens["token"].tolist()

    @cached_property
    def times(self) -> list[tuple[float, float]]:
        """Start and end of each token, in seconds where the decoder knows the rate, else in frames."""
        rate = self._texts.rate
        return [(s / rate, e / rate) for s, e in zip(self._tokens["start"].tolist(), self._tokens["end"].tolist())]

    @cached_property
    def confidences(self) -> list[float]:
        """The mean probability of each token in the frames in which it was said."""
        return self._tokens["confidence"].tolist()

    @cached_property
    def text(self) -> str:
        """All of it."""
        return self._texts.text(self._tokens)

    @cached_property
    def words(self) -> list[Word]:
        """Its words, the last of which may be incomplete; a lexicon's words once they are complete."""
        return self._words(0)

    def _words(self, first: int) -> list[Word]:
        """Return the words from a token on."""
        tokens, rate = self._tokens[first:], self._texts.rate
        final, n = tokens["final"], len(tokens)
        whole = self._ended or bool(self._texts.words) or not self._texts.spelled  # words end by themselves
        return [
            Word(
                text,
                tokens["start"][members[0]].item() / rate,
                tokens["end"][members[-1]].item() / rate,
                tokens["confidence"][members].mean().item(),
                bool(final[members].all() and (whole or (members[-1] + 1 < n and final[members[-1] + 1]))),
            )
            for text, members in self._texts.groups(tokens)
        ]

    def since(self, end: float) -> tuple[list[Word], str]:
        """Return the final words that begin at `end` or later, and the text behind them, which may change.

        To hear each word once, give the end of the last that was heard.
        """
        first = int(np.count_nonzero(self._tokens["start"] / self._texts.rate < end))
        while first < len(self._tokens) and self._tokens["token"][first] == self._texts.separator >= 0:
            first += 1  # with which a lexicon's word ends that was heard
        words = self._words(first)
        final = [word for word in words if word.final]
        return final, " ".join(word.text for word in words[len(final) :])


class Hypotheses(Hypothesis):
    """What a stream has said so far: the best hypothesis, and others.

    Attributes
    ----------
    frames : int
        Frames of the stream so far.
    left : int
        Final tokens that came before and are kept no longer: of a long stream the last `max_final` are here.
    endpoints : int
        Utterances that have ended.
    """

    def __init__(self, texts: Texts, read: tuple[Any, ...], ended: bool) -> None:
        self._n_final, self.left, self.frames, self.endpoints, found = read
        super().__init__(texts, found[0][0], found[0][1], ended)
        self._others = [Hypothesis(texts, score, tokens, ended) for score, tokens in found[1:]]

    @property
    def n_best(self) -> list[Hypothesis]:
        """The best first, which is this one; as many as the decoder's `n_best`, where there are as many."""
        return [self, *self._others]

    @cached_property
    def final(self) -> str:
        """The part of `text` that nothing which follows changes: `text` begins with it, now and later."""
        return self._texts.text(self._tokens[: self._n_final])

    @property
    def final_tokens(self) -> Sequence[int]:
        """The tokens of `final`."""
        return self.tokens[: self._n_final]
