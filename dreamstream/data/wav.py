"""WAV files, read front to back.

Read: RIFF, and RF64 or BW64 with its 64-bit sizes; integers of 1 to 32 bits, at the upper end of 1 to 4 bytes
(one byte is unsigned), and floating point of 32 and 64 bits, as such, as WAVE_FORMAT_EXTENSIBLE or as ambisonic
B-format; 1 to 65535 channels; chunks in any order before the samples, unknown ones skipped, odd ones padded. What
else a WAV file can hold (`OtherCodec`) is not for this reader.

A recorder that can't go back leaves a size that it doesn't know: 0, or one near 2^31 or 2^32. Such a recording
lasts until its source ends. Where that is no pipe, a second recording or second samples behind the first are
refused. Bytes at the end that make no whole frame are dropped.

No byte is trusted: what else is found is a FormatError, with the offset, what was expected and what came; and a
source is asked for 256 KiB at most at a time, so that no memory is had for what a header promises.

Source: Microsoft's and IBM's RIFF, WAVEFORMATEX and WAVEFORMATEXTENSIBLE; EBU Tech 3306 (RF64); Martin Leese,
"File Format for B-Format".
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ClosedError, DTypeError, FormatError, ShapeError, StreamBusyError
from .source import PIECE, Source

FORMS = ("RIFF", "RF64", "BW64")
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
SUB_FORMATS = (  # what follows the two bytes of a format in the GUID of a sub-format
    bytes.fromhex("000000001000800000aa00389b71"),
    bytes.fromhex("00002107d3118644c8c1ca000000"),  # ambisonic B-format
)
NEAR = 1 << 16  # how far from 2^31 or 2^32 a size can lie that is unknown: sox leaves 0x7FFFF000, less some bytes
AHEAD = 1 << 14  # samples that are decoded at once where nobody has to wait for them


def is_unknown(n_bytes: int) -> bool:
    """Whether a size is one of those, beside 0, that recorders leave who can't go back."""
    return n_bytes >= 2**62 or any(abs(n_bytes - n) <= NEAR for n in (2**31, 2**32))


class OtherCodec(FormatError):
    """A WAV file, or one that is alike, whose samples are no plain integers or floats."""

    end: int | None = None  #: The offset at which the samples end; None where they last until the source ends.


class WavReader:
    """The frames of a recording, as "float32" or, where that is exact, "int16".

    Integers of b bytes are divided by 2^(8 b - 1), so that full scale is -1 to 1. One call at a time: another one,
    of a second thread or from within the file object, is refused.
    """

    def __init__(self, source: Any, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.frames: int | None = None  # of the whole recording; None: it lasts until the source ends
        self._alone = threading.Lock()
        self._closed = False
        self._position = 0  # frames decoded
        self._source = source if isinstance(source, Source) else Source(source)
        self._other_codec = ""
        self._read_header()
        self._source.forget()
        self._ahead = 0 if self._source.waits else max(1, AHEAD // self.channels)
        self._ready = np.empty((0, self.channels), dtype)  # decoded, and nobody's yet
        self._end_is_checked = not self._source.rewinds

    # ------------------------------------------------------------------ the header
    def _read_header(self) -> None:
        source = self._source
        head = source.take_all(12, "a RIFF header")
        if (form := _text(head[:4])) not in FORMS:
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
        at, head = self._source.offset, bytes(self._source.take(8))
        if len(head) < 8:
            raise self._source.fault(self._source.offset, "a chunk 'data', but the recording ends")
        return at, _text(head[:4]), int.from_bytes(head[4:], "little")

    def _read_ds64(self) -> tuple[int, int]:
        """Return the sizes that don't fit into 32 bits; a table of other chunks' sizes is not needed."""
        at, name, n_bytes = self._next_chunk()
        if name != "ds64" or n_bytes < 28:
            raise self._source.fault(at, f"a chunk 'ds64' of 28 bytes or more, got '{name}' of {n_bytes}")
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
            if n_bytes < 40:
                raise fault(at, f"an extensible chunk 'fmt ' of 40 bytes or more, got {n_bytes}")
            form = int.from_bytes(chunk[24:26], "little") if chunk[26:] in SUB_FORMATS else form
        if channels == 0:
            raise fault(at + 10, "at least 1 channel, got 0")
        if rate == 0:
            raise fault(at + 12, "a sample rate, got 0")
        n = (bits + 7) // 8
        if form not in (PCM, FLOAT):
            expected = f"integer (0x0001) or floating-point (0x0003) samples, got format 0x{form:04X}"
            self._other_codec = f"offset {at + 8}: expected {expected}"
        elif bits not in ((32, 64) if form == FLOAT else range(1, 33)):
            known = "32 or 64 floating-point" if form == FLOAT else "1 to 32"
            self._other_codec = f"offset {at + 22}: expected samples of {known} bits, got {bits}"
        elif frame_bytes not in (0, channels * n):
            expected = f"frames of {channels * n} bytes ({channels} channels of {bits} bits), got {frame_bytes}"
            self._other_codec = f"offset {at + 20}: expected {expected}"
        self.sample_rate: int = rate
        self.channels: int = channels
        self.bits = 8 * n  # that a sample takes
        self.floating = form == FLOAT
        self._source.skip(n_bytes - len(chunk) + n_bytes % 2, "the chunk 'fmt '")

    def _begin_data(self, at: int, n_bytes: int, riff_bytes: int, data_bytes: int | None) -> None:
        source = self._source
        if data_bytes is not None and is_unknown(n_bytes):
            n_bytes = data_bytes
        # where the RIFF chunk goes on behind an empty data chunk, it is empty indeed
        goes_on = not is_unknown(riff_bytes) and riff_bytes > source.offset - 8
        lasts = is_unknown(n_bytes) or (n_bytes == 0 and not goes_on)
        if lasts and source.rewinds and riff_bytes + 8 == source.size():
            lasts = False  # sizes that agree with the file's own are no placeholders, whatever they are
        if self._other_codec:
            error = OtherCodec(f"{source.name}: {self._other_codec}")
            error.end = None if lasts else source.offset + n_bytes
            raise error
        if not lasts:
            self.frames = n_bytes // (self.channels * self.bits // 8)
            self._left_behind = n_bytes % (self.channels * self.bits // 8) + n_bytes % 2

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
            expected = f"{left} more frames of {self.frames}, but the recording ends"
            raise self._source.fault(self._source.offset, expected)
        if have == 0 and not self._end_is_checked:
            self._check_end()
        self._ready = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def _check_end(self) -> None:
        """Look at the chunks behind the samples: whether there are other samples, or another recording."""
        self._end_is_checked = True
        if self.frames is None:
            return
        source, left = self._source, self._left_behind
        while True:
            while left > 0 and (n := len(source.take(min(left, PIECE)))):
                left -= n
            head = bytes(source.take(8))
            if len(head) < 8:
                return
            if (name := _text(head[:4])) in ("data", *FORMS):
                raise source.fault(source.offset - 8, f"the recording's end, got a second '{name}'")
            left = int.from_bytes(head[4:], "little")
            left += left % 2

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
