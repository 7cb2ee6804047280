"""Sockets that are looked at once a tick: what came meanwhile is read together.

A look costs a switch of threads, a call of the system and a round of the loop: more than a message does, if each
message is met by a look of its own. Nothing is later by it, for what is read waits for the next step in any case.
"""

from __future__ import annotations

import select
import selectors
import time
from typing import Any


class Clock(selectors.DefaultSelector):
    """A selector of an asyncio loop: looks are `tick` seconds apart, unless a thread or a signal wakes it."""

    def __init__(self, tick: float) -> None:
        super().__init__()
        self._tick, self._next = tick, 0.0
        self._wakes: list[Any] = []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self._wakes = self._wakes or [fileobj]  # the first is the loop's own, which threads and signals write to
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            wait = self._next - time.monotonic()
            if timeout is not None:
                wait = min(wait, timeout)
                timeout -= max(0.0, wait)
            if wait > 0 and select.select(self._wakes, (), (), wait)[0]:
                timeout = 0
            found = super().select(timeout)
            self._next = time.monotonic() + self._tick
            return found
        return super().select(timeout)
