"""Snapshots with differences behind them, put together as one; docs/snapshot_format.md is the format."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from .. import _core
from ..errors import FormatError

_WHOLE, _DIFFERENCE = b"DSSTATE1", b"DSDELTA1"


class _Part(NamedTuple):
    """A snapshot or a difference; of each array, by (node, array), position, bytes, and the last of them."""

    fingerprint: bytes
    frames: bytes
    since: bytes
    arrays: dict[tuple[int, int], tuple[int, int, memoryview]]


def whole_snapshot(data: Any) -> Any:
    """Return one snapshot for a snapshot and the differences that follow it; other bytes as they are.

    Differences that are damaged, or do not follow what is before them, are a FormatError.
    """
    view = memoryview(data).cast("B")
    sizes = [] if len(view) < 16 or view[:8] != _WHOLE else list(struct.unpack_from("<Q", view, 8))
    if not sizes or view[sizes[0] : sizes[0] + 8] != _DIFFERENCE:
        return data
    parts, at = list[_Part](), 0
    while at < len(view):
        size = struct.unpack_from("<Q", view, at + 8)[0] if len(view) - at >= 16 else 0
        if view[at : at + 8] != (_DIFFERENCE if parts else _WHOLE) or size % 8 or not 48 <= size <= len(view) - at:
            raise FormatError(f"expected a difference at byte {at} of the snapshot, or its end")
        part = view[at : at + size]
        if _core.snapshot_checksum(part[:-8]) != struct.unpack_from("<Q", part, size - 8)[0]:
            raise FormatError(f"the part of the snapshot at byte {at} is damaged: its checksum is another")
        try:
            parts.append(_parsed(part[:-8], bool(parts)))
        except (struct.error, OverflowError):
            raise FormatError(f"the part of the snapshot at byte {at} ends within an array") from None
        if len(parts) > 1 and (parts[-2].fingerprint, parts[-2].frames) != (
            parts[-1].fingerprint,
            parts[-1].since,
        ):
            raise FormatError(f"the difference at byte {at} does not follow the part of the snapshot before it")
        at += size
    return _joined(parts)


def size_of_whole(difference: bytes) -> int:
    """Return the bytes of the snapshot that this difference completes."""
    part = _parsed(memoryview(difference)[:-8], True)
    return 56 + len(part.frames) + sum(32 + n + -n % 8 for _, n, _ in part.arrays.values())


def _parsed(view: memoryview, is_difference: bool) -> _Part:
    """Take a part without its checksum apart."""
    (n,) = struct.unpack_from("<Q", view, 32)
    fields = 1 + is_difference
    begin = 40 + 8 * n * fields
    (n_arrays,) = struct.unpack_from("<Q", view, begin)
    at, arrays = begin + 8, {}
    for _ in range(n_arrays):
        node, array, position, n_bytes, *given = struct.unpack_from("<3q2Q" if is_difference else "<3qQ", view, at)
        n_given = given[0] if given else n_bytes
        at += 32 + 8 * is_difference
        arrays[node, array] = position, n_bytes, view[at : at + n_given]
        at += n_given + -n_given % 8
        if n_given > n_bytes or at > len(view):
            raise struct.error
    frames = bytes(view[40:begin])
    return _Part(bytes(view[16:40]), frames[: 8 * n], frames[8 * n :], arrays)


def _joined(parts: list[_Part]) -> bytes:
    last, room = parts[-1], list[bytes | memoryview]()
    for key, (position, n_bytes, _) in last.arrays.items():
        pieces, missing = list[memoryview](), n_bytes
        for part in reversed(parts):
            _, there, given = part.arrays.get(key, (0, 0, memoryview(b"")))
            if missing > there:
                raise FormatError(f"array {key[1]} of node {key[0]} lacks {missing - there} bytes of the snapshot")
            pieces.append(given[max(0, len(given) - missing) :])
            missing -= len(pieces[-1])
            if not missing:
                break
        room += [struct.pack("<3qQ", *key, position, n_bytes), *reversed(pieces), bytes(-n_bytes % 8)]
    size = 48 + len(last.frames) + sum(map(len, room)) + 8
    head = _WHOLE + struct.pack("<Q", size) + last.fingerprint + last.frames + struct.pack("<Q", len(last.arrays))
    whole = b"".join((head, *room))
    return whole + struct.pack("<Q", _core.snapshot_checksum(whole))
