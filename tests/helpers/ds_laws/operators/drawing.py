"""What generators of random cases share."""

from __future__ import annotations

from typing import Any

from ..case import Array, Case, Input, Rng, pick, random_layout, without_defaults

__all__ = ["WAITS", "any_type", "lanes", "make", "maybe", "shape"]

WAITS = "it waits for the stream's end"


def make(rng: Rng, name: str, inputs: list[Input], attributes: dict[str, Any], **more: Any) -> Case:
    """A case at the door, laid out at random."""
    more.setdefault("layout", random_layout(rng, max(len(i.features) for i in inputs)))
    given = without_defaults(rng, name, attributes)
    return Case(name, inputs, attributes, given=given, **more)


def shape(rng: Rng, least: int = 0, most: int = 3) -> tuple[int, ...]:
    """Random features of a random rank."""
    return tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(least, most + 1))))


def lanes(rng: Rng) -> tuple[int, ...]:
    """An axis of lanes in front of the others, or none."""
    return (int(rng.integers(1, 5)),) if rng.random() < 0.3 else ()


def any_type(rng: Rng, dtype: str) -> str:
    """A type for operators that only move frames."""
    return str(pick(rng, dtype, dtype, dtype, "int64", "bool"))


def maybe(rng: Rng, array: Array) -> Array | None:
    """An optional weight."""
    return array if rng.random() < 0.7 else None
