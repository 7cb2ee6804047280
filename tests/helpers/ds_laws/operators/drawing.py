"""What generators of random cases share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..case import Array, Case, Input, Rng, pick, random_layout, without_defaults

Generator = Callable[[Rng, str], Case]

WAITS = "it waits for the stream's end"


def cases(n: int) -> Callable[[Generator], Generator]:
    """Hold n cases of an operator against each law, not the usual 3: it has many kinds."""

    def mark(generator: Generator) -> Generator:
        generator.cases = n  # type: ignore[attr-defined]
        return generator

    return mark


def along(generator: Generator) -> Generator:
    """Hold more cases against each law, more laws in the fast tier: its own integers have more to get wrong."""
    generator.along = True  # type: ignore[attr-defined]
    return cases(getattr(generator, "cases", 9))(generator)


def make(rng: Rng, name: str, inputs: list[Input], attributes: dict[str, Any], **more: Any) -> Case:
    """A case at the door, laid out at random."""
    more.setdefault("layout", random_layout(rng, max(len(i.features) for i in inputs)))
    given = without_defaults(rng, name, attributes)
    return Case(name, inputs, attributes, given=given, **more)


def shape(rng: Rng, least: int = 0, most: int = 3) -> tuple[int, ...]:
    """Random features of a random rank."""
    return tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(least, most + 1))))


def long(rng: Rng, least: int = 0, most: int = 3) -> tuple[int, ...]:
    """Random features, some of them for bodies and tails of vectors."""
    sizes = shape(rng, least, most)
    return (*sizes[:-1], int(rng.integers(5, 40))) if sizes and rng.random() < 0.3 else sizes


def total(*arrays: Array) -> list[Array]:
    """NaN wherever an operand is: for functions that hide it."""
    return [sum(arrays[1:], arrays[0])]


def innermost(rng: Rng, features: tuple[int, ...], n: int = 1) -> dict[str, Any]:
    """How a case is laid out whose operator works along the last n features: those are last, or anywhere."""
    if rng.random() < 0.5:
        return {"layout": ("B", "L", *range(len(features))), "dims": (..., *range(n))}
    return {"layout": random_layout(rng, len(features)), "dims": "layout"}


def lanes(rng: Rng) -> tuple[int, ...]:
    """An axis of lanes in front of the others, or none."""
    return (int(rng.integers(1, 5)),) if rng.random() < 0.3 else ()


def any_type(rng: Rng, dtype: str) -> str:
    """A type for operators that only move frames."""
    return str(pick(rng, dtype, dtype, dtype, "int64", "bool"))


def maybe(rng: Rng, array: Array) -> Array | None:
    """An optional weight."""
    return array if rng.random() < 0.7 else None
