"""What a server asks of its store: at once of one that is here, of a remote one in a thread and together.

While a remote store answers, what comes next waits and goes with one call, however many streams ask: a store that
answers slowly has fewer and larger calls, not a queue that a stream which comes back would stand in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .records import Record, Store

_T = TypeVar("_T")


class Storing:
    """A store as a server has it; each method raises what the store raises."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, "dreamstream-store") if store.is_remote else None
        # per method what is asked next, and its answer
        self._next: dict[str, tuple[dict[str, Any], asyncio.Future[Any]]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def keep(self, records: Mapping[str, Record]) -> dict[str, str]:
        """Keep records; return why some are not kept, ``"replaced"`` where a later one of the stream is."""
        kept, refused = await self._together("keep", records)
        replaced = {i: "replaced" for i, record in records.items() if kept[i] is not record}
        return {i: why for i, why in (replaced | refused).items() if i in records}

    async def get(self, stream_id: str) -> Record | None:
        """Return a stream's record, after what was kept before; from now on the stream is this server's."""
        found: Record | None = (await self._together("find", {stream_id: None}))[1].get(stream_id)
        return found

    async def delete(self, stream_id: str) -> None:
        """Forget a stream, after what was kept before."""
        await self._together("delete", {stream_id: None})

    async def sweep(self, seconds: float, live: set[str]) -> None:
        """Forget what is out of date."""
        await self._run(self._store.sweep, seconds, live)

    def close(self) -> None:
        """Let another server have the store."""
        if self._thread is not None:
            self._thread.shutdown()
        self._store.close()

    async def _together(self, method: str, asked: Mapping[str, Any]) -> Any:
        """Ask for streams, with all that others ask for until the store is free; return that, and the answer."""
        if self._thread is None:
            return asked, self._ask(method, asked)
        if method not in self._next:
            self._next[method] = {}, asyncio.get_running_loop().create_future()
        gathered, answer = self._next[method]
        # a later record never continues one that the store has not confirmed: it takes its place
        gathered.update(asked)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._turns())
        return gathered, await asyncio.shield(answer)

    async def _turns(self) -> None:
        while self._next:
            turn, self._next = self._next, {}
            for method in sorted(turn, key=("keep", "find", "delete").index):
                asked, answer = turn[method]
                try:
                    answer.set_result(await self._run(self._ask, method, asked))
                except Exception as error:
                    answer.set_exception(error)
        self._asking = None

    def _ask(self, method: str, asked: Mapping[str, Any]) -> Any:
        if method == "delete":
            for stream_id in asked:
                self._store.delete(stream_id)
            return None
        return getattr(self._store, method)(asked)

    async def _run(self, ask: Callable[..., _T], *args: Any) -> _T:
        if self._thread is None:
            return ask(*args)
        return await asyncio.get_running_loop().run_in_executor(self._thread, ask, *args)
