"""States of operations as bytes: those that grow are kept in segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class StreamState:
    """What one stream remembers: frames so far per input, and a state per operation.

    In training also, per operation, where the gradient of its state goes, and by what key it draws. `once` are the
    values that it was given once, where operators don't keep them themselves.
    """

    frames: tuple[int, ...]
    states: Any
    sources: Sequence[Any] = ()
    key: int | None = None
    once: Sequence[Any] = ()


def flatten(state: Any) -> bytes | None:
    """Return an operation's state as the bytes in which its arrays lie: growing ones are kept in segments."""
    if not isinstance(state, tuple):
        return None if state is None else _bytes_of(state)
    segments: list[Mapping[str, Any]] = []
    while isinstance(state, tuple):
        state, segment = state
        segments.append(segment)
    segments = [state, *reversed(segments)]
    names = sorted({name for s in segments for name in s}, key=lambda name: (len(name), name))
    return b"".join(s[name].tobytes() for name in names for s in segments if name in s)


def _bytes_of(arrays: Mapping[str, Any]) -> bytes:
    base = next(iter(arrays.values())).base
    return base if isinstance(base, bytes) else b"".join(a.tobytes() for a in arrays.values())
