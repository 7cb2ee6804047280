"""Where records of streams are: in memory, or in a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .limits import Limits
from .records import Record, Store, StoreError, joined


def _out_of_date(times: Mapping[str, float], seconds: float, live: set[str]) -> list[str]:
    """Return the streams that nobody has kept or looked at for so long, but for live ones."""
    before = time.monotonic() - seconds
    return [i for i, then in times.items() if then < before and i not in live]


class _Entry(NamedTuple):
    """A stream: of which server, its records by number, and when it was looked at."""

    owner: str
    records: dict[int, Record]
    then: float


class MemoryStore(Store):
    """Records that last as long as the process: a server's own, or a vault that several servers have in common.

    A stream is of the server that has asked for it last: what others keep of it is refused.
    """

    is_remote = False

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        self._entries: dict[str, _Entry] = {}

    @property
    def outlives(self) -> bool:  # type: ignore[override]
        return self.is_remote

    def keep(self, records: Mapping[str, Record], owner: str = "") -> dict[str, str]:
        refused, now = {}, time.monotonic()
        for stream_id, record in records.items():
            found = self._entries.get(stream_id, _Entry(owner, {}, now))
            if found.owner != owner:
                refused[stream_id] = "taken"
            elif record.after is not None and record.after not in found.records:
                refused[stream_id] = "missing"
            else:
                kept = {} if record.after is None else found.records
                kept[record.number] = record
                self._entries[stream_id] = _Entry(owner, kept, now)
        return refused

    def find(self, stream_ids: Iterable[str], owner: str = "") -> dict[str, Record]:
        found, now = {}, time.monotonic()
        for stream_id in stream_ids:
            records = self._entries[stream_id].records if stream_id in self._entries else {}
            self._entries[stream_id] = _Entry(owner, records, now)
            found[stream_id] = list(records.values())
        return joined(found)

    def delete(self, stream_id: str, owner: str = "") -> None:
        if stream_id in self._entries and self._entries[stream_id].owner == owner:
            del self._entries[stream_id]

    def sweep(self, seconds: float, live: set[str]) -> int:
        gone = _out_of_date({i: entry.then for i, entry in self._entries.items()}, seconds, live)
        for stream_id in gone:
            del self._entries[stream_id]
        return len(gone)

    def close(self) -> None:
        """There is nothing to let go."""


#: Before each entry of a log: a word, the bytes of the id and of the record, a checksum of both.
_ENTRY = struct.Struct("<4sHQI")
#: The word of a record that takes the place of earlier ones, and of one that continues them.
_WORD, _CONTINUES = b"DSr1", b"DSr2"


class FolderStore(Store):
    """Records in a folder: an append log, rewritten when half of it is out of date.

    What a server has written outlives it, killed at any moment: an entry that was cut short is left out. `durable`
    also outlives the machine: what is kept at a time is flushed to the disk.

    wait : bool
        Wait while another server has the folder.

    Raises
    ------
    StoreError
        Where another server has the folder.
    """

    is_remote = False

    def __init__(self, folder: str | os.PathLike[str], durable: bool = False, wait: bool = False) -> None:
        self._times: dict[str, float] = {}  # when each was last kept or looked at
        self._folder, self._durable = Path(folder), durable
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self._folder / "lock", "wb")  # noqa: SIM115 (held as long as the store is)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            self._lock.close()
            raise StoreError(f"{self._folder} is another server's; give each a folder of its own") from None
        self.key = self._read_key()
        self._places: dict[str, list[tuple[int, int]]] = {}  # of each stream's records, and their sizes
        self._used = 0  # bytes of entries that hold
        self._log = self._open()

    def _read_key(self) -> bytes:
        path = self._folder / "key"
        if not path.exists():
            part = path.with_suffix(".part")
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        return path.read_bytes()

    def _open(self) -> BinaryIO:
        log = open(self._folder / "log", "a+b")  # noqa: SIM115
        now, whole = time.monotonic(), 0
        for stream_id, at, size, continues in _entries(log):
            whole = at + size
            self._place(stream_id, at, size, continues, now)
        log.truncate(whole)
        return log

    def _place(self, stream_id: str, at: int, size: int, continues: bool, now: float) -> None:
        """Note where a record is; one of no bytes forgets the stream."""
        if not continues:
            self._drop(stream_id)
        if size:
            self._places.setdefault(stream_id, []).append((at, size))
            self._times[stream_id] = now
            self._used += _ENTRY.size + len(stream_id.encode()) + size

    def _drop(self, stream_id: str) -> None:
        self._times.pop(stream_id, None)
        for _, size in self._places.pop(stream_id, ()):
            self._used -= _ENTRY.size + len(stream_id.encode()) + size

    def _append(self, entries: Mapping[str, tuple[bytes, bool]]) -> int:
        """Write entries, none of them where that fails; return where they begin."""
        end = self._log.seek(0, os.SEEK_END)
        try:
            self._log.write(b"".join(_entry(i.encode(), *entry) for i, entry in entries.items()))
            self._log.flush()
        except OSError:
            self._log = _reopened(self._log, end)
            raise
        if self._durable:
            os.fdatasync(self._log.fileno())
        return end

    def keep(self, records: Mapping[str, Record]) -> dict[str, str]:
        missing = {i: "missing" for i, r in records.items() if r.after is not None and i not in self._places}
        entries = {i: (r.pack(), r.after is not None) for i, r in records.items() if i not in missing}
        at, now = self._append(entries), time.monotonic()
        for stream_id, (data, continues) in entries.items():
            at += _ENTRY.size + len(stream_id.encode())
            self._place(stream_id, at, len(data), continues, now)
            at += len(data)
        if at > 2 * self._used + (1 << 20):
            self._rewrite()
        return missing

    def find(self, stream_ids: Iterable[str]) -> dict[str, Record]:
        found, log, now = {}, self._log.fileno(), time.monotonic()
        for stream_id in set(stream_ids) & self._places.keys():
            self._times[stream_id] = now
            found[stream_id] = [Record.unpack(os.pread(log, size, at)) for at, size in self._places[stream_id]]
        return joined(found)

    def delete(self, stream_id: str) -> None:
        if stream_id in self._places:
            self._append({stream_id: (b"", False)})
            self._drop(stream_id)

    def sweep(self, seconds: float, live: set[str]) -> int:
        gone = _out_of_date(self._times, seconds, live)
        for stream_id in gone:
            self.delete(stream_id)
        return len(gone)

    def _rewrite(self) -> None:
        part = self._folder / "log.part"
        old, times = self._log, dict(self._times)
        with open(part, "wb") as file:
            for stream_id, places in self._places.items():
                for k, (at, size) in enumerate(places):
                    file.write(_entry(stream_id.encode(), os.pread(old.fileno(), size, at), k > 0))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._folder / "log")
        old.close()
        self._places, self._times, self._used = {}, {}, 0
        self._log = self._open()
        self._times.update(times)

    def close(self) -> None:
        self._log.close()
        self._lock.close()


def _entry(name: bytes, data: bytes, continues: bool) -> bytes:
    word = _CONTINUES if continues else _WORD
    return _ENTRY.pack(word, len(name), len(data), zlib.crc32(data, zlib.crc32(name))) + name + data


def _reopened(log: BinaryIO, end: int) -> BinaryIO:
    """Return a log after a failed write, without what was written of it."""
    path = log.name
    with contextlib.suppress(OSError):
        log.close()
    again = open(path, "a+b")  # noqa: SIM115
    again.truncate(end)
    return again


def _entries(log: BinaryIO) -> Iterator[tuple[str, int, int, bool]]:
    """Yield of each whole entry its id, where its record begins, the record's size, and if it continues others."""
    at = 0
    size_of_log = log.seek(0, os.SEEK_END)
    while at + _ENTRY.size <= size_of_log:
        word, n, size, told = _ENTRY.unpack(os.pread(log.fileno(), _ENTRY.size, at))
        begin = at + _ENTRY.size + n
        if word not in (_WORD, _CONTINUES) or begin + size > size_of_log:
            return
        name, data = os.pread(log.fileno(), n, at + _ENTRY.size), os.pread(log.fileno(), size, begin)
        if zlib.crc32(data, zlib.crc32(name)) != told:
            return
        at = begin + size
        yield name.decode(errors="replace"), begin, size, word == _CONTINUES


def open_store(where: Any, durable: bool = False, keep: float = Limits.keep, wait: bool = False) -> Store:
    """Return a store: in memory, in a folder, or where a URL ``redis://`` says.

    Parameters
    ----------
    where : None, path or str
    durable : bool
        See `FolderStore`; a Redis is as durable as it is configured.
    keep : float
        Seconds for which a Redis keeps a stream that nobody has.
    wait : bool
        See `FolderStore`; a Redis may have any number of servers.

    Raises
    ------
    StoreError
        Where it can't be had.
    """
    if where is None:
        return MemoryStore()
    if "://" not in os.fspath(where):
        return FolderStore(where, durable, wait)
    from .redis import RedisStore

    if durable:
        raise StoreError("durable is of folders; a Redis is as durable as its appendfsync says")
    return RedisStore(where, keep)
