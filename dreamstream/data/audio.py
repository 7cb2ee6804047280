"""Audio files: WAV by a reader of our own, all else by `soundfile` where it is installed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..array import tensor
from ..errors import DTypeError, FormatError, ShapeError
from ..nn import functional as F
from .wav import WavReader

Array = npt.NDArray[Any]

BLOCK = 1 << 16  # frames that are asked for at once where all of a recording is wanted
FOREIGN = "got format 0x"  # what the WAV reader says of a codec that it does not know


class _Decoder(Protocol):
    """What reads frames, front to back."""

    @property
    def sample_rate(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def frames(self) -> int | None: ...
    def read(self, n_frames: int) -> Array: ...
    def close(self) -> None: ...


class AudioReader:
    """A recording, read front to back in pieces of any size.

    WAV files (integers of 8 to 32 bits, floating point, RF64, recordings that are still being written) are
    read by DreamStream itself; other formats and codecs by `soundfile`, where it is installed.

    Parameters
    ----------
    source : str, path, bytes or file object
        A path, the file's content, or an object with ``read(n)`` that gives bytes: a socket, a pipe. One
        that can't go back must give WAV.
    mono : bool
        Whether channels are averaged into one.
    dtype : {"float32", "int16"}
        Type of the samples. float32 lies in [-1, 1]; int16 is what a WAV file of 16 bits holds, exactly.

    Attributes
    ----------
    sample_rate : int
        Frames per second.
    channels : int
        Of the recording, whatever `mono` is.
    frames : int or None
        Of the whole recording; None where it lasts until its source ends.

    Raises
    ------
    FormatError
        Where this is no recording, or a broken one; the message names the file and the offset.
    OSError
        Where the file can't be opened or read.
    DTypeError
        For int16 where that is not exact.

    Examples
    --------
    >>> from importlib import resources
    >>> with AudioReader(resources.files("dreamstream") / "assets" / "speech.wav") as speech:
    ...     sizes = [len(chunk) for chunk in speech.chunks(40000)]
    >>> speech.sample_rate, speech.frames, sizes
    (16000, 148323, [40000, 40000, 40000, 28323])
    """

    def __init__(self, source: Any, mono: bool = True, dtype: str = "float32") -> None:
        if dtype not in ("float32", "int16"):
            raise DTypeError(f"samples are float32 or int16, got {dtype!r}")
        self.mono = mono
        self.dtype = dtype
        self._decoder = _open(source, dtype)
        self.sample_rate: int = self._decoder.sample_rate
        self.channels: int = self._decoder.channels
        self.frames: int | None = self._decoder.frames
        if mono and self.channels > 1 and dtype == "int16":
            self.close()
            raise DTypeError(f"the mean of {self.channels} channels is no int16; read float32, or give mono=False")

    def read(self, n_frames: int | None = None) -> Array:
        """Return the next frames, or all that are left.

        Parameters
        ----------
        n_frames : int, optional
            The most that are returned; fewer come at the end only.

        Returns
        -------
        array
            ``(frames,)``, or with ``mono=False`` ``(frames, channels)``.
        """
        if n_frames is not None:
            return self._mixed(self._decoder.read(n_frames))
        blocks = [self._decoder.read(BLOCK)]  # what a header promises is not believed
        while len(blocks[-1]):
            blocks.append(self._decoder.read(BLOCK))
        return self._mixed(np.concatenate(blocks))

    def chunks(self, n_frames: int) -> Iterator[Array]:
        """Yield what is left in pieces of `n_frames`, the last of which may be shorter; none is empty."""
        if n_frames < 1:
            raise ShapeError(f"chunks must have at least 1 frame, got {n_frames}")
        return self._chunks(n_frames)

    def _chunks(self, n_frames: int) -> Iterator[Array]:
        while len(chunk := self.read(n_frames)):
            yield chunk

    def _mixed(self, frames: Array) -> Array:
        if not self.mono:
            return frames
        if self.channels == 1:
            return frames[:, 0]
        mixed: Array = frames.mean(axis=1, dtype=np.float64).astype(np.float32)
        return mixed

    def close(self) -> None:
        """Close what was opened here; a file object of the caller's stays open."""
        self._decoder.close()

    def __enter__(self) -> AudioReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_audio(source: Any, sample_rate: int | None = None, mono: bool = True) -> tuple[Array, int]:
    """Read a whole recording.

    Parameters
    ----------
    source : str, path, bytes or file object
        As in `AudioReader`.
    sample_rate : int, optional
        The rate that is wanted: other recordings are resampled (`nn.Resample`).
    mono : bool
        Whether channels are averaged into one.

    Returns
    -------
    array
        float32, ``(frames,)``, or with ``mono=False`` ``(frames, channels)``.
    int
        Frames per second.
    """
    with AudioReader(source, mono) as reader:
        samples, rate = reader.read(), reader.sample_rate
    if sample_rate is None or sample_rate == rate:
        return samples, rate
    resampled = F.resample(tensor(np.ascontiguousarray(samples.T)), rate, sample_rate)
    return np.ascontiguousarray(resampled.numpy().T), sample_rate


# ---------------------------------------------------------------------- who reads it
def _open(source: Any, dtype: str) -> _Decoder:
    head = _head(source)
    if head is None:
        return WavReader(source, dtype)
    if head[:4] not in (b"RIFF", b"RF64", b"BW64") or head[8:12] != b"WAVE":
        return _SoundFile(source, dtype)
    at = source.tell() if hasattr(source, "tell") else None
    try:
        return WavReader(source, dtype)
    except FormatError as error:
        if FOREIGN not in str(error):
            raise
    if at is not None:
        source.seek(at)
    return _SoundFile(source, dtype)


def _head(source: Any) -> bytes | None:
    """Return a recording's first bytes; None where they could not be read again."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(memoryview(source).cast("B")[:12])
    if isinstance(source, (str, os.PathLike)):
        if not os.path.isfile(source):  # a pipe; or nothing, which the reader will say
            return None
        with open(source, "rb") as file:
            return file.read(12)
    try:
        if not source.seekable():
            return None
    except AttributeError:
        return None
    at = source.tell()
    head = source.read(12)
    source.seek(at)
    return head if isinstance(head, bytes) else None


class _SoundFile:
    """`soundfile`, as a decoder."""

    def __init__(self, source: Any, dtype: str) -> None:
        self._dtype = dtype
        name = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "recording")
        self._name = os.fspath(name) if isinstance(name, os.PathLike) else str(name)
        try:
            import soundfile
        except ImportError:
            raise FormatError(
                f"{self._name}: no WAV file of integers or floating point; others are read by soundfile: "
                "pip install soundfile"
            ) from None
        self._error = soundfile.LibsndfileError
        try:
            whole = isinstance(source, (bytes, bytearray, memoryview))
            self._file = soundfile.SoundFile(io.BytesIO(source) if whole else source)
        except self._error as error:
            raise FormatError(f"{self._name}: soundfile reads no audio in it: {error.error_string}") from None
        self.sample_rate: int = self._file.samplerate
        self.channels: int = self._file.channels
        self.frames: int | None = self._file.frames

    def read(self, n_frames: int) -> Array:
        if n_frames < 0:
            raise ShapeError(f"expected a number of frames, got {n_frames}")
        if self._dtype == "int16" and self._file.subtype not in ("PCM_16", "PCM_S8", "PCM_U8"):
            raise DTypeError(f"{self._name}: {self._file.subtype} is no int16; read float32")
        try:
            frames: Array = self._file.read(n_frames, dtype=self._dtype, always_2d=True)
        except self._error as error:
            raise FormatError(f"{self._name}: {error.error_string}") from None
        return frames

    def close(self) -> None:
        self._file.close()
