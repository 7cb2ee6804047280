"""What a server counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class Metrics:
    """Counters and gauges of one service; ImportError without the package prometheus_client."""

    def __init__(self, service: Any) -> None:
        try:
            import prometheus_client as p
        except ImportError:
            raise ImportError(
                "a server needs the package prometheus_client: pip install 'dreamstream[serve]'"
            ) from None
        self._page, self.registry = p.generate_latest, p.CollectorRegistry()
        own: Any = {"namespace": "dreamstream", "registry": self.registry}
        self.started = p.Counter("streams_started", "Streams that began.", **own)
        self.resumed = p.Counter("streams_resumed", "Streams that came back.", **own)
        self.moved = p.Counter("streams_moved", "Streams that went on on another worker.", **own)
        self.ended = p.Counter("streams_ended", "Streams of which the client has everything.", **own)
        self.failed = p.Counter("streams_failed", "Streams that ended with an error.", ["kind"], **own)
        text = "Connections that were closed or not taken, by why: what an error is called, or a limit."
        self.closed = p.Counter("connections_closed", text, ["kind"], **own)
        self.n_received, self._received = 0, p.Counter("messages_received", "Messages with frames.", **own)
        self.unstored = p.Counter("records_unstored", "Records of streams that the store did not take.", **own)
        self._n_rows, self._rows = 0, p.Counter("rows_stepped", "Streams of all steps.", **own)
        buckets = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1)
        self._seconds = p.Histogram("step_seconds", "Time of a step.", buckets=buckets, **own)
        for name, text, of in (
            ("streams_live", "Streams in engines.", lambda stream: True),
            ("connections", "Streams with a connection.", lambda stream: stream.connection is not None),
            ("frames_queued", "Frames that wait for a step.", lambda stream: stream.n_queued),
            ("streams_paused", "Streams whose frames are not read, for too many wait.", lambda s: s.is_paused),
            ("streams_held", "Streams that wait for outputs to be acknowledged.", lambda s: s.is_held),
        ):
            p.Gauge(name, text, **own).set_function(partial(_sum, service, of))

    def step(self, rows: int, seconds: float) -> None:
        """Count a step."""
        self._n_rows += rows
        self._seconds.observe(seconds)

    def page(self) -> bytes:
        """Return what ``/metrics`` shows."""
        self._received.inc(self.n_received)
        self._rows.inc(self._n_rows)
        self.n_received = self._n_rows = 0
        out: bytes = self._page(self.registry)
        return out


def _sum(service: Any, of: Callable[[Any], float]) -> float:
    return sum(of(stream) for stream in service.streams.values())
