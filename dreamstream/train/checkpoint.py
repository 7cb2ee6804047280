"""Files of checkpoints: a tree of numbers, texts and arrays, as one safetensors file.

Arrays are the file's tensors, named by their place in the tree (``model.head.weight``), so that any reader of
safetensors finds the weights. What remains of the tree is JSON among the file's texts, in which an array is
``{"array": its tensor's name, "of": whose it is}``; a second text is a checksum of both. Nothing is pickled, and
nothing in a file is run.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import container
from ..array.tensor import Tensor
from ..engine.files import replacing
from ..errors import FormatError
from .front import torch_module

TREE, CHECKSUM = "dreamstream.checkpoint", "dreamstream.checksum"

#: Element types that a container names; the bytes of others are held as they are.
_NAMES = {"bfloat16" if name == "BF16" else np.dtype(code).name: name for name, code in container.ELEMENTS.items()}
_PLAIN = re.compile(r"[\w.-]{1,200}", re.ASCII)


def write(path: str | os.PathLike[str], tree: Any) -> None:
    """Write a tree to a file, which takes the place of an older one when all of it is on the disk."""
    tensors: dict[str, container.Tensor] = {}
    text = json.dumps(_encoded(tree, "", tensors))
    texts = {TREE: text, CHECKSUM: _checksum(text, tensors.values())}
    content = container.write(tensors.values(), texts)
    with replacing(os.fspath(path)) as file:
        file.write(content)


def read(path: str | os.PathLike[str]) -> Any:
    """Return a file's tree; raise FormatError for what is no checkpoint, is cut short or damaged."""
    name = os.fspath(path)
    with open(path, "rb") as file:
        content = file.read()
    try:
        tensors, texts = container.read(content)
    except FormatError as error:
        raise FormatError(f"{name} is no checkpoint, or was damaged: {error}") from None
    if TREE not in texts or CHECKSUM not in texts:
        raise FormatError(f"{name} is no checkpoint of ChunkTrainer.save, but another safetensors file")
    if texts[CHECKSUM] != _checksum(texts[TREE], tensors):
        raise FormatError(f"{name} is damaged: its checksum does not match")
    try:
        return _decoded(json.loads(texts[TREE]), {t.name: t for t in tensors})
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{name} is damaged: {type(error).__name__}: {error}") from None


def _checksum(text: str, tensors: Iterable[container.Tensor]) -> str:
    value = zlib.crc32(text.encode())
    for t in tensors:
        value = zlib.crc32(t.data, zlib.crc32(f"{t.name} {t.dtype} {t.shape}".encode(), value))
    return f"{value:08x}"


# ---------------------------------------------------------------------- to JSON and tensors
def _encoded(tree: Any, path: str, tensors: dict[str, container.Tensor]) -> Any:
    """Return a tree as JSON holds it; its arrays are added to `tensors`."""
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if isinstance(tree, np.generic):
        return tree.item()
    if isinstance(tree, Mapping):
        kind = "counter" if isinstance(tree, Counter) else "dict"
        items = enumerate(tree.items())
        return {kind: [[_key(k, path), _encoded(v, _below(path, k, n), tensors)] for n, (k, v) in items]}
    if isinstance(tree, (list, tuple)):
        found = [_encoded(v, _below(path, n, n), tensors) for n, v in enumerate(tree)]
        return found if isinstance(tree, list) else {"tuple": found}
    if isinstance(tree, (bytes, bytearray)):
        return _array(path, "bytes", "uint8", (len(tree),), bytes(tree), tensors)
    if isinstance(tree, (np.ndarray, Tensor)):
        values = np.asarray(tree)
        if values.dtype.hasobject:
            raise FormatError(f"a checkpoint can't hold {path}, an array of objects")
        of = "numpy" if isinstance(tree, np.ndarray) else "dreamstream"
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        return _array(path, of, values.dtype.name, values.shape, little.tobytes(), tensors)
    if any(c.__name__ == "Tensor" and c.__module__ == "torch" for c in type(tree).__mro__):
        values = tree.detach().cpu().contiguous()
        raw = values.reshape(-1).view(torch_module().uint8).numpy().tobytes()
        return _array(path, "torch", str(values.dtype).removeprefix("torch."), tuple(values.shape), raw, tensors)
    raise FormatError(
        f"a checkpoint can't hold {path}, which is of type {type(tree).__name__}; it holds numbers, texts, "
        "arrays, and lists and dicts of these"
    )


def _key(key: Any, path: str) -> Any:
    if key is not None and not isinstance(key, (bool, int, float, str)):
        raise FormatError(f"a checkpoint can't hold {path}, a dict with a key of type {type(key).__name__}")
    return key


def _below(path: str, key: Any, number: int) -> str:
    """Return the name of an entry: by its key where that is a plain word, else by its number."""
    word = str(key) if _PLAIN.fullmatch(str(key)) else f"#{number}"
    return f"{path}.{word}" if path else word


def _array(
    path: str, of: str, dtype: str, shape: tuple[int, ...], raw: bytes, tensors: dict[str, container.Tensor]
) -> Any:
    name = path
    while name in tensors:
        name += "~"
    plain = dtype in _NAMES
    kind, held = (_NAMES[dtype], shape) if plain else ("U8", (len(raw),))
    tensors[name] = container.Tensor(name, kind, held, raw)
    return {"array": name, "of": of, **({} if plain else {"dtype": dtype, "shape": list(shape)})}


# ---------------------------------------------------------------------- and back
def _decoded(node: Any, tensors: Mapping[str, container.Tensor]) -> Any:
    if isinstance(node, list):
        return [_decoded(n, tensors) for n in node]
    if not isinstance(node, dict):
        return node
    if "dict" in node:
        return {k: _decoded(v, tensors) for k, v in node["dict"]}
    if "counter" in node:
        return Counter({k: _decoded(v, tensors) for k, v in node["counter"]})
    if "tuple" in node:
        return tuple(_decoded(n, tensors) for n in node["tuple"])
    held, of = tensors[node["array"]], node["of"]
    if of == "bytes":
        return bytes(held.data)
    dtype = node.get("dtype") or next(k for k, v in _NAMES.items() if v == held.dtype)
    shape = tuple(node.get("shape", held.shape))
    if of == "torch":
        torch = torch_module()
        kind = getattr(torch, dtype)
        if not len(held.data):
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(bytearray(held.data), dtype=kind).reshape(shape).clone()
    values = np.frombuffer(held.data, np.dtype(dtype).newbyteorder("<")).astype(dtype).reshape(shape)
    return values if of == "numpy" else Tensor(values)
