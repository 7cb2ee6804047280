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

    def compared(self, a: Any, b: Any, found: Any) -> Any:
        """Return how a and b compare, where `found` is what they give themselves; None for that."""


#: Of plain tensors.
CHOICE: ContextVar[Chooses | None] = ContextVar("CHOICE", default=None)


apply: Callable[..., tuple[Any, ...]]  #: `dreamstream.dispatch.apply`, which runs an operator.
lowered: Callable[..., Any]  #: `lowerings.lowered`, which gives what streams become that something is done with.


def fill(run: Callable[..., Any], lower: Callable[..., Any]) -> None:
    """Set `apply` and `lowered`."""
    global apply, lowered
    apply, lowered = run, lower


def one(
    name: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[T],
    weights: Sequence[Any] = (),
    dims: tuple[Any, ...] | None = None,
) -> T:
    """Return the output of an operator that has one."""
    out: T = apply(name, attributes, inputs, weights, dims)[0]
    return out


def made(name: str, x: T, *others: T, **attributes: Any) -> T:
    """Return what an operation of `plain` makes of plain tensors."""
    out: T = apply(name, attributes, (x, *others), (), None)[0]
    return out
