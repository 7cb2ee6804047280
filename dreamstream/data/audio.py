"""Audio files: WAV by a reader of our own, all else by `soundfile` where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..array import tensor
from ..errors import DTypeError, ShapeError
from ..nn import functional as F
from .foreign import SoundFileReader, promised_end
from .source import Source
from .wav import OtherCodec, WavReader

Array = npt.NDArray[Any]

BLOCK = 1 << 16  # frames that are asked for at once where all of a recording is wanted


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

    WAV files (integers of up to 32 bits, floating point, RF64, recordings that are still being written) are
    read by DreamStream itself; other formats and codecs by `soundfile`, where it is installed.

    Parameters
    ----------
    source : str, path, bytes or file object
        A path, ``"-"`` for standard input, the file's content, or an object with ``read(n)`` that gives bytes: a
        socket, a pipe. WAV is read as it comes; other formats are read to the end first where the source can't go
        back.
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
        Where this is no recording, or a broken one, or it ends before its header says; the message names the
        file and the offset.
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
            The most that are returned. Fewer come at the end, and where the recording breaks off, which the next
            call raises: it has ended where none come.

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

    def __exit__(self, *_: Any) -> None:
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
def _open(given: Any, dtype: str) -> _Decoder:
    source = Source(given)
    try:
        form = source.peek(4)
        if not form:
            raise source.fault(0, "a recording, got nothing")
        if form not in (b"RIFF", b"RF64", b"BW64"):
            return SoundFileReader(source, dtype, promised_end(source))
        try:
            return WavReader(source, dtype)
        except OtherCodec as error:
            return SoundFileReader(source, dtype, error.end, str(error))
    except BaseException:
        source.close()
        raise
