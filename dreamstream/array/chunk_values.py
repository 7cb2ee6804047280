"""What the numbers of a chunk mean: one answer for engines, stream tensors of both kinds, and the command line.

A chunk is whatever a caller hands over for one stream. `factor` decides by the element types alone; `read_chunk`
makes an array of anything, or raises a DreamStreamError that names input and stream. The table in
docs/howto/inputs.md says the same, and is tested row by row.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DreamStreamError, DTypeError, ShapeError
from .dtypes import name_of

Array = NDArray[Any]
C = TypeVar("C")

_KIND = re.compile(r"b?(float)|u?(int)|(bool)")  # of NumPy's, torch's and ml_dtypes' names
_ADVICE = {
    "uint8": "samples of 8 bits become what is expected by (np.float32(chunk) - 128) / 128",
    "int8": "samples of 8 bits become what is expected by np.float32(chunk) / 128",
    "int16": "16-bit samples become what is expected by chunk.astype(np.float32) / 32768",
    "int32": "samples become what is expected by np.float32(chunk) / 2**31, or / 2**23 where 24 bits fill the "
    "lower bytes",
    "int64": "16-bit samples become what is expected by np.float32(chunk) / 32768",
    "bytes": "16-bit samples in bytes become an array by np.frombuffer(chunk, '<i2')",
}


class Wanted(NamedTuple):
    """What an input takes."""

    dtype: str | None  #: Its element type; None for stream tensors, which keep the chunk's.
    samples: int = 0  #: Of how many dimensions an array of it is, where single numbers stream; else 0.
    name: str = "the chunk"  #: Who asks, as messages begin.
    shape: str = ""  #: The expected shape, as in ``"(16, L)"``; empty where any will do.

    def refusal(self, got: str, shape: Sequence[int], advice: str = "") -> DTypeError:
        """Return the error for a chunk of another type."""
        expected = (
            f"an array of shape {self.shape} and type {self.dtype}" if self.shape else self.dtype or "numbers"
        )
        got = f"{tuple(shape)} and {got}" if self.shape else got
        return DTypeError(f"expected {expected}, got {got}{advice and f'; {advice}'}")


def factor(got: str, wanted: Wanted, shape: Sequence[int]) -> float:
    """Return by what elements of a type are multiplied when an input takes them.

    Floats of any width are taken as floats, integers as integers and bools as bools. Integers are no floats, for
    nobody can know what they count, but for int16 where one number streams: these are samples. All else is a
    DTypeError, whose message says what helps.
    """
    found = _factor(got, wanted.dtype, wanted.samples == len(shape) > 0)
    if found:
        return found
    kind, to = _kind(got), _kind(wanted.dtype or got)
    advice = ""
    if to == "float" and kind:
        advice = f"{_ADVICE[got]}; " if got in _ADVICE else ""
        advice += "numbers that are no samples become what is expected by np.float32(chunk)"
    elif to == "int" and kind:
        advice = "numbers become what is expected by np.int64(chunk)"
    elif got.startswith("bytes"):
        advice = _ADVICE["bytes"]
    raise wanted.refusal(got, shape, advice)


@lru_cache(maxsize=256)
def _factor(got: str, wanted: str | None, are_samples: bool) -> float:
    """Return the factor, 0 for types that are refused."""
    kind, to = _kind(got), _kind(wanted or got)
    if kind and kind == to:
        return 1.0
    return 1 / 32768 if got == "int16" and to == "float" and are_samples else 0.0


def _kind(dtype: str) -> str | None:
    found = _KIND.match(dtype)
    return found and found[found.lastindex or 0]


def read_chunk(given: Any, wanted: Wanted, ids: Sequence[str] = ()) -> Array:
    """Return a chunk as an array of the wanted type: of float32, float64, int64 or bool where any will do.

    It may be anything: an array of any library, a torch tensor, nested lists. What can't be read is a DTypeError
    or ShapeError that names the streams `ids`, whatever happens in its code; MemoryError and what is no Exception
    pass.
    """
    if type(given) is np.ndarray and given.dtype == (wanted.dtype or np.float32) and given.dtype.isnative:
        return given
    with Naming(wanted.name, ids):
        array = as_array(given)
        listed = isinstance(given, (list, tuple))
        name = name_of(array.dtype)
        if listed and not array.size:  # NumPy's float64 says nothing
            return np.zeros(array.shape, wanted.dtype or "float32")
        scale = factor(name, wanted, array.shape)
        if name == "uint64" and array.size and array.max() >> 63:
            raise wanted.refusal(name, array.shape, "some are too large for int64")
        to = np.dtype(wanted.dtype or _own(name, listed))
        if array.dtype.itemsize <= to.itemsize:
            out = array.astype(to, copy=False)
        else:
            with np.errstate(over="ignore"):  # beyond float32's range lies infinity
                out = array.astype(to)
        return out if scale == 1 else out * to.type(scale)


def _own(name: str, listed: bool) -> str:
    """Return the type in which a tensor holds elements of a type; lists of numbers are float32."""
    kind = _kind(name)
    wide = name in ("float64", "float128", "longdouble") and not listed
    return {"float": "float64" if wide else "float32", "int": "int64"}.get(kind or "", "bool")


def as_array(given: Any) -> Array:
    """Return any object as a plain array of this machine's byte order."""
    if isinstance(given, (bytes, bytearray)) or (isinstance(given, memoryview) and given.format in ("B", "c")):
        raise DTypeError(f"expected an array, got {type(given).__name__}; {_ADVICE['bytes']}")
    if getattr(given, "is_stream", False):
        raise DTypeError("expected one stream's array, got a StreamTensor; x[id] is one")
    tensors = getattr(sys.modules.get("torch"), "Tensor", ())
    if isinstance(given, tensors):
        return _of_torch(given)
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise DTypeError("some of the elements are masked; fill them, as in chunk.filled(0)")
    if isinstance(given, (list, tuple)):
        special = (np.ma.MaskedArray, tensors) if tensors else np.ma.MaskedArray
        kinds = set(map(type, given))
        if any(issubclass(kind, special) for kind in kinds):
            given = [as_array(item) if isinstance(item, special) else item for item in given]
        try:
            array = np.asarray(given)
        except ValueError as error:
            raise ShapeError(f"the lists don't form an array: {error}") from None
        if kinds != {float} and array.dtype == np.float64 and (abs(array) >= 2**63).any():
            numbers = np.asarray(given, object)
            if any(isinstance(n, (int, np.integer)) and abs(int(n)) >= 2**63 for n in numbers.flat):
                array = numbers  # NumPy rounds integers that are too large, where they stand beside others
    else:
        array = np.asarray(given)
    if array.dtype.kind == "O":
        too_large = any(isinstance(n, int) and abs(n) >= 2**63 for n in array.flat)
        types = sorted({type(item).__name__ for item in array.flat})[:5]
        got = "integers too large for int64" if too_large else f"objects of type {', '.join(types)}"
        raise DTypeError(f"a chunk is made of arrays or numbers, not of dicts, None or other objects; got {got}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _of_torch(tensor: Any) -> Array:
    """Return a torch tensor's values as an array, floats that NumPy doesn't know widened."""
    try:
        return tensor.numpy()
    except MemoryError:
        raise
    except Exception:  # the reason follows
        pass
    if tensor.requires_grad:
        raise DTypeError("expected an array, got a tensor that requires grad; give t.detach().numpy()")
    check_dense(tensor)
    if tensor.device.type != "cpu":
        raise DTypeError(f"expected values in the host's memory, got a tensor on {tensor.device}; give t.cpu()")
    tensor = tensor.resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    narrow = _kind(name) == "float" and not hasattr(np, name)
    return (tensor.float() if narrow else tensor).numpy()


def check_dense(tensor: Any) -> None:
    """Raise DTypeError where a torch tensor's elements don't lie in memory one by one."""
    if tensor.is_nested:
        form, remedy = "nested", "its parts, one per stream"
    elif tensor.is_quantized:
        form, remedy = "quantized", "t.dequantize()"
    elif (form := str(tensor.layout)) != "torch.strided":
        remedy = "t.to_dense()"
    else:
        return
    raise DTypeError(f"expected a dense tensor, got a {form} one; give {remedy}")


def read_each(
    read: Callable[[Any, Sequence[str]], C], rows: Iterable[Any], ids: Iterable[Sequence[str]]
) -> list[C]:
    """Return what `read` makes of each row; an error names all rows that fail like the first that does."""
    out: list[C] = []
    first: DreamStreamError | None = None
    failed: list[str] = []
    for row, row_ids in zip(rows, ids):
        try:
            out.append(read(row, row_ids))
        except DreamStreamError as error:
            if isinstance(error, MemoryError):
                raise
            first = first or error
            failed += error.ids if type(error) is type(first) else ()
    if first is not None:
        first.concern(failed)
        raise first
    return out


class Naming:
    """Give every error about a chunk the input's name and the streams' ids, and make it one of ours."""

    __slots__ = ("ids", "name")

    def __init__(self, name: str, ids: Iterable[str]) -> None:
        self.name, self.ids = name, ids

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, MemoryError) or not isinstance(error, Exception):
            return
        if isinstance(error, DreamStreamError):
            raise type(error)(f"{self.name}: {error._message}", self.ids) from error.__cause__
        text = traceback.format_exception_only(type(error), error)[-1].strip()
        raise DTypeError(f"{self.name}: the chunk can't be read: {text[:300]}", self.ids) from error


class RowNames:
    """Who the rows of a batch are, as far as is known before ids and flags are checked: for errors about rows."""

    def __init__(self, ids: Any, sos: Any) -> None:
        known = [ids] if isinstance(ids, str) else list(ids) if isinstance(ids, Collection) else []
        self._ids = [str.__str__(i) for i in known if isinstance(i, str)]
        self._sos = sos

    def of(self, n: int) -> list[list[str]]:
        """Return of each of `n` rows its id in a list, or an empty one."""
        return [[i] for i in self._ids] if len(self._ids) == n else [[]] * n

    def odd(self, given_kinds: Sequence[Any]) -> list[str]:
        """Return the ids of the rows whose kind is not the others'.

        Which kind is right the most rows say; of as many, those that go on, floats, and the first.
        """
        kinds = [str(kind).removeprefix("torch.") for kind in given_kinds]
        given = self._sos.tolist() if hasattr(self._sos, "tolist") else self._sos
        flags = given if isinstance(given, (list, tuple)) else [given] * len(kinds)
        goes_on = {kind for kind, sos in zip(kinds, flags) if sos is not True}
        count = Counter(kind for kind in kinds if kind != "meta") or Counter(kinds)
        usual = max(count, key=lambda kind: (count[kind], kind in goes_on, kind.startswith("float")))
        return [i for kind, row in zip(kinds, self.of(len(kinds))) if kind != usual for i in row]
