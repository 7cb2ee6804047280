"""An event loop that looks at its sockets once a tick: what came meanwhile is read together.

A look costs a switch of threads, a call of the system and a round of the loop: more than a message does, where each
message is met by a look of its own. Nothing is later by it, for what is read waits for the next step in any case.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Any


class _Selector(selectors.DefaultSelector):
    """A selector whose looks are a tick apart, unless another thread or a signal has something to say."""

    def __init__(self, tick: float) -> None:
        super().__init__()
        self._tick, self._next = tick, 0.0
        self._wakes = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if not self.get_map():  # the first is the loop's own, which other threads and signals write to
            self._wakes.register(fileobj, events)
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            wait = self._next - time.monotonic()
            if timeout is not None:
                wait = min(wait, timeout)
                timeout -= max(0.0, wait)
            if wait > 0 and self._wakes.select(wait):
                timeout = 0
            found = super().select(timeout)
            self._next = time.monotonic() + self._tick
            return found
        return super().select(timeout)

    def close(self) -> None:
        self._wakes.close()
        super().close()


class ClockedLoop(asyncio.SelectorEventLoop):
    """An asyncio loop with such a selector; `tick` in seconds."""

    def __init__(self, tick: float) -> None:
        super().__init__(_Selector(tick))
