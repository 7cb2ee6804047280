"""The safetensors container, which holds models and weights: its parts, and the bytes that parts make.

`csrc/codec` says what may stand in one, and judges what is read; `write` gives the bytes that its writer gives.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from . import _core
from .errors import FormatError

ALIGNMENT = 64
MOST_DIMENSIONS = 16
FILLER = ".pad."  # names of what lies between two tensors begin so
METADATA = "__metadata__"
ELEMENTS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "|b1",
}  # fmt: skip
SIZES = {name: int(code[-1]) for name, code in ELEMENTS.items()}
"""Bytes of an element."""


class Tensor(NamedTuple):
    """A tensor of a container."""

    name: str
    dtype: str  # as the container calls it: "F32"
    shape: tuple[int, ...]
    data: Any  # its bytes

    def values(self) -> Any:
        """Return its elements in a row, as an array; bfloat16, the upper halves of float32, becomes float32."""
        array = np.frombuffer(self.data, ELEMENTS[self.dtype])
        return (array.astype(np.uint32) << 16).view(np.float32) if self.dtype == "BF16" else array


def read(content: Any) -> tuple[list[Tensor], dict[str, str]]:
    """Return a container's tensors, as views of it and without fillers, and its texts."""
    view = memoryview(content)
    _core.check_container(view)
    start = 8 + int.from_bytes(view[:8], "little")
    header = json.loads(bytes(view[8:start]))
    texts = header.pop(METADATA, {})
    placed = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    tensors = []
    for name, entry in placed:
        if not (name.startswith(FILLER) and entry["dtype"] == "U8"):
            begin, end = entry["data_offsets"]
            data = view[start + begin : start + end]
            tensors.append(Tensor(name, entry["dtype"], tuple(entry["shape"]), data))
    return tensors, texts


def write(tensors: Iterable[Tensor], texts: dict[str, str]) -> bytes:
    """Return the container of tensors and texts; FormatError is raised for tensors that none can hold."""
    header: dict[str, Any] = {METADATA: texts} if texts else {}
    pieces: list[Any] = []
    at = n_fillers = 0
    for t in tensors:
        _check(t, header)
        if gap := -at % ALIGNMENT if len(t.data) else 0:
            header[f"{FILLER}{n_fillers}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [at, at + gap]}
            n_fillers += 1
        at += gap
        place = [at, at + len(t.data)]
        header[t.name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": place}
        at = place[1]
        pieces += [bytes(gap), t.data]
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return b"".join([len(text).to_bytes(8, "little"), text, *pieces])


def _check(tensor: Tensor, header: dict[str, Any]) -> None:
    name, dtype, shape, data = tensor
    said = _core.shown(name)
    if "\0" in name:
        raise FormatError("the name of a tensor: embedded null character")
    if name == METADATA or name.startswith(FILLER) or name in header:
        raise FormatError(
            f"tensor {said}: expected a name of its own, other than {METADATA}, that does not begin with {FILLER}"
        )
    if dtype not in SIZES:
        raise FormatError(f"tensor {said}: there is no element type {_core.shown(dtype)}")
    if len(shape) > MOST_DIMENSIONS:
        raise FormatError(f"tensor {said}: {len(shape)} dimensions, at most {MOST_DIMENSIONS}")
    if min(shape, default=0) < 0 or math.prod(shape) * SIZES[dtype] != len(data):
        raise FormatError(f"tensor {said}: {len(data)} bytes are no {dtype} of shape {shape}")
