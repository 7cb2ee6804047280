"""A model's streams in eager mode and in an engine, behind one face.

A driver steps rows of arrays and returns each output's frames ``[frames][features...]`` and where they
start. What it is handed it overwrites afterwards, and what it was given too: nothing may depend on either.
"""

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import dreamstream as ds
from dreamstream.online import handle
from dreamstream.online.eager import EagerCall
from dreamstream.stream.tree import leaves

from .totals import Input

Array = Any
Frames = list[list[Array]]
"""Per output and row: frames first, then features in the order in which they are seen."""


def canonical(array: Array, dims: Sequence[Any]) -> Array:
    """Bring a padded or plain array with these dimensions into ``[streams][frames][features...]``.

    Without a stream axis there is one frame. B and L joined are one stream's frames.
    """
    array = np.asarray(array)
    if "B_L" in dims:
        array, dims = array[None], ["B", *("L" if d == "B_L" else d for d in dims)]
    order = [list(dims).index("B")] + ([list(dims).index("L")] if "L" in dims else [])
    order += [i for i, d in enumerate(dims) if not isinstance(d, str)]
    array = array.transpose(order)
    return array if "L" in dims else array[:, None]


def _frames_of(y: ds.StreamTensor) -> tuple[list[Array], list[int]]:
    """Return the rows of a call's output, copied, and their starts."""
    rows = [np.moveaxis(y[i].numpy(), y.stream_axis, 0).copy() for i in y.ids]
    assert y.starts is not None
    assert [len(r) for r in rows] == list(y.lengths)
    return rows, list(y.starts)


def _overwrite(arrays: Sequence[Array]) -> None:
    for a in arrays:
        if a.flags.writeable and a.dtype.kind == "f":
            a[...] = np.nan


class _Driver:
    """What both have in common."""

    def __init__(self, inputs: Sequence[Input], rng: np.random.Generator) -> None:
        self.inputs = inputs
        self.rng = rng

    def _tensors(
        self,
        ids: Sequence[str],
        sos: Sequence[bool],
        eos: Sequence[bool],
        rows: Sequence[Sequence[Array]],
        restart: bool,
    ) -> tuple[list[ds.StreamTensor], list[Array]]:
        """Return stream tensors over arrays that can be overwritten, and these arrays."""
        tensors, given = [], []
        for x, arrays in zip(self.inputs, rows):
            own = [np.array(a) for a in arrays]
            given += own
            make = ds.stream_tensor if restart or self.rng.random() < 0.5 else ds.as_stream_tensor
            more = {"restart": True} if restart else {}
            names = [d if isinstance(d, str) else f"F{d}" for d in x.dims]
            tensors.append(
                make(own, names=names, ids=list(ids), sos=list(sos), eos=list(eos), rate=x.rate, **more)
            )
        return tensors, given

    def _collected(self, result: Any, given: Sequence[Array]) -> tuple[Frames, list[list[int]]]:
        tensors = leaves(result)
        outputs = [_frames_of(y) for y in tensors]
        _overwrite([*given, *(y.value for y in tensors)])
        return [rows for rows, _ in outputs], [starts for _, starts in outputs]


class Eager(_Driver):
    """A patched module."""

    def __init__(self, model: Any, inputs: Sequence[Input], rng: np.random.Generator, **options: Any) -> None:
        super().__init__(inputs, rng)
        self.model = ds.patch_module(model, **options).online()

    def step(
        self, ids: Any, sos: Any, eos: Any, rows: Any, restart: bool = False
    ) -> tuple[Frames, list[list[int]]]:
        """Advance streams; ``rows[input][row]`` are arrays in the input's order without B."""
        tensors, given = self._tensors(ids, sos, eos, rows, restart)
        return self._collected(self.model(*tensors), given)

    @property
    def ids(self) -> list[str]:
        return self.model.live_ids

    def snapshot(self, i: str) -> bytes:
        return self.model.get_state([i])[i]

    def restore(self, data: bytes, i: str) -> None:
        self.model.set_state({i: data})

    def fork(self, i: str, new: str) -> None:
        self.restore(self.snapshot(i), new)

    def drop(self, ids: Sequence[str]) -> None:
        self.model.reset(list(ids))


class InEngine(_Driver):
    """A compiled model; it is stepped now by arrays, now by stream tensors."""

    def __init__(self, engine: ds.Engine, inputs: Sequence[Input], rng: np.random.Generator) -> None:
        super().__init__(inputs, rng)
        self.engine = engine
        self.done: dict[str, list[int]] = {}  # frames so far per output, where arrays don't tell

    def step(
        self, ids: Any, sos: Any, eos: Any, rows: Any, restart: bool = False
    ) -> tuple[Frames, list[list[int]]]:
        """Advance streams, as `Eager.step`."""
        if self.rng.random() < 0.4 and len(set(ids)) == len(ids) and ids:
            frames, starts = self._step_arrays(list(ids), sos, eos, rows, restart)
        else:
            tensors, given = self._tensors(ids, sos, eos, rows, restart)
            frames, starts = self._collected(self.engine(*tensors), given)
        for r, i in enumerate(ids):
            self.done[i] = [s[r] + len(f[r]) for s, f in zip(starts, frames)]
        return frames, starts

    def _step_arrays(
        self, ids: Any, sos: Any, eos: Any, rows: Any, restart: bool
    ) -> tuple[Frames, list[list[int]]]:
        chunks: dict[str, Any] = {}
        given = []
        for r, i in enumerate(ids):
            arrays = {}
            for x, own in zip(self.inputs, rows):
                a = np.array(own[r], order=str(self.rng.choice(["C", "F"])))
                given.append(a)
                if len(a) or self.rng.random() < 0.5:
                    arrays[x.name] = a
            chunks[i] = arrays
        starting, ending = [i for i, s in zip(ids, sos) if s], [i for i, e in zip(ids, eos) if e]
        out = self.engine.step(chunks, sos=starting, eos=ending, restart=restart)
        _overwrite(given)
        frames: Frames = [[] for _ in self.engine.outputs]
        for i in ids:
            for k, array in enumerate(leaves(out[i])):
                kept = [d for d in self.engine.outputs[k].dimensions if d != "B"]
                axis = kept.index("L") if "L" in kept else 0
                frames[k].append(np.moveaxis(array, axis, 0).copy())
                _overwrite([array])
        starts = [[0 if s else self.done[i][k] for i, s in zip(ids, sos)] for k in range(len(frames))]
        return frames, starts

    @property
    def ids(self) -> list[str]:
        return self.engine.ids

    def snapshot(self, i: str) -> bytes:
        return self.engine.snapshot(i)

    def restore(self, data: bytes, i: str) -> None:
        self.engine.restore(data, i)

    def fork(self, i: str, new: str) -> None:
        self.engine.fork(i, new)
        self.done[new] = list(self.done[i])

    def drop(self, ids: Sequence[str]) -> None:
        self.engine.reset(list(ids))


@contextmanager
def failing_at(k: int) -> Any:
    """Within it, eager calls raise KeyboardInterrupt at their k-th operation."""

    class Failing(EagerCall):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.fail_at = k

    with mock.patch.object(handle, "EagerCall", Failing):
        yield
