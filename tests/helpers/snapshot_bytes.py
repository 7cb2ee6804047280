"""Snapshots taken apart, doctored and put together again, as docs/snapshot_format.md states them."""

import struct
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

MAGIC = b"DSSTATE1"
MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Array:
    """One array: kept frames (`array` 0 or more) or a carried one (below 0)."""

    node: int
    array: int
    at: int
    data: bytes


@dataclass(frozen=True)
class Snapshot:
    """What a snapshot holds."""

    fingerprint: tuple[int, int]
    frames: tuple[int, ...]
    arrays: tuple[Array, ...]


def checksum(data: bytes) -> int:
    h = 0xCBF29CE484222325
    for (word,) in struct.iter_unpack("<Q", data):
        h = (h ^ word) * 0x9E3779B97F4A7C15 & MASK
        h ^= h >> 32
    return h


def seal(data: bytes) -> bytes:
    """The same with its length and its checksum put right; `data` has room for both."""
    data = data[:8] + struct.pack("<Q", len(data)) + data[16:-8]
    return data + struct.pack("<Q", checksum(data))


def parse(data: bytes) -> Snapshot:
    """Read a snapshot that is known to be good."""
    assert data[:8] == MAGIC and len(data) % 8 == 0 and seal(data) == data
    words = struct.unpack(f"<{len(data) // 8}q", data)
    n_inputs, at = words[4], 5
    frames, n_arrays, at = words[at : at + n_inputs], words[at + n_inputs], at + n_inputs + 1
    arrays = []
    for _ in range(n_arrays):
        node, array, first, n_bytes = words[at : at + 4]
        arrays.append(Array(node, array, first, data[8 * (at + 4) :][:n_bytes]))
        at += 4 + -(-n_bytes // 8)
    assert 8 * (at + 1) == len(data)
    return Snapshot((words[2] & MASK, words[3] & MASK), frames, tuple(arrays))


def build(snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot."""
    out = MAGIC + bytes(8) + struct.pack("<QQQ", *snapshot.fingerprint, len(snapshot.frames))
    out += struct.pack(f"<{len(snapshot.frames)}q", *snapshot.frames)
    out += struct.pack("<Q", len(snapshot.arrays))
    for a in snapshot.arrays:
        out += struct.pack("<qqqQ", a.node, a.array, a.at, len(a.data)) + a.data + bytes(-len(a.data) % 8)
    return seal(out + bytes(8))


def shift(data: bytes, engine: Any, by: int) -> bytes:
    """Move a stream of an engine `by` frames of its first input into the future, and all its edges with it.

    `by` is a whole number of periods of the model.
    """
    rates = {(-1 - k, 0): Fraction(info.rate) for k, info in enumerate(engine.inputs)}
    base = Fraction(engine.inputs[0].rate)
    for node in engine._core.nodes:
        for k, (_, _, num, den) in enumerate(node["outputs"]):
            rates[node["id"], k] = Fraction(num, den)

    def moved(rate: Fraction) -> int:
        frames = by * rate / base
        assert frames.denominator == 1, f"{by} frames are no whole number at rate {rate}"
        return int(frames)

    s = parse(data)
    # A node that is not there any more was a sync: here, of inputs that are as fast as the first.
    arrays = [
        replace(a, at=a.at + moved(rates.get((a.node, a.array), base))) if a.array >= 0 else a for a in s.arrays
    ]
    frames = [n + moved(rates[-1 - k, 0]) for k, n in enumerate(s.frames)]
    return build(replace(s, frames=tuple(frames), arrays=tuple(arrays)))
