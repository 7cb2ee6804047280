"""The keys of streams' random numbers.

A stream's key follows from a number that is drawn of the front end's generator, the stream's name and how many
streams of this name there were before it. It stays with the stream. The number is drawn when the first stream
that draws starts, and again where no stream is live and one starts whose name was there: so the same seed gives
the same masks to the same streams, in whatever order and company they come, and others when files are run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEP = 0x9E3779B97F4A7C15


def mixed(keys: NDArray[np.uint64], place: Any) -> NDArray[np.uint64]:
    """Return keys for a place, or for integers that are broadcast with them, as kernels/draw.h mixes them."""
    with np.errstate(over="ignore"):
        z = keys + (np.asarray(place).astype(np.uint64) + np.uint64(1)) * np.uint64(_STEP)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def kept(keys: NDArray[np.uint64], places: Sequence[Any], p: float) -> NDArray[np.bool_]:
    """Return which numbers are at least p, each that of a place of the key that the place before it gave."""
    return (reduce(mixed, places, keys) >> np.uint64(11)) * 2.0**-53 >= p


@dataclass(eq=False)
class Draws:
    """What a session's streams draw by."""

    number: int | None = None  #: Drawn of the generator; None where no stream has drawn yet.
    lives: dict[str, int] = field(default_factory=dict)  #: By stream, how many of this name have drawn since.

    def keys(
        self, ids: Sequence[str], known: Sequence[int | None], alone: bool, draw: Callable[[], int]
    ) -> list[int]:
        """Return the rows' keys: those that they have, or new ones.

        `alone`: no other stream is live. `draw` gives a number of the generator.
        """
        new = [i for i, key in zip(ids, known) if key is None]
        if new and (self.number is None or (alone and any(i in self.lives for i in new))):
            self.number, self.lives = draw(), {}
        return [self._key(i) if key is None else key for i, key in zip(ids, known)]

    def _key(self, stream_id: str) -> int:
        text = f"{self.number} {self.lives.get(stream_id, 0)} {stream_id}".encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")

    def started(self, ids: Sequence[str]) -> None:
        """Remember that streams have got their keys."""
        for i in ids:
            self.lives[i] = self.lives.get(i, 0) + 1

    def copy(self) -> Any:
        return type(self)(self.number, dict(self.lives))
