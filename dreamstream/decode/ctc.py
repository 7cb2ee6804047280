"""Decoding of connectionist temporal classification, greedy and by prefix beam search."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import _core
from ..errors import DTypeError, ShapeError, StreamIdError, StreamLimitError
from .hypotheses import Hypotheses, Texts
from .texts import File, Spellings, as_file, read_hotwords, read_lexicon, read_tokens

_START, _END = 1, 2


class Endpoints(NamedTuple):
    """When an utterance is over, in seconds (frames where the decoder has no rate); 0: never for that reason."""

    silence: float = 2.4
    """Nothing was said for so long, be it since the beginning."""
    trailing_silence: float = 1.2
    """Nothing was said for so long behind the first token."""
    length: float = 20.0
    """The utterance is as long as that."""


class CTCDecoder:
    """Turns the scores of a network that was trained with the CTC loss into words, for many streams at once.

    A stream's hypotheses depend on its own frames alone, to the bit: not on how they are cut into chunks, nor on
    which streams are stepped together. What all hypotheses share is *final*; it is never taken back, and of a long
    stream only the last `max_final` tokens are kept, so that hours of it take no more memory than minutes.

    Parameters
    ----------
    tokens : list of str, path or bytes
        What the columns of the scores stand for; a file has a line ``token id`` for each, or a token per line.
    beam : int
        Hypotheses that are pursued; 0: none, the best token of every frame is taken.
    blank : int
        The column of the blank.
    sil : str, optional
        The token between words, ``""`` for none; by default ``"|"`` or ``" "``, if there is such a token. Without
        one, tokens that begin with ``"▁"`` begin words; where none does either, each token is a word.
    lexicon : dict, list of str, path or bytes, optional
        The words that are recognised. A dict says how they are spelled: a list of tokens, or several such lists;
        words alone are spelled by their letters, and `sil` behind them. A file has a line ``word token token ...``
        each.
    lm : path or bytes, optional
        An n-gram language model in ARPA format.
    lm_unit : {"word", "token"}
        Of what the language model is one.
    hotwords : dict of str to float, list of str, Path or bytes, optional
        Phrases, and what each adds to the score (`hotword_weight` where nothing is said) whenever it is said in
        whole words. In a file a line each, with a tab before the weight.
    lm_weight : float
        Multiplies the base-10 logarithms of the language model, which are those that KenLM gives. For a decoder
        that counts natural logarithms with a weight of ``alpha``, this is ``alpha * math.log(10)``.
    word_score, sil_score : float
        Added for each word, and each `sil`.
    unk_score : float, optional
        Added for each word that the lexicon, or without one the language model, lacks. By default there are no
        such words with a lexicon, and without one they cost what the model's ``<unk>`` does.
    log_add : bool
        Whether a hypothesis counts by the sum of all its alignments, or by the best of them.
    beam_threshold : float
        Hypotheses that are further than that below the best are dropped.
    beam_size_token : int, optional
        How many of a frame's best tokens hypotheses go on with; all by default.
    token_threshold : float, optional
        Tokens with lower scores are not tried, but for the best.
    blank_threshold : float, optional
        In frames whose blank has a higher probability no other token is tried.
    n_best : int
        How many hypotheses a step returns.
    endpoints : Endpoints, optional
        When an utterance is over and the next begins: its best hypothesis is final then. By default never.
    rate : float, optional
        Frames per second: times are in seconds then.
    max_pending : int
        Tokens after which the oldest that isn't final is decided, in favour of the best hypothesis.
    max_final : int
        Final tokens that are kept, at least.
    max_streams : int, optional
        Most streams that may be live.
    beam_size : int, optional
        Another name of `beam`.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> decoder = ds.decode.CTCDecoder(["-", "a", "b", " "], beam=8)
    >>> scores = np.log([[0.1, 0.8, 0.05, 0.05], [0.6, 0.1, 0.2, 0.1], [0.1, 0.1, 0.7, 0.1]])
    >>> decoder.step({"anna": scores[:2]}, sos="anna")["anna"].text
    'a'
    >>> decoder.step({"anna": scores[2:]}, eos="anna")["anna"].final
    'ab'
    """

    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> CTCDecoder:
        new = super().__new__(cls)
        new._given = args, options
        return new

    def __reduce__(self) -> Any:
        """Pickle what it was made of; its streams stay."""
        return partial(type(self), *self._given[0], **self._given[1]), ()

    def __init__(
        self,
        tokens: Sequence[str] | File,
        beam: int = 100,
        lexicon: Spellings | Iterable[str] | File | None = None,
        lm: File | None = None,
        hotwords: Mapping[str, float] | Iterable[str] | File | None = None,
        blank: int = 0,
        *,
        sil: str | None = None,
        lm_unit: str = "word",
        lm_weight: float = 1.0,
        word_score: float = 0.0,
        unk_score: float | None = None,
        sil_score: float = 0.0,
        hotword_weight: float = 1.0,
        log_add: bool = True,
        beam_threshold: float = 25.0,
        beam_size_token: int | None = None,
        token_threshold: float | None = None,
        blank_threshold: float | None = None,
        n_best: int = 1,
        endpoints: Endpoints | None = None,
        rate: float | None = None,
        max_pending: int = 256,
        max_final: int = 1024,
        max_streams: int | None = None,
        beam_size: int | None = None,
    ) -> None:
        beam = beam if beam_size is None else beam_size
        if lm_unit not in ("word", "token"):
            raise ValueError(f"lm_unit: expected 'word' or 'token', got {lm_unit!r}")
        if beam < 0 or n_best < 1 or max_pending < 1 or max_final < 1 or not (rate is None or rate > 0):
            raise ValueError("expected a beam of 0 or more, and n_best, max_pending, max_final and rate above 0")
        unknown = unk_score is not None and unk_score > -math.inf
        names = read_tokens(tokens, blank)
        separator = sil if sil is not None or isinstance(names, str) else _default_sil(names)
        self._core = _core.Decoder(
            names,
            read_lexicon(lexicon, separator),
            None if lm is None else as_file(lm),
            read_hotwords(hotwords),
            sil,
            blank,
            greedy=beam == 0,
            best_alignment=not log_add,
            lm_tokens=lm_unit == "token",
            unknown_words=unknown,
            beam_size=beam,
            beam_size_token=beam_size_token or 0,
            max_pending=max_pending,
            max_final=max_final,
            hotword_weight=hotword_weight,
            beam_threshold=beam_threshold,
            token_threshold=0.0 if token_threshold is None else token_threshold,
            blank_threshold=0.0 if blank_threshold is None else blank_threshold,
            lm_weight=lm_weight,
            word_score=word_score,
            unk_score=unk_score or 0.0,
            sil_score=sil_score,
            **_frames_of(endpoints, rate),
        )
        self._texts = Texts(self._core, rate)
        self._n_best, self._max_streams = n_best, max_streams
        self._streams: dict[str, _core.Decoding] = {}

    def __copy__(self) -> CTCDecoder:
        """Return a decoder of the same files and options, without streams."""
        new = object.__new__(type(self))
        new.__dict__ |= self.__dict__ | {"_streams": {}}
        return new

    @property
    def tokens(self) -> list[str]:
        """What the columns of the scores stand for."""
        return list(self._texts.tokens)

    @property
    def ids(self) -> list[str]:
        """Live streams."""
        return list(self._streams)

    # ---------------------------------------------------------------- stepping
    def step(
        self,
        scores: Mapping[str, Any] | None = None,
        sos: Collection[str] | str = (),
        eos: Collection[str] | str = (),
    ) -> dict[str, Hypotheses]:
        """Advance streams by their next frames, and return what each has said so far.

        Parameters
        ----------
        scores : dict of str to array
            Log probabilities ``(frames, tokens)`` by id, any number of frames. An id that is only in `sos` or
            `eos` has none.
        sos, eos : str or collection of str
            The streams that start, and that end, with this step.

        Returns
        -------
        dict of str to Hypotheses

        Raises
        ------
        StreamIdError
            A stream that starts is live, or one that goes on is not; its `ids` names them, as that of all others
            does. Where a step raises, no stream has advanced.
        ShapeError, DTypeError
            Scores that are no array ``(frames, tokens)`` of real numbers.
        StreamIndexError
            A score that is NaN or infinity, or a frame whose scores are all minus infinity.
        StreamLimitError
            More than `max_streams` would be live.
        """
        starts, ends = _ids(sos), _ids(eos)
        chunks = dict(scores or {})
        for stream_id in (*starts, *ends):
            chunks.setdefault(stream_id, None)
        self._check_ids(chunks, starts, ends)
        rows = []
        for stream_id, chunk in chunks.items():
            stream = _core.Decoding(self._core) if stream_id in starts else self._streams[stream_id]
            flags = _START * (stream_id in starts) | _END * (stream_id in ends)
            rows.append((stream_id, stream, self._array(chunk, stream_id), flags))
        self._core.step(rows)
        result = {}
        for stream_id, stream, _, flags in rows:
            ended = flags & _END > 0
            if ended:
                self._streams.pop(stream_id, None)
            else:
                self._streams[stream_id] = stream
            result[stream_id] = Hypotheses(self._texts, stream.read(self._n_best), ended)
        return result

    def _check_ids(self, chunks: Mapping[str, Any], starts: Collection[str], ends: Collection[str]) -> None:
        if wrong := [i for i in chunks if not isinstance(i, str)]:
            raise StreamIdError(f"a stream's id must be str, got {wrong[0]!r}")
        if live := [i for i in starts if i in self._streams]:
            raise StreamIdError("the stream is live already", live)
        if unknown := [i for i in chunks if i not in starts and i not in self._streams]:
            raise StreamIdError("no such stream is live, and sos doesn't name it", unknown)
        more = len(self._streams) + len(starts) - sum(i in ends and i not in starts for i in chunks)
        if self._max_streams is not None and more > self._max_streams:
            raise StreamLimitError(f"at most {self._max_streams} streams may be live", starts)

    def _array(self, chunk: Any, stream_id: str) -> Any:
        n = len(self._texts.tokens)
        if chunk is None:
            return np.empty((0, n), np.float32)
        array = np.asarray(chunk)
        if array.dtype.kind not in "fiu":
            raise DTypeError(f"expected scores of real numbers, got {array.dtype}", (stream_id,))
        if array.ndim != 2 or array.shape[1] != n:
            raise ShapeError(f"expected scores of shape (frames, {n}), got {array.shape}", (stream_id,))
        return np.ascontiguousarray(array, np.float32)

    # ---------------------------------------------------------------- streams
    def reset(self, ids: Collection[str] | str | None = None) -> None:
        """Forget streams, or all."""
        for stream_id in list(self._streams) if ids is None else _ids(ids):
            self._live(stream_id)
            del self._streams[stream_id]

    def snapshot(self, stream_id: str) -> bytes:
        """Return what a stream remembers, to be restored in any decoder of the same files and options."""
        return self._live(stream_id).snapshot()

    def restore(self, data: bytes, id: str) -> str:
        """Add a stream with the state of a snapshot; return its id.

        Raises
        ------
        FormatError
            For bytes that are no snapshot, damaged, or of a decoder with other files or options.
        StreamIdError, StreamLimitError
            Where the id is live, or `max_streams` are.
        """
        self._check_ids({id: None}, [id], ())
        stream = _core.Decoding(self._core)
        stream.restore(data)
        self._streams[id] = stream
        return id

    def fork(self, stream_id: str, new_id: str) -> None:
        """Add a stream that goes on independently from where another is."""
        self.restore(self.snapshot(stream_id), new_id)

    def _live(self, stream_id: str) -> _core.Decoding:
        stream = self._streams.get(stream_id)
        if stream is None:
            raise StreamIdError("no such stream is live", (stream_id,))
        return stream


def log_probabilities(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return log probabilities ``(frames, tokens)`` of scores, be they normalized or not."""
    top = scores.max(axis=1, keepdims=True, initial=-np.inf)
    shifted = scores - np.where(np.isfinite(top), top, 0)
    out: npt.NDArray[Any] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out


def greedy(scores: Any, tokens: Sequence[str] | File, blank: int = 0, rate: float | None = None) -> Hypotheses:
    """Return what a whole sequence says, by the best token of every frame.

    Parameters
    ----------
    scores : array
        Log probabilities ``(frames, tokens)``.
    tokens, blank, rate
        As of `CTCDecoder`.
    """
    decoder = CTCDecoder(tokens, beam=0, blank=blank, rate=rate)
    return decoder.step({"": scores}, sos="", eos="")[""]


def _default_sil(tokens: bytes) -> str | None:
    names = {line.rpartition(" ")[0] for line in tokens.decode(errors="replace").splitlines()}
    return next((name for name in ("|", " ") if name in names), None)


def _ids(given: Collection[str] | str) -> list[str]:
    return [given] if isinstance(given, str) else list(dict.fromkeys(given))


def _frames_of(endpoints: Endpoints | None, rate: float | None) -> dict[str, int]:
    if endpoints is None:
        return {}
    if any(not 0 <= value < math.inf for value in endpoints):
        raise ValueError(f"endpoints: expected 0 or more seconds, got {tuple(endpoints)}")
    names = ("silence_frames", "trailing_frames", "utterance_frames")
    return {name: math.ceil(value * (rate or 1)) for name, value in zip(names, endpoints)}
