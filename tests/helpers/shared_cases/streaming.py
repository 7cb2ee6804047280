"""Schedules, made once per case and used for every front end, and what comes out of them."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from ds_laws import drive
from ds_laws.drive import Row

from .case import Case

Array = Any

STYLES = ("whole", "frames", "random")
"""Each stream in one chunk, alone; all but the longest together, frame by frame, with the ends afterwards; random
chunks in random batches, empty ones among them, at the start and at the end too."""


@dataclass(frozen=True)
class Schedule:
    """Streams and the calls that bring them from start to end.

    Attributes
    ----------
    data : dict of str to list
        By stream the frames ``[frames][features...]`` of every input.
    calls : list of tuple of Row
    """

    data: dict[str, list[Array]]
    calls: list[tuple[Row, ...]]


@dataclass
class Run:
    """What came out: per stream and output all frames; per call, output and row (frames, start).

    Attributes
    ----------
    names : list of list of str
        Dimensions of the outputs.
    """

    frames: dict[str, list[Array]] = field(default_factory=dict)
    counts: list[list[list[tuple[int, int]]]] = field(default_factory=list)
    names: list[list[Any]] = field(default_factory=list)

    def add(self, call: Sequence[Row], names: Sequence[Any], rows: list[list[Array]], starts: Any) -> None:
        """Add a call: ``rows[output][row]`` are frames, ``starts`` the position of the first of each."""
        self.names = [list(n) for n in names]
        counts = []
        for k, (frames, begins) in enumerate(zip(rows, starts, strict=True)):
            for r, part, start in zip(call, frames, begins, strict=True):
                so_far = self.frames.setdefault(r.id, [])
                if r.sos:
                    so_far.append(part[:0])
                assert start == len(so_far[k]), (
                    f"output {k} of {r.id} starts at {start} after {len(so_far[k])} frames"
                )
                so_far[k] = np.concatenate([so_far[k], part])
            counts.append([(len(part), int(start)) for part, start in zip(frames, begins)])
        self.counts.append(counts)


def _lengths(case: Case, rng: np.random.Generator) -> list[list[int]]:
    """Frames of every input of some streams: none, one, few, and up to three times the reach."""
    some = [0, 1, int(rng.integers(2, case.reach + 2)), case.reach + 3, 3 * case.reach + 2]
    some = [n // case.multiple * case.multiple for n in some]
    extra = [[int(rng.integers(x.rate)) if x.rate > 1 and n else 0 for x in case.inputs] for n in some]
    return [[int(n * x.rate) + e for x, e in zip(case.inputs, more)] for n, more in zip(some, extra)]


def streams(case: Case, rng: np.random.Generator) -> list[list[Array]]:
    """Return random streams: the frames ``[frames][features...]`` of every input."""
    return [[x.frames(rng, n) for x, n in zip(case.inputs, full)] for full in _lengths(case, rng)]


def planned(
    case: Case, rng: np.random.Generator, whole: Mapping[str, list[Array]], styles: Sequence[str] = STYLES
) -> Schedule:
    """Return a schedule that brings the streams to their ends in these styles, one after the other."""
    data, calls = {}, []
    for style in styles:
        mine = {f"{i} {style}": arrays for i, arrays in list(whole.items())[: -1 if style == "frames" else None]}
        calls += drive.schedule(case, rng, mine, style)  # type: ignore[arg-type]
        data |= mine
    return Schedule(data, calls)


@lru_cache(maxsize=256)
def schedule(case: Case) -> Schedule:
    """Return the case's schedule."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    return planned(case, rng, {str(k): arrays for k, arrays in enumerate(streams(case, rng))})
