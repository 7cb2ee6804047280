"""The doors that arrays go through without knowing who stands behind them.

`dreamstream.dispatch` lies above this room and fills the hooks in when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

__all__ = ["apply", "made", "run", "set_apply", "set_run", "set_table", "table"]

T = TypeVar("T")
Apply = Callable[[str, Mapping[str, Any], Sequence[Any], Sequence[Any], Any], tuple[Any, ...]]
Table = Callable[[Any, Any], Any]


def _unfilled(*_: Any) -> NoReturn:
    raise RuntimeError("dreamstream.dispatch is not loaded; import dreamstream")


_apply: Apply = _unfilled
_table: Table = _unfilled
_run: Callable[..., Any] = _unfilled


def set_apply(fn: Apply) -> None:
    """Set the function behind `apply`, that is `dreamstream.dispatch.apply`."""
    global _apply
    _apply = fn


def set_table(fn: Table) -> None:
    """Set the function behind `table`."""
    global _table
    _table = fn


def apply(
    name: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Any],
    weights: Sequence[Any] = (),
    dims: tuple[Any, ...] | None = None,
) -> tuple[Any, ...]:
    """Run an operator of the C registry; see `dreamstream.dispatch.apply`."""
    return _apply(name, attributes, inputs, weights, dims)


def made(name: str, x: T, *others: T, **attributes: Any) -> T:
    """Return what an operation of `plain` makes of plain tensors."""
    out: T = _apply(name, attributes, (x, *others), (), None)[0]
    return out


def table(tensor: Any, index: tuple[Any, ...]) -> Any:
    """Index a plain tensor with a `Length`, as in ``pe[:x.size("L")]``: one row per frame."""
    return _table(tensor, index)


def set_run(fn: Callable[..., Any]) -> None:
    """Set the function behind `run`, that is `dreamstream.dispatch.run`."""
    global _run
    _run = fn


def run(request: Any) -> list[tuple[Any, Any]]:
    """Run an operation inside a forward; see `dreamstream.dispatch.run`."""
    out: list[tuple[Any, Any]] = _run(request)
    return out
