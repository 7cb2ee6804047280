"""Make the hostile model files of this folder, and attacks.json: what the error of each must say.

    python tests/attacks/make.py

Each is a small right model (`small`) with one thing wrong.
"""

import copy
import json
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "helpers"))
from dsm_files import compact, container, fingerprint, header_of, model_of, node, output, pack, pattern, text_of

Attack = tuple[str, bytes, str]  # name, file, words of the error


def small() -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """A convolution, a residual, a softmax: 4 nodes, 2 weights."""
    conv = {"stride": 1, "dilation": 1, "groups": 1, "left": 2, "right": 0, "mode": "zeros"}
    nodes = [
        node("conv1d", [0], "conv", ["conv.weight", "conv.bias"], **conv),
        node("add", [0, 1], order=[]),
        node("softmax", [2], "out"),
    ]
    model = model_of("Small", 3, nodes, [3], [output("y", ["B", "L", 0], 3, [100, 1])])
    return model, {"conv.weight": pattern(3, 3, 3), "conv.bias": pattern(3)}


def right() -> bytes:
    """The file in which nothing is wrong."""
    model, arrays = small()
    return container(arrays, text_of(model))


MODES = "zeros|replicate|reflect|circular"
KINDS = {
    "conv1d": {"stride": "int", "dilation": "int", "groups": "int", "left": "int", "right": "int", "mode": MODES},
    "add": {"order": "ints"},
    "softmax": {},
}
OPERATORS = [
    {
        "name": name,
        "attributes": [
            {"name": a, "kind": "choice" if "|" in kind else kind, "choices": kind} for a, kind in kinds.items()
        ],
    }
    for name, kinds in KINDS.items()
]


def sealed() -> bytes:
    """The file in which nothing is wrong, with its fingerprint."""
    model, arrays = small()
    return container(arrays, text_of(model, fingerprint(model, arrays, OPERATORS)))


def with_text(text: str) -> bytes:
    """The weights beside another text."""
    return container(small()[1], {"dreamstream": text})


Change = Callable[[dict[str, Any]], None]


def put(*path: Any, to: Any) -> Change:
    """What puts a value where the path leads."""

    def change(whole: Any) -> None:
        for key in path[:-1]:
            whole = whole[key]
        whole[path[-1]] = to

    return change


def drop(*path: Any) -> Change:
    """What deletes the item to which the path leads."""

    def change(whole: Any) -> None:
        for key in path[:-1]:
            whole = whole[key]
        del whole[path[-1]]

    return change


def behind(name: str, n_bytes: int) -> Change:
    """What adds a tensor behind the last one to a header."""

    def change(header: dict[str, Any]) -> None:
        end = header["conv.bias"]["data_offsets"][1]
        header[name] = {"dtype": "U8", "shape": [n_bytes], "data_offsets": [end, end + n_bytes]}

    return change


def with_change(change: Change) -> bytes:
    """The model with something changed in place."""
    model = copy.deepcopy(small()[0])
    change(model)
    return with_text(compact(model))


def with_header(change: Change, more: bytes = b"") -> bytes:
    """The container with something changed in its header, and data behind the end."""
    model, arrays = small()
    header, data = header_of(arrays, text_of(model))
    change(header)
    return pack(compact(header), data + more)


def of_containers() -> Iterator[Attack]:
    """Wrong as containers."""
    file = right()
    n = struct.unpack("<Q", file[:8])[0]
    yield "empty", b"", "an empty file"
    yield "truncated_length", file[:5], "expected at least 8 bytes"
    yield "truncated_header", file[: 8 + n // 2], "the file is cut short"
    yield "truncated_data", file[:-3], "the file is cut short"
    yield "longer", file + b"\0", "expected the end of the file"
    yield "length_oversized", struct.pack("<Q", 2**63) + file[8:], "no model file begins with the bytes"
    yield "length_all_ones", struct.pack("<Q", 2**64 - 1) + file[8:], "no model file begins with the bytes"
    yield "length_big_endian", struct.pack(">Q", n) + file[8:], "no model file begins with the bytes"
    yield "length_zero", struct.pack("<Q", 0) + file[8:], "begins with '{'"
    yield "header_no_json", file[:8] + b"<" + file[9:], "begins with '{'"
    yield "header_bad_utf8", file.replace(b"conv.bias", b"conv.b\xc3(s"), "UTF-8"
    yield ("header_deep", pack('{"a":' + "[" * 100 + "]" * 100 + "}", b""), "at most 64 arrays and objects")
    yield "header_key_twice", pack('{"__metadata__":{},"__metadata__":{}}', b""), "keys that differ"
    yield "no_metadata", container(small()[1], None), 'a text "dreamstream"'
    yield "other_metadata", container(small()[1], {"format": "pt"}), 'a text "dreamstream"'
    yield "not_a_model", container({"w": pattern(3)}, None), 'a text "dreamstream"'

    bias = "conv.bias"
    for name, change, words in [
        ("tensors_overlap", put(bias, "data_offsets", to=[64, 76]), "they overlap"),
        ("hole", drop(".pad.0"), "there is a hole"),
        ("offsets_beyond", put(bias, "data_offsets", to=[2**62, 2**62 + 12]), "the bytes behind the header"),
        ("shape_negative", put(bias, "shape", to=[-3]), "expected an integer from 0"),
        ("shape_huge", put(bias, "shape", to=[2**32] * 3), "product can be counted"),
        ("type_unknown", put(bias, "dtype", to="PICKLE"), "expected one of F64"),
    ]:
        yield name, with_header(change), words


def of_tensors() -> Iterator[Attack]:
    """Right as containers; tensors that are not what a model file may hold."""
    model, arrays = small()

    yield "tensor_hidden", with_header(behind("hidden", 5), b"12345"), "tensors that nodes use"
    yield "filler_large", with_header(behind(".pad.1", 64), bytes(64)), "less than 64 bytes"
    yield "filler_not_zero", with_header(behind(".pad.1", 5), b"12345"), "expected zeros"
    header, data = header_of(arrays, text_of(model))
    raw = compact(header).encode()
    raw += b" " * (-(8 + len(raw)) % 64 + 4)
    yield "tensor_unaligned", struct.pack("<Q", len(raw)) + raw + data, "multiple of 64"
    without = {k: v for k, v in arrays.items() if k != "conv.bias"}
    yield "tensor_missing", container(without, text_of(model)), "the name of a tensor"
    for name, bias, words in [
        ("tensor_wrong_shape", pattern(4), "node 0 (conv1d, conv)"),
        ("tensor_wrong_type", pattern(3).astype("float64"), "node 0 (conv1d, conv)"),
        ("tensor_bytes", np.zeros(3, "uint8"), "expected a tensor of F32"),
        ("tensor_empty", np.zeros(0, "float32"), "node 0 (conv1d, conv)"),
        ("tensor_rank", pattern(3).reshape(3, 1, 1, 1, 1, 1, 1), "of rank 6 at most"),
    ]:
        yield name, container({**arrays, "conv.bias": bias}, text_of(model)), words
    filled = copy.deepcopy(model)
    filled["graph"]["nodes"][0]["weights"][1] = ".pad.0"
    yield "tensor_is_filler", container(arrays, text_of(filled)), "the name of a tensor"
    logical = copy.deepcopy(model)
    logical["graph"]["nodes"][1] = node("where", [0, 1], weights=["conv.bias"], order=[1, 0, 0])
    of_two = {
        "conv.weight": pattern(3, 3, 3),
        "conv.bias": pattern(3),
        "mask": np.array([0, 2, 1], "uint8").view("bool"),
    }
    logical["graph"]["nodes"][1]["weights"] = ["mask"]
    yield "tensor_bool_of_two", container(of_two, text_of(logical)), "expected 0 or 1"


def of_texts() -> Iterator[Attack]:
    """Texts that are no model."""
    model = compact(small()[0])
    yield "text_empty", with_text(""), "byte 0"
    yield "text_truncated", with_text(model[:-1]), "expected"
    yield "text_array", with_text("[]"), "expected an object"
    yield "text_deep", with_text("[" * 100 + "]" * 100), "at most 64 arrays and objects"
    yield "text_key_twice", with_text(model.replace('"skew":0', '"skew":0,"skew":0')), "keys that differ"
    yield "text_surrogate", with_text(model.replace('"Small"', '"\\ud800"')), "surrogate"
    yield "text_infinite", with_text(model.replace('"skew":0', '"skew":1e999')), "that a double can hold"

    def at(*path: Any) -> Callable[[Any], bytes]:
        return lambda value: with_change(put(*path, to=value))

    yield "version_2", at("version")(2), "expected version 1, got 2"
    yield "version_0", at("version")(0), "expected an integer from 1"
    yield "version_text", at("version")("1"), "expected an integer"
    yield "version_missing", with_change(drop("version")), '"version"'
    yield "key_unknown", at("pickle")("cos\nsystem"), "no key but known ones"
    yield "graph_missing", with_change(drop("graph")), '"graph"'
    yield "interface_missing", with_change(drop("interface")), '"interface"'
    node0 = ("graph", "nodes", 0)
    attributes = (*node0, "attributes")
    yield "operator_unknown", at(*node0, "op")("exec"), "the name of an operator"
    yield "operator_declared", at(*node0, "op")("declared"), "the name of an operator"
    yield "node_key_unknown", at(*node0, "code")("import os"), "no key but known ones"
    yield "attribute_unknown", at(*attributes, "padding")(1), "no key but known ones"
    yield "attribute_missing", with_change(drop(*attributes, "stride")), '"stride"'
    yield "attribute_text", at(*attributes, "stride")("2"), "expected an integer"
    yield "attribute_real", at(*attributes, "stride")(2.5), "expected an integer"
    yield "attribute_zero", at(*attributes, "stride")(0), "node 0 (conv1d, conv)"
    yield "attribute_huge", at(*attributes, "stride")(2**63 - 1), "node 0 (conv1d, conv)"
    yield "attribute_dilation_huge", at(*attributes, "dilation")(2**40 - 1), "node 0 (conv1d, conv)"
    yield "attribute_left_huge", at(*attributes, "left")(2**39), "node 0 (conv1d, conv)"
    yield "attribute_too_big_for_64", at(*attributes, "stride")(2**64), "expected an integer"
    yield "attribute_choice", at(*attributes, "mode")("mirror"), "zeros|replicate|reflect|circular"
    yield ("attribute_of_another", at("graph", "nodes", 2, "attributes")({"axis": 1}), "no key but known ones")
    yield "attribute_nan", at(*attributes, "stride")("nan"), "expected an integer"
    yield "cycle_itself", at(*node0, "inputs")([1]), "expected an integer from 0 to 0"
    yield "cycle_later", at(*node0, "inputs")([2]), "expected an integer from 0 to 0"
    yield "edge_negative", at(*node0, "inputs")([-1]), "expected an integer from 0 to 0"
    yield "edge_huge", at("graph", "outputs")([2**31]), "expected an integer from 0 to 3"
    yield "inputs_missing", at(*node0, "inputs")([]), "node 0 (conv1d, conv)"
    yield "inputs_many", at(*node0, "inputs")([0] * 100), "at most 16 inputs"
    yield "weights_many", at(*node0, "weights")([None] * 1000), "at most 128 weights"
    yield "weight_null", at(*node0, "weights")([None, None]), "node 0 (conv1d, conv)"
    yield "weight_number", at(*node0, "weights")([0, 1]), "expected a string"
    yield "outputs_of_node", at(*node0, "outputs")(2), "expected an integer from 1 to 1"
    yield "path_with_zero", at(*node0, "path")("a\0b"), "zero"
    yield "graph_without_inputs", at("graph", "inputs")([]), "expected 1 to 16"
    yield "graph_without_outputs", at("graph", "outputs")([]), "expected 1 to"
    yield "input_rate_zero", at("graph", "inputs", 0, "rate")([0, 1]), "rate must be positive"
    yield "input_rate_not_lowest", at("graph", "inputs", 0, "rate")([200, 2]), "lowest terms"
    yield "input_rate_by_zero", at("graph", "inputs", 0, "rate")([1, 0]), "rate"
    yield "input_shape_huge", at("graph", "inputs", 0, "shape")([2**40, 2**40]), "2^40"
    yield "input_rank", at("graph", "inputs", 0, "shape")([1] * 7), "expected 0 to 6"
    yield "input_shape_zero", at("graph", "inputs", 0, "shape")([0]), "expected an integer from 1"
    yield "input_type", at("graph", "inputs", 0, "dtype")("float16"), "expected float32"
    yield "input_shape_wrong", at("graph", "inputs", 0, "shape")([5]), "node 0 (conv1d, conv)"
    interface = ("interface",)
    yield "skew_negative", at(*interface, "skew")(-1), "expected an integer from 0"
    yield "skew_huge", at(*interface, "skew")(2**31), "expected an integer from 0"
    yield "by_name_number", at(*interface, "by_name")(1), "true or false"
    yield "name_null", at(*interface, "name")(None), "expected a string"
    yield "ports_missing", at(*interface, "inputs")([]), "as many as the graph has"
    yield "port_key_unknown", at(*interface, "inputs", 0, "dtype")("float32"), "no key but known ones"
    dims = (*interface, "inputs", 0, "dimensions")
    yield "dimension_missing", at(*dims)(["B", "L"]), "each of the 1 axes"
    yield "dimension_twice", at(*dims)(["B", 0, 0, "L"]), "twice"
    yield "dimension_unknown", at(*dims)(["B", 0, "T"]), 'expected "B", "L"'
    yield "dimension_far", at(*dims)(["B", 1, "L"]), "expected an integer from 0 to 0"
    yield "dimension_joined", at(*dims)(["B", 0, "B_L"]), "each of the 1 axes"
    yield "dimensions_many", at(*dims)(["B", "L", "B_L"] + [0] * 100), "at most 8 dimensions"
    output = (*interface, "outputs", 0)
    yield "output_shape", at(*output, "shape")([4]), "the signature that the graph gives"
    yield "output_rate", at(*output, "rate")([50, 1]), "the signature that the graph gives"
    yield "output_type", at(*output, "dtype")("float64"), "the signature that the graph gives"
    yield "structure_twice", at(*interface, "structure")([0, 0]), "twice"
    yield "structure_nowhere", at(*interface, "structure")([]), "nowhere"
    yield "structure_far", at(*interface, "structure")(1), "expected an integer from 0 to 0"
    yield "structure_text", at(*interface, "structure")("0"), "expected an integer"
    deep: Any = 0
    for _ in range(40):
        deep = [deep]
    yield "structure_deep", at(*interface, "structure")(deep), "levels"


def of_fingerprints() -> Iterator[Attack]:
    """Right but for not being what was written."""
    file, damaged = sealed(), "the file is damaged or was changed"
    for name, was, is_ in [
        ("attribute", b'\\"left\\":2', b'\\"left\\":3'),
        ("choice", b'\\"zeros\\"', b'\\"circular\\"'),
        ("edge", b'\\"inputs\\":[0,1]', b'\\"inputs\\":[0,0]'),
        ("path", b'\\"path\\":\\"conv\\"', b'\\"path\\":\\"conW\\"'),
        ("skew", b'\\"skew\\":0', b'\\"skew\\":1'),
        ("port", b'\\"name\\":\\"x\\"', b'\\"name\\":\\"y\\"'),
        ("rate", b'\\"rate\\":[100,1]', b'\\"rate\\":[101,1]'),
    ]:
        assert was in file, name
        n = struct.unpack("<Q", file[:8])[0]
        header = file[8 : 8 + n].rstrip().replace(was, is_)
        yield f"changed_{name}", pack(header, file[8 + n :]), damaged
    yield "changed_weight", file[:-1] + bytes([file[-1] ^ 1]), damaged
    yield "changed_first_weight", file.replace(pattern(3, 3, 3).tobytes()[:8], bytes(8)), damaged
    model, arrays = small()
    right = fingerprint(model, arrays, OPERATORS)
    for name, wrong in [
        ("empty", ""),
        ("short", right[:-1]),
        ("long", right + "0"),
        ("upper", right.upper()),
        ("zero", right[:-1] + "\0"),
        ("huge", "f" * 100000),
        ("other", f"{int(right, 16) ^ 1:032x}"),
    ]:
        yield f"fingerprint_{name}", container(arrays, text_of(model, wrong)), damaged


def attacks() -> list[Attack]:
    """All of them."""
    return [*of_containers(), *of_tensors(), *of_texts(), *of_fingerprints()]


def main() -> None:
    """Write the files and the table."""
    for old in HERE.glob("*.dsm"):
        old.unlink()
    table = {}
    for name, file, words in attacks():
        assert name not in table, name
        (HERE / f"{name}.dsm").write_bytes(file)
        table[name] = words
    (HERE / "attacks.json").write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
