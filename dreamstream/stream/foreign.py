"""Where a low room finds the bridge to PyTorch, which lies high: it is loaded when a torch object is handed in."""

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
    """Return the module `dreamstream.torch`."""
    return _load()
