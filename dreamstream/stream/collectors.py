"""Collecting what comes out of a model until streams end.

An `OutputCollector` reads any object with

- ``meta``: its `StreamMetadata`;
- ``starts``: the absolute position of each row's first frame, or None where it is not known;
- ``stream_axis``: the axis of frames in one stream's array (0 for outputs without L);
- ``y[id]``: the frames of one stream, an array without padding and without the batch.

NumPy arrays are copied, so that the collector depends on nothing that its caller does with them.
Rooms with other kinds of arrays say how to join theirs with `register_arrays`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError, StreamIdError, StreamMismatchError

Join = Callable[[Sequence[Any], int], Any]
Keep = Callable[[Any], Any]

_KINDS: list[tuple[type, Join, Keep]] = []


def register_arrays(kind: type, join: Join, keep: Keep = lambda array: array) -> None:
    """Say how arrays of a class, subclasses included, are collected; a later registration goes first.

    ``join(arrays, axis)`` lays two or more arrays end to end; ``keep(array)`` returns what is stored of a
    chunk.
    """
    _KINDS.insert(0, (kind, join, keep))


register_arrays(object, lambda arrays, axis: np.concatenate(arrays, axis=axis), np.array)


def _kind_of(array: Any) -> tuple[Join, Keep]:
    return next((join, keep) for kind, join, keep in _KINDS if isinstance(array, kind))


class _Stream:
    """The segments of one stream."""

    __slots__ = ("axis", "n_frames", "segments")

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self.n_frames = 0
        self.segments: list[Any] = []

    def rest(self, array: Any) -> tuple[int, ...]:
        """Return an array's shape without the stream axis."""
        shape = tuple(array.shape)
        return (*shape[: self.axis], *shape[self.axis + 1 :])

    def add(self, array: Any) -> None:
        n_frames = int(array.shape[self.axis])
        if n_frames and not self.n_frames:
            self.segments.clear()  # an empty first chunk, kept for its shape and type only
        if n_frames or not self.segments:
            self.segments.append(array)
        self.n_frames += n_frames

    def array(self) -> Any:
        if len(self.segments) > 1:
            join, _ = _kind_of(self.segments[0])
            self.segments[:] = [join(self.segments, self.axis)]
        return self.segments[0]


class OutputCollector:
    """The frames of each stream so far, laid end to end.

    A stream opens with ``sos`` and ends with ``eos``, whether or not the row holds frames. Ended
    streams stay until they are popped.

    Examples
    --------
    With `y` the output of an online module or engine::

        collector = OutputCollector()
        collector.update(y)
        collector["anna"]                     # all her frames so far
        for i in collector.finished:
            save(i, collector.pop(i))
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._finished: dict[str, None] = {}

    def update(self, y: Any) -> None:
        """Append one call's output. All rows are checked first: an update that raises changes nothing.

        Parameters
        ----------
        y : StreamTensor
            Or any object with `meta`, `starts`, `stream_axis` and ``y[id]`` of the same meaning.

        Raises
        ------
        StreamIdError
            A stream begins that is here already, goes on without having begun, or after its end.
        StreamMismatchError
            A chunk doesn't begin where the frames so far end.
        ShapeError
            A chunk has another shape per frame than the earlier ones.
        DTypeError
            `y` is no stream tensor.
        """
        meta = getattr(y, "meta", None)
        if meta is None or not hasattr(y, "stream_axis"):
            raise DTypeError(f"a collector takes stream tensors, got {type(y).__name__}")
        ids, sos, eos = meta.ids, meta.sos.tolist(), meta.eos.tolist()
        self._check_events(ids, sos)
        starts = getattr(y, "starts", None)
        axis = int(y.stream_axis)
        streams = [_Stream(axis) if s else self._streams[i] for i, s in zip(ids, sos)]
        if starts is not None:
            self._check_starts(ids, starts, streams)
        chunks = []
        for i, stream in zip(ids, streams):
            chunk = y[i]
            if not hasattr(chunk, "shape"):
                chunk = np.asarray(chunk)
            if axis != stream.axis or (stream.segments and stream.rest(chunk) != stream.rest(stream.segments[0])):
                raise ShapeError(
                    f"a chunk of shape {tuple(chunk.shape)}, frames along axis {axis}, can't follow "
                    f"{tuple(stream.segments[0].shape)}, frames along axis {stream.axis}",
                    [i],
                )
            chunks.append(_kind_of(chunk)[1](chunk))
        for i, stream, chunk, ends in zip(ids, streams, chunks, eos):
            stream.add(chunk)
            self._streams[i] = stream
            if ends:
                self._finished[i] = None

    def _check_events(self, ids: list[str], sos: list[bool]) -> None:
        rows = list(zip(ids, sos))
        ended = [i for i, _ in rows if i in self._finished]
        if ended:
            raise StreamIdError("frames after the stream's end; pop it before its id is used again", ended)
        twice = [i for i, s in rows if s and i in self._streams]
        if twice:
            raise StreamIdError("sos on a stream that is open; pop it to begin anew", twice)
        unknown = [i for i, s in rows if not s and i not in self._streams]
        if unknown:
            raise StreamIdError("frames of a stream that has not begun (no sos was seen)", unknown)

    @staticmethod
    def _check_starts(ids: list[str], starts: Sequence[int | None], streams: list[_Stream]) -> None:
        if len(starts) != len(ids):
            raise StreamMismatchError(f"{len(starts)} starts for {len(ids)} streams")
        bad = [r for r, s in enumerate(starts) if s is not None and int(s) != streams[r].n_frames]
        if bad:
            r = bad[0]
            raise StreamMismatchError(
                f"a chunk begins at frame {starts[r]}, but {streams[r].n_frames} frames were collected: "
                "an output is missing, or was given twice",
                [ids[b] for b in bad],
            )

    @property
    def ids(self) -> list[str]:
        """Ids of all streams here, in the order of their beginning."""
        return list(self._streams)

    @property
    def finished(self) -> list[str]:
        """Ids of the streams that have ended, in that order."""
        return list(self._finished)

    def _stream(self, stream_id: str) -> _Stream:
        if stream_id not in self._streams:
            raise StreamIdError("the collector holds no such stream", [str(stream_id)])
        return self._streams[stream_id]

    def __getitem__(self, stream_id: str) -> Any:
        """Return all frames of a stream so far, the collector's own array: copy it to write to it."""
        return self._stream(stream_id).array()

    def pop(self, stream_id: str) -> Any:
        """Return all frames of a stream and forget it.

        Raises
        ------
        StreamIdError
            There is no such stream.
        """
        array = self._stream(stream_id).array()
        del self._streams[stream_id]
        self._finished.pop(stream_id, None)
        return array

    def __contains__(self, stream_id: object) -> bool:
        return stream_id in self._streams

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self._streams)

    def __repr__(self) -> str:
        rows = ", ".join(
            f"{i!r}: {s.n_frames}{' (ended)' if i in self._finished else ''}" for i, s in self._streams.items()
        )
        return f"OutputCollector({{{rows}}})"
