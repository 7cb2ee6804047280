"""What decoders have in common: streams by id, chunks in, hypotheses out."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from ..errors import DTypeError, ShapeError, StreamIdError, StreamLimitError
from .hypotheses import Hypotheses, Texts
from .texts import File, Spellings, read_hotwords, read_lexicon, read_model, read_tokens

if TYPE_CHECKING:
    from typing_extensions import Self

_START, _END = 1, 2


class Endpoints(NamedTuple):
    """When an utterance is over, in seconds (frames where the decoder has no rate); 0: never for that reason."""

    silence: float = 2.4
    """Nothing was said for so long, be it since the beginning."""
    trailing_silence: float = 1.2
    """Nothing was said for so long behind the first token."""
    length: float = 20.0
    """The utterance is as long as that."""


class Decoder:
    """Streams of scores, of one decoder in C."""

    _what = "scores"
    _networks: Mapping[str, Any] = MappingProxyType({})

    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Self:
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
        spelled = read_lexicon(lexicon, separator)
        self._core = _core.Decoder(
            names,
            spelled,
            hotwords=read_hotwords(hotwords),
            sil=sil,
            blank=blank,
            **read_model(lm, names if lm_unit == "token" else spelled),
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
            **self._networks,
        )
        self._texts = Texts(self._core, (rate or 1) * self._networks.get("max_symbols", 1))
        self._n_best, self._max_streams = n_best, max_streams
        self._streams: dict[str, _core.Decoding] = {}

    def __copy__(self) -> Self:
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
            Log probabilities ``(frames, tokens)`` by id, of a transducer its encoder's frames; any number of them.
            An id that is only in `sos` or `eos` has none.
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
        n = self._core.width
        if chunk is None:
            return np.empty((0, n), np.float32)
        array = np.asarray(chunk)
        if array.dtype.kind not in "fiu":
            raise DTypeError(f"expected frames of real numbers, got {array.dtype}", (stream_id,))
        if array.ndim != 2 or array.shape[1] != n:
            raise ShapeError(f"expected {self._what} of shape (frames, {n}), got {array.shape}", (stream_id,))
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


def _ids(given: Collection[str] | str) -> list[str]:
    return [given] if isinstance(given, str) else list(dict.fromkeys(given))


def _frames_of(endpoints: Endpoints | None, rate: float | None) -> dict[str, Any]:
    """Return the rules of endpoints in frames, as C takes them."""
    if endpoints is None:
        return {}
    if any(not 0 <= value < math.inf for value in endpoints):
        raise ValueError(f"endpoints: expected 0 or more seconds, got {tuple(endpoints)}")
    names = ("silence_frames", "trailing_frames", "utterance_frames")
    return {name: math.ceil(value * (rate or 1)) for name, value in zip(names, endpoints)}


def _default_sil(tokens: bytes) -> str | None:
    names = {line.rpartition(" ")[0] for line in tokens.decode(errors="replace").splitlines()}
    return next((name for name in ("|", " ") if name in names), None)
