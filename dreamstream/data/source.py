"""Where the bytes of a recording come from."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from typing import Any

from ..errors import FormatError

PIECE = 1 << 18  # the most bytes that are asked for at once
IN_MEMORY = 1 << 20  # bytes of a pipe that are kept in memory; more go to a temporary file


class Source:
    """A path, "-" for standard input, bytes (which are held meanwhile), or a file object."""

    def __init__(self, source: Any) -> None:
        self.name = "recording"  #: What messages call it.
        self.offset = 0  #: Bytes taken so far.
        self.waits = False  #: Whether bytes may come as they are made, so that none may be asked for early.
        self.rewinds = True  #: Whether it can be read again from its first byte: a pipe can't.
        self._path: Any = None
        self._file: Any = None
        self._own = False  # whether the file was opened here
        self._bytes: memoryview | None = None
        self._peeked = b""
        self._taken: Any = None  # a copy of what a pipe gave, until `forget`
        if isinstance(source, str) and source == "-":
            self.name = "standard input"
            if sys.stdin is None:
                raise FormatError("standard input is closed; give a path")
            source = getattr(sys.stdin, "buffer", sys.stdin)
        if isinstance(source, (str, os.PathLike)):
            self.name = os.fsdecode(source)
            self._path = source
            self._file = self._system(open, source, "rb")
            self._own = True
            self.rewinds = os.path.isfile(source)
            self.waits = not self.rewinds
        else:
            self._hold(source)
        if not self.rewinds:
            self._taken = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  # closed by `forget` and `close`

    def _hold(self, source: Any) -> None:
        try:
            self._bytes = memoryview(source).cast("B")
        except TypeError:
            if not hasattr(source, "read"):
                kind = type(source).__name__
                text = f"expected a path, bytes or a file object with read(), got {kind}"
                raise TypeError(text) from None
            self._file = source
            self.waits = True
            try:
                self.rewinds = bool(source.seekable()) and source.tell() == 0
            except (AttributeError, OSError, ValueError):
                self.rewinds = False
            if self.name == "recording" and isinstance(name := getattr(source, "name", None), str):
                self.name = name

    def _system(self, call: Any, *args: Any) -> Any:
        """Call what the system may refuse; its error names the path as it was given."""
        try:
            return call(*args)
        except OSError as error:
            if self._path is not None:
                error.filename = self._path
            raise

    # ------------------------------------------------------------------ front to back
    def _piece(self, n_bytes: int) -> memoryview:
        """Return some bytes; none at the end only."""
        if self._peeked:
            piece, self._peeked = self._peeked[:n_bytes], self._peeked[n_bytes:]
            return memoryview(piece)
        if self._bytes is not None:
            return self._bytes[self.offset : self.offset + n_bytes]
        piece = self._system(self._file.read, n_bytes)
        if piece is None:
            raise BlockingIOError(f"{self.name}: read() gave None; a file object must wait for its bytes")
        try:
            view = memoryview(piece).cast("B")
        except TypeError:
            kind = type(piece).__name__
            text = f'read() of a file object must return bytes (open it with "rb"), got {kind}'
            raise TypeError(text) from None
        if len(view) > n_bytes:
            raise ValueError(f"read({n_bytes}) of a file object returned {len(view)} bytes")
        if self._taken is not None:
            self._taken.write(view)
        return view

    def take(self, n_bytes: int) -> memoryview:
        """Return that many bytes, at most PIECE; fewer at the end only."""
        taken = self._piece(n_bytes)
        self.offset += len(taken)
        if len(taken) in (0, n_bytes):
            return taken
        pieces = bytearray(taken)
        while len(pieces) < n_bytes and (piece := self._piece(n_bytes - len(pieces))):
            pieces += piece
            self.offset += len(piece)
        return memoryview(pieces)

    def take_all(self, n_bytes: int, what: str) -> bytes:
        """Return that many bytes; FormatError where the recording ends before."""
        taken = bytes(self.take(n_bytes))
        if len(taken) < n_bytes:
            raise self.fault(self.offset, f"{n_bytes - len(taken)} more bytes of {what}, but the recording ends")
        return taken

    def peek(self, n_bytes: int) -> bytes:
        """Return the next bytes, fewer at the end only, without taking them."""
        peeked = bytes(self.take(n_bytes))
        if self._bytes is None:
            self._peeked = peeked + self._peeked
        self.offset -= len(peeked)
        return peeked

    def skip(self, n_bytes: int, what: str) -> None:
        """Pass over bytes that have to be there."""
        while n_bytes > 0:
            n_bytes -= len(self.take_all(min(n_bytes, PIECE), what))

    def fault(self, offset: int, expected: str) -> FormatError:
        """Return the error for what is missing or wrong at an offset."""
        return FormatError(f"{self.name}: offset {offset}: expected {expected}")

    # ------------------------------------------------------------------ once more
    def forget(self) -> None:
        """Keep no copy of what a pipe gives: nobody will want it `again`."""
        if self._taken is not None:
            self._taken.close()
            self._taken = None

    def size(self) -> int:
        """Return the bytes of a source that rewinds."""
        if self._bytes is not None:
            return len(self._bytes)
        here = self._file.tell()
        self._file.seek(0, os.SEEK_END)
        n_bytes: int = self._file.tell()
        self._file.seek(here)
        return n_bytes

    def again(self) -> Any:
        """Return a file object that holds the recording from its first byte, and can go back.

        What comes through a pipe is read to its end for that.
        """
        self._peeked = b""
        if self._bytes is not None:
            return io.BytesIO(self._bytes)
        if self._taken is not None:
            while self._piece(PIECE):
                pass
            self._close_file()
            self._file, self._taken = self._taken, None
            self._own = self.rewinds = True
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Close the file of a path, release bytes or a file object."""
        self.forget()
        if self._bytes is not None:
            self._bytes.release()
        self._close_file()
        self._file = self._bytes = None

    def _close_file(self) -> None:
        if self._own and self._file is not None:
            self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_taken"):
            self.close()
