"""Files of wav2letter@anywhere: modules that cereal has written, of which nothing is believed.

A file is one pointer to a module, in the order of bytes of x86. A pointer begins with a word that says what type
the object has (the name follows the first time, with the highest bit set), then with the object's own number,
behind which the object stands if the highest bit is set. Packed matrices have eight numbers, of which the first
two are the sizes, and halves, row by row.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import nn
from ..errors import FormatError, ShapeError
from .tds import BandConv1d, LocalNorm, Mfsc, Residual, ScalarNorm

_NEW, _SAME_TYPE = 1 << 31, 1 << 30
_FLOAT = 1
_DEEPEST = 50
_LONGEST = 4096  # frames of a context, or of zeros
_MOST_FILTERS = 1 << 24  # bands by frequencies
_NAME = "w2l::streaming::"


def is_serialized(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as such a pointer does."""
    with open(path, "rb") as file:
        return file.read(8) == struct.pack("<II", _SAME_TYPE, _NEW | 1)


class Recogniser(nn.Sequential):
    """Features and an acoustic model, one after the other."""

    spec: tuple[str | int, ...]  #: What `dreamstream.compile` wants to know of the input.
    rate: int  #: Samples, or else frames of features, per second.


def load_wav2letter(acoustic_model: str | os.PathLike[str], features: Any = None) -> Recogniser:
    """Return the network of a file that wav2letter@anywhere has serialized.

    Parameters
    ----------
    acoustic_model : path
        As ``acoustic_model.bin``.
    features : path, optional
        As ``feature_extractor.bin``. Without it the input is what that gives, 100 frames a second.

    Returns
    -------
    Recogniser
        In evaluation, with weights as they are in the file: numbers of 16 bits, but for biases and norms. Input
        ``(B, L)``, samples within ±1, or ``(B, L, F)``; output scores ``(B, frames, tokens)``.

    Raises
    ------
    FormatError
        For what is no such file, is cut short, or holds what does not fit together; it says where.
    """
    model, taken, _ = _read(acoustic_model)
    if taken is None or isinstance(model[0], Mfsc):
        what = "begins with features, which have a file of their own" if taken else "has none"
        raise FormatError(f"{os.fspath(acoustic_model)}: an acoustic model has layers with sizes, this one {what}")
    if features is None:
        net = Recogniser(*model)
        net.spec, net.rate = ("B", "L", taken), 100
        return net.eval()
    front, _, given = _read(features)
    if not len(front) or not isinstance(front[0], Mfsc):
        raise FormatError(f"{os.fspath(features)}: expected features of samples first, LogMelFeature")
    if given != taken:
        raise FormatError(
            f"{os.fspath(features)} gives {given} features, {os.fspath(acoustic_model)} takes {taken}"
        )
    net = Recogniser(*front, *model)
    net.spec, net.rate = ("B", "L"), front[0].sample_rate
    return net.eval()


def _read(path: Any) -> tuple[nn.Sequential, int | None, int | None]:
    """Return what a file holds, and how many features it takes and gives, where layers say so."""
    with open(path, "rb") as file:
        content = file.read()
    reader = _Reader(content)
    try:
        found = reader.module()
        if reader.at != len(content):
            raise FormatError(f"{len(content) - reader.at} bytes follow the last")
        if not isinstance(found, nn.Sequential):
            raise FormatError(f"expected a Sequential, got a {type(found).__name__}")
    except (FormatError, ShapeError) as error:
        raise FormatError(f"{os.fspath(path)}: byte {reader.at}: {error}") from error
    return found, reader.taken, reader.width


class _Reader:
    """Reads what cereal has written, from the front, in which order modules also run."""

    def __init__(self, content: bytes) -> None:
        self._content, self.at = content, 0
        self._types: dict[int, str] = {}
        self._objects: dict[int, Any] = {}
        self._depth = 0
        #: Features of a frame, of the first module's input and behind the modules so far; None: none has said so.
        self.taken: int | None = None
        self.width: int | None = None
        #: By how many frames a stream has become shorter, less those that it has become longer; and its stride.
        self._frames = [0, 1]

    def _fits(self, n_in: int, n_out: int) -> None:
        """Note what a module takes and gives; refuse it where those before give anything else."""
        if self.width not in (None, n_in):
            raise FormatError(f"frames of {n_in} features are taken where there are {self.width}")
        self.taken, self.width = self.taken or n_in, n_out

    # ---------------------------------------------------------------- numbers
    def _numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _take(self, n: int) -> bytes:
        if n > len(self._content) - self.at:
            raise FormatError(f"it ends within {n} bytes")
        data = self._content[self.at : self.at + n]
        self.at += n
        return data

    def _bytes(self, size: int = 1) -> bytes:
        (n,) = self._numbers("<Q")
        if n > len(self._content):
            raise FormatError(f"{n} elements are more than the file has")
        return self._take(n * size)

    def _sizes(self, form: str, most: int = 1 << 24) -> tuple[int, ...]:
        sizes = self._numbers(form)
        if any(not 0 <= n <= most for n in sizes):
            raise FormatError(f"sizes of {sizes}, of which none is above {most}")
        return sizes

    # ---------------------------------------------------------------- pointers
    def _pointer(self, read: Callable[[], Any], again: bool = True) -> Any:
        """Return the object of a pointer; what it is, `read` reads. Without `again` it must be a new one."""
        (number,) = self._numbers("<I")
        if number & _NEW:
            self._objects[number & ~_NEW] = found = read()
            return found
        if number not in self._objects:
            raise FormatError(f"object {number} has not come" if number else "a pointer to nothing")
        if not again:
            raise FormatError(f"object {number} stands in a second place, where a module of its own does")
        return self._objects[number]

    def _known(self, found: Any, kind: type) -> Any:
        if not isinstance(found, kind):
            raise FormatError(f"expected a {kind.__name__}, the object is a {type(found).__name__}")
        return found

    def module(self, kind: str = "") -> nn.Module:
        """Return a module; `kind` is its type where that is known before."""
        (number,) = self._numbers("<I")
        if number == _SAME_TYPE and kind:
            name = kind
        elif number & _NEW:
            name = self._types[number & ~_NEW] = self._bytes().decode("ascii", "replace").removeprefix(_NAME)
        else:
            # A whole file is a pointer to a Sequential, and says so by this word alone.
            name = "Sequential" if number == _SAME_TYPE else self._types.get(number, "")
        if name not in _READERS:
            raise FormatError(f"a module of type {name[:60]!r}; known are {', '.join(_READERS)}")
        if self._depth == _DEEPEST:
            raise FormatError(f"modules in modules, {_DEEPEST} deep")
        self._depth += 1
        found: nn.Module = self._known(self._pointer(lambda: _READERS[name](self), again=False), nn.Module)
        self._depth -= 1
        return found

    # ---------------------------------------------------------------- modules
    def sequential(self) -> nn.Sequential:
        (n,) = self._numbers("<Q")
        if n > (len(self._content) - self.at) // 4:
            raise FormatError(f"{n} modules are more than the file has")
        return nn.Sequential(*(self.module() for _ in range(n)))

    def block(self) -> nn.Sequential:
        found = self.sequential()
        for _ in range(2):
            self._of_floats()
        return found

    def residual(self) -> nn.Module:
        before = self.width, list(self._frames)
        inner = self.module()
        if (before[0] or self.taken, before[1]) != (self.width, self._frames):
            raise FormatError("a residual whose module changes the number of features or of frames")
        self._of_floats()
        self.module("Identity")
        return Residual(*inner) if isinstance(inner, nn.Sequential) else Residual(inner)

    def relu(self) -> nn.Module:
        self._of_floats()
        return nn.ReLU()

    def scalar_norm(self) -> nn.Module:
        (n,) = self._sizes("<i")
        self._fits(n, n)
        found = ScalarNorm()
        both = _finite(np.array(self._numbers("<ff"), np.float32))
        _fill(found.weight, both[:1])
        _fill(found.bias, both[1:])
        return found

    def local_norm(self) -> nn.Module:
        n, left, right = self._sizes("<iii", _LONGEST)
        self._fits(n, n)
        if right:
            raise FormatError("a LocalNorm that looks ahead does not stream")
        return LocalNorm(left)

    def features(self) -> nn.Module:
        n_mels, frame, shift = self._sizes("<iii", 2000)
        (rate,) = self._sizes("<i", 192_000)
        if n_mels * frame * rate > 2000 * _MOST_FILTERS:
            raise FormatError(f"features of {n_mels} bands in windows of {frame} ms at {rate} Hz")
        self.width = n_mels
        return Mfsc(n_mels, frame, shift, rate)

    def convolution(self) -> nn.Module:
        groups, n_in, n_out, kernel, stride, right, left = self._sizes("<7I")
        if not groups or n_in % groups or n_out % groups or not n_in or not n_out or not kernel or not stride:
            raise FormatError(f"a convolution of {n_in} to {n_out} channels in {groups} groups")
        if max(left, right) > _LONGEST:
            raise FormatError(f"a convolution with {left} and {right} frames of zeros")
        self._fits(n_in, n_out)
        self._frames = [self._frames[0] + kernel - 1 - left - right, self._frames[1] * stride]
        n_in, n_out = n_in // groups, n_out // groups
        bias = self._parameter(n_out)
        packed = self._packed(kernel * n_in, n_out)
        found = BandConv1d(n_in, n_out, kernel, stride, (left, right), groups)
        weight = packed.reshape(kernel, n_in, n_out).transpose(2, 1, 0)
        _fill(found.conv.weight, weight[..., None])
        _fill(found.conv.bias, bias)
        return found

    def linear(self) -> nn.Module:
        n_in, n_out = self._sizes("<II")
        self._fits(n_in, n_out)
        bias = self._parameter(n_out)
        packed = self._packed(n_in, n_out)
        found = nn.Linear(n_in, n_out)
        _fill(found.weight, packed.T)
        _fill(found.bias, bias)
        return found

    # ---------------------------------------------------------------- weights
    def _of_floats(self) -> None:
        (kind,) = self._numbers("<I")
        if kind != _FLOAT:
            raise FormatError(f"expected floats of 32 bits, type {_FLOAT}, got type {kind}")

    def _parameter(self, n: int) -> npt.NDArray[Any]:
        """Return an array of n floats."""

        def read() -> npt.NDArray[Any]:
            self._of_floats()
            data = self._bytes()
            begin, end = self._numbers("<II")
            self._bytes()
            if not begin <= end <= len(data) or (end - begin) % 4:
                raise FormatError(f"floats from byte {begin} to {end} of {len(data)}")
            return np.frombuffer(data[begin:end], "<f4")

        found: npt.NDArray[Any] = self._known(self._pointer(read), np.ndarray)
        if found.shape != (n,):
            raise FormatError(f"expected {n} floats, got {found.size}")
        return _finite(found)

    def _packed(self, rows: int, columns: int) -> npt.NDArray[Any]:
        """Return a matrix."""
        given = self._sizes("<8i")
        if given[:2] != (rows, columns):
            raise FormatError(f"expected a matrix of {rows} x {columns}, got one of {given[0]} x {given[1]}")
        data = np.frombuffer(self._bytes(2), "<f2")
        if data.size < rows * columns:
            raise FormatError(f"{data.size} numbers are not {rows} x {columns}")
        return _finite(data[: rows * columns].astype(np.float32)).reshape(rows, columns)


_READERS: dict[str, Callable[[_Reader], nn.Module]] = {
    "Sequential": _Reader.sequential,
    "TDSBlock": _Reader.block,
    "Residual": _Reader.residual,
    "Identity": lambda _: nn.Identity(),
    "Relu": _Reader.relu,
    "LayerNorm": _Reader.scalar_norm,
    "LocalNorm": _Reader.local_norm,
    "LogMelFeature": _Reader.features,
    "Conv1dFbGemm": _Reader.convolution,
    "LinearFbGemm": _Reader.linear,
}


def _finite(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not np.isfinite(x).all():
        raise FormatError("weights that are infinite or none")
    return x


def _fill(parameter: Any, values: npt.NDArray[Any]) -> None:
    parameter.numpy()[...] = values
