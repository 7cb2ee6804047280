"""Batches of many streams, read chunk by chunk."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from ..array.stream_creation import stream_tensor
from ..errors import ModeError, ShapeError, SourceError, StreamMismatchError
from .items import NO_TARGET, Item, is_path, items_of, length_of
from .live import Live, Row
from .order import Padding, order_of, padding_of
from .reading import Chunk, Cut
from .workers import Fault, Opening, Readers, readers


class _Place(NamedTuple):
    """How far an epoch is: which one, how many of its streams have begun, and of each lane which and how far."""

    epoch: int = 0
    begun: int = 0
    at: tuple[tuple[int, int] | None, ...] = ()
    started: bool = False  # whether a batch of it was given


class StreamLoader:
    """Streams of any length as batches of chunks, `lanes` of them at a time.

    Each stream is read front to back, its last chunk is marked (`eos`), and a lane whose stream has ended takes
    the next one. Files are never read whole: some chunks of each lane are held. The same source, `seed` and epoch
    give the same batches, whatever the number of workers.

    Parameters
    ----------
    source
        One of

        - a folder: all recordings in it and below;
        - a manifest, ``.csv``, ``.tsv`` or ``.jsonl``, of paths (relative to its folder) and targets;
        - a dict by id, or a sequence of paths, arrays, ``(id, x)`` or ``(id, x, target)``; an `x` may also be an
          iterable of arrays, or a function without arguments that returns one;
        - an iterator of the same, which is gone through once;
        - a live queue, which has ``get()`` and ``get_nowait()``: of ``(id, chunk)``, ``(id, None)`` at a stream's
          end, and None at the end of all. Batches then hold what has come, a chunk's frames of a stream at most.

        Paths are recordings as `AudioReader` reads them, of which channels are averaged, or ``.npy`` files.
    chunk : int or None
        Frames of a chunk; fewer only at a stream's end. None: whole streams.
    lanes : int
        Streams at a time.
    workers : int
        Processes that read files and functions, each stream in one of them; 0: this process reads. Arrays and
        iterables are at hand, and always cut here.
    bucket : int, optional
        How many streams that follow each other are sorted by length, so that those of like lengths run together.
        `padding` says what it saves.
    shuffle : bool
        Whether each epoch has an order of its own.
    seed : int
        Of these orders.
    targets : dict by id, optional
        What each stream is to become.
    axis : int
        Which dimension of an item, without B, is L.
    sample_rate : int, optional
        The rate of the batches: recordings of another are resampled, in the stream. Without it all must have one.
    together : bool
        Whether lanes begin together, when all have ended, as the full-file variants of training have it.
    tensors : {"numpy", "torch"}, optional
        Of which kind batches are; by default of the items' own.
    columns : (str, str)
        The columns of a manifest that hold paths and targets.
    start_method : {"fork", "spawn", "forkserver"}, optional
        How worker processes begin; by default as `multiprocessing` has it.

    Yields
    ------
    StreamTensor
        ``(B, L)`` of recordings, else with the dimensions of the items; with ids, sos, eos and lengths. Where
        there are targets, a pair of it and its streams' targets by id, as `dreamstream.train.align` takes them.

    Raises
    ------
    SourceError
        Where a stream can't be read further, or its worker dies; it names the stream.
    FormatError, StreamIdError
        For sources that can't be understood, ids that occur twice, streams without a target.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> arrays = {"anna": np.zeros(70), "bob": np.zeros(30), "carl": np.zeros(30)}
    >>> for x in ds.data.StreamLoader(arrays, chunk=40, lanes=2):
    ...     print(x.ids, x.lengths.tolist(), x.sos.tolist(), x.eos.tolist())
    ['anna', 'bob'] [40, 30] [True, True] [False, True]
    ['anna', 'carl'] [30, 30] [False, True] [True, True]
    """

    def __init__(
        self,
        source: Any,
        chunk: int | None,
        lanes: int = 8,
        workers: int = 0,
        bucket: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        *,
        targets: Mapping[str, Any] | None = None,
        axis: int = -1,
        sample_rate: int | None = None,
        together: bool = False,
        tensors: str | None = None,
        columns: tuple[str, str] = ("path", "target"),
        start_method: str | None = None,
    ) -> None:
        asked = {name: n for name, n in (("chunk", chunk), ("bucket", bucket)) if n is not None}
        for name, number in {**asked, "lanes": lanes, "workers": workers}.items():
            least = int(name != "workers")
            if not isinstance(number, Integral) or number < least:
                raise ValueError(f"StreamLoader: {name} must be at least {least}, a whole number, got {number!r}")
        if sample_rate is not None and sample_rate < 1:
            raise ValueError(f"StreamLoader: sample_rate must be at least 1, got {sample_rate}")
        if tensors not in (None, "numpy", "torch"):
            raise ValueError(f'StreamLoader: tensors are "numpy" or "torch", got {tensors!r}')
        self.chunk, self.lanes, self.workers, self.bucket = chunk, lanes, workers, bucket
        self.shuffle, self.seed, self.tensors, self.together = shuffle, seed, tensors, together
        self._how = Cut(chunk, axis, sample_rate)
        self._start_method = start_method
        self._place = _Place()
        self._resumed = False
        self._lengths: list[int] | None = None
        self._live: Live | None = None
        self._items: list[Item] | Iterator[Item]
        if hasattr(source, "get_nowait"):
            self._live, self._items = Live(source, axis), []
            self._once("a live queue", workers=workers, targets=targets)
        else:
            self._items = items_of(source, targets, columns)
        if not isinstance(self._items, list):
            self._once("an iterator")

    def _once(self, what: str, **others: Any) -> None:
        """Raise for options that a source which is gone through once can't have."""
        asked = {"shuffle": self.shuffle, "bucket": self.bucket, **others}
        for name, value in asked.items():
            if value:
                raise ModeError(f"StreamLoader: {what} is gone through once, as it comes, not with {name}={value}")

    # ---------------------------------------------------------------- where it is
    @property
    def epoch(self) -> int:
        """Number of the epoch that is under way, or comes next."""
        return self._place.epoch

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is, behind the batch that it gave last, as numbers, texts and lists.

        A loader of the same source and options that loads it gives the batches that would have followed.

        Raises
        ------
        ModeError
            For a live queue, which can't be asked again.
        """
        if self._live is not None:
            raise ModeError("StreamLoader: a live queue gives what has come, and can't go on from where it was")
        at = [None if lane is None else list(lane) for lane in self._place.at]
        return {**self._identity(), **self._place._asdict(), "at": at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was taken, with the next iteration.

        Raises
        ------
        StreamMismatchError
            For the state of a loader with another source or other options.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise StreamMismatchError(
                    f"StreamLoader: the state is of a loader with {name}={state.get(name)!r}, not {value!r}"
                )
        at = tuple(None if lane is None else (int(lane[0]), int(lane[1])) for lane in state["at"])
        self._place = _Place(int(state["epoch"]), int(state["begun"]), at, bool(state["started"]))
        self._resumed = True

    def _identity(self) -> dict[str, Any]:
        """Return what decides about the batches."""
        items = self._items
        ids = zlib.crc32("\0".join(i.id for i in items).encode()) if isinstance(items, list) else None
        own = ("chunk", "lanes", "bucket", "shuffle", "seed", "together")
        return {"ids": ids, **{name: getattr(self, name) for name in own}, **self._how._asdict()}

    # ---------------------------------------------------------------- lengths
    def padding(self, epoch: int | None = None) -> Padding:
        """Return how much padding the batches of an epoch have, by default of the one that is under way.

        Lengths are those that files have in their headers.

        Raises
        ------
        SourceError
            For streams whose length is not known before they are read.
        """
        lengths = self._known_lengths()
        numbers = [
            padding_of([lengths[i] for i in self._order(bucket, epoch)], self.chunk, self.lanes, self.together)
            for bucket in (self.bucket, None)
        ]
        return Padding(sum(lengths), *numbers)

    def _known_lengths(self) -> list[int]:
        if self._lengths is None:
            if not isinstance(self._items, list) or self._live is not None:
                raise ModeError("StreamLoader: an iterator's or a queue's lengths are not known before it is read")
            found = []
            for item in self._items:
                try:
                    found.append(length_of(item, self._how.axis, self._how.sample_rate))
                except Exception as error:
                    raise _failed(item.id, Fault(f"{type(error).__name__}: {error}", error)) from error
            without = [item.id for item, n in zip(self._items, found) if n is None]
            if without:
                raise SourceError("the length of these streams is not known before they are read", without)
            self._lengths = [n for n in found if n is not None]
        return self._lengths

    def _order(self, bucket: int | None, epoch: int | None = None) -> list[int]:
        assert isinstance(self._items, list)
        lengths = [] if bucket is None else self._known_lengths()
        number = self._place.epoch if epoch is None else epoch
        return order_of(len(self._items), self.shuffle, self.seed, number, bucket, lengths, self.lanes)

    # ---------------------------------------------------------------- batches
    def __iter__(self) -> Iterator[Any]:
        for rows, targets in self.rows():
            x = self._tensor(rows)
            yield x if targets is None else (x, targets)

    def _tensor(self, rows: Sequence[Row]) -> Any:
        frames = [row.frames for row in rows]
        if self.tensors == "torch":
            import torch

            frames = [torch.as_tensor(np.array(f)) if isinstance(f, np.ndarray) else f for f in frames]
        elif self.tensors == "numpy":
            frames = [np.asarray(f) for f in frames]
        rank = frames[0].ndim
        if not -rank <= self._how.axis < rank:
            raise ShapeError(f"StreamLoader: axis is {self._how.axis}, but an item has {rank} dimensions")
        names: list[str | None] = ["B", *[None] * rank]
        names[1 + self._how.axis % rank] = "L"
        ids, sos, eos = zip(*((row.id, row.sos, row.eos) for row in rows))
        return stream_tensor(frames, names=names, ids=ids, sos=sos, eos=eos)

    def rows(self, skip: Any = None) -> Iterator[tuple[list[Row], dict[str, Any] | None]]:
        """Yield what `__iter__` makes tensors of, and targets.

        Parameters
        ----------
        skip : callable, optional
            ``skip(error)`` takes note of a stream that can't be read further, for the others to go on; a batch may
            then have no rows.
        """
        if self._live is not None:
            yield from ((heard, None) for heard in self._live.rows(self.chunk, self.lanes, skip))
            return
        _refuse_torch_workers()
        place, self._resumed = self._place if self._resumed else self._beginning(), False
        self._place = place
        coming, lanes = self._streams(place)
        reading = _Reading(self._items, self._how, self.workers, self._start_method)
        try:
            while True:
                free = [k for k in range(self.lanes) if lanes[k] is None]
                if not self.together or len(free) == self.lanes:
                    for k, (number, item) in zip(free, coming):
                        lanes[k], place = (number, item, 0), place._replace(begun=number + 1)
                live = {k: lane for k, lane in enumerate(lanes) if lane is not None}
                if not live:
                    break
                rows: list[Row] = []
                targets: dict[str, Any] = {}
                for k, answer in reading.next(live).items():
                    number, item, n = live[k]
                    if isinstance(answer, Fault):
                        lanes[k] = None
                        error = _failed(item.id, answer)
                        if skip is None:
                            raise error from answer.error
                        skip(error)
                        continue
                    rows.append(Row(item.id, answer.frames, n == 0, answer.last))
                    targets[item.id] = item.target
                    n += answer.frames.shape[self._how.axis]
                    lanes[k] = None if answer.last else (number, item, n)
                at = tuple(None if lane is None else (lane[0], lane[2]) for lane in lanes)
                self._place = place = place._replace(at=at, started=True)
                yield rows, None if any(t is NO_TARGET for t in targets.values()) else targets
        finally:
            reading.close()
        self._place = _Place(place.epoch + 1)

    def _beginning(self) -> _Place:
        """Return where the next epoch begins; one that was left is not gone through again."""
        return _Place(self._place.epoch + self._place.started)

    def _streams(self, place: _Place) -> tuple[Iterator[tuple[int, Item]], list[Any]]:
        """Return the streams that begin from here on, and the lanes, with those that go on."""
        items = self._items
        streams: Iterator[tuple[int, Item]]
        if isinstance(items, list):
            streams = enumerate(items[i] for i in self._order(self.bucket))
        else:
            streams = enumerate(items)
        live = {lane[0] for lane in place.at if lane is not None}
        begun = {number: item for number, item in islice(streams, place.begun) if number in live}
        lanes = [None if lane is None else (lane[0], begun[lane[0]], lane[1]) for lane in place.at]
        return streams, [*lanes, *[None] * (self.lanes - len(lanes))]


class _Reading:
    """Reads the lanes of an epoch: files and functions in workers, where there are any, all else here."""

    def __init__(self, items: Any, how: Cut, workers: int, start_method: str | None) -> None:
        known = {i.id: i.x for i in items if _is_read(i.x)} if isinstance(items, list) else {}
        self._known = known if workers else {}
        self._here = readers(0, how, {}, None)
        self._there = readers(workers, how, self._known, start_method) if workers else self._here
        self._numbers: dict[int, int] = {}
        self._rate: tuple[int, str] | None = None

    def next(self, live: Mapping[int, tuple[int, Item, int]]) -> dict[int, Any]:
        """Return the next chunk of every lane's stream: of its number, its item, and the frames that came."""
        opening: dict[Readers, dict[int, Opening]] = {self._here: {}, self._there: {}}
        asked: dict[Readers, list[int]] = {self._here: [], self._there: []}
        for k, (number, item, n) in live.items():
            who = self._there if _is_read(item.x) else self._here
            asked[who].append(k)
            if self._numbers.get(k) != number:
                self._numbers[k] = number
                opening[who][k] = Opening(item.id, None if item.id in self._known else item.x, n)
        got = {k: a for who in asked for k, a in who.next(opening[who], asked[who]).items()}
        return {k: self._checked(live[k][1].id, got[k]) for k in live}

    def _checked(self, stream_id: str, answer: Chunk | Fault) -> Chunk | Fault:
        """Return the answer; a fault for a recording of another sample rate than the first."""
        if isinstance(answer, Fault) or answer.rate is None:
            return answer
        self._rate = self._rate or (answer.rate, stream_id)
        if answer.rate == self._rate[0]:
            return answer
        first = f"{self._rate[1]} {self._rate[0]}"
        return Fault(f"it has {answer.rate} samples per second, {first}; sample_rate= resamples them")

    def close(self) -> None:
        self._there.close()
        self._here.close()


def _refuse_torch_workers() -> None:
    """Raise in a worker of torch's DataLoader that is one of several: each would read all streams."""
    torch_data = sys.modules.get("torch.utils.data")
    info = None if torch_data is None else torch_data.get_worker_info()
    if info is not None and info.num_workers > 1:
        raise ModeError(
            f"StreamLoader: each of the {info.num_workers} workers of torch's DataLoader would read all streams; "
            "iterate over the StreamLoader itself, which has workers= of its own"
        )


def _is_read(x: Any) -> bool:
    """Whether an item is a file or a function, which a worker can read."""
    return is_path(x) or callable(x)


def _failed(stream_id: str, fault: Fault) -> SourceError:
    return SourceError(f"a stream can't be read further: {fault.text}", [stream_id])
