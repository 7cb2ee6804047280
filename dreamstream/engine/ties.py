"""Choices and comparisons of near equals, which another order of sums turns: a model takes those of its engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ..array.hook import CHOICE
from ..operations import RELATIONS, row_of
from ..stream.within import within
from .engine import Engine

Array = npt.NDArray[Any]


class Choices:
    """What an engine's nodes chose for each stream: places of the greatest or least elements, and comparisons.

    Elements are equal whose distance is not above `within`, relative to the larger of 1 and the elements.
    """

    def __init__(self, engine: Engine, within: float) -> None:
        self.engine, self.within = engine, within
        self.tied = 0  #: Rows of which a model would have chosen others, equal to those that the engine chose.
        #: The edges of places and of truth values, and whether they lack an axis for the several of them.
        self.edges = {
            node["first_output"] + i: row_of(node["name"]).chooses != "several"
            for node in engine._core.nodes
            for i, (dtype, *_) in enumerate(node["outputs"])
            if (row_of(node["name"]).chooses and dtype == "int64")
            or (node["name"] in RELATIONS and dtype == "bool")
        }
        self._made: dict[str, list[list[Array]]] = {}

    @contextmanager
    def watched(self, streams: Iterable[str]) -> Iterator[None]:
        """Note what steps choose for these streams, from their first frames on."""
        if not self.edges:
            yield
            return
        calls: list[Any] = []
        core = self.engine._core
        self._made |= {stream: [[] for _ in self.edges] for stream in streams}
        core.watch(np.asarray([*self.edges], np.int32).tobytes(), calls, lambda: self._read(calls))
        try:
            yield
            self._read(calls)
        finally:
            core.watch(None)
            if self.engine._routes is not None:
                self.engine._routes.watch(core)

    def _read(self, calls: list[Any]) -> None:
        for ids, counts, arrays in (calls.pop(0) for _ in range(len(calls))):
            for k, (array, single) in enumerate(zip(arrays, self.edges.values())):
                places = array[..., None] if single else array
                for stream, part in zip(ids, np.split(places, np.cumsum(counts[k])[:-1])):
                    self._made[stream][k].append(part.reshape(-1, places.shape[-1]))

    def of(self, stream: str) -> AbstractContextManager[Any]:
        """Let a model that is given the whole of a stream choose as the engine did, among what is equal to it."""
        return within(CHOICE, _Chosen(self, [np.concatenate(parts) for parts in self._made[stream] if parts]))


class _Chosen:
    """What the engine chose and a model is still to choose, in the order of its calls."""

    def __init__(self, choices: Choices, made: list[Array]) -> None:
        self.choices = choices
        self.places = [places for places in made if places.dtype != bool]
        self.flags = [flags for flags in made if flags.dtype == bool]

    def near(self, a: Any, b: Any) -> Any:
        """Return where two are equal but for their rounding, or as not-a-number."""
        with np.errstate(invalid="ignore"):  # of infinities
            equal = np.abs(a - b) <= self.choices.within * np.maximum(1, np.abs(a))
        return equal | (a == b) | np.isnan(a)

    def order(self, values: Array, largest: bool) -> Array | None:
        """Return in which order the last axis is taken, or None for its own."""
        n = values.shape[-1]
        rows = (values if not largest else -values).reshape(-1, n)
        for at, chosen in enumerate(self.places):
            k = chosen.shape[1]
            if len(chosen) != len(rows) or k > n or not len(rows):
                continue
            own = np.argsort(rows, -1, kind="stable")
            if not self.near(*(np.take_along_axis(rows, places, -1) for places in (own[:, :k], chosen))).all():
                continue
            del self.places[: at + 1]  # what lies before it, no output of the engine depends on
            self.choices.tied += int((own[:, :k] != chosen).any(-1).sum())
            rank = np.empty_like(own)
            np.put_along_axis(rank, own, np.arange(n, 2 * n)[None], -1)
            np.put_along_axis(rank, chosen, np.arange(k)[None], -1)
            return np.argsort(rank, -1).reshape(values.shape)
        return None

    def compared(self, a: Any, b: Any, found: Array) -> Array | None:
        """Return how a and b compare, or None for what they give themselves."""
        near = np.broadcast_to(self.near(a, b), found.shape).reshape(-1)
        for at, chosen in enumerate(self.flags):
            if (
                chosen.size != found.size
                or not found.size
                or not (near | (chosen.reshape(-1) == found.reshape(-1))).all()
            ):
                continue
            del self.flags[: at + 1]
            chosen = chosen.reshape(found.shape)
            self.choices.tied += int(
                (chosen != found).reshape(-1, found.shape[-1] if found.ndim else 1).any(-1).sum()
            )
            return chosen
        return None
