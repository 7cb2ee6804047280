"""A model over many recordings: each once, many at a time, and from where it was when it is started again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from typing import Any, overload

import numpy as np

from ..array.stream_creation import stream_tensor
from ..engine import Engine
from ..errors import DreamStreamError, FormatError, ModeError, SourceError
from ..online import reset
from ..online.handle import patch_of
from ..stream import OutputCollector
from ..stream.foreign import bridge
from ..stream.tree import leaves, map_leaves
from .items import items_of
from .live import Row
from .loader import StreamLoader
from .progress import Progress
from .ray import columns, results_on_ray
from .values import in_frames, in_lists

Bad = Callable[[SourceError], None]


@overload
def bulk(
    model: Any, source: Any, output: None = None, *, chunk: int = ..., lanes: int = ..., workers: int = ...,
    sample_rate: int | None = ..., bad: Bad | None = ..., quiet: bool = ...
) -> Iterator[tuple[str, Any]]: ...  # fmt: skip
@overload
def bulk(
    model: Any, source: Any, output: str | os.PathLike[str], *, chunk: int = ..., lanes: int = ...,
    workers: int = ..., sample_rate: int | None = ..., bad: Bad | None = ..., quiet: bool = ...,
    ray: str | None = ...
) -> int: ...  # fmt: skip
def bulk(
    model: Any,
    source: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    chunk: int = 16000,
    lanes: int = 16,
    workers: int = 0,
    sample_rate: int | None = None,
    bad: Bad | None = None,
    quiet: bool = False,
    ray: str | None = None,
) -> Any:
    """Run a model over every recording of a folder, once.

    Parameters
    ----------
    model : Engine or module
        An engine whose input is samples, ``("B", "L")`` or ``("B", 1, "L")``, or a patched module of DreamStream
        or torch that is online and in ``eval()``.
    source
        A folder, or what else `StreamLoader` reads from files or arrays.
    output : str or path, optional
        A ``.jsonl`` file that gets a line for each recording when it has ended: ``{"file", "frames", "values"}``,
        and of an engine its fingerprint, ``"model"``; values are nested lists, frame by frame, by name where there
        are several outputs. Recordings that have a line are not run again, so that a run which was ended in
        whatever way goes on where it was.
    chunk : int
        Samples of each recording in a step.
    lanes : int
        Recordings at a time.
    workers : int
        Processes that read; 0: this one does.
    sample_rate : int, optional
        The rate that recordings are resampled to; by default an engine's own, where that is not 1.
    bad : callable, optional
        ``bad(error)`` is called for a recording that can't be read, or that the model refuses; the others go on.
        Without it an error for all of them is raised when the others have been run.
    quiet : bool
        Whether no progress is shown on a terminal.
    ray : str, optional
        With `output` and an engine: the address of a Ray whose machines run recordings, which all of them can
        read, or ``"local"``; `workers` is how many processes do.

    Returns
    -------
    iterator of (str, outputs)
        Without `output`: id and outputs, in the form of what the model returns, of each stream as it ends.
    int
        With it: the number of recordings that were run.

    Raises
    ------
    SourceError
        At the end, where recordings were bad; its `ids` name them.
    FormatError
        For a file that is no output of this, or of another model's.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> engine = ds.compile(ds.nn.Conv1d(1, 1, 3), ("B", 1, "L"))
    >>> for name, y in ds.data.bulk(engine, {"anna": np.zeros(9, np.float32), "bob": np.zeros(5, np.float32)}):
    ...     print(name, y.shape)
    anna (1, 7)
    bob (1, 3)
    """
    if sample_rate is None and isinstance(model, Engine) and model.rate != 1:
        sample_rate = int(model.rate)
    runner = _Runner(model)

    def loader(source: Any) -> StreamLoader:
        return StreamLoader(source, chunk, lanes, workers, sample_rate=sample_rate, tensors="numpy")

    if output is None:
        if ray is not None:
            raise ModeError("bulk: a Ray's machines run recordings for an output, a .jsonl file")
        return _results(runner, loader(source), bad)
    items = items_of(source)
    with _Lines(output, runner.fingerprint) as lines:
        left = [tuple(item[:2]) for item in items if item.id not in lines.done]
        before = len(lines.done)
        with Progress(len(left), quiet, "files") as progress:
            if ray is not None:
                _on_ray(ray, model, left, lines, progress, (chunk, lanes, workers, sample_rate), bad)
                return len(lines.done) - before
            for stream_id, y in _results(runner, loader(left), bad, lambda: progress.advance(1)):
                lines.write(stream_id, *runner.numbers(y))
        return len(lines.done) - before


def _on_ray(
    address: str,
    engine: Any,
    items: Sequence[tuple[str, Any]],
    lines: _Lines,
    progress: Progress,
    how: tuple[int, int, int, int | None],
    bad: Bad | None,
) -> None:
    chunk, lanes, workers, sample_rate = how
    if not isinstance(engine, Engine) or not all(isinstance(x, (str, os.PathLike)) for _, x in items):
        raise FormatError("bulk: a Ray runs engines over files; ds.compile makes an engine of a module")
    if not items:
        return
    ids = {os.path.abspath(x): stream_id for stream_id, x in items}
    faults = []
    args = engine, chunk, lanes, sample_rate
    results = results_on_ray(address, _Elsewhere, args, list(ids), lanes, max(1, workers))
    for path, n_frames, values, error in results:
        progress.advance(1)
        if error is None:
            lines.write(ids[path], n_frames, values)
            continue
        faults.append(SourceError(error._message, [ids[path]]))
        if bad is not None:
            bad(faults[-1])
    _raise_for(faults if bad is None else [])


class _Elsewhere:
    """Runs an engine over lists of paths, on another machine."""

    def __init__(self, engine: Engine, chunk: int, lanes: int, sample_rate: int | None) -> None:
        self._runner, self._how = _Runner(engine), (chunk, lanes, sample_rate)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        (chunk, lanes, sample_rate), faults = self._how, list[SourceError]()
        paths = [(str(path), str(path)) for path in batch["path"]]
        loader = StreamLoader(paths, chunk, lanes, sample_rate=sample_rate, tensors="numpy")
        done = [(p, *self._runner.numbers(y), None) for p, y in _results(self._runner, loader, faults.append)]
        return columns([*done, *((path, 0, None, error) for error in faults for path in error.ids)])


def _results(
    runner: _Runner, loader: StreamLoader, bad: Bad | None, note: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, Any]]:
    faults: list[SourceError] = []

    def fail(error: SourceError) -> None:
        runner.drop(error.ids)
        runner.refused.update(error.ids)
        note()
        if bad is not None:
            bad(error)
        faults.append(error)

    try:
        batches = loader.rows(skip=fail)
        for rows, _ in batches:
            for ended in runner.step(rows, fail):
                note()
                yield ended, runner.take(ended)
    finally:
        batches.close()  # type: ignore[attr-defined]
        runner.drop(runner.live)
    _raise_for(faults if bad is None else [])


def _raise_for(faults: Sequence[SourceError]) -> None:
    if faults:
        reasons = "; ".join(str(error) for error in faults)
        raise SourceError(f"{len(faults)} streams could not be run: {reasons}", [i for f in faults for i in f.ids])


class _Runner:
    """A model, its streams, and what came out of it so far."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.live: list[str] = []
        self.refused: set[str] = set()  #: Streams that it can't go on with, whose frames are passed over.
        #: What an engine's results are marked with.
        self.fingerprint = model.fingerprint if isinstance(model, Engine) else None
        self._names: list[str | None] = ["B", "L"]
        self._form: Any = None
        self._collectors: list[OutputCollector] = []
        self._axes: list[int] = []
        self._torch: Any = None
        if isinstance(model, Engine):
            first = model.inputs[0]
            if len(model.inputs) > 1 or any(n != 1 for n in first.features):
                takes = ", ".join(f"{x.name}: {x.dimensions}" for x in model.inputs)
                raise FormatError(f'bulk: the engine takes {takes}; expected samples, ("B", "L") or ("B", 1, "L")')
            self._names = [d if isinstance(d, str) else None for d in first.dimensions]
            return
        patch = patch_of(model)
        if patch is None or not patch.is_online:
            raise ModeError(
                f"bulk: {type(model).__name__} is no engine, and not online; ds.compile makes one of it"
            )
        if hasattr(model, "register_full_backward_hook"):
            if model.training:
                raise ModeError("bulk: the model is in train(); call eval() first")
            bridge()
            import torch

            self._torch = torch

    def step(self, rows: Sequence[Row], fail: Bad) -> list[str]:
        """Advance streams; return those that have ended. Those that can't go on are given to `fail`."""
        for row in rows:
            shape = row.frames.shape
            if row.frames.size != shape[-1] and row.id not in self.refused:
                fail(SourceError(f"expected samples, (L,) or (1, L), got an array of shape {shape}", [row.id]))
        rows = [row for row in rows if row.id not in self.refused]
        while rows:
            try:
                y = self._call(rows)
                break
            except DreamStreamError as error:
                at_fault = {row.id for row in rows} & set(error.ids)
                if not at_fault:
                    raise
                rows = [row for row in rows if row.id not in at_fault]  # the call has left them as they were
                text = f"the model refuses a stream: {type(error).__name__}: {error._message}"
                for stream_id in sorted(at_fault):
                    fail(SourceError(text, [stream_id]))
        if not rows:
            return []
        parts = leaves(y)
        self._form, self._axes = map_leaves(y, lambda _: None), [int(part.stream_axis) for part in parts]
        self._collectors = self._collectors or [OutputCollector() for _ in parts]
        for collector, part in zip(self._collectors, parts):
            collector.update(part)
        ended = [row.id for row in rows if row.eos]
        self.live = [i for i in dict.fromkeys((*self.live, *(row.id for row in rows))) if i not in ended]
        return ended

    def _call(self, rows: Sequence[Row]) -> Any:
        shape = [-1 if d == "L" else 1 for d in self._names if d != "B"]
        frames = [row.frames.reshape(shape) for row in rows]
        if self._torch is not None:
            frames = [self._torch.from_numpy(np.array(f)) for f in frames]
        ids, sos, eos = zip(*((row.id, row.sos, row.eos) for row in rows))
        device = None if self._torch is None else next((p.device for p in self.model.parameters()), None)
        with nullcontext() if self._torch is None else self._torch.no_grad():
            return self.model(stream_tensor(frames, names=self._names, ids=ids, sos=sos, eos=eos, device=device))

    def take(self, stream_id: str) -> Any:
        """Return the outputs of a stream that has ended, and forget them."""
        taken = iter([collector.pop(stream_id) for collector in self._collectors])
        return map_leaves(self._form, lambda _: next(taken))

    def drop(self, ids: Sequence[str]) -> None:
        """Give streams up."""
        live = [i for i in ids if i in self.live]
        if live:
            self.live = [i for i in self.live if i not in live]
            self.model.reset(live) if isinstance(self.model, Engine) else reset(self.model, live)
            for collector in self._collectors:
                for i in live:
                    collector.pop(i)

    def numbers(self, y: Any) -> tuple[int, Any]:
        """Return the frames of the first output, and all values as JSON holds them."""
        values = [in_frames(np.asarray(part), axis) for part, axis in zip(leaves(y), self._axes)]
        lists = [in_lists(part) for part in values]
        names: Any = [o.name for o in self.model.outputs] if self.fingerprint else map(str, range(len(lists)))
        return len(values[0]), lists[0] if len(lists) == 1 else dict(zip(names, lists))


class _Lines:
    """A file of a line for each stream that has ended.

    A line is written by one call of the system, and what a process that was killed has left of one is taken away.
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: str | None) -> None:
        self.path, self.fingerprint = path, fingerprint
        self.done: set[str] = set()  #: The streams that have a line.
        if os.path.exists(path) and not os.path.isfile(path):
            raise FormatError(f"{path} is no file, of which a run that is started again could read what is there")
        with ExitStack() as stack:
            self._file = stack.enter_context(open(path, "a+b", buffering=0))
            self._lock()
            n_bytes = self._read()
            self._file.truncate(n_bytes)
            stack.pop_all()

    def _lock(self) -> None:
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FormatError(f"{self.path} is being written by another process") from None
            except OSError:  # a file system without locks
                return

    def _read(self) -> int:
        """Find which streams have a line; return how many bytes whole lines are."""
        n_bytes = 0
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n") and b'{"file": '.startswith(line[:9]):
                    break  # what a process that was killed has left; another file's end is not ours to cut
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                if not isinstance(row, Mapping) or not isinstance(row.get("file"), str) or "values" not in row:
                    raise FormatError(f"{self.path}: line {number} is no output of bulk; give another file")
                if row.get("model") != self.fingerprint:
                    raise FormatError(f"{self.path}: line {number} is of another model; give another file")
                self.done.add(row["file"])
                n_bytes += len(line)
        return n_bytes

    def write(self, stream_id: str, n_frames: int, values: Any) -> None:
        """Write a stream's line."""
        model = {} if self.fingerprint is None else {"model": self.fingerprint}
        line = json.dumps({"file": stream_id, **model, "frames": n_frames, "values": values})
        left = memoryview(line.encode() + b"\n")
        while left:
            left = left[self._file.write(left) :]
        self.done.add(stream_id)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()
