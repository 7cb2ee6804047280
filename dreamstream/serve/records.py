"""Where streams are kept that have no engine at the moment, and what survives a server: records by id.

A record holds the snapshots at an input position and the outputs before it that nobody has acknowledged: without
these, frames that left and never arrived would be lost. Where the state grows with the stream, a record continues
an earlier one: it holds what is new in the engine's snapshot, so that a stream's records are as long as its state.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..errors import DreamStreamError


class StoreError(DreamStreamError, OSError):
    """A store that can't be had."""


@dataclass
class Record:
    """What a stream is made of again."""

    model: str  #: The fingerprint of its engine.
    input: int  #: Frames that its snapshot has seen.
    made: list[int]  #: Frames of each output that the engine has given.
    acknowledged: list[int]  #: Frames of each output that the client has.
    #: Empty where the engine has nothing of it: before its first step, and after its end. Of a record that
    #: continues another: what has come since, as `Engine.snapshot` gives it with `since`.
    snapshot: bytes = b""
    decoder: bytes = b""  #: The snapshot of the decoder, where the model has one.
    #: Every message that is not acknowledged, behind its port.
    outputs: list[tuple[int, bytes]] = field(default_factory=list)
    ended: bool = False  #: Whether all outputs are made.
    said: float = 0.0  #: The end of the last word that was sent, in seconds.
    number: int = 0  #: Larger than those of the stream's earlier records.
    after: int | None = None  #: The record that it continues; None: it takes the place of all.

    @property
    def progress(self) -> list[int]:
        """How far it is: later records of a stream have more."""
        return [self.ended, self.input, *self.made, *self.acknowledged]

    def pack(self) -> bytes:
        """Return it as bytes."""
        fields = {name: value for name, value in vars(self).items() if name not in _BYTES}
        fields["parts"] = [len(self.snapshot), len(self.decoder), *(len(data) for _, data in self.outputs)]
        fields["ports"] = [port for port, _ in self.outputs]
        text = json.dumps(fields).encode()
        outputs = (data for _, data in self.outputs)
        return b"".join((struct.pack("<I", len(text)), text, self.snapshot, self.decoder, *outputs))

    @classmethod
    def unpack(cls, data: bytes) -> Record:
        """Return what `pack` was made of."""
        (n,) = struct.unpack_from("<I", data)
        at, parts = 4 + n, []
        fields = json.loads(data[4:at])
        for size in fields.pop("parts"):
            parts.append(data[at : at + size])
            at += size
        snapshot, decoder, outputs = parts[0], parts[1], list(zip(fields.pop("ports"), parts[2:]))
        return cls(**fields, snapshot=snapshot, decoder=decoder, outputs=outputs)


_BYTES = ("snapshot", "decoder", "outputs")


def joined(records: Mapping[str, Sequence[Record]]) -> dict[str, Record]:
    """Return each stream's last record with the snapshots of those that it continues, where these are there."""
    found = {}
    for stream_id, its in records.items():
        last, snapshots, after = None, list[bytes](), None
        for record in sorted(its, key=lambda record: record.number, reverse=True):
            if last is None or record.number == after:
                last, after = last or record, record.after
                snapshots.append(record.snapshot)
        if last is not None and after is None:
            found[stream_id] = replace(last, snapshot=b"".join(reversed(snapshots)), after=None)
    return found


class Store(Protocol):
    """Records by id; each method holds when it returns."""

    #: What resume tokens are signed with.
    key: bytes
    #: Whether it may take long to answer.
    is_remote: bool
    #: Whether it is there when this process has ended.
    outlives: bool = True

    def keep(self, records: Mapping[str, Record]) -> dict[str, str]:
        """Keep streams' records, and return why some are not kept.

        ``"taken"``: another server has the stream by now; ``"missing"``: what the record continues is not there.
        """

    def find(self, stream_ids: Iterable[str]) -> dict[str, Record]:
        """Return the records of those streams that have one; from now on the streams are this server's."""

    def delete(self, stream_id: str) -> None:
        """Forget a stream."""

    def sweep(self, seconds: float, live: set[str]) -> None:
        """Forget what nobody has kept or looked at for so long, but for live streams."""

    def close(self) -> None:
        """Let another server have it."""
