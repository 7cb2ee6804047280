"""What the files of other programs are, by their content: for the messages of what reads models or weights.

A suffix says what a file was meant to be. The first bytes say what it is: a download that failed is a web page
called ``model.dsm``. Nothing here is unpacked, unpickled or executed.
"""

from __future__ import annotations

import codecs
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
    to_weights: str = ""  # an expression of what `load_state_dict` takes, where the file holds that


COMPILE = (
    'compile the model in Python: ds.compile(model, spec).save("OUT.dsm"), or dreamstream convert '
    "FILE.py:FUNCTION OUT.dsm"
)
GRAPH = f"it was exported from a model in Python, which DreamStream needs; {COMPILE}"
WEIGHTS = (
    "it holds weights, and not what is computed with them; give them to the model in Python by load_state_dict, "
    f"and {COMPILE}"
)
PICKLE = f"it is not opened, since a pickle can run anything; {COMPILE}"
AUDIO = "a model comes first and recordings behind it: dreamstream run MODEL AUDIO"
AGAIN = "what was to be downloaded or copied did not arrive; fetch it again"
UNPACK = "unpack it, and look at what is inside"
NOTHING = "a model is a .dsm, .json or .xml file that Engine.save or dreamstream convert wrote"
OF_TORCH = f"{WEIGHTS} --weights FILE", "torch.load(FILE, weights_only=True)"
OLDER_TORCH = FileKind("what torch.save wrote, in its older form, a pickle", *OF_TORCH)
TORCH_NUMBER = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"  # what such a pickle begins with, in a frame or not

#: Where the bytes stand, the bytes, and the kind of file; the first that fits.
MARKS: tuple[tuple[int, bytes, FileKind], ...] = (
    (0, b"DSSTATE", FileKind("a snapshot of a stream", f"engine.restore(data) takes it; {NOTHING}")),
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
    *((at, TORCH_NUMBER, OLDER_TORCH) for at in (2, 11)),
    *((0, b"\x80%c" % version, FileKind("a Python pickle", PICKLE)) for version in range(2, 6)),
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
    *((0, mark, FileKind("an MP3 recording", AUDIO)) for mark in (b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")),
    (0, b".snd", FileKind("an AU recording", AUDIO)),
    (0, b"caff", FileKind("a Core Audio recording", AUDIO)),
    (4, b"ftyp", FileKind("an MP4 recording", AUDIO)),
    (0, b"\x1aE\xdf\xa3", FileKind("a Matroska or WebM recording", AUDIO)),
    (0, b"\x7fELF", FileKind("a program or a library (ELF)", NOTHING)),
    (0, b"\x89PNG", FileKind("a PNG picture", NOTHING)),
    (0, b"\xff\xd8\xff", FileKind("a JPEG picture", NOTHING)),
    (0, b"%PDF", FileKind("a PDF document", NOTHING)),
    (0, b"SQLite format 3\0", FileKind("an SQLite database", NOTHING)),
)

EXPORTED = FileKind("a program of torch.export (.pt2)", GRAPH, "torch.export.load(FILE).state_dict")

#: How names of members of zip archives end, and what they are part of; the first that fits.
MEMBERS: tuple[tuple[str, FileKind], ...] = (
    ("/constants.pkl", FileKind("a TorchScript archive", GRAPH, "torch.jit.load(FILE).state_dict()")),
    ("/archive_format", EXPORTED),
    ("serialized_exported_program.json", EXPORTED),  # as older versions of torch wrote it
    ("model.weights.h5", FileKind("a Keras model", GRAPH)),
    ("data.pkl", FileKind("what torch.save wrote, a zip archive", *OF_TORCH)),
    (".npy", FileKind("an archive of NumPy arrays (.npz)", WEIGHTS, "dict(numpy.load(FILE))")),
)

#: What texts begin with, in lower case and behind white space, and what they are; the first that fits.
TEXTS: tuple[tuple[bytes, FileKind], ...] = (
    (b"version https://git-lfs", FileKind("a pointer of Git LFS, and not the file", "git lfs pull brings that")),
    *((tag, FileKind("a web page", AGAIN)) for tag in (b"<!doctype html", b"<html", b"<head")),
    (b"<", FileKind("an XML file of another program", NOTHING)),
    *((mark, FileKind("a JSON file of another program", NOTHING)) for mark in (b"{", b"[")),
    *((mark, FileKind("Python source", COMPILE)) for mark in (b"import ", b"from ", b"#!/usr/bin/env py", b'"""')),
)

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
ONNX = FileKind("an ONNX model", GRAPH)
ONNX_FIELDS = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25}  # of a ModelProto; the first is the version
PROTOBUF = FileKind("a protobuf file (TensorFlow, Core ML)", GRAPH)
TAR = FileKind("a tar archive", UNPACK)
NEMO = FileKind("a tar archive of NeMo", f"{UNPACK}; {WEIGHTS}")
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
    """Return what to say of a file that is none of weights; nothing where the reader's own message is better."""
    kind = kind_of_file(source)
    if kind is None or kind is SAFETENSORS:
        return ""
    takes = "gives what load_state_dict takes"
    advice = f"{kind.to_weights} {takes}" if kind.to_weights else "load_state_dict takes a dict or safetensors"
    return f"{name} is {kind.what}, no safetensors file; {advice}"


def not_a_file(path: str) -> str:
    """Return what to say of a folder that is given as a model file."""
    found = next((what for name, what in FOLDERS if os.path.exists(os.path.join(path, name))), "")
    models = sorted(name for name in os.listdir(path) if name.endswith(".dsm"))
    advice = f"it holds {', '.join(models[:4])}" if models else COMPILE
    return f"is a folder{f', {found}' if found else ''}, no model file; {advice}"


def instead_of_module(value: Any) -> str:
    """Return the type of what is given as a module or as a file and is neither, and what to do with it."""
    advice = ""
    if isinstance(value, (str, os.PathLike)):
        advice = f"ds.load reads what Engine.save wrote, and else {COMPILE}"
    elif isinstance(value, type):
        advice = f"make one of the class: {value.__name__}()"
    elif isinstance(value, Mapping):
        advice = "a dict of weights is not what is computed with them; a module takes it by load_state_dict"
    elif type(value).__name__ in ("ExportedProgram", "ModelProto"):
        advice = "take the module of which it was exported"
    elif hasattr(value, "state_dict") and callable(value):
        advice = "ds.compile(model, spec) makes an engine of it"
    return f"{type(value).__name__}{advice and f'; {advice}'}"


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
    return next((kind for end, kind in MEMBERS if any(name.endswith(end) for name in names)), ZIP)


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
    return next((kind for mark, kind in TEXTS if begin.startswith(mark)), TEXT)


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # a character may be cut off at the end
    except UnicodeDecodeError:
        return False
    return all(c.isprintable() or c in "\t\n\r\f" for c in text)
