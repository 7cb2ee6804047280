"""Model files made by hand: a writer of docs/file_format.md in a few lines that shares nothing with the engine's.

`container` puts arrays and texts into bytes, `text_of` spells a model, `small_model` has several operators.
"""

import copy
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NAMES = {"float32": "F32", "float64": "F64", "int64": "I64", "int16": "I16", "bool": "BOOL", "uint8": "U8"}
Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def compact(value: Any) -> str:
    """JSON as the format spells it: no spaces, UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def text_of(model: Mapping[str, Any], fingerprint: str | None = None) -> dict[str, str]:
    """The metadata of a model file."""
    texts = {"dreamstream": compact(model)}
    return texts if fingerprint is None else {**texts, "dreamstream.fingerprint": fingerprint}


class _Mixer:
    """The two words of a fingerprint, and what is mixed into them."""

    ONES = 2**64 - 1

    def __init__(self) -> None:
        self.a, self.b = 0x6473666770, 1

    def word(self, w: int) -> None:
        self.a = (self.a ^ w & self.ONES) * 0x9E3779B97F4A7C15 & self.ONES
        self.a ^= self.a >> 29
        self.b = (self.b + w) * 0xC2B2AE3D27D4EB4F & self.ONES
        self.b ^= self.b >> 31 ^ self.a

    def bytes(self, data: bytes) -> None:
        self.word(len(data))
        lanes, n = [1, 2, 3, 4], len(data) // 32 * 32
        for at in range(0, n, 8):
            i = at // 8 % 4
            x = (lanes[i] ^ int.from_bytes(data[at : at + 8], "little")) * 0x9FB21C651E98DF25 & self.ONES
            lanes[i] = x ^ x >> 31
        for lane in lanes:
            self.word(lane)
        for at in range(n, len(data), 8):
            self.word(int.from_bytes(data[at : at + 8], "little"))

    def real(self, value: float) -> None:
        x = float(value)
        self.word(1 if x != x else int.from_bytes(struct.pack("<d", x), "little"))

    def array(self, dtype: str, shape: Sequence[int]) -> None:
        for w in [TYPES.index(dtype), len(shape), *shape]:
            self.word(w)


TYPES = ["none", "float32", "float64", "int64", "bool", "int16"]


def fingerprint(model: Mapping[str, Any], arrays: Arrays, operators: Sequence[Mapping[str, Any]]) -> str:
    """The fingerprint of a model file; of the operators, from the registry, names and attributes are used."""
    h, known = _Mixer(), {op["name"]: op for op in operators}
    for signature in model["graph"]["inputs"]:
        h.array(signature["dtype"], signature["shape"])
        for w in signature["rate"]:
            h.word(w)
    for n in model["graph"]["nodes"]:
        h.bytes(n["op"].encode())
        for attribute in known[n["op"]]["attributes"]:
            value, kind = n["attributes"][attribute["name"]], attribute["kind"]
            if kind == "choice":
                value = attribute["choices"].split("|").index(value)
            h.word(value if kind in ("int", "choice") else 0)
            h.real(value if kind == "real" else 0)
            integers = value if kind == "ints" else []
            for w in [len(integers), *integers]:
                h.word(w)
            if kind == "text":
                h.bytes(value.encode())
        for edge in n["inputs"]:
            h.word(edge)
        for name in n["weights"]:
            array = None if name is None else arrays[name]
            h.array("none" if array is None else array.dtype.name, () if array is None else array.shape)
            h.bytes(b"" if array is None else array.tobytes())
    for edge in model["graph"]["outputs"]:
        h.word(edge)
    for n in model["graph"]["nodes"]:
        h.bytes(n["path"].encode())
    h.bytes(compact(model["interface"]).encode())
    return f"{h.a:016x}{h.b:016x}"


def header_of(arrays: Arrays, metadata: Mapping[str, str] | None) -> tuple[dict[str, Any], bytes]:
    """The header of a container and its data: arrays at multiples of 64, fillers between them."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    data, fillers = b"", 0
    for name, array in arrays.items():
        gap = -len(data) % 64
        if gap:
            header[f".pad.{fillers}"] = {
                "dtype": "U8",
                "shape": [gap],
                "data_offsets": [len(data), len(data) + gap],
            }
            data, fillers = data + bytes(gap), fillers + 1
        begin, data = len(data), data + array.tobytes()
        header[name] = {
            "dtype": NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    return header, data


def pack(header: str | bytes, data: bytes) -> bytes:
    """Length, header and data; the header ends in spaces so that the data begin at a multiple of 64."""
    raw = header.encode() if isinstance(header, str) else header
    raw += b" " * (-(8 + len(raw)) % 64)
    return struct.pack("<Q", len(raw)) + raw + data


def container(arrays: Arrays, metadata: Mapping[str, str] | None) -> bytes:
    """A container."""
    header, data = header_of(arrays, metadata)
    return pack(compact(header), data)


def pattern(*shape: int, step: int = 37) -> np.ndarray[Any, Any]:
    """Numbers that float32 holds exactly, neither monotone nor periodic within a row."""
    n = int(np.prod(shape))
    return ((np.arange(n) * step + 11) % 101 - 50).astype("float32").reshape(shape) / np.float32(64)


def node(
    op: str,
    inputs: Sequence[int],
    path: str = "",
    weights: Sequence[str | None] = (),
    outputs: int = 1,
    **attributes: Any,
) -> dict[str, Any]:
    """One node; its attributes in the operator's order."""
    return {
        "op": op,
        "path": path,
        "attributes": attributes,
        "inputs": list(inputs),
        "weights": list(weights),
        "outputs": outputs,
    }


def output(name: str, dimensions: Sequence[Any], size: int, rate: Sequence[int]) -> dict[str, Any]:
    """How an interface names an output of real numbers, of one feature dimension."""
    return {"name": name, "dimensions": dimensions, "dtype": "float32", "shape": [size], "rate": rate}


def model_of(
    name: str, features: int, nodes: Sequence[Any], ends: Sequence[int], outputs: Sequence[Any], structure: Any = 0
) -> dict[str, Any]:
    """The description of a model with one input ``(B, features, L)``, 100 frames a second."""
    return {
        "version": 1,
        "graph": {
            "inputs": [{"dtype": "float32", "shape": [features], "rate": [100, 1]}],
            "nodes": nodes,
            "outputs": ends,
        },
        "interface": {
            "name": name,
            "by_name": False,
            "skew": 0,
            "blas": False,
            "inputs": [{"name": "x", "dimensions": ["B", 0, "L"]}],
            "outputs": outputs,
            "structure": structure,
        },
    }


def small_model() -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """A model of two outputs: a convolution with padding, a residual, a recurrence, a classifier, a mean."""
    conv = {"stride": 2, "dilation": 1, "groups": 1, "left": 1, "right": 1, "mode": "replicate"}
    crop = {"min": "-inf", "max": 1.5}
    lstm = ["lstm.weight_ih_l0", "lstm.weight_hh_l0", "lstm.bias_ih_l0", "lstm.bias_hh_l0"]
    nodes = [
        node("conv1d", [0], "front.conv", ["front.conv.weight", "front.conv.bias"], **conv),  # 1
        node("layer_norm", [1], "front.norm", ["front.norm.weight", None], axes=1, eps=1e-5),  # 2
        node("silu", [2], "front.act"),  # 3
        node("linear", [3], "mix", ["tied.weight", None]),  # 4
        node("linear", [4], "mix", ["tied.weight", None]),  # 5: called twice
        node("sync", [3, 5]),  # 6
        node("sync", [5, 3]),  # 7
        node("add", [6, 7], order=[]),  # 8
        node("clamp", [8], **crop),  # 9
        node("lstm", [9], "lstm", lstm, 3, layers=1, bias=1, bidirectional=0, projection=0),  # 10, 11, 12
        node("linear", [10], "head", ["head.weight", "head.bias"]),  # 13
        node("log_softmax", [13], "head.out"),  # 14
        node("reduce_frames", [10], "pool", kind="mean"),  # 15
    ]
    outputs = [output("tags", ["B", "L", 0], 5, [50, 1]), output("mean", ["B", 0], 3, [0, 1])]
    model = model_of("Tagger", 4, nodes, [14, 15], outputs, {"dict": {"tags": 0, "mean": 1}})
    arrays = {
        "front.conv.weight": pattern(6, 4, 3),
        "front.conv.bias": pattern(6, step=29),
        "front.norm.weight": pattern(6, step=23) + np.float32(1),
        "tied.weight": pattern(6, 6, step=41),
        "lstm.weight_ih_l0": pattern(12, 6, step=43),
        "lstm.weight_hh_l0": pattern(12, 3, step=47),
        "lstm.bias_ih_l0": pattern(12, step=31),
        "lstm.bias_hh_l0": pattern(12, step=17),
        "head.weight": pattern(5, 3, step=53),
        "head.bias": pattern(5, step=19),
    }
    return copy.deepcopy(model), arrays
