"""What goes over the wire: messages, positions, codes. docs/reference/protocol.md says what they mean.

Text messages are JSON objects with a ``type``. Binary ones are frames behind a header of eight bytes: 56 bits of
position, 8 of port.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SUBPROTOCOL = "dreamstream.v1"
PATH, FILES = "/v1/stream", "/v1/files"
MOST_POSITION = (1 << 56) - 1
#: The most bytes of one message: a header, and 64 KiB.
MOST_BYTES = (1 << 16) + 8
#: Element types on the wire, by the name of a format.
FORMATS = {"i16": "<i2", "f32": "<f4"}

#: Why connections are closed.
CODES = {
    "done": 1000,
    "drained": 1001,
    "too large": 1009,
    "full": 1013,
    "malformed": 4400,
    "refused": 4401,
    "unknown": 4404,
    "idle": 4408,
    "taken over": 4409,
    "retired": 4410,
    "queued": 4413,
    "not acknowledged": 4429,
    "engine": 4500,
}

HEADER = struct.Struct("<Q")


class WireError(Exception):
    """What ends a connection: a kind, which is a key of `CODES`, a reason, and more of the ``error`` message."""

    def __init__(self, kind: str, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.more = kind, reason, more


def packed(position: int, port: int, frames: npt.NDArray[Any]) -> bytes:
    """Return frames as a binary message."""
    return HEADER.pack(position | port << 56) + np.ascontiguousarray(frames).data.cast("B")


def unpacked(data: bytes) -> tuple[int, int, memoryview]:
    """Return position, port and the rest of a binary message."""
    if len(data) < HEADER.size:
        raise WireError("malformed", f"a binary message has a header of 8 bytes, got {len(data)}")
    (word,) = HEADER.unpack_from(data)
    return word & MOST_POSITION, word >> 56, memoryview(data)[HEADER.size :]


def message(kind: str, **fields: Any) -> str:
    """Return a text message."""
    return json.dumps({"type": kind, **fields}, separators=(",", ":"))


def read_message(data: bytes | str, known: Sequence[str]) -> dict[str, Any]:
    """Return a text message of one of the `known` types; raise WireError for anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise WireError("malformed", "a text message is a JSON object with a type")
    if found["type"] not in known:
        raise WireError(
            "malformed", f"{found['type'][:20]!r} is no message that belongs here ({', '.join(known)})"
        )
    return found


def whole_number(found: dict[str, Any], name: str) -> int:
    """Return a position in a message; 0 where it has none."""
    value = found.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_POSITION:
        raise WireError("malformed", f"{found['type']}: {name} is a number of frames, got {str(value)[:30]}")
    return value


def positions(found: dict[str, Any], name: str, n_ports: int) -> list[int]:
    """Return a position per output: a number where there is one, else a list."""
    value = found.get(name, [0] * n_ports)
    values = value if isinstance(value, list) else [value]
    if len(values) != n_ports:
        raise WireError(
            "malformed", f"{found['type']}: {name} has a number of frames for each of {n_ports} outputs"
        )
    return [whole_number({**found, name: v}, name) for v in values]


def per_output(values: Sequence[int]) -> Any:
    """Return positions of outputs as messages have them."""
    return values[0] if len(values) == 1 else list(values)


# ---------------------------------------------------------------------- resume tokens
def signed(key: bytes, content: dict[str, Any]) -> str:
    """Return a resume token: what a server must know of a stream of which nothing is stored yet, signed."""
    text = json.dumps(content, separators=(",", ":")).encode()
    sign = hmac.new(key, text, hashlib.sha256).digest()[:18]
    return f"{_encoded(text)}.{_encoded(sign)}"


def opened(key: bytes, token: Any) -> dict[str, Any]:
    """Return the content of a token that was signed with this key; raise WireError for any other."""
    text, _, sign = token.partition(".") if isinstance(token, str) else ("", "", "")
    try:
        content, given = _decoded(text), _decoded(sign)
    except (ValueError, binascii.Error):
        content = given = b""
    if not hmac.compare_digest(hmac.new(key, content, hashlib.sha256).digest()[:18], given):
        raise WireError("refused", "this is no token of this server")
    out: dict[str, Any] = json.loads(content)
    return out


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
