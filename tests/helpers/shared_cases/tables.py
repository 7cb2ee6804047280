"""How the tables of cases are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nets import net

from .case import Case, Given, Make

__all__ = ["BCL", "BLC", "CASES", "case", "module", "net"]

CASES: dict[str, Case] = {}


def BCL(channels: int) -> tuple[Given, ...]:
    """Return one input as convolutions take it."""
    return (Given(("B", channels, "L")),)


def BLC(features: int) -> tuple[Given, ...]:
    """Return one input as recurrent layers with batch_first take it."""
    return (Given(("B", "L", features)),)


def case(name: str, inputs: tuple[Given, ...], make: Make, **more: Any) -> None:
    """Enter a case."""
    if name in CASES:
        raise ValueError(f"two cases {name}")
    CASES[name] = Case(name, make, inputs, **more)


def module(inputs: tuple[Given, ...], **more: Any) -> Callable[[Make], Make]:
    """Enter a case under the name of the function that makes it."""

    def enter(make: Make) -> Make:
        case(make.__name__.strip("_").replace("_", "-"), inputs, make, **more)
        return make

    return enter
