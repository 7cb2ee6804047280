"""What a trainer makes of the batches that it is given: inputs of a call, and targets by stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..data import StreamLoader
from ..data.reading import joined
from ..errors import ShapeError, StreamIdError
from ..stream.tree import leaves
from .align import align
from .front import is_stream

#: What a batch holds: arguments of the model, those by name, and targets in one of the forms of `Targets.add`.
Parts = tuple[tuple[Any, ...], dict[str, Any], Any]


def parts_of(batch: Any, unpack: Callable[[Any], Any] | None) -> Parts:
    """Return what a batch holds; raise TypeError for one without a stream tensor."""
    inputs, target = batch, None
    if unpack is not None:
        inputs, target = unpack(batch)
    elif isinstance(batch, Mapping) and "target" in batch:
        inputs, target = {k: v for k, v in batch.items() if k != "target"}, batch["target"]
    elif isinstance(batch, (tuple, list)) and len(batch) == 2:
        inputs, target = batch
    elif isinstance(batch, (tuple, list)) and len(batch) == 1:
        (inputs,) = batch
    args: tuple[Any, ...] = () if isinstance(inputs, Mapping) else (inputs,)
    if isinstance(inputs, (tuple, list)):
        args = tuple(inputs)
    kwargs = dict(inputs) if isinstance(inputs, Mapping) else {}
    if not any(map(is_stream, leaves((args, kwargs)))):
        raise TypeError(
            "ChunkTrainer: a batch is a stream tensor, or a pair of it and targets, or a dict by the forward's "
            f"names and 'target'; got {type(batch).__name__} without a stream tensor; unpack= says what is what"
        )
    return args, kwargs, target


def loader_of(
    source: Mapping[str, Any], chunk: int | None, lanes: int, axis: int, together: bool, native: bool
) -> StreamLoader:
    """Return a loader of whole streams by id; each is asked for when it begins."""
    if type(source) is dict:
        for i, x in source.items():
            rank = getattr(x, "ndim", None)
            if rank is not None and not -rank <= axis < rank:
                raise ShapeError(f"ChunkTrainer: axis is {axis}, but the input has {rank} dimensions", [i])
    items = [(i, partial(source.__getitem__, i)) for i in source]
    kind = "numpy" if native else "torch"
    return StreamLoader(items, chunk, lanes, axis=axis, together=together, tensors=kind)


class Targets:
    """Targets of whole streams by id, as far as they have come.

    `known` holds those of all streams, which are read when they are needed.
    """

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        self.known = known
        self.of_streams: dict[str, Any] = {}

    def add(self, ids: Sequence[str], given: Any) -> None:
        """Take the targets of a batch's streams.

        They are a dict by id; a tensor or list with an entry for each row; a dict of such; or a stream tensor,
        whose frames are those that belong to the chunks of the batch.
        """
        if given is None or self.known is not None:
            return
        if is_stream(given):
            for i in given.ids:
                before = self.of_streams.get(i) or Tail(0, None)
                self.of_streams[i] = before.with_more(_frames_first(given, i))
        elif isinstance(given, Mapping) and all(i in given for i in ids):
            self.of_streams.update({i: given[i] for i in ids})
        else:
            for k, i in enumerate(ids):
                self.of_streams[i] = map_rows(given, k, len(ids))

    def forget(self, live: Sequence[str]) -> None:
        """Forget those of streams that have ended."""
        gone = [i for i in self.of_streams if i not in live]
        for i in gone:
            del self.of_streams[i]

    @property
    def none(self) -> bool:
        """Whether there are none."""
        return self.known is None and not self.of_streams

    def of(self, y: Any, aligned: bool) -> Any:
        """Return the targets of what a model gave: `align`'s, or a list, one for each row; None without any."""
        if self.none:
            return None
        streams = streams_of(y)
        first = streams[0]
        by_id: Mapping[str, Any] = self.of_streams if self.known is None else self.known
        missing = [i for i in first.ids if i not in by_id]
        if missing:
            raise StreamIdError("ChunkTrainer: these streams have no target", missing)
        rows = [by_id[i] for i in first.ids]
        if not aligned:
            return rows
        if rows and all(isinstance(row, Mapping) for row in rows) and isinstance(y, Mapping):
            return {name: self._cut(y[name], rows, name) for name in rows[0]}
        if rows and all(isinstance(row, (tuple, list)) for row in rows) and len(streams) > 1:
            return tuple(self._cut(part, rows, k) for k, part in enumerate(streams[: len(rows[0])]))
        return self._aligned(first, dict(zip(first.ids, rows)))

    def _cut(self, y: Any, rows: Sequence[Any], name: Any) -> Any:
        return self._aligned(y, {i: row[name] for i, row in zip(y.ids, rows)})

    def _aligned(self, y: Any, rows: dict[str, Any]) -> Any:
        out = align(y, rows)
        for i, start, n in zip(y.ids, y.starts, y.lengths):
            if isinstance(rows[i], Tail) and rows[i] is self.of_streams.get(i):
                self.of_streams[i] = rows[i].behind(start + int(n))
        return out

    # ---------------------------------------------------------------- in checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return what came in pieces; all else comes again with each batch."""
        return {i: [t.at, t.frames] for i, t in self.of_streams.items() if isinstance(t, Tail)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.of_streams = {i: Tail(at, frames) for i, (at, frames) in state.items()}


class Tail:
    """The frames of a target that are still needed, under the positions that they have in the whole one."""

    def __init__(self, at: int, frames: Any) -> None:
        self.at, self.frames = at, frames

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole, as far as it has come."""
        n, *rest = self.frames.shape
        return (self.at + n, *rest)

    def __getitem__(self, part: slice) -> Any:
        return self.frames[part.start - self.at : part.stop - self.at]

    def with_more(self, frames: Any) -> Tail:
        """Return it with frames behind its own."""
        return Tail(self.at, frames if self.frames is None else joined([self.frames, frames]))

    def behind(self, position: int) -> Tail:
        """Return it without the frames before a position."""
        return Tail(position, self.frames[position - self.at :])


def _frames_first(x: Any, stream_id: str) -> Any:
    """Return the frames of a row, L first; NumPy's of native tensors."""
    axis = int(x.stream_axis)
    frames = x[stream_id]
    if hasattr(frames, "untyped_storage"):
        return frames.movedim(axis, 0)
    return np.moveaxis(np.asarray(frames), axis, 0)


def map_rows(given: Any, row: int, n_rows: int) -> Any:
    """Return one row's part of what has an entry for each row, or of a dict of such."""
    if isinstance(given, Mapping):
        return {name: map_rows(part, row, n_rows) for name, part in given.items()}
    if not hasattr(given, "__len__") or len(given) != n_rows:
        n = f"{len(given)} entries" if hasattr(given, "__len__") else type(given).__name__
        raise ShapeError(f"ChunkTrainer: a batch of {n_rows} streams has targets of {n}; expected one for each")
    return given[row]


def streams_of(y: Any) -> list[Any]:
    """Return the stream tensors among a model's outputs; raise TypeError where there is none."""
    found = [x for x in leaves(y) if is_stream(x)]
    if not found:
        raise TypeError(f"ChunkTrainer: the model returned {type(y).__name__} without a stream tensor")
    return found


def frames_of(y: Any) -> int:
    """Return how many frames a model has given: of its first output, or of the first that has any."""
    counts = [int(x.lengths.sum()) for x in streams_of(y)]
    return next((n for n in counts if n), 0)
