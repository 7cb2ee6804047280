"""Element types: NumPy's, under torch's names, and the rules by which they meet.

A tensor holds float32, float64, int64 or bool. Float types never mix in one operation; integers and
bools follow floats, and a Python number adopts the type of the tensor that it meets.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, ModeError

DType = np.dtype[Any]
Number = float | int
Flag = bool

float32: DType = np.dtype(np.float32)
float64: DType = np.dtype(np.float64)
int64: DType = np.dtype(np.int64)
bool: DType = np.dtype(np.bool_)

_KNOWN = (float32, float64, int64, bool)
_NAMES = {
    "float32": float32,
    "float": float32,
    "float64": float64,
    "double": float64,
    "int64": int64,
    "long": int64,
    "bool": bool,
}


_NARROW = {"float16": float32, "bfloat16": float32, "int32": int64, "int16": int64, "int8": int64, "uint8": int64}


def as_dtype(dtype: Any) -> DType:
    """Return the element type that `dtype` names: ours, by torch's or NumPy's name, or raise DTypeError."""
    if isinstance(dtype, str):
        found = _NAMES.get(dtype)
    else:
        try:
            found = np.dtype(dtype) if dtype is not None else None
        except TypeError:
            found = None
    if found is None or found not in _KNOWN:
        raise DTypeError(f"a tensor holds float32, float64, int64 or bool, not {dtype!r}")
    return _KNOWN[_KNOWN.index(found)]


def is_name(text: str) -> Flag:
    """Whether `text` names an element type (or one that is refused), rather than a device."""
    return text in _NAMES or text in _NARROW or text in ("half", "int")


@lru_cache(maxsize=64)  # NumPy makes it anew each time
def name_of(dtype: DType) -> str:
    """Return the name under which operators know an element type."""
    return dtype.name


@lru_cache(maxsize=64)
def nominal(dtype: Any) -> DType:
    """Return the type under which operators know values of a library's own type: its next wider one of ours.

    Where there is none, as for complex numbers, that is a DTypeError.
    """
    name = str(dtype).rpartition(".")[2]  # libraries put their own names before it
    found = _NAMES.get(name) or _NARROW.get(name)
    if found is None:
        raise DTypeError(f"an operator takes float32, float64, int64, bool or narrower types, not {name}")
    return found


def finfo(dtype: Any) -> Any:
    """Return the limits of a type of floats: ``finfo(x.dtype).min``, ``max``, ``eps``. Source: torch.finfo."""
    return np.finfo(as_dtype(dtype))


def is_float(dtype: DType) -> Flag:
    """Whether `dtype` is float32 or float64."""
    return dtype.kind == "f"


def adopt(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself, or where a tensor can't hold its type a converted copy.

    Integers of other sizes become int64, other byte orders the machine's. Types without an exact counterpart
    (float16, complex, objects, …) are a DTypeError.
    """
    dtype = array.dtype
    if dtype in _KNOWN:
        return array
    if dtype.kind in "iu":
        if dtype.itemsize == 8 and dtype.kind == "u" and array.size and array.max() >= 2**63:
            raise DTypeError("a tensor's integers are int64, and these are too large for it")
        return array.astype(int64)
    if dtype.newbyteorder("=") in _KNOWN:
        return array.astype(dtype.newbyteorder("="))
    if dtype.kind == "O":
        raise DTypeError("a tensor is made of arrays or numbers, not of dicts, None or other objects")
    raise DTypeError(
        f"a tensor holds float32, float64, int64 or bool, not {dtype}; convert the array first, as in "
        "array.astype(np.float32)"
    )


def common(name: str, dtypes: Iterable[DType], numbers: Iterable[Number] = ()) -> DType:
    """Return the element type in which operands meet, or raise DTypeError where float32 and float64 are mixed.

    Python numbers take the tensors' type unless it can't express their kind.
    """
    tensors, numbers = list(dtypes), list(numbers)
    floats = {d for d in tensors if is_float(d)}
    if len(floats) > 1:
        raise DTypeError(
            f"{name}: float32 and float64 are mixed; convert one of the tensors, as in x.double() or y.float()"
        )
    if floats:
        return floats.pop()
    if any(isinstance(n, float) for n in numbers):
        return float32
    if int64 in tensors or any(type(n) is int for n in numbers):
        return int64
    return bool


def require_float(name: str, dtype: DType) -> None:
    """Raise DTypeError unless `dtype` is float32 or float64."""
    if not is_float(dtype):
        samples = "; samples of 16 bits by x.float() / 32768" if dtype == int64 else ""
        raise DTypeError.here(
            f"{name}: expected a float32 or float64 tensor, got {dtype}; convert it with .float(){samples}"
        )


def require_same(name: str, **dtypes: DType | None) -> None:
    """Raise DTypeError unless all given types are one float type; the keywords name the tensors."""
    given = {what: dtype for what, dtype in dtypes.items() if dtype is not None}
    (first, dtype), *others = given.items()
    require_float(name, dtype)
    for what, other in others:
        if other != dtype:
            raise DTypeError.here(
                f"{name}: {first} is {dtype} but {what} is {other}; convert one of them, as in x.float(), "
                "x.double() or module.double()"
            )


def check_device(device: Any) -> None:
    """Raise ModeError unless `device` is None or the CPU."""
    if device is not None and str(device) != "cpu":
        raise ModeError(f"tensors live on the CPU, not on {str(device)!r}; for a GPU, hand in a torch module")
