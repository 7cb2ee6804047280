"""Where streams are kept that have no engine at the moment, and what survives a server: records by id.

A record holds the snapshots at an input position and the outputs before it that nobody has acknowledged: without
these, frames that left and never arrived would be lost.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import DreamStreamError


class StoreError(DreamStreamError, OSError):
    """A store that can't be had."""


@dataclass
class Record:
    """What a stream is made of again.

    Attributes
    ----------
    model : str
        The fingerprint of its engine.
    input : int
        Frames that its snapshot has seen.
    made : list of int
        Frames of each output that the engine has given.
    acknowledged : list of int
        Frames of each output that the client has.
    snapshot : bytes
        Empty where the engine has nothing of it: before its first step, and after its end.
    decoder : bytes
        The snapshot of the decoder, where the model has one.
    outputs : list of (int, bytes)
        Per message that is not acknowledged its port and itself.
    ended : bool
        Whether all outputs are made.
    said : float
        Where the words end that have left.
    """

    model: str
    input: int
    made: list[int]
    acknowledged: list[int]
    snapshot: bytes = b""
    decoder: bytes = b""
    outputs: list[tuple[int, bytes]] = field(default_factory=list)
    ended: bool = False
    said: float = 0.0

    @property
    def progress(self) -> list[int]:
        """How far it is: later records of a stream have more."""
        return [self.ended, self.input, *self.made, *self.acknowledged]

    def pack(self) -> bytes:
        """Return it as bytes."""
        told = {
            "model": self.model,
            "input": self.input,
            "made": self.made,
            "acknowledged": self.acknowledged,
            "ended": self.ended,
            "said": self.said,
            "parts": [len(self.snapshot), len(self.decoder), *(len(data) for _, data in self.outputs)],
            "ports": [port for port, _ in self.outputs],
        }
        text = json.dumps(told).encode()
        outputs = (data for _, data in self.outputs)
        return b"".join((struct.pack("<I", len(text)), text, self.snapshot, self.decoder, *outputs))

    @classmethod
    def unpack(cls, data: bytes) -> Record:
        """Return what `pack` was made of."""
        (n,) = struct.unpack_from("<I", data)
        at, parts = 4 + n, []
        told = json.loads(data[4:at])
        for size in told["parts"]:
            parts.append(data[at : at + size])
            at += size
        return cls(
            model=told["model"],
            input=told["input"],
            made=told["made"],
            acknowledged=told["acknowledged"],
            snapshot=parts[0],
            outputs=list(zip(told["ports"], parts[2:])),
            ended=told["ended"],
            decoder=parts[1],
            said=told["said"],
        )


class Store(Protocol):
    """Records by id; each method holds when it returns."""

    #: What resume tokens are signed with.
    key: bytes
    #: Whether it may take long to answer.
    is_remote: bool

    def keep(self, records: Mapping[str, Record]) -> set[str]:
        """Keep streams' records in the place of earlier ones; return those that another server has by now."""

    def get(self, stream_id: str) -> Record | None:
        """Return a stream's record; from now on the stream is this server's."""

    def delete(self, stream_id: str) -> None:
        """Forget a stream."""

    def sweep(self, seconds: float, live: set[str]) -> int:
        """Forget what nobody has kept or looked at for so long, but for live streams; return how many."""

    def close(self) -> None:
        """Let another server have it."""
