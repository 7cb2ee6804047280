"""Front ends as low rooms see them: the bridge to PyTorch, which lies high, and what its tensors stand for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

_load: Callable[[], Any]


def set_bridge(load: Callable[[], Any]) -> None:
    """Set what loads `dreamstream.torch`; the package itself does."""
    global _load
    _load = cache(load)


def bridge() -> Any:
    """Return the module `dreamstream.torch`; it is loaded when a torch object is handed in."""
    return _load()


def inner_of(x: Any) -> Any:
    """Return the native value that a front end's tensor stands for inside a forward; all else as it is."""
    return x._inner if hasattr(type(x), "_inner") else x
