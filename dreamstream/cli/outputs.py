"""Files that hold what came out of a model, written as it comes."""

from __future__ import annotations

import csv
import errno
import io
import os
import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ..data.values import in_frames, in_pairs
from ..errors import FormatError
from .audio_file import AudioFile

MOST_CHANNELS = 8
LEAST_RATE = 1000  # Hz, of what may be samples
MOST_IN_RIFF = 2**32 - 2**17  # bytes of a WAV file with sizes of 32 bits; those nearer to 2^32 mean "unknown"
NPY_HEADER = 256  # bytes, room for any number of frames


def check_path(path: str, inputs: Sequence[str]) -> None:
    """Raise where a file can't be written there, or is one of those that are read; before all the work."""
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise FileNotFoundError(f"there is no folder {os.path.dirname(path)} for {path}")
    for name in inputs:
        name = "/dev/stdin" if name == "-" else name
        if os.path.exists(path) and os.path.exists(name) and os.path.samefile(path, name):
            raise FormatError(f"{path} is read from; give another file for what is written")


def open_output(path: str, files: Sequence[AudioFile], integers: bool) -> Output:
    """Begin a file for all outputs of all files.

    A ``.npz`` file holds an array per file, named by its path, and by its path and the output's name where a model
    has several. A ``.npy`` file holds the array of a single one. A ``.csv`` file has a line per frame: file, start
    in seconds, values (of the first output; complex ones as pairs). A ``.wav`` file holds samples in float32, or
    with `integers` in 16 bits, where what is beyond ±1 is cut off.

    FormatError is raised where what the files give can't be written so, and OSError where the file can't be
    written.
    """
    kind = os.path.splitext(path)[1]
    n_arrays = sum(len(file.engine.outputs) for file in files)
    if kind == ".npy" and n_arrays > 1:
        raise FormatError(f"{path} can hold one array, not {n_arrays}; give a .npz file")
    if kind == ".wav":
        if n_arrays > 1:
            raise FormatError(f"{path} can hold one output of one file, not {n_arrays}; give a .npz file")
        info = files[0].engine.outputs[0]
        sizes = [d for d in info.dimensions if isinstance(d, int)]
        samples = info.dtype == "float32" and info.rate >= LEAST_RATE and info.rate.denominator == 1
        if not samples or len(sizes) > 1 or max(sizes, default=1) > MOST_CHANNELS:
            raise FormatError(
                f"{path} takes samples, and the output is {info.dimensions} {info.dtype} at {info.rate} frames a "
                "second; give a .npz, .npy or .csv file"
            )
        return _Wav(path, int(info.rate), max(sizes, default=1), integers)
    return {".npy": _Npy, ".npz": _Npz, ".csv": _Csv}[kind](path)


class Output:
    """A file that can be read at any time, and holds what was added so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.frames = 0  #: Frames that were written so far, of all outputs that it holds.
        self.beyond = 0  #: How many samples were beyond full scale.
        self._n_bytes = 0  # of the file, where it was whole last
        try:
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115  # closed by `close`
            self._whole = self._file.seekable()  # whether it is a file, of which parts can be written again
        except OSError as error:
            error.filename = path
            raise

    def keeps(self, file: AudioFile) -> bool:
        """Whether all that comes of a file is needed until it has ended."""
        return False

    def add(self, file: AudioFile) -> None:
        """Write what a file's last step gave."""
        raise NotImplementedError

    def finish(self, files: Sequence[AudioFile]) -> None:
        """Write what could not be written before: no more comes of these files."""

    def close(self) -> None:
        """Close the file; one without a frame in it is removed where an error comes in between."""
        self._file.close()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.close()
        if kind is not None and self.frames == 0 and os.path.isfile(self.path):
            with suppress(OSError):
                os.unlink(self.path)

    @contextmanager
    def _or_as_before(self, end: bytes = b"") -> Iterator[None]:
        """Where an error comes in between, leave what was whole, and this end of it; an OSError names the file."""
        try:
            yield
        except BaseException as error:
            with suppress(OSError):
                self._file.truncate(self._n_bytes)
                self._file.seek(self._n_bytes)
                self._file.write(end)
            if isinstance(error, OSError):
                error.filename = self.path
            raise

    def _append(self, content: bytes, header: bytes = b"") -> None:
        """Write at the end, and a header anew: all of it, or nothing."""
        with self._or_as_before():
            if header and self._n_bytes == 0:
                content = header + content
            left = memoryview(content)
            while len(left):
                n = self._file.write(left)
                if not n:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                left = left[n:]
            self._n_bytes += len(content)
            if header and self._whole:
                self._file.seek(0)
                self._file.write(header)
                self._file.seek(self._n_bytes)


class _Csv(Output):
    def add(self, file: AudioFile) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        frames = in_pairs(in_frames(file.new[0], file.engine.stream_axis(0)))
        rate = file.engine.outputs[0].rate
        for i, frame in enumerate(frames, file.frames(0) - len(frames)):
            start = float(i / rate) if rate else 0.0
            writer.writerow([file.path, f"{start:.6f}", *np.ravel(frame).tolist()])
        self._append(text.getvalue().encode(errors="surrogateescape"))  # names of files are any bytes
        self.frames += len(frames)


class _Wav(Output):
    """Samples; RF64 where there are more bytes than RIFF can count."""

    def __init__(self, path: str, rate: int, channels: int, integers: bool) -> None:
        super().__init__(path)
        self._rate, self._channels, self._integers = rate, channels, integers

    def add(self, file: AudioFile) -> None:
        frames = in_frames(file.new[0], file.engine.stream_axis(0)).reshape(-1, self._channels)
        beyond = int(np.count_nonzero(~(np.abs(frames) <= 1)))
        if self._integers:
            frames = np.rint(np.clip(np.nan_to_num(frames, nan=0.0), -1, 32767 / 32768) * 32768)
        content = frames.astype("<i2" if self._integers else "<f4").tobytes()
        self._append(content, self._header(self.frames + len(frames) if self._whole else None))
        self.frames += len(frames)
        self.beyond += beyond

    def _header(self, n_frames: int | None) -> bytes:
        """Return a header of always the same length; of None frames for a pipe, that lasts until its end."""
        bits = 16 if self._integers else 32
        frame_bytes = self._channels * bits // 8
        data_bytes = 0 if n_frames is None else n_frames * frame_bytes
        kind, byte_rate = 1 if self._integers else 3, self._rate * frame_bytes
        form = (kind, self._channels, self._rate, byte_rate, frame_bytes, bits)
        middle = b"fmt " + struct.pack("<IHHIIHHH", 18, *form, 0)
        riff_bytes = 4 + 36 + len(middle) + 12 + 8 + data_bytes
        if n_frames is not None and riff_bytes <= MOST_IN_RIFF:
            head = struct.pack("<4sI4s4sI28x", b"RIFF", riff_bytes, b"WAVE", b"JUNK", 28)
            return head + middle + struct.pack("<4sII4sI", b"fact", 4, n_frames, b"data", data_bytes)
        unknown = 2**32 - 1
        if n_frames is None:
            head = struct.pack("<4sI4s4sI28x", b"RIFF", unknown, b"WAVE", b"JUNK", 28)
        else:
            sizes = (28, riff_bytes, data_bytes, n_frames, 0)
            head = struct.pack("<4sI4s4sIQQQI", b"RF64", unknown, b"WAVE", b"ds64", *sizes)
        return head + middle + struct.pack("<4sII4sI", b"fact", 4, unknown, b"data", unknown)


class _Npy(Output):
    """One array, whose frames follow each other: along the first axis, or the last one in Fortran's order."""

    def keeps(self, file: AudioFile) -> bool:
        return file.engine.stream_axis(0) not in (0, file.n_axes(0) - 1)

    def add(self, file: AudioFile) -> None:
        if self.keeps(file):
            return
        axis, new = file.engine.stream_axis(0), file.new[0]
        shape = list(new.shape)
        shape[axis] += self.frames
        self._append((new if axis == 0 else new.T).tobytes(), _npy_header(new.dtype, tuple(shape), axis > 0))
        self.frames += new.shape[axis]

    def finish(self, files: Sequence[AudioFile]) -> None:
        if self.keeps(files[0]):
            array = files[0].output(0)
            self._append(array.tobytes(), _npy_header(array.dtype, array.shape, False))
            self.frames = files[0].frames(0)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool) -> bytes:
    """Return a header of always the same length; NumPy's own grow with the shape's digits."""
    text = repr({"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape})
    n_bytes = NPY_HEADER - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", n_bytes) + text.ljust(n_bytes - 1).encode() + b"\n"


class _Npz(Output):
    """A file's arrays, once it has ended; the archive's directory, which is its end, is written anew each time."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._directory = b"PK\5\6" + bytes(18)  # of no arrays: what a process that is killed leaves can be read
        self._append(self._directory)
        self._n_bytes = 0

    def keeps(self, file: AudioFile) -> bool:
        return True

    def add(self, file: AudioFile) -> None:
        if file.ended:
            self._write(file)

    def finish(self, files: Sequence[AudioFile]) -> None:
        for file in files:
            if not file.ended and file.new:
                self._write(file)

    def _write(self, file: AudioFile) -> None:
        with self._or_as_before(self._directory):
            with zipfile.ZipFile(self.path, "a") as archive:
                for k, info in enumerate(file.engine.outputs):
                    name = file.path if len(file.engine.outputs) == 1 else f"{file.path}:{info.name}"
                    name = name.encode(errors="backslashreplace").decode()  # of an archive, which has UTF-8 alone
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, file.output(k), allow_pickle=False)
            with zipfile.ZipFile(self.path) as archive, open(self.path, "rb") as written:
                self._n_bytes = archive.start_dir
                written.seek(self._n_bytes)
                self._directory = written.read()
            self.frames += file.frames(0)
