"""Where streams are kept that have no engine at the moment, and what survives a server: records by id.

A record holds the snapshot at an input position and the outputs before it that nobody has acknowledged: without
these, frames that left and never arrived would be lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ..errors import DreamStreamError


@dataclass
class Record:
    """What a stream is made of again.

    Attributes
    ----------
    model : str
        The fingerprint of its engine.
    input : int
        Frames that its snapshot has seen.
    made : list of int
        Frames of each output that the engine has given.
    acknowledged : list of int
        Frames of each output that the client has.
    snapshot : bytes
        Empty where the engine has nothing of it: before its first step, and after its end.
    outputs : list of (int, bytes)
        Per message that is not acknowledged its port and itself.
    ended : bool
        Whether all outputs are made.
    """

    model: str
    input: int
    made: list[int]
    acknowledged: list[int]
    snapshot: bytes = b""
    outputs: list[tuple[int, bytes]] = field(default_factory=list)
    ended: bool = False

    def pack(self) -> bytes:
        """Return it as bytes."""
        told = {
            "model": self.model,
            "input": self.input,
            "made": self.made,
            "acknowledged": self.acknowledged,
            "ended": self.ended,
            "snapshot": len(self.snapshot),
            "outputs": [[port, len(data)] for port, data in self.outputs],
        }
        text = json.dumps(told).encode()
        return b"".join((struct.pack("<I", len(text)), text, self.snapshot, *(data for _, data in self.outputs)))

    @classmethod
    def unpack(cls, data: bytes) -> Record:
        """Return what `pack` was made of."""
        (n,) = struct.unpack_from("<I", data)
        told = json.loads(data[4 : 4 + n])
        at, outputs = 4 + n + told["snapshot"], []
        for port, size in told["outputs"]:
            outputs.append((port, data[at : at + size]))
            at += size
        snapshot = data[4 + n : 4 + n + told["snapshot"]]
        return cls(
            told["model"], told["input"], told["made"], told["acknowledged"], snapshot, outputs, told["ended"]
        )


class Store(Protocol):
    """Records by id; each method holds when it returns."""

    #: What resume tokens are signed with.
    key: bytes

    def keep(self, stream_id: str, record: Record) -> None:
        """Keep a stream's record in the place of an earlier one."""

    def get(self, stream_id: str) -> Record | None:
        """Return a stream's record."""

    def delete(self, stream_id: str) -> None:
        """Forget a stream."""

    def sweep(self, seconds: float, live: set[str]) -> int:
        """Forget what nobody has kept or looked at for so long, but for live streams; return how many."""

    def close(self) -> None:
        """Let another server have it."""


class _Aging:
    """Records that go when nobody has looked at them for long."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}  # when each was last kept or looked at

    def delete(self, stream_id: str) -> None:
        """Forget a stream."""
        raise NotImplementedError

    def sweep(self, seconds: float, live: set[str]) -> int:
        """Forget what nobody has kept or looked at for so long, but for live streams; return how many."""
        before = time.monotonic() - seconds
        gone = [i for i, then in self._times.items() if then < before and i not in live]
        for i in gone:
            self.delete(i)
        return len(gone)


class MemoryStore(_Aging):
    """Records that last as long as the process."""

    def __init__(self) -> None:
        super().__init__()
        self.key = secrets.token_bytes(32)
        self._records: dict[str, Record] = {}

    def keep(self, stream_id: str, record: Record) -> None:
        self._records[stream_id], self._times[stream_id] = record, time.monotonic()

    def get(self, stream_id: str) -> Record | None:
        if stream_id in self._records:
            self._times[stream_id] = time.monotonic()
        return self._records.get(stream_id)

    def delete(self, stream_id: str) -> None:
        self._records.pop(stream_id, None)
        self._times.pop(stream_id, None)

    def close(self) -> None:
        """There is nothing to let go."""


#: Before each entry of a log: a word, the bytes of the id and of the record, a checksum of both.
_ENTRY = struct.Struct("<4sHQI")
_WORD = b"DSr1"


class FolderStore(_Aging):
    """Records in a folder: an append log, rewritten when half of it is out of date.

    What a server has written outlives it, killed at any moment: an entry that was cut short is left out. `durable`
    also outlives the machine: each entry is flushed to the disk.

    Raises
    ------
    StoreError
        Where another server has the folder.
    """

    def __init__(self, folder: str | os.PathLike[str], durable: bool = False) -> None:
        super().__init__()
        self._folder, self._durable = Path(folder), durable
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self._folder / "lock", "wb")  # noqa: SIM115 (held as long as the store is)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise StoreError(f"{self._folder} is another server's; give each a folder of its own") from None
        self.key = self._read_key()
        self._places: dict[str, tuple[int, int]] = {}  # of each record, and its size
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
        for stream_id, at, size in _entries(log):
            whole = at + size
            self._drop(stream_id)
            if size:
                self._places[stream_id], self._times[stream_id] = (at, size), now
                self._used += _ENTRY.size + len(stream_id.encode()) + size
        log.truncate(whole)
        return log

    def _drop(self, stream_id: str) -> None:
        found = self._places.pop(stream_id, None)
        self._times.pop(stream_id, None)
        if found is not None:
            self._used -= _ENTRY.size + len(stream_id.encode()) + found[1]

    def _append(self, stream_id: str, data: bytes) -> int:
        """Write an entry, none of it where that fails; return where its record begins."""
        name, end = stream_id.encode(), self._log.seek(0, os.SEEK_END)
        entry = _ENTRY.pack(_WORD, len(name), len(data), zlib.crc32(data, zlib.crc32(name))) + name + data
        try:
            self._log.write(entry)
            self._log.flush()
        except OSError:
            self._log = _reopened(self._log, end)
            raise
        if self._durable:
            os.fdatasync(self._log.fileno())
        return end + len(entry) - len(data)

    def keep(self, stream_id: str, record: Record) -> None:
        data = record.pack()
        at = self._append(stream_id, data)
        self._drop(stream_id)
        self._places[stream_id], self._times[stream_id] = (at, len(data)), time.monotonic()
        self._used += _ENTRY.size + len(stream_id.encode()) + len(data)
        if at > 2 * self._used + (1 << 20):
            self._rewrite()

    def get(self, stream_id: str) -> Record | None:
        found = self._places.get(stream_id)
        if found is None:
            return None
        self._times[stream_id] = time.monotonic()
        return Record.unpack(os.pread(self._log.fileno(), found[1], found[0]))

    def delete(self, stream_id: str) -> None:
        if stream_id in self._places:
            self._append(stream_id, b"")
            self._drop(stream_id)

    def _rewrite(self) -> None:
        part = self._folder / "log.part"
        old, times = self._log, dict(self._times)
        with open(part, "wb") as file:
            for stream_id, (at, size) in self._places.items():
                data, name = os.pread(old.fileno(), size, at), stream_id.encode()
                file.write(_ENTRY.pack(_WORD, len(name), size, zlib.crc32(data, zlib.crc32(name))) + name + data)
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


class StoreError(DreamStreamError, OSError):
    """A store that can't be had."""


def _reopened(log: BinaryIO, end: int) -> BinaryIO:
    """Return a log after a failed write, without what was written of it."""
    path = log.name
    with contextlib.suppress(OSError):
        log.close()
    again = open(path, "a+b")  # noqa: SIM115
    again.truncate(end)
    return again


def _entries(log: BinaryIO) -> Iterator[tuple[str, int, int]]:
    """Yield of each whole entry its id, where its record begins, and the record's size."""
    at = 0
    size_of_log = log.seek(0, os.SEEK_END)
    while at + _ENTRY.size <= size_of_log:
        word, n, size, told = _ENTRY.unpack(os.pread(log.fileno(), _ENTRY.size, at))
        begin = at + _ENTRY.size + n
        if word != _WORD or begin + size > size_of_log:
            return
        name, data = os.pread(log.fileno(), n, at + _ENTRY.size), os.pread(log.fileno(), size, begin)
        if zlib.crc32(data, zlib.crc32(name)) != told:
            return
        at = begin + size
        yield name.decode(errors="replace"), begin, size


def open_store(where: Any, durable: bool = False) -> Store:
    """Return the store in a folder; without one, in memory."""
    return MemoryStore() if where is None else FolderStore(where, durable)
