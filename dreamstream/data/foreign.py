"""Recordings that `soundfile` reads, where it is installed: FLAC, Ogg, MP3, AIFF, codecs within WAV, and others.

To libsndfile a file that was cut short is a shorter file. So what its header promises is looked up here, and held
against what came.
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ClosedError, DTypeError, FormatError, ShapeError
from .source import PIECE, Source
from .wav import NEAR, is_unknown

BEGIN = 1024  # bytes of a recording that are looked at
UNKNOWN = 2**62  # frames; libsndfile gives more where it doesn't know how many there are
LAST_PAGE = 1 << 16  # bytes at the end of an Ogg file that hold the head of its last page
LENGTH_TAGS = (b"Xing", b"Info", b"VBRI")  # one of them holds the number of an MP3's frames


def promised_end(source: Source) -> int | None:
    """Return the offset at which a recording ends by its header; None where that doesn't say so."""
    begin = source.peek(BEGIN)
    form = begin[:4]
    if form == b"OggS":
        return _end_of_last_page(source)
    if form == b"caff":
        return _end_of_caf(source.again())
    if form == b"Crea":
        return _end_of_voc(source.again())
    if form in (b"FORM", b"RIFX"):  # AIFF, 8SVX; WAV of big-endian numbers
        size = int.from_bytes(begin[4:8], "big")
        return None if size == 0 or is_unknown(size) or 0 <= size - 0x7F000000 <= NEAR else 8 + size
    if form == b".snd":  # AU
        offset, size = (int.from_bytes(begin[k : k + 4], "big") for k in (4, 8))
        return None if is_unknown(size) else offset + size
    if begin[:8] == b"riff\x2e\x91\xcf\x11":  # W64
        size = int.from_bytes(begin[16:24], "little")
        return None if size == 0 or is_unknown(size) else size
    if form == b"NIST":  # Sphere
        lines = dict(re.findall(rb"^(\w+) -i (\d+)\s*$", begin, re.MULTILINE))
        numbers = [int(lines.get(key, 0)) for key in (b"sample_count", b"channel_count", b"sample_n_bytes")]
        header = begin[8:16].strip()
        size = int(np.prod(numbers, dtype=object))
        return int(header) + size if header.isdigit() and size and b"shorten" not in begin else None
    return None


class SoundFileReader:
    """Frames as `soundfile` reads them, held against what the header promises.

    The `source` is closed with the reader. By its header the recording ends at the offset `end`. `why` is the
    reason that it is not for the reader of WAV files.
    """

    def __init__(self, source: Source, dtype: str, end: int | None, why: str = "") -> None:
        self._dtype = dtype
        self._source = source
        self._end = end
        self._position = 0
        try:
            import soundfile
        except ImportError:
            text = why or f"{source.name}: no WAV file of integers or floating point"
            raise FormatError(f"{text}; others are read by soundfile: pip install soundfile") from None

        class FrontToBack(soundfile.SoundFile):  # type: ignore[misc]
            """Reads without seeking, which fails in files of unknown length, and changes MP3's values."""

            def seekable(self) -> bool:
                return False

        self._error = soundfile.LibsndfileError
        try:
            self._file = FrontToBack(source.again())
            if self._file.format == "MP3":
                self._file.close()
                known = _holds_length(source.again())
                self._file = FrontToBack(source.again() if known else _piped(source.again()))
        except self._error as error:
            text = why or f"{source.name}: no WAV file"
            raise FormatError(f"{text}; soundfile reads no audio in it: {error.error_string}") from None
        self.sample_rate: int = self._file.samplerate
        self.channels: int = self._file.channels
        self.frames: int | None = self._file.frames if self._file.frames < UNKNOWN else None

    def read(self, n_frames: int) -> npt.NDArray[Any]:
        """Return the next frames, ``(frames, channels)``; fewer at the end, and before a fault."""
        if self._file.closed:
            raise ClosedError(f"{self._source.name}: the reader was closed")
        if n_frames < 0:
            raise ShapeError(f"expected a number of frames, got {n_frames}")
        if self._dtype == "int16" and self._file.subtype not in ("PCM_16", "PCM_S8", "PCM_U8"):
            raise DTypeError(f"{self._source.name}: {self._file.subtype} is no int16; read float32")
        try:
            frames: npt.NDArray[Any] = self._file.read(n_frames, dtype=self._dtype, always_2d=True)
        except self._error as error:
            what = "frames" if self.frames is None else f"frames of {self.frames}"
            raise self._fault(f"more {what} than {self._position}, but soundfile: {error.error_string}") from None
        self._position += len(frames)
        if n_frames and not len(frames):
            self._check_end()
        return frames

    def _check_end(self) -> None:
        if self.frames is not None and self._position < self.frames:
            left = self.frames - self._position
            raise self._fault(f"{left} more frames of {self.frames}, but the recording ends")
        if self._end is not None and self._source.size() < self._end:
            raise self._fault(f"{self._end - self._source.size()} more bytes, but the recording ends")

    def _fault(self, expected: str) -> FormatError:
        return self._source.fault(self._source.size(), expected)

    def close(self) -> None:
        """Close the decoder and the source."""
        self._file.close()
        self._source.close()


def _end_of_last_page(source: Source) -> int | None:
    """Return where the last page of an Ogg file ends by its own head; None where no head is found."""
    file, n_bytes = source.again(), source.size()
    begin = max(0, n_bytes - LAST_PAGE)
    file.seek(begin)
    content: bytes = file.read()
    at = content.rfind(b"OggS")
    if at < 0:
        return None
    head = content[at : at + 27]
    segments = content[at + 27 : at + 27 + head[26]] if len(head) == 27 else b""
    complete = len(head) == 27 and len(segments) == head[26]
    return begin + at + 27 + len(segments) + sum(segments) if complete else n_bytes + 1


def _end_of_caf(file: Any) -> int | None:
    """Return where the samples of a CAF file end; None where its header doesn't say so."""
    at = 8
    while True:
        file.seek(at)
        head: bytes = file.read(12)
        n_bytes = int.from_bytes(head[4:], "big", signed=True)
        if len(head) < 12 or n_bytes < 0:
            return None
        at += 12 + n_bytes
        if head[:4] == b"data":
            return at


def _end_of_voc(file: Any) -> int | None:
    """Return where the blocks of a VOC file end; the last is of type 0 and has no size, or may be missing."""
    file.seek(20)
    at = int.from_bytes(file.read(2), "little")
    while True:
        file.seek(at)
        head: bytes = file.read(4)
        if not head:
            return at
        if head[:1] == b"\0":
            return at + 1
        at += 4 + int.from_bytes(head[1:], "little")
        if len(head) < 4 or file.seek(0, os.SEEK_END) < at:
            return at


def _holds_length(file: Any) -> bool:
    """Whether an MP3's first frame, behind a tag of ID3, holds their number; libsndfile guesses otherwise."""
    file.seek(_behind_tag(file))
    frame: bytes = file.read(256)
    return any(tag in frame for tag in LENGTH_TAGS)


def _behind_tag(file: Any) -> int:
    """Return where a tag of ID3 at a file's beginning ends; its size is a number of four times 7 bits."""
    head: bytes = file.read(10)
    if head[:3] != b"ID3" or len(head) < 10:
        return 0
    a, b, c, d = head[6:]
    return 10 + (a << 21 | b << 14 | c << 7 | d)


def _piped(file: Any) -> int:
    """Return the end of a pipe that gives a file's bytes: of a pipe, libsndfile reads all of an MP3."""
    begin, end = os.pipe()

    def feed() -> None:
        try:
            with open(end, "wb", buffering=0) as pipe:
                while piece := file.read(PIECE):
                    pipe.write(piece)
        except (OSError, ValueError):
            return  # the reader was closed

    threading.Thread(target=feed, daemon=True).start()
    return begin
