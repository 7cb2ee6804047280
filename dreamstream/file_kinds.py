"""What the files of other programs are, by their content: for the messages of what asks for a model or for weights.

A suffix says what a file was meant to be. The first bytes say what it is: a download that failed is a web page
called ``model.dsm``. Nothing here is unpacked, unpickled or executed.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

HEAD = 4096  # bytes by which a file is told


class FileKind(NamedTuple):
    """What a file is, and what is done with it."""

    what: str  # with its article: "an ONNX model"
    to_model: str  # how to get a model of DreamStream
    to_weights: str = ""  # how to get what `load_state_dict` takes, where it holds weights


COMPILE = (
    'compile the model in Python: ds.compile(model, spec).save("OUT.dsm"), or dreamstream convert FILE.py:FUNCTION '
    "OUT.dsm"
)
GRAPH = f"it was exported from a model in Python, which DreamStream needs; {COMPILE}"
WEIGHTS = (
    "it holds weights, and not what is computed with them; give them to the model in Python by load_state_dict, and "
    f"{COMPILE}"
)
WEIGHTS_OF_TORCH = f"{WEIGHTS} --weights FILE"
PICKLE = f"it is not opened, since a pickle can run anything; {COMPILE}"
AUDIO = "a model comes first and recordings behind it: dreamstream run MODEL AUDIO"
AGAIN = "what was to be downloaded or copied did not arrive; fetch it again"
UNPACK = "unpack it, and look at what is inside"
NOTHING = "a model is a .dsm, .json or .xml file that Engine.save or dreamstream convert wrote"

DICT_OF_TORCH = "torch.load(FILE, weights_only=True)"

#: Where the bytes stand, the bytes, what such a file is, and what is done with it.
MARKS: tuple[tuple[int, bytes, FileKind], ...] = (
    (0, b"DSSTATE", FileKind("a snapshot of a stream", "engine.restore(data) of its model takes it; " + NOTHING)),
    (0, b"GGUF", FileKind("a GGUF file (llama.cpp)", WEIGHTS)),
    (0, b"lmgg", FileKind("a GGML file (whisper.cpp, llama.cpp)", WEIGHTS)),
    (0, b"tjgg", FileKind("a GGML file (llama.cpp)", WEIGHTS)),
    (4, b"TFL3", FileKind("a TensorFlow Lite model", GRAPH)),
    (4, b"ORTM", FileKind("an ONNX Runtime model (.ort)", GRAPH)),
    (4, b"ET1", FileKind("an ExecuTorch program", GRAPH)),
    (0, b"ftrt", FileKind("a TensorRT engine", GRAPH)),
    (0, b"\x93NUMPY", FileKind("a NumPy array (.npy)", WEIGHTS)),
    (0, b"\x89HDF\r\n\x1a\n", FileKind("an HDF5 file (Keras, h5py)", WEIGHTS)),
    (0, b"MATLAB 5.0 MAT-file", FileKind("a MATLAB file", WEIGHTS)),
    (0, b"\0B<", FileKind("a Kaldi model", WEIGHTS)),
    (0, b"7767517\n", FileKind("an ncnn .param file", GRAPH)),
    (0, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", FileKind("what torch.save wrote, in its older form, a pickle", WEIGHTS_OF_TORCH, DICT_OF_TORCH)),
    *((0, b"\x80%c" % n, FileKind("a Python pickle", PICKLE)) for n in range(2, 6)),
    (0, b"\x1f\x8b", FileKind("a gzip archive", UNPACK)),
    (0, b"BZh", FileKind("a bzip2 archive", UNPACK)),
    (0, b"\xfd7zXZ\0", FileKind("an xz archive", UNPACK)),
    (0, b"\x28\xb5\x2f\xfd", FileKind("a Zstandard archive", UNPACK)),
    (0, b"7z\xbc\xaf\x27\x1c", FileKind("a 7z archive", UNPACK)),
    (0, b"\x04\x22\x4d\x18", FileKind("an LZ4 archive", UNPACK)),
    (0, b"Rar!", FileKind("a RAR archive", UNPACK)),
    (8, b"WAVE", FileKind("a WAV recording", AUDIO)),
    (8, b"AIF", FileKind("an AIFF recording", AUDIO)),
    (0, b"fLaC", FileKind("a FLAC recording", AUDIO)),
    (0, b"OggS", FileKind("an Ogg recording", AUDIO)),
    (0, b"ID3", FileKind("an MP3 recording", AUDIO)),
    (0, b"\xff\xfb", FileKind("an MP3 recording", AUDIO)),
    (0, b".snd", FileKind("an AU recording", AUDIO)),
    (0, b"caff", FileKind("a Core Audio recording", AUDIO)),
    (4, b"ftyp", FileKind("an MP4 recording", AUDIO)),
    (0, b"\x1aE\xdf\xa3", FileKind("a Matroska or WebM recording", AUDIO)),
    (0, b"\x7fELF", FileKind("a program or a library (ELF)", NOTHING)),
    (0, b"\x89PNG", FileKind("a PNG picture", NOTHING)),
    (0, b"\xff\xd8\xff", FileKind("a JPEG picture", NOTHING)),
    (0, b"%PDF", FileKind("a PDF document", NOTHING)),
    (0, b"SQLite format 3\0", FileKind("an SQLite database", NOTHING)),
)  # fmt: skip

#: Members of zip archives that tell what wrote them, by how their names end, in this order.
MEMBERS: tuple[tuple[tuple[str, ...], FileKind], ...] = (
    (("/constants.pkl", "/bytecode.pkl"), FileKind("a TorchScript archive", GRAPH, "torch.jit.load(FILE).state_dict()")),
    (("/archive_format", "/models/model.json", "serialized_exported_program.json"), FileKind("a program of torch.export (.pt2)", GRAPH, "torch.export.load(FILE).state_dict")),
    (("model.weights.h5",), FileKind("a Keras model", GRAPH)),
    (("data.pkl",), FileKind("what torch.save wrote, a zip archive", WEIGHTS_OF_TORCH, DICT_OF_TORCH)),
    ((".npy",), FileKind("an archive of NumPy arrays (.npz)", WEIGHTS, "dict(numpy.load(FILE))")),
)  # fmt: skip

#: Texts that begin so, in lower case and behind white space.
TEXTS: tuple[tuple[tuple[bytes, ...], FileKind], ...] = (
    ((b"version https://git-lfs",), FileKind("a pointer of Git LFS, in the place of the file", "git lfs pull brings the file itself")),
    ((b"<!doctype html", b"<html", b"<head"), FileKind("a web page", AGAIN)),
    ((b"<!doctype", b"<?xml", b"<"), FileKind("an XML file of another program", NOTHING)),
    ((b"{", b"["), FileKind("a JSON file of another program", NOTHING)),
    ((b"import ", b"from ", b"#!/usr/bin/env python", b'"""'), FileKind("Python source", COMPILE)),
)  # fmt: skip

#: Files whose presence says what a folder is.
FOLDERS: tuple[tuple[str, str], ...] = (
    ("saved_model.pb", "a TensorFlow SavedModel"),
    ("Manifest.json", "a Core ML package"),
    ("model.safetensors", "a model of Hugging Face"),
    ("pytorch_model.bin", "a model of Hugging Face"),
    ("data.pkl", "an archive of torch.save that was unpacked"),
)

SAFETENSORS = FileKind("a safetensors file", WEIGHTS)
EMPTY = FileKind("an empty file", AGAIN)
ZEROS = FileKind("a file of zeros", AGAIN)
ONNX = FileKind("an ONNX model", GRAPH, "{i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(FILE).graph.initializer}")
ONNX_FIELDS = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25}  # of a ModelProto; the first is the version
PROTOBUF = FileKind("a protobuf file (TensorFlow, Core ML)", GRAPH)
TAR = FileKind("a tar archive", UNPACK)
NEMO = FileKind("a tar archive of NeMo", f"unpack it; it holds weights, and not what is computed with them; {COMPILE}")
ZIP = FileKind("a zip archive", UNPACK)
TEXT = FileKind("a text", NOTHING)


def kind_of_file(source: Any) -> FileKind | None:
    """Return what a file is, by its path or of its bytes; None for what the tables don't know."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _kind(io.BytesIO(source))
    with open(source, "rb") as file:
        return _kind(file) if file.seekable() else None


def not_a_model(name: str, source: Any) -> str:
    """Return what to say of a file that is no model; nothing where the reader's own message is better."""
    kind = kind_of_file(source)
    if kind is None or kind is SAFETENSORS:
        return ""
    return f"{name} is {kind.what}, no model of DreamStream; {kind.to_model}"


def not_weights(name: str, source: Any) -> str:
    """Return what to say of a file that is no safetensors file; nothing where the reader's own message is better."""
    kind = kind_of_file(source)
    if kind is None or kind is SAFETENSORS:
        return ""
    advice = f"{kind.to_weights} gives what load_state_dict takes" if kind.to_weights else "it is no source of weights"
    return f"{name} is {kind.what}, no safetensors file; {advice}"


def not_a_file(path: str) -> str:
    """Return what to say of a folder that is given as a model file."""
    found = next((what for name, what in FOLDERS if os.path.exists(os.path.join(path, name))), "")
    models = sorted(name for name in os.listdir(path) if name.endswith(".dsm"))
    advice = f"it holds {', '.join(models[:4])}" if models else COMPILE
    return f"is a folder{f', {found}' if found else ''}, no model file; {advice}"


def instead_of_module(value: Any) -> str:
    """Return what to do with an object that is given as a model in Python, or as a file, and is neither."""
    if isinstance(value, (str, os.PathLike)):
        return f'ds.load reads what Engine.save wrote, and else {COMPILE}'
    if isinstance(value, type):
        return f"make one of the class: {value.__name__}()"
    if isinstance(value, Mapping):
        return "a dict of weights is not what is computed with them; a module takes it by load_state_dict"
    if type(value).__name__ in ("ExportedProgram", "ModelProto"):
        return "take the module of which it was exported"
    if hasattr(value, "state_dict") and callable(value):
        return 'ds.compile(model, spec) makes an engine of it'
    return ""


def _kind(file: Any) -> FileKind | None:
    head = file.read(HEAD)
    n_bytes = file.seek(0, os.SEEK_END)
    if not head:
        return EMPTY
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _kind_of_zip(file, head)
    if head[257:262] == b"ustar":
        return NEMO if b"model_config.yaml" in head[:100] else TAR
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= n_bytes - 8:
        return SAFETENSORS
    for at, mark, kind in MARKS:
        if head.startswith(mark, at):
            return kind
    if not any(head):
        return ZEROS
    return _kind_of_text(head) if _is_text(head) else _kind_of_protobuf(head, n_bytes)


def _kind_of_zip(file: Any, head: bytes) -> FileKind:
    try:
        names = zipfile.ZipFile(file).namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        names = []
    if not names:  # cut short: the list stands at the end; the first member's name behind its header
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")].decode(errors="replace")
        return _cut(_kind_by_members([first]))
    return _kind_by_members(names)


def _kind_by_members(names: list[str]) -> FileKind:
    return next((kind for ends, kind in MEMBERS if any(name.endswith(ends) for name in names)), ZIP)


def _cut(kind: FileKind) -> FileKind:
    return FileKind(f"{kind.what} that is cut short or damaged", AGAIN)


def _kind_of_protobuf(head: bytes, n_bytes: int) -> FileKind | None:
    """Tell an ONNX model by its version, and the numbers and texts of the fields that follow."""
    fields, whole = _fields(head, n_bytes)
    if len(fields) < 2 or fields[0][0] != 1:
        return None
    texts = [text for number, _, text in fields if number in (2, 3, 4, 6)]
    numbered = head[:1] == b"\x08" and fields[0][1] < 100  # a version, and not a text
    if numbered and {number for number, _, _ in fields} <= ONNX_FIELDS and all(map(_is_text, texts)):
        return ONNX if whole else _cut(ONNX)
    return PROTOBUF if whole else None


def _fields(head: bytes, n_bytes: int) -> tuple[list[tuple[int, int, bytes]], bool]:
    """Return number, value and bytes of the fields that a message begins with, and whether they fit into the file.

    There are none where it is no message.
    """
    found, at = [], 0
    while at < len(head):
        tag, at = _varint(head, at)
        value, at = _varint(head, at)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number <= 1000 or wire not in (0, 2):
            return [], False
        found.append((number, value, head[at : at + value] if wire == 2 else b""))
        at += value if wire == 2 else 0
    return found, at <= n_bytes


def _varint(head: bytes, at: int) -> tuple[int, int]:
    """Return a number in groups of seven bits, and where it ends; what the head cuts off counts as 0."""
    value = 0
    for shift in range(0, 70, 7):
        byte = head[at] if at < len(head) else 0
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            break
    return value, at


def _kind_of_text(head: bytes) -> FileKind | None:
    if b"dreamstream" in head:  # ours, damaged: its reader says where
        return None
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:64].lower()
    for marks, kind in TEXTS:
        if begin.startswith(marks):
            return kind
    return TEXT


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode() if len(head) < HEAD else head[:-4].decode(errors="ignore")
    except UnicodeDecodeError:
        return False
    return all(c.isprintable() or c in "\t\n\r\f" for c in text)
