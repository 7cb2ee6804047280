"""Records of streams in a Redis, which several servers share."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .records import Record, Store, StoreError, joined

#: The prefix of all keys.
_NAME = "dreamstream:"

# A stream is of the server that has asked for it last: the others' records of it are older, and refused. Its
# records are fields `record:` and their number; one that continues none takes the place of all.
_KEEP = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 'taken' end
if ARGV[5] == '' then redis.call('DEL', KEYS[1])
elseif redis.call('HEXISTS', KEYS[1], 'record:' .. ARGV[5]) == 0 then return 'missing' end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'record:' .. ARGV[4], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return ''
"""
_DELETE = "if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('DEL', KEYS[1]) end"


class RedisStore(Store):
    """Records in a Redis.

    Servers that share one take over each other's streams: the last that was asked for a stream has it, and what an
    earlier one would keep of it is refused.

    `url` is as ``redis://host:6379/0``, ``rediss://…`` or ``unix://path``. A stream that no server has is
    forgotten after `keep` seconds. ImportError is raised without the package redis, and StoreError where there is
    no Redis, also by methods, which try again with the next call.
    """

    is_remote = True

    def __init__(self, url: str, keep: float) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            raise ImportError(
                "a store in Redis needs the package redis: pip install 'dreamstream[redis]'"
            ) from None
        self._url, self._keep_ms, self._refresh_at = url, max(1, round(keep * 1000)), 0.0
        self._owner, self._error = secrets.token_hex(16), redis.RedisError
        with self._named():
            retry = Retry(NoBackoff(), 1)
            try:
                self._redis: Any = redis.Redis.from_url(
                    url, socket_timeout=2.0, socket_connect_timeout=2.0, retry=retry
                )
            except ValueError as error:
                raise StoreError(f"{url}: {error}") from error
            self._redis.set(f"{_NAME}key", secrets.token_bytes(32), nx=True)
            key: Any = self._redis.get(f"{_NAME}key")
        self.key: bytes = key
        self._keeping, self._deleting = self._redis.register_script(_KEEP), self._redis.register_script(_DELETE)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise StoreError(f"{self._url}: {error}") from error

    def keep(self, records: Mapping[str, Record]) -> dict[str, str]:
        with self._named(), self._redis.pipeline(transaction=False) as pipe:
            for stream_id, record in records.items():
                place = [record.number, "" if record.after is None else record.after]
                self._keeping([_stream(stream_id)], [self._owner, record.pack(), self._keep_ms, *place], pipe)
            return {stream_id: why.decode() for stream_id, why in zip(records, pipe.execute()) if why}

    def find(self, stream_ids: Iterable[str]) -> dict[str, Record]:
        stream_ids = list(stream_ids)
        with self._named(), self._redis.pipeline() as pipe:
            for name in map(_stream, stream_ids):
                pipe.hset(name, "owner", self._owner)
                pipe.pexpire(name, self._keep_ms)
                pipe.hgetall(name)
            found = pipe.execute()[2::3]
        packed = ([data for field, data in its.items() if field.startswith(b"record")] for its in found)
        return joined({i: list(map(Record.unpack, its)) for i, its in zip(stream_ids, packed)})

    def delete(self, stream_id: str) -> None:
        with self._named():
            self._deleting([_stream(stream_id)], [self._owner])

    def sweep(self, seconds: float, live: set[str]) -> None:
        """Let live streams stay; the Redis itself forgets the others."""
        now = time.monotonic()
        if now >= self._refresh_at and live:
            with self._named(), self._redis.pipeline(transaction=False) as pipe:
                for stream_id in live:
                    pipe.pexpire(_stream(stream_id), self._keep_ms)
                pipe.execute()
            self._refresh_at = now + self._keep_ms / 4000

    def close(self) -> None:
        """End the connection."""
        self._redis.close()


def _stream(stream_id: str) -> str:
    return f"{_NAME}stream:{stream_id}"
