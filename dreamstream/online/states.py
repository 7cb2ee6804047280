"""States of eager streams as bytes: what `get_state` gives and `set_state` takes.

A state carries the script under which it was taken, so that a fresh process can go on, and refuses
another model's. The bytes are: a magic word, the length of a JSON header, the header, the states of
all operations one after another, and a checksum of all before it.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from ..errors import FormatError, ModeError, StreamIdError
from ..stream.rules import as_cid
from .segments import StreamState
from .session import Session

MAGIC = b"DSEAGER1"
MOST_FRAMES = 1 << 60


def dump(session: Session, ids: Sequence[str] | str | None) -> dict[str, bytes]:
    """Return the states of streams, or of all live ones."""
    with session.hold():
        wanted = session.live_ids if ids is None else [ids] if isinstance(ids, str) else list(ids)
        unknown = [i for i in wanted if session.state_of(i) is None]
        if unknown:
            raise StreamIdError("no such streams are live", unknown)
        return {i: _dump_one(session, i) for i in wanted}


def _dump_one(session: Session, stream_id: str) -> bytes:
    state = session.state_of(stream_id)
    assert state is not None
    parts = session.to_parts(state.states)
    once = [np.ascontiguousarray(value).tobytes() for value in state.once]
    header = {
        "script": session.script,
        "rates": [[r.numerator, r.denominator] for r in session.rates],
        **({"given": session.given} if session.given else {}),
        **({} if state.key is None else {"draws": state.key}),
        "frames": list(state.frames),
        "sizes": [None if p is None else len(p) for p in parts],
        **({"once": True} if once else {}),
    }
    return sealed(MAGIC, header, b"".join([*(p for p in parts if p is not None), *once]))


def sealed(magic: bytes, header: Any, content: bytes) -> bytes:
    """Return a state's bytes: the magic word, a header as JSON, what it is of, and a checksum."""
    text = json.dumps(header).encode()
    body = magic + struct.pack("<Q", len(text)) + text + content
    return body + struct.pack("<I", zlib.crc32(body))


def unsealed(magic: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Return the header, still as JSON, and the content of what `sealed` gave; FormatError for other bytes."""
    if len(data) < 20 or data[:8] != magic:
        raise FormatError("these bytes are not a stream's state")
    if struct.unpack("<I", data[-4:])[0] != zlib.crc32(data[:-4]):
        raise FormatError("the state is damaged: its checksum does not match")
    (n,) = struct.unpack("<Q", data[8:16])
    return data[16 : 16 + n], data[16 + n : -4]


def _read(data: bytes) -> tuple[list[Any], tuple[Fraction, ...], dict[str, Any], StreamState]:
    text, content = unsealed(MAGIC, data)
    try:
        header = json.loads(text)
        script = as_cid(header["script"])
        rates = tuple(Fraction(a, b) for a, b in header["rates"])
        frames = tuple(int(f) for f in header["frames"])
        key = None if header.get("draws") is None else int(header["draws"]) % (1 << 64)
        given = {
            str(k): (str(dtype), tuple(d if d == "M" else int(d) for d in dims))
            for k, (dtype, dims) in header.get("given", {}).items()
        }
        sizes = header["sizes"]
        at, parts = 0, []
        for size in sizes:
            parts.append(None if size is None else content[at : at + size])
            at += size or 0
        once = []
        for (dtype, dims), frames_of in zip(given.values(), frames[len(frames) - len(given) :]):
            if header.get("once"):
                shape = [min(frames_of, MOST_FRAMES) if d == "M" else d for d in dims]
                size = prod(shape) * np.dtype(dtype).itemsize
                once.append(np.frombuffer(content[at : at + size], dtype).reshape(shape))
                at += size
    except (ValueError, KeyError, TypeError, ZeroDivisionError, RecursionError) as error:
        raise FormatError(f"the state's header is damaged: {error}") from None
    if at != len(content) or len(sizes) != len(script) or len(frames) != len(rates):
        raise FormatError("the state's sizes do not add up")
    moving = len(rates) - len(given)
    memories = ["M" in dims for _, dims in given.values()]
    each = zip(frames[max(moving, 0) :], memories)
    if (
        moving < 1
        or list(rates[moving:]) != memories
        or 0 in rates[:moving]
        or not all(f >= 1 if memory else f == 1 for f, memory in each)
    ):
        raise FormatError("the state's inputs that are given once do not add up")
    if any(size is not None and size < 0 for size in sizes) or not all(map(_is_key, script)):
        raise FormatError("the state's header is damaged: no operations of a forward")
    if not all(0 <= f <= MOST_FRAMES for f in frames):
        raise FormatError(f"the state's position {frames} is impossible")
    return list(script), rates, given, StreamState(frames, parts, (), key, once)


def _is_key(key: Any) -> bool:
    """Whether this has the form of what names an operation in a script."""
    if not (isinstance(key, tuple) and len(key) == 4 and isinstance(key[0], str)):
        return False
    _, attributes, weights, inputs = key
    return all(isinstance(part, tuple) for part in (attributes, weights, inputs)) and all(
        isinstance(a, tuple) and len(a) == 2 for a in attributes
    )


def load(session: Session, given: Mapping[str, bytes]) -> None:
    """Add streams with given states: all of them, or none."""
    wrong = [i for i in given if not isinstance(i, str)]
    if wrong:
        raise StreamIdError(f"ids must be strings, got {wrong[0]!r} of type {type(wrong[0]).__name__}")
    read = {i: _read(memoryview(data).tobytes()) for i, data in given.items()}
    with session.hold():
        live = [i for i in read if session.state_of(i) is not None]
        if live:
            raise StreamIdError("the streams are live already", live)
        fresh = not session.live_ids
        own = as_cid(json.loads(json.dumps(session.script)))
        for i, (script, rates, known, _) in read.items():
            if fresh:
                session.script, session.rates, session.given = list(script), rates, known
                session.kinds = ()  # which files have no word of
                own, fresh = tuple(script), False
            elif tuple(script) != tuple(own) or rates != session.rates or known != session.given:
                raise ModeError("the state was taken from another model, or another forward", (i,))
        session.publish(
            {
                i: StreamState(s.frames, session.from_parts(s.states), (), s.key, s.once)
                for i, (*_, s) in read.items()
            }
        )
