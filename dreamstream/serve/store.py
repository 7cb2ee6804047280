"""Where records of streams are: in memory, or in a folder."""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from .limits import Limits
from .records import Record, Store, StoreError, joined


class _Entry(NamedTuple):
    """A stream: the server that owns it, the places of its records by number, and when it was last used."""

    owner: str
    records: dict[int, Any]
    then: float


class MemoryStore(Store):
    """Records that last as long as the process: a server's own, or a vault that several servers have in common.

    A stream is of the server that has asked for it last: what others keep of it is refused.
    """

    is_remote = outlives = False

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        self._entries: dict[str, _Entry] = {}

    def _append(self, records: Mapping[str, Record | None]) -> dict[str, Any]:
        """Store records, all or none; return their places. None in a record's place: the stream is deleted."""
        return dict(records)

    def _read(self, place: Any) -> Record:
        found: Record = place
        return found

    def keep(self, records: Mapping[str, Record], owner: str = "") -> dict[str, str]:
        refused, now = {}, time.monotonic()
        for stream_id, record in records.items():
            found = self._entries.get(stream_id)
            if found is not None and found.owner != owner:
                refused[stream_id] = "taken"
            elif record.after is not None and (found is None or record.after not in found.records):
                refused[stream_id] = "missing"
        for stream_id, place in self._append({i: r for i, r in records.items() if i not in refused}).items():
            record = records[stream_id]
            kept = {} if record.after is None else self._entries[stream_id].records
            kept[record.number] = place
            self._entries[stream_id] = _Entry(owner, kept, now)
        return refused

    def find(self, stream_ids: Iterable[str], owner: str = "") -> dict[str, Record]:
        found, now = {}, time.monotonic()
        for stream_id in stream_ids:
            records = self._entries[stream_id].records if stream_id in self._entries else {}
            self._entries[stream_id] = _Entry(owner, records, now)
            found[stream_id] = [self._read(place) for place in records.values()]
        return joined(found)

    def delete(self, stream_id: str, owner: str = "") -> None:
        if stream_id in self._entries and self._entries[stream_id].owner == owner:
            if self._entries[stream_id].records:
                self._append({stream_id: None})
            del self._entries[stream_id]

    def sweep(self, seconds: float, live: set[str]) -> None:
        before = time.monotonic() - seconds
        gone = [i for i, entry in self._entries.items() if entry.then < before and i not in live]
        for stream_id in gone:
            self.delete(stream_id, self._entries[stream_id].owner)

    def close(self) -> None:
        """There is nothing to let go."""


#: Before each entry of a log: a word, the bytes of the id and of the record, a checksum of both.
_ENTRY = struct.Struct("<4sHQI")
#: The word of a record that takes the place of earlier ones, and of one that continues them.
_WORD, _CONTINUES = b"DSr1", b"DSr2"


class FolderStore(MemoryStore):
    """Records in a folder: an append log, rewritten without what is out of date when it has doubled.

    What a server has written outlives it, killed at any moment: an entry that was cut short is left out. `durable`
    also outlives the machine: what is kept at a time is flushed to the disk.

    wait : bool
        Wait while another server has the folder.

    Raises
    ------
    StoreError
        Where another server has the folder.
    """

    outlives = True

    def __init__(self, folder: str | os.PathLike[str], durable: bool = False, wait: bool = False) -> None:
        self._folder, self._durable = Path(folder), durable
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self._folder / "lock", "wb")  # noqa: SIM115 (held as long as the store is)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            self._lock.close()
            raise StoreError(f"{self._folder} is another server's; give each a folder of its own") from None
        self.key = self._read_key()
        self._open()

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

    def _open(self) -> None:
        """Take the log, and find where records are in it."""
        self._log = open(self._folder / "log", "a+b", buffering=0)  # noqa: SIM115
        self._entries, now, whole = {}, time.monotonic(), 0
        for stream_id, at, data, continues in _entries(self._log):
            whole = at + len(data)
            entry = self._entries.pop(stream_id, None)
            if data:
                records = entry.records if continues and entry is not None else {}
                records[Record.unpack(data).number] = at, len(data)
                self._entries[stream_id] = _Entry("", records, now)
        self._log.truncate(whole)
        self._rewrite_at = 2 * whole + (1 << 20)

    def _append(self, records: Mapping[str, Record | None]) -> dict[str, Any]:
        at = self._log.seek(0, os.SEEK_END)
        if at > self._rewrite_at:
            self._rewrite_at *= 2  # for there may be no room
            self._rewrite()
            at = self._log.seek(0, os.SEEK_END)
        packed = {i: (b"", False) if r is None else (r.pack(), r.after is not None) for i, r in records.items()}
        left = memoryview(b"".join(_entry(i.encode(), *entry) for i, entry in packed.items()))
        try:
            while left:
                left = left[self._log.write(left) :]
        except OSError:
            self._log.truncate(at)
            raise
        if self._durable:
            os.fdatasync(self._log.fileno())
        places = {}
        for stream_id, (data, _) in packed.items():
            at += _ENTRY.size + len(stream_id.encode())
            places[stream_id] = at, len(data)
            at += len(data)
        return places

    def _read(self, place: Any) -> Record:
        at, size = place
        return Record.unpack(os.pread(self._log.fileno(), size, at))

    def _rewrite(self) -> None:
        part, entries = self._folder / "log.part", self._entries
        with open(part, "wb") as file:
            for stream_id, entry in entries.items():
                for k, place in enumerate(entry.records.values()):
                    file.write(_entry(stream_id.encode(), self._read(place).pack(), k > 0))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._folder / "log")
        self._log.close()
        self._open()
        self._entries = {i: entry._replace(then=entries[i].then) for i, entry in self._entries.items()}

    def close(self) -> None:
        self._log.close()
        self._lock.close()


def _entry(name: bytes, data: bytes, continues: bool) -> bytes:
    word = _CONTINUES if continues else _WORD
    return _ENTRY.pack(word, len(name), len(data), zlib.crc32(data, zlib.crc32(name))) + name + data


def _entries(log: FileIO) -> Iterator[tuple[str, int, bytes, bool]]:
    """Yield of each whole entry its id, where its record begins, the record, and if it continues others."""
    at = 0
    size_of_log = log.seek(0, os.SEEK_END)
    while at + _ENTRY.size <= size_of_log:
        word, n, size, checksum = _ENTRY.unpack(os.pread(log.fileno(), _ENTRY.size, at))
        begin = at + _ENTRY.size + n
        if word not in (_WORD, _CONTINUES) or begin + size > size_of_log:
            return
        name, data = os.pread(log.fileno(), n, at + _ENTRY.size), os.pread(log.fileno(), size, begin)
        if zlib.crc32(data, zlib.crc32(name)) != checksum:
            return
        at = begin + size
        yield name.decode(errors="replace"), begin, data, word == _CONTINUES


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
