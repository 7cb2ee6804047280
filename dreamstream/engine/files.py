"""Files as bytes: of a path, or of any object with ``read()`` or ``write()``.

A path is written beside its place and then renamed over it: who reads sees the old file or the new one,
whole, whatever happens on the way, and a mapping of the old one stays as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import glob
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from typing import Any

from .text import to_json, to_xml

Write = Callable[[bytes], Any]

SUFFIXES = {".json": "json", ".xml": "xml"}
FORMATS = ("dsm", *SUFFIXES.values())


def is_path(place: Any) -> bool:
    """Whether it names a file, rather than being one."""
    return isinstance(place, (str, os.PathLike))


def check_format(target: Any, name: str | None) -> str:
    """Return the form that a file is written in: the one named, or what the path's suffix says."""
    if name is None:
        suffix = os.path.splitext(os.fsdecode(target))[1].lower() if is_path(target) else ""
        return SUFFIXES.get(suffix, "dsm")
    if name not in FORMATS:
        raise ValueError(f"format is one of {', '.join(FORMATS)}, got {name!r}")
    return name


def write_file(target: Any, form: str, produce: Callable[[Write], None]) -> None:
    """Write what `produce` makes, the bytes of a model file, in a form: "dsm", "json" or "xml".

    `produce` calls what it is given with the file's bytes, piece by piece.
    """
    if is_path(target):
        with replacing(os.fsdecode(target)) as file:
            _put(_all_of(file), form, produce)
    elif hasattr(target, "write"):
        _put(_all_of(target), form, produce)
    else:
        raise TypeError(f"expected a path or a file object with write(), got {type(target).__name__}")


def _put(write: Write, form: str, produce: Callable[[Write], None]) -> None:
    if form == "dsm":
        produce(write)
        return
    pieces: list[bytes] = []
    produce(pieces.append)
    for piece in (to_json if form == "json" else to_xml)(b"".join(pieces)):
        write(piece)


def _all_of(file: Any) -> Write:
    """Return a write() that goes on until all is written."""

    def write(piece: bytes) -> None:
        while piece:
            n = file.write(piece)
            if n is None and not isinstance(file, io.RawIOBase):
                return  # an object that doesn't count takes all
            if not isinstance(n, int) or not 0 < n <= len(piece):
                raise OSError(f"write() of a file object took {n} of {len(piece)} bytes")
            piece = piece[n:]

    return write


@contextlib.contextmanager
def replacing(path: str) -> Iterator[Any]:
    """Open a new file that takes the path's place in the end; where that fails, nothing has changed."""
    old = None
    with contextlib.suppress(FileNotFoundError):
        old = os.stat(path)
    if old is not None and not stat.S_ISREG(old.st_mode):  # a device, a pipe; a folder, which is refused
        with open(path, "wb") as file:
            yield file
        return
    path = os.path.realpath(path)  # a link stays one
    _remove_left(path)
    part = f"{_beginning(path)}{secrets.token_hex(8)}.part"
    mode = 0o666 if old is None else 0o600  # nobody reads meanwhile who could not before
    try:
        number, named = _new_file(part, mode)
    except OSError as error:  # about the folder: the file's name is the one that says so
        raise OSError(error.errno, error.strerror, path) from None
    try:
        with open(number, "wb") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
            file.flush()
            if old is not None:
                _let_be_of(number, old)
            os.fsync(number)
            if not named:
                _name(number, part)
            os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _beginning(path: str) -> str:
    """Return how the paths of unfinished files begin that shall take a path's place."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{hashlib.blake2s(os.fsencode(name), digest_size=8).hexdigest()}-")


def _remove_left(path: str) -> None:
    """Remove the unfinished files of processes that were killed; those that are written to are locked."""
    for left in glob.glob(f"{glob.escape(_beginning(path))}*.part"):
        with contextlib.suppress(OSError), open(left, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size:  # an empty one may be locked next
                os.unlink(left)


def _new_file(part: str, mode: int) -> tuple[int, bool]:
    """Open a new file in a path's folder; return its number, and whether it has that path already.

    Where the system makes files without a name (Linux, on most file systems), it has none until all is written, so
    that a process that is killed meanwhile leaves nothing behind.
    """
    folder = os.path.dirname(part)
    if _has_nameless(folder):
        return os.open(folder, os.O_WRONLY | os.O_CLOEXEC | os.O_TMPFILE, mode), False
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode), True


@functools.lru_cache
def _has_nameless(folder: str) -> bool:
    if not hasattr(os, "O_TMPFILE"):
        return False
    probe = os.path.join(folder, f".{secrets.token_hex(8)}.part")
    try:
        number = os.open(folder, os.O_WRONLY | os.O_CLOEXEC | os.O_TMPFILE, 0o600)
        try:
            _name(number, probe)
            os.unlink(probe)
        finally:
            os.close(number)
    except OSError:
        return False
    return True


def _name(number: int, path: str) -> None:
    """Give a nameless file its name; the folder is named only so that links are followed."""
    os.link(f"/proc/self/fd/{number}", path, src_dir_fd=number, follow_symlinks=True)


def _let_be_of(number: int, old: os.stat_result) -> None:
    """Give a new file the owner, the group and the permissions of the one that it replaces.

    What is no permission to read, write or execute (setuid, setgid) is dropped: it was given to other bytes. Who
    may not give files away (all but root; root too to an owner that its container does not know, and where a file
    system has no owners) keeps what is possible; another group gets no permission.
    """
    new = os.fstat(number)
    if new.st_uid != old.st_uid:
        with contextlib.suppress(OSError):
            os.fchown(number, old.st_uid, -1)
    mode = old.st_mode & 0o777
    if new.st_gid != old.st_gid:
        try:
            os.fchown(number, -1, old.st_gid)
        except OSError:
            mode &= 0o707
    with contextlib.suppress(OSError):  # as it was opened nobody else reads it
        os.fchmod(number, mode)


def read_all(file: Any) -> bytes:
    """Return all bytes that a file object gives, in pieces of any size."""
    pieces: list[bytes] = []
    while True:
        piece = file.read(1 << 20)
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise TypeError(
                f'read() of a file object must return bytes (open it with "rb"), got {type(piece).__name__}'
            )
        if not len(piece):
            return b"".join(pieces)
        pieces.append(bytes(piece))
