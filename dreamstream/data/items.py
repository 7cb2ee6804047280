"""What a source of streams holds: an item for each stream, with its target where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import FormatError, StreamIdError
from .audio import AudioReader
from .manifest import KINDS, read_manifest

#: Of recordings that are looked for in folders.
SUFFIXES = (
    *(".wav", ".wave", ".rf64", ".w64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc"),
    *(".au", ".snd", ".caf", ".voc", ".sph", ".nist"),
)
NO_TARGET: Any = object()


class Item(NamedTuple):
    """A stream before it is read: a path, an array, an iterable of arrays, or a function that returns one."""

    id: str
    x: Any
    target: Any = NO_TARGET


def is_path(x: Any) -> bool:
    """Whether an item lies in a file."""
    return isinstance(x, (str, os.PathLike))


def items_of(
    source: Any, targets: Mapping[str, Any] | None = None, columns: Sequence[str] = ("path", "target")
) -> list[Item] | Iterator[Item]:
    """Return the items of a source: a list where it can be gone through again, else an iterator."""
    found = _items_of(source, columns)
    if not isinstance(found, list):
        return _alike(found if targets is None else (i._replace(target=_target_of(i, targets)) for i in found))
    ids = [item.id for item in found]
    if len(set(ids)) < len(ids):
        twice = sorted({i for i in ids if ids.count(i) > 1}) if len(ids) < 10**4 else ()
        raise StreamIdError("an id, or a path without one, occurs twice in the source", twice)
    if targets is not None:
        missing = [i for i in ids if i not in targets]
        if missing:
            raise StreamIdError("these streams have no target", missing)
        found = [item._replace(target=targets[item.id]) for item in found]
    _require_alike(found)
    return found


def _target_of(item: Item, targets: Mapping[str, Any]) -> Any:
    if item.id not in targets:
        raise StreamIdError("this stream has no target", [item.id])
    return targets[item.id]


def _alike(items: Iterator[Item]) -> Iterator[Item]:
    first = None
    for item in items:
        first = first or item
        _require_alike((first, item))
        yield item


def _require_alike(items: Iterable[Item]) -> None:
    """Raise where some streams have targets and others have none."""
    without = [item.id for item in items if item.target is NO_TARGET]
    if without and any(item.target is not NO_TARGET for item in items):
        raise StreamIdError("some streams have targets, these have none", without)


def _items_of(source: Any, columns: Sequence[str]) -> list[Item] | Iterator[Item]:
    if is_path(source):
        return _in_files(Path(source), columns)
    if isinstance(source, Mapping):
        return [Item(_id_of(i), x) for i, x in source.items()]
    made = (_item_of(n, given) for n, given in enumerate(source))
    return list(made) if isinstance(source, Sequence) else made


def _in_files(path: Path, columns: Sequence[str]) -> list[Item]:
    if path.is_dir():
        found = [p for p in sorted(path.rglob("*")) if p.suffix.lower() in SUFFIXES and p.is_file()]
        if not found:
            raise FormatError(f"{path}: there are no recordings in this folder")
        return [Item(str(p), p) for p in found]
    if path.suffix.lower() in KINDS:
        rows = read_manifest(path, columns)
        return [Item(i, x, NO_TARGET if target is None else target) for i, x, target in rows]
    return [Item(str(path), path)]


def _item_of(number: int, given: Any) -> Item:
    """Return an item of a sequence or an iterator."""
    if is_path(given):
        return Item(os.fspath(given), given)
    if isinstance(given, tuple):
        if len(given) not in (2, 3):
            raise StreamIdError(f"item {number}: expected (id, x) or (id, x, target), got a tuple of {len(given)}")
        return Item(_id_of(given[0]), *given[1:])
    return Item(str(number), given)


def _id_of(given: Any) -> str:
    if not isinstance(given, str):
        raise StreamIdError(f"a stream's id must be str, got {given!r:.100}")
    return given


def length_of(item: Item, axis: int, sample_rate: int | None) -> int | None:
    """Return how many frames an item has, by its shape or its file's header; None where neither says so."""
    x = item.x
    if is_path(x) and Path(x).suffix.lower() != ".npy":
        with AudioReader(x) as reader:
            frames, rate = reader.frames, reader.sample_rate
        return frames if frames is None or sample_rate is None else -(-frames * sample_rate // rate)
    if is_path(x):
        x = np.load(x, mmap_mode="r")
    shape = getattr(x, "shape", None)
    return None if not shape else int(shape[axis])
