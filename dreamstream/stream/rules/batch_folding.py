"""Dimensions in which B, or B and L, are joined with features, and the reshapes that make and unmake them.

Such a dimension is called by its parts in row-major order: ``"B_64"`` is B with 64 features behind it, ``"2_B"``
lies the other way round, ``"B_4_L"`` has features between B and L. What stands in it beside B and L are a frame's
**lanes**: all of them together are stored as one axis in front of the frame's other features. So a layer over
time sees lanes as it sees streams, one like the other, and what a dimension is called decides nothing but how it
is taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

__all__ = ["ReshapePlan", "lanes_of", "plan_regroup", "with_features"]

_LETTERS = ("B", "L")


@lru_cache(maxsize=1024)
def _parts(dim: str) -> tuple[str | int, ...]:
    return tuple(p if p in _LETTERS else int(p) for p in dim.split("_"))


@lru_cache(maxsize=4096)
def with_features(dims: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the sizes of the features that are joined with B, in the order in which they are seen."""
    return tuple(p for d in dims if isinstance(d, str) and "_" in d for p in _parts(d) if isinstance(p, int))


@lru_cache(maxsize=4096)
def lanes_of(dims: tuple[Any, ...]) -> int:
    """Return how many lanes a frame has; 0 where no features are joined with B."""
    sizes = with_features(dims)
    return prod(sizes) if sizes else 0


@dataclass(frozen=True, eq=False)
class ReshapePlan:
    """How to reshape the frames of every row."""

    steps: tuple[tuple[Any, ...], ...]  #: See the top of `reshape`; empty if nothing changes.
    dims: tuple[int | str, ...]  #: The new visible dimensions; numbers count the axes behind the lanes.
    features: tuple[int, ...]  #: The new feature shape, as stored, lanes left out.
    #: For each new visible dimension the old one that it is (and may take its name from), or None.
    origin: tuple[int | None, ...]
    ratio: Fraction = Fraction(1)  #: Frames out per frame in; 1 if the frames stay what they are.
    #: Lengths that the caller gave for the new L and that not every stream has: each is checked at the stream's
    #: end.
    claims: tuple[Any, ...] = ()


@dataclass
class _Run:
    """Neighbouring features: the product of those that are left."""

    left: int


def plan_regroup(
    dims: tuple[int | str, ...],
    features: Sequence[int],
    entries: Sequence[tuple[tuple[str, ...], int]],
    claims: tuple[Any, ...] = (),
) -> ReshapePlan | None:
    """Say how a tensor is stored after a reshape that joins B, or B and L, with features, or takes them apart.

    `dims` are the old visible dimensions, and `features` their shape as it is stored, lanes left out. `entries`
    says of each new dimension which of "B" and "L" are in it, and how many features. None is returned where no
    row-major order of what there is has these sizes.
    """
    lanes = with_features(dims)
    sizes = [*lanes, *features]
    atoms, seen = _atoms(dims, sizes, len(lanes))
    pieces = [_taken(atoms, set(letters), number) for letters, number in entries]
    if atoms or None in pieces:
        return None
    new_dims: list[int | str] = []
    cut: list[int] = []  # sizes of all pieces, in the order in which they are seen
    joined: list[int] = []  # which of them are lanes
    own: list[int] = []  # and which are not
    shape: list[int] = []
    for found in pieces:
        assert found is not None
        numbers = [p for p in found if isinstance(p, int)]
        places = range(len(cut), len(cut) + len(numbers))
        cut += numbers
        if len(numbers) < len(found):
            if numbers and "B" not in found:
                return None
            joined += places
            new_dims.append("_".join(map(str, found)))
        else:
            own += places
            new_dims.append(len(shape))
            shape.append(prod(numbers))
    whole = [sizes[a] for a in seen] == cut
    origin: list[int | None] = [dims.index(d) if isinstance(d, str) and d in dims else None for d in new_dims]
    if whole:  # each piece is an axis
        behind = {place: seen[place] - len(lanes) for place in own}
        named = iter([behind[p] for p in own])
        for v, d in enumerate(new_dims):
            if isinstance(d, int) and shape[d] > 1:
                axis = next(named)
                origin[v] = dims.index(axis) if axis >= 0 else None
    order = [*joined, *own]
    axes = [seen[i] for i in order] if whole else seen
    axes += [a for a in range(len(sizes)) if a not in axes]  # those of one element
    steps: list[tuple[Any, ...]] = [("features", tuple(sizes))] if len(lanes) > 1 else []
    if axes != sorted(axes):
        steps.append(("permute", tuple(axes)))
        sizes = [sizes[a] for a in axes]
    if not whole and order != sorted(order):
        steps += [("features", tuple(cut)), ("permute", tuple(order))]
        sizes = [cut[i] for i in order]
    stored = [*([prod(cut[i] for i in joined)] if joined else []), *shape]
    if sizes != stored:
        steps.append(("features", tuple(stored)))
    return ReshapePlan(tuple(steps), tuple(new_dims), tuple(shape), tuple(origin), claims=claims)


def _atoms(dims: tuple[int | str, ...], sizes: Sequence[int], n_lanes: int) -> tuple[list[str | _Run], list[int]]:
    """Return B, L and runs of features in visible order, and the features' stored axes, sizes of 1 left out."""
    lane = iter(range(n_lanes))
    atoms: list[str | _Run] = []
    seen: list[int] = []
    for dim in dims:
        for part in _parts(dim) if isinstance(dim, str) else (dim,):
            if isinstance(part, str):
                atoms.append(part)
                continue
            axis = next(lane) if isinstance(dim, str) else n_lanes + part
            if sizes[axis] == 1:
                continue
            seen.append(axis)
            if not atoms or isinstance(atoms[-1], str):
                atoms.append(_Run(1))
            run = atoms[-1]
            assert isinstance(run, _Run)
            run.left *= sizes[axis]
    return atoms, seen


def _taken(atoms: list[str | _Run], letters: set[str], number: int) -> list[str | int] | None:
    """Take the parts of one new dimension, `letters` and `number` features, off the front; None if they differ."""
    out: list[str | int] = []
    while letters or number > 1:
        head = atoms[0] if atoms else None
        if isinstance(head, str) and head in letters:
            letters.discard(head)
            out.append(head)
            atoms.pop(0)
        elif isinstance(head, _Run) and number % head.left == 0:
            number //= head.left
            out.append(head.left)
            atoms.pop(0)
        elif isinstance(head, _Run) and not letters and head.left % number == 0:
            head.left //= number
            out.append(number)
            number = 1
        else:
            return None
    return out
