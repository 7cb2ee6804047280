"""What a server allows, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of a server; times in seconds.

    Attributes
    ----------
    tick : float
        From the beginning of a step to that of the next one, which takes the streams that have frames by then.
    rows : int
        Streams of one step.
    chunk : float
        The frames of one stream in a message, as clients are told; a step takes four of these at most.
    queued : float
        Frames of one stream that wait for a step: then its socket is not read.
    unacknowledged : float
        The age of an output that its client has not acknowledged: then its stream waits; after twice that it ends.
    unread : int
        Bytes that wait for a client to read them: then its connection ends.
    handshake : float
        Until a connection has said what it wants.
    ping : float
        Between pings of a connection that says nothing; it is lost after two without an answer.
    idle : float
        For how long a connection may give no frames.
    opens : float
        Connections a second from one address.
    streams : int
        Streams in all; a tenth of them is for those that come back.
    grace : float
        For how long a stream without a connection stays in the engine.
    keep : float
        For how long such a stream stays in the store.
    save : float
        The input of a stream between records in the store.
    drain : float
        How long streams may go on after a server was told to end.
    file : int
        Bytes of a recording that is sent whole.
    """

    tick: float = 0.004
    rows: int = 256
    chunk: float = 0.032
    queued: float = 2.0
    unacknowledged: float = 10.0
    unread: int = 1 << 20
    handshake: float = 5.0
    ping: float = 20.0
    idle: float = 600.0
    opens: float = 50.0
    streams: int = 1000
    grace: float = 30.0
    keep: float = 600.0
    save: float = 1.0
    drain: float = 30.0
    file: int = 1 << 28
