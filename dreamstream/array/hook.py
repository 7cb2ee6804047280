"""The door as arrays reach it: `dreamstream.dispatch` lies above this room and fills it in when it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Chooses(Protocol):
    """Who else chooses among elements that are nearly equal (`dreamstream.engine.ties`)."""

    def order(self, values: Any, largest: bool) -> Any:
        """Return the places of the elements of ``(*, n)``, the greatest first or last; None for their order."""

    def compared(self, a: Any, b: Any, said: Any) -> Any:
        """Return how a and b compare, where `said` is what they say themselves; None for that."""


#: Of plain tensors.
CHOICE: ContextVar[Chooses | None] = ContextVar("CHOICE", default=None)


_apply: Callable[..., tuple[Any, ...]]
_lowered: Callable[..., Any]


def fill(apply: Callable[..., Any], lowered: Callable[..., Any]) -> None:
    """Set what stands behind `apply` and `lowered`."""
    global _apply, _lowered
    _apply, _lowered = apply, lowered


def lowered(done: str, *given: Any) -> Any:
    """Return what streams become that something is done with; see `dreamstream.array.lowerings.lowered`."""
    return _lowered(done, *given)


def apply(
    name: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Any],
    weights: Sequence[Any] = (),
    dims: tuple[Any, ...] | None = None,
) -> tuple[Any, ...]:
    """Run an operator of the C registry; see `dreamstream.dispatch.apply`."""
    return _apply(name, attributes, inputs, weights, dims)


def one(
    name: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[T],
    weights: Sequence[Any] = (),
    dims: tuple[Any, ...] | None = None,
) -> T:
    """Return the output of an operator that has one."""
    out: T = _apply(name, attributes, inputs, weights, dims)[0]
    return out


def made(name: str, x: T, *others: T, **attributes: Any) -> T:
    """Return what an operation of `plain` makes of plain tensors."""
    out: T = _apply(name, attributes, (x, *others), (), None)[0]
    return out
