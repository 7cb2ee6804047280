"""The door and the table of operations as arrays reach them; `dispatch` and `plain` fill the slots.

`dreamstream.dispatch` lies above this room and fills them in when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol, TypeVar

from ..errors import DreamStreamError

T = TypeVar("T")


class Chooses(Protocol):
    """Who else chooses among elements that are nearly equal (`dreamstream.engine.ties`)."""

    def order(self, values: Any, largest: bool) -> Any:
        """Return the places of the elements of ``(*, n)``, the greatest first or last; None for their order."""

    def compared(self, a: Any, b: Any, said: Any) -> Any:
        """Return how a and b compare, where `said` is what they say themselves; None for that."""


#: Of plain tensors.
CHOICE: ContextVar[Chooses | None] = ContextVar("CHOICE", default=None)


def _unfilled(*_: Any) -> NoReturn:
    raise RuntimeError("dreamstream.dispatch is not loaded; import dreamstream")


_apply: Callable[..., tuple[Any, ...]] = _unfilled
_table: Callable[..., Any] = _unfilled
_run: Callable[..., list[tuple[Any, Any]]] = _unfilled
_pairs: Callable[..., Any] = _unfilled


def fill(apply: Callable[..., Any], table: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Set what stands behind `apply`, `table` and `run`."""
    global _apply, _table, _run
    _apply, _table, _run = apply, table, run


def fill_pairs(pairs: Callable[..., Any]) -> None:
    """Set what stands behind `pairs`."""
    global _pairs
    _pairs = pairs


def pairs(name: str, *operands: Any) -> Any:
    """Return what two streams make whose frames stand at different dimensions; None where that is nothing."""
    return _pairs(name, *operands)


def explained(error: DreamStreamError, method: Callable[..., Any], x: Any, *args: Any, **kwargs: Any) -> Any:
    """Raise what a stream's method failed with; where refusals are listed, return what stands for its result."""
    explanation = getattr(getattr(x.edge, "entry", None), "explanation", None) if x.is_stream else None
    if explanation is None or not explanation.is_native:
        raise error
    return explanation.instead(error, method, (x, *args), kwargs)


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


def table(tensor: Any, index: tuple[Any, ...]) -> Any:
    """Index a plain tensor with a `Length`, as in ``pe[:x.size("L")]``: one row per frame."""
    return _table(tensor, index)


def run(request: Any) -> list[tuple[Any, Any]]:
    """Run an operation inside a forward; see `dreamstream.dispatch.run`."""
    return _run(request)
