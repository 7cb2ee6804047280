"""Model files as text: JSON and XML that hold the whole model, to and from the bytes of a ``.dsm``.

Both are made of what the container holds: the JSON object that describes the model, and the tensors, their
bytes in base64. docs/howto/files.md describes them. Neither form can say anything that a ``.dsm`` could not:
what is read becomes a container again, whose reader judges the rest.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from .. import _core, container
from ..errors import FormatError

KEY = "dreamstream"
"""Of the model's description, in the container's metadata and in the text forms."""

MARKS = ("fingerprint", "origin", "types")
"""What a file says of itself in the text forms, each where there is one; ``KEY.MARK`` in the container."""

MOST_LEVELS = 80  # of XML elements within each other: JSON's 64, and what stands around them


class ModelParts(NamedTuple):
    """What a model file is made of."""

    model: Any  # its description
    marks: dict[str, str]  # as they are written, right or not
    tensors: list[container.Tensor]


def parts_of(content: Any) -> ModelParts:
    """Return a container's parts, the tensors as views of it."""
    tensors, texts = container.read(content)
    if KEY not in texts:
        raise FormatError(f'a safetensors file without "{KEY}" in its metadata is no model')
    marks = {mark: texts[f"{KEY}.{mark}"] for mark in MARKS if f"{KEY}.{mark}" in texts}
    return ModelParts(_json(texts[KEY]), marks, tensors)


def is_text(head: bytes) -> bool:
    """Whether a file that begins so is one of the text forms."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"<")


def from_text(content: bytes) -> bytes:
    """Return the container that a text form stands for; FormatError says what is wrong with others, and where."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        read = _read_xml if content.lstrip()[:1] == b"<" else _read_json
        parts = read(content)
        texts = {KEY: json.dumps(parts.model, ensure_ascii=False, separators=(",", ":"), allow_nan=False)}
        texts |= {f"{KEY}.{mark}": text for mark, text in parts.marks.items()}
        return container.write(parts.tensors, texts)
    except FormatError:
        raise
    except RecursionError:
        raise FormatError("the text of a model: too deep") from None
    except ValueError as error:  # of json, unicode and base64 too
        raise FormatError(f"the text of a model: {error}") from None


def _refuse(where: str, expected: str, got: Any) -> NoReturn:
    raise FormatError(f"the text of a model: {where}: expected {expected}, got {repr(got)[:60]}")


def _base64(where: str, text: Any) -> bytes:
    if not isinstance(text, str):
        _refuse(where, "base64", text)
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"the text of a model: {where}: no base64: {error}") from None


# ---------------------------------------------------------------- JSON
def to_json(content: Any) -> Iterator[bytes]:
    """Yield the JSON text of a container, in pieces."""
    parts = parts_of(content)
    yield f'{{"{KEY}":\n{_dumped(parts.model, indent=1)},\n'.encode()
    for mark, text in parts.marks.items():
        yield f'"{mark}": {_dumped(text)},\n'.encode()
    yield b'"tensors": {'
    for i, t in enumerate(parts.tensors):
        head = f'{_dumped(t.name)}: {{"dtype": "{t.dtype}", "shape": {_dumped(t.shape)}, "data": "'
        yield (",\n" if i else "\n").encode() + head.encode()
        yield from _encoded(t.data)
        yield b'"}'
    yield b"\n}}\n"


def _dumped(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _encoded(data: Any) -> Iterator[bytes]:
    step = 3 << 18
    for at in range(0, len(data), step):
        yield base64.b64encode(data[at : at + step])


def _json(text: str) -> Any:
    def number(text: str) -> NoReturn:
        _refuse("a value", "a finite number", text)

    return json.loads(text, object_pairs_hook=_once, parse_constant=number)


def _once(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of its members, whose keys are to differ."""
    out: dict[str, Any] = {}
    for key, value in members:
        if key in out:
            _refuse("an object", "keys that differ", key)
        out[key] = value
    return out


def _read_json(content: bytes) -> ModelParts:
    given = _json(content.decode())
    marks = {mark: given.pop(mark) for mark in MARKS if mark in given} if isinstance(given, dict) else {}
    _require_keys("the outermost object", given, {KEY, "tensors"})
    for mark, text in marks.items():
        if not isinstance(text, str):
            _refuse(mark, "a string", text)
    tensors = []
    if not isinstance(given["tensors"], dict):
        _refuse("tensors", "an object", given["tensors"])
    for name, t in given["tensors"].items():
        where = f"tensor {_core.shown(name)}"
        _require_keys(where, t, {"dtype", "shape", "data"})
        shape = t["shape"]
        if not isinstance(shape, list) or any(type(n) is not int for n in shape):
            _refuse(f"{where}, shape", "an array of integers", shape)
        if not isinstance(t["dtype"], str):
            _refuse(f"{where}, dtype", "a string", t["dtype"])
        tensors.append(container.Tensor(name, t["dtype"], tuple(shape), _base64(where, t["data"])))
    return ModelParts(given[KEY], marks, tensors)


def _require_keys(where: str, value: Any, keys: set[str]) -> None:
    if not isinstance(value, dict) or set(value) != keys:
        got = sorted(value) if isinstance(value, dict) else value
        _refuse(where, f"an object of {', '.join(sorted(keys))}", got)


# ---------------------------------------------------------------- XML
# Values are elements named after their kind, members of objects have their keys as attributes; strings and
# keys are written with the escapes of JSON, so that any of them can stand in XML.
def to_xml(content: Any) -> Iterator[bytes]:
    """Yield the XML text of a container, in pieces."""
    parts = parts_of(content)
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<{KEY}>\n<model>\n'.encode()
    yield "".join(_elements(parts.model, 1)).encode()
    yield b"</model>\n"
    for mark, text in parts.marks.items():
        yield f"<{mark}>{_quoted(text)}</{mark}>\n".encode()
    yield b"<tensors>\n"
    for t in parts.tensors:
        shape = " ".join(map(str, t.shape))
        yield f'<tensor name="{_quoted(t.name)}" dtype="{t.dtype}" shape="{shape}">'.encode()
        yield from _encoded(t.data)
        yield b"</tensor>\n"
    yield f"</tensors>\n</{KEY}>\n".encode()


def _quoted(text: str) -> str:
    text = json.dumps(text, ensure_ascii=False)[1:-1]
    text = re.sub("[\x7f-\x9f\ufffe\uffff]", lambda c: f"\\u{ord(c[0]):04x}", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _elements(value: Any, level: int, key: str | None = None) -> Iterator[str]:
    named = "" if key is None else f' key="{_quoted(key)}"'
    space = " " * level
    if isinstance(value, (dict, list)):
        kind = "object" if isinstance(value, dict) else "array"
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        yield f"{space}<{kind}{named}>\n"
        for inner, item in items:
            yield from _elements(item, level + 1, inner)
        yield f"{space}</{kind}>\n"
    elif isinstance(value, str):
        yield f"{space}<string{named}>{_quoted(value)}</string>\n"
    elif value is None or isinstance(value, bool):
        yield f"{space}<{json.dumps(value)}{named}/>\n"
    else:
        kind = "integer" if isinstance(value, int) else "real"
        yield f"{space}<{kind}{named}>{json.dumps(value)}</{kind}>\n"


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        _refuse("a string", "the escapes of JSON", text)


_SCALARS: dict[str, Callable[[str], Any]] = {
    "string": _unquoted,
    "integer": lambda text: _number(text, r"-?[0-9]{1,19}", int),
    "real": lambda text: _number(text, r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][-+]?[0-9]{1,4})?", float),
    "true": lambda text: _nothing(text, True),
    "false": lambda text: _nothing(text, False),
    "null": lambda text: _nothing(text, None),
}


def _number(text: str, form: str, kind: Callable[[str], Any]) -> Any:
    if not re.fullmatch(form, text.strip()):
        _refuse("a value", "a number", text)
    return kind(text.strip())


def _nothing(text: str, value: Any) -> Any:
    if text.strip():
        _refuse("an element", "no text", text)
    return value


class _Elements(ElementTree.TreeBuilder):
    """Builds a tree of elements without a DTD: nothing is expanded, nothing is fetched."""

    _depth = 0

    def doctype(self, *_: Any) -> NoReturn:
        raise FormatError("the text of a model: a DOCTYPE, and with it entities, is refused")

    def start(self, tag: str, attrs: Any, /) -> Element:
        self._depth += 1
        if self._depth > MOST_LEVELS:
            raise FormatError("the text of a model: too deep")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def _read_xml(content: bytes) -> ModelParts:
    parser = ElementTree.XMLParser(target=_Elements(), encoding="UTF-8")
    try:
        parser.feed(content)
        root = parser.close()
    except ElementTree.ParseError as error:
        raise FormatError(f"the text of a model: {error}") from None
    if root.tag != KEY:
        _refuse("outermost", KEY, f"<{root.tag}>")
    parts = _inside(root, ("model", *MARKS, "tensors"))
    marks = {e.tag: _unquoted(_text(e)) for e in parts if e.tag in MARKS}
    sections = [e.tag for e in parts]
    if sections != ["model", *(mark for mark in MARKS if mark in marks), "tensors"] or len(parts[0]) != 1:
        _refuse(f"<{KEY}>", "<model> with one value, <fingerprint> or none, then <tensors>", sections)
    (model,) = _inside(parts[0], _VALUES)
    return ModelParts(_value(model), marks, [_tensor(e) for e in _inside(parts[-1], ("tensor",))])


_VALUES = ("object", "array", *_SCALARS)


def _require_attributes(e: Element, *names: str) -> None:
    if set(e.attrib) != set(names):
        _refuse(f"<{e.tag}>", f"the attributes {sorted(names)}", sorted(e.attrib))


def _text(e: Element, *attributes: str) -> str:
    """Return the text of an element that holds nothing else."""
    _require_attributes(e, *attributes)
    if len(e):
        _refuse(f"in <{e.tag}>", "text", f"<{e[0].tag}>")
    return e.text or ""


def _inside(e: Element, allowed: Sequence[str], *attributes: str) -> Sequence[Element]:
    """Return the elements in one that holds nothing else."""
    _require_attributes(e, *attributes)
    text = "".join(filter(None, (e.text, *(inner.tail for inner in e)))).strip()
    if text:
        _refuse(f"<{e.tag}>", "elements", text)
    for inner in e:
        if inner.tag not in allowed:
            _refuse(f"in <{e.tag}>", " or ".join(allowed), f"<{inner.tag}>")
    return list(e)


def _value(e: Element, *attributes: str) -> Any:
    if e.tag in _SCALARS:
        return _SCALARS[e.tag](_text(e, *attributes))
    items = _inside(e, _VALUES, *attributes)
    if e.tag == "array":
        return [_value(item) for item in items]
    return _once([(_unquoted(item.get("key", "")), _value(item, "key")) for item in items])


def _tensor(e: Element) -> container.Tensor:
    text, name = _text(e, "name", "dtype", "shape"), _unquoted(e.get("name", ""))
    shape = [_number(n, r"[0-9]{1,19}", int) for n in e.get("shape", "").split()]
    return container.Tensor(name, e.get("dtype", ""), tuple(shape), _base64(f"tensor {_core.shown(name)}", text))
