"""WAV files, read front to back.

Read: RIFF, and RF64 or BW64 with its 64-bit sizes; integers of 8 (unsigned), 16, 24 and 32 bits and floating
point of 32 and 64 bits, as such or as WAVE_FORMAT_EXTENSIBLE; 1 to 65535 channels; chunks in any order before
the samples, unknown ones skipped, odd ones padded. What follows the samples is not looked at. A data chunk of
0xFFFFFFFF bytes (or, where the RIFF chunk ends with it, of none) is that of a recorder that can't go back: it
lasts until the source ends. Bytes at the end that make no whole frame are dropped.

No byte is trusted: what else is found is a FormatError, with the offset, what was expected and what came; and a
source is asked for 256 KiB at most at a time, so that no memory is had for what a header promises.

Source: Microsoft's and IBM's RIFF, WAVEFORMATEX and WAVEFORMATEXTENSIBLE; EBU Tech 3306 (RF64).
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ClosedError, DTypeError, FormatError, ShapeError, StreamBusyError

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")  # of a sub-format, behind its two bytes
OPEN_32, OPEN_64 = 2**32 - 1, 2**64 - 1  # sizes that a recorder leaves which doesn't know them
SKIPPED = 1 << 16  # bytes at once
PIECE = 1 << 18  # bytes; no frame has as many
AHEAD = 1 << 14  # samples that are decoded at once where nobody has to wait for them


class _Source:
    """Where bytes come from: a path, a file object, or bytes themselves, which are held meanwhile."""

    def __init__(self, source: Any) -> None:
        self.name = "recording"
        self.offset = 0  # bytes taken
        self.waits = False  # for who writes what is read
        self._path: Any = None
        self._file: Any = None
        self._bytes: memoryview | None = None
        if isinstance(source, (str, os.PathLike)):
            self.name = os.fsdecode(source)
            self._path = source
            self.waits = not os.path.isfile(source)
            self._file = self._system(open, source, "rb")
            return
        try:
            self._bytes = memoryview(source).cast("B")
        except TypeError:
            if not hasattr(source, "read"):
                kind = type(source).__name__
                says = f"expected a path, bytes or a file object with read(), got {kind}"
                raise TypeError(says) from None
            self._file = source
            self.waits = True
            if isinstance(name := getattr(source, "name", None), str):
                self.name = name

    def _system(self, call: Any, *args: Any) -> Any:
        """Call what the system may refuse; its error names the path as it was given."""
        try:
            return call(*args)
        except OSError as error:
            if self._path is not None:
                error.filename = self._path
            raise

    def _piece(self, n_bytes: int) -> memoryview:
        """Return some bytes; none at the end only."""
        if self._bytes is not None:
            return self._bytes[self.offset : self.offset + n_bytes]
        piece = self._system(self._file.read, n_bytes)
        try:
            view = memoryview(piece).cast("B")
        except TypeError:
            kind = type(piece).__name__
            says = f'read() of a file object must return bytes (open it with "rb"), got {kind}'
            raise TypeError(says) from None
        if len(view) > n_bytes:
            raise ValueError(f"read({n_bytes}) of a file object returned {len(view)} bytes")
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
        taken = bytes(self.take(n_bytes))
        if len(taken) < n_bytes:
            raise self.fault(
                self.offset, f"{n_bytes - len(taken)} more bytes of {what}, but the recording ends"
            )
        return taken

    def skip(self, n_bytes: int, what: str) -> None:
        while n_bytes > 0:
            n_bytes -= len(self.take_all(min(n_bytes, SKIPPED), what))

    def fault(self, offset: int, expected: str) -> FormatError:
        return FormatError(f"{self.name}: offset {offset}: expected {expected}")

    def close(self) -> None:
        if self._bytes is not None:
            self._bytes.release()
        elif self._path is not None and self._file is not None:
            self._file.close()
        self._file = self._bytes = None

    __del__ = close


class WavReader:
    """The frames of a recording, as "float32" or, where that is exact, "int16".

    Integers of b bits are divided by 2^(b - 1), so that full scale is -1 to 1. One call at a time: another one,
    of a second thread or from within the file object, is refused.
    """

    def __init__(self, source: Any, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.frames: int | None = None  # of the whole recording; None: it lasts until the source ends
        self._alone = threading.Lock()
        self._closed = False
        self._position = 0  # frames decoded
        self._source = _Source(source)
        try:
            self._read_header()
        except BaseException:
            self._source.close()
            raise
        self._ahead = 0 if self._source.waits else max(1, AHEAD // self.channels)
        self._ready = np.empty((0, self.channels), dtype)  # decoded, and nobody's yet

    # ------------------------------------------------------------------ the header
    def _read_header(self) -> None:
        source = self._source
        head = source.take_all(12, "a RIFF header")
        if (form := _text(head[:4])) not in ("RIFF", "RF64", "BW64"):
            raise source.fault(0, f"a WAV file ('RIFF', 'RF64' or 'BW64'), got '{form}'")
        if (form := _text(head[8:])) != "WAVE":
            raise source.fault(8, f"a form 'WAVE', got '{form}'")
        riff_bytes, data_bytes = int.from_bytes(head[4:8], "little"), None
        if head[:4] != b"RIFF":
            riff_bytes, data_bytes = self._read_ds64()
        has_format = False
        while True:
            at, name, n_bytes = self._next_chunk()
            if name == "data" and not has_format:
                raise source.fault(at, "a chunk 'fmt ' before 'data'")
            if name == "data":
                return self._begin_data(at, n_bytes, riff_bytes, data_bytes)
            if name != "fmt ":
                source.skip(n_bytes + n_bytes % 2, "a chunk before 'data'")
            elif has_format:
                raise source.fault(at, "one chunk 'fmt ', got a second")
            else:
                self._read_format(at, n_bytes)
                has_format = True

    def _next_chunk(self) -> tuple[int, str, int]:
        at = self._source.offset
        head = bytes(self._source.take(8))
        if len(head) < 8:
            raise self._source.fault(self._source.offset, "a chunk 'data', but the recording ends")
        return at, _text(head[:4]), int.from_bytes(head[4:], "little")

    def _read_ds64(self) -> tuple[int, int]:
        """Return the sizes that don't fit into 32 bits; a table of other chunks' sizes is not needed."""
        at, name, n_bytes = self._next_chunk()
        if name != "ds64" or n_bytes < 28:
            raise self._source.fault(
                at, f"a chunk 'ds64' of 28 bytes or more, got '{name}' of {n_bytes}"
            )
        riff_bytes, data_bytes = struct.unpack_from("<QQ", self._source.take_all(28, "the chunk 'ds64'"))
        self._source.skip(n_bytes - 28 + n_bytes % 2, "the chunk 'ds64'")
        return riff_bytes, data_bytes

    def _read_format(self, at: int, n_bytes: int) -> None:
        fault = self._source.fault
        if n_bytes < 16:
            raise fault(at, f"a chunk 'fmt ' of 16 bytes or more, got {n_bytes}")
        chunk = self._source.take_all(min(n_bytes, 40), "the chunk 'fmt '")
        form, channels, rate, _, frame_bytes, bits = struct.unpack_from("<HHIIHH", chunk)
        if form == EXTENSIBLE:
            form = self._read_extension(at, n_bytes, chunk, bits)
        if form not in (PCM, FLOAT):
            says = f"integer (0x0001) or floating-point (0x0003) samples, got format 0x{form:04X}"
            raise fault(at + 8, says)
        if channels == 0:
            raise fault(at + 10, "at least 1 channel, got 0")
        if rate == 0:
            raise fault(at + 12, "a sample rate, got 0")
        if bits not in ((32, 64) if form == FLOAT else (8, 16, 24, 32)):
            known = "32 or 64 floating-point" if form == FLOAT else "8, 16, 24 or 32"
            raise fault(at + 22, f"samples of {known} bits, got {bits}")
        if frame_bytes != (n := channels * bits // 8):
            says = f"frames of {n} bytes ({channels} channels of {bits} bits), got {frame_bytes}"
            raise fault(at + 20, says)
        self.sample_rate: int = rate
        self.channels: int = channels
        self.bits: int = bits
        self.floating = form == FLOAT
        self._source.skip(n_bytes - len(chunk) + n_bytes % 2, "the chunk 'fmt '")

    def _read_extension(self, at: int, n_bytes: int, chunk: bytes, bits: int) -> int:
        """Return the format behind a WAVE_FORMAT_EXTENSIBLE: the first bytes of its GUID."""
        fault = self._source.fault
        if n_bytes < 40:
            raise fault(at, f"an extensible chunk 'fmt ' of 40 bytes or more, got {n_bytes}")
        size, valid, _, form = struct.unpack_from("<HHIH", chunk, 16)
        if size < 22:
            raise fault(at + 24, f"an extension of 22 bytes, got {size}")
        if chunk[26:] != GUID_TAIL:
            raise fault(at + 32, "a sub-format of WAVE's, got another")
        if valid > bits:
            raise fault(at + 26, f"at most {bits} valid bits in a sample, got {valid}")
        return int(form)

    def _begin_data(self, at: int, n_bytes: int, riff_bytes: int, data_bytes: int | None) -> None:
        unknown = OPEN_32
        if data_bytes is not None and n_bytes == OPEN_32:
            n_bytes, unknown = data_bytes, OPEN_64
        # where the RIFF chunk goes on behind an empty data chunk, it is empty indeed
        goes_on = riff_bytes not in (OPEN_32, OPEN_64) and riff_bytes > self._source.offset - 8
        if n_bytes == unknown or (n_bytes == 0 and not goes_on):
            return
        if n_bytes >= 2**62:
            raise self._source.fault(at, f"a chunk 'data' of at most 2^62 bytes, got {n_bytes}")
        self.frames = n_bytes // (self.channels * self.bits // 8)

    # ------------------------------------------------------------------ frames
    def read(self, n_frames: int) -> npt.NDArray[Any]:
        """Return the next frames, ``(frames, channels)``; fewer at the end, and before a fault."""
        self._begin_call()
        try:
            if self._closed:
                raise ClosedError(f"{self._source.name}: the reader was closed")
            if n_frames < 0:
                raise ShapeError(f"expected a number of frames, got {n_frames}")
            if self.dtype == "int16":
                self._check_int16()
            if n_frames > len(self._ready):
                self._fill(n_frames)
            frames, self._ready = self._ready[:n_frames], self._ready[n_frames:]
            return frames
        finally:
            self._alone.release()

    def close(self) -> None:
        """Close the file of a path, release bytes or a file object."""
        self._begin_call()
        self._source.close()
        self._closed = True
        self._alone.release()

    def _begin_call(self) -> None:
        if not self._alone.acquire(blocking=False):
            raise StreamBusyError(f"{self._source.name}: another call is reading it")

    def _check_int16(self) -> None:
        if self.floating or self.bits > 16:
            kind = f"{self.bits} of floating point" if self.floating else f"{self.bits}"
            raise DTypeError(
                f"{self._source.name}: int16 samples come from integers of 8 or 16 bits, but these have {kind}; "
                "read float32"
            )

    def _fill(self, n_frames: int) -> None:
        """Decode until that many frames are ready, or the recording ends."""
        frame_bytes = self.channels * self.bits // 8
        have, blocks = len(self._ready), [self._ready] if len(self._ready) else []
        n_calls = max(1, self._ahead // n_frames)
        while have < n_frames:
            wanted = min(n_frames * n_calls - have, PIECE // frame_bytes)
            if self.frames is not None:
                wanted = min(wanted, self.frames - self._position)
            content = self._source.take(wanted * frame_bytes)
            n = len(content) // frame_bytes
            blocks.append(self._decoded(content[: n * frame_bytes]))
            have += n
            self._position += n
            if n < wanted or n == 0:
                break
        if have == 0 and self.frames is not None and self._position < self.frames:
            left = self.frames - self._position
            says = f"{left} more frames of {self.frames}, but the recording ends"
            raise self._source.fault(self._source.offset, says)
        self._ready = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def _decoded(self, content: memoryview) -> npt.NDArray[Any]:
        bits = self.bits
        if bits == 24:  # to the upper bytes of 32 bits
            wide = np.zeros((len(content) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
            samples, bits = wide.view("<i4"), 32
        else:
            samples = np.frombuffer(content, f"<{'f' if self.floating else 'i'}{bits // 8}")
        if bits == 8:  # zero is 128
            samples = samples ^ np.int8(-128)
        if self.dtype == "int16":
            decoded = samples.astype(np.int16) * np.int16(2 ** (16 - bits))
        elif self.floating:
            with np.errstate(all="ignore"):
                decoded = samples.astype(np.float32)
        else:
            decoded = np.multiply(samples, np.float32(2.0 ** (1 - bits)), dtype=np.float32)
        frames: npt.NDArray[Any] = decoded.reshape(-1, self.channels)
        return frames


def _text(name: bytes) -> str:
    """Return a chunk's name for messages: what is no printable character becomes a question mark."""
    return "".join(chr(c) if 0x20 <= c < 0x7F else "?" for c in name)
