"""Values that hold while a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def within(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Let a variable have a value, which is given, until the block ends."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
