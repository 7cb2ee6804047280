"""What a server counts, for Prometheus."""

from __future__ import annotations

from typing import Any


class Metrics:
    """Counters and gauges of one service.

    Raises
    ------
    ImportError
        Without the package prometheus_client.
    """

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
        self.n_received, self._received = 0, p.Counter("messages_received", "Messages with frames.", **own)
        self.unstored = p.Counter("records_unstored", "Records of streams that the store did not take.", **own)
        self._rows = p.Counter("rows_stepped", "Streams of all steps.", **own)
        self._seconds = p.Histogram(
            "step_seconds",
            "Time of a step.",
            buckets=(0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.25, 1),
            **own,
        )
        live = p.Gauge("streams_live", "Streams in engines.", **own)
        live.set_function(lambda: len(service.streams))
        attached = p.Gauge("connections", "Streams with a connection.", **own)
        attached.set_function(lambda: sum(s.connection is not None for s in service.streams.values()))
        queued = p.Gauge("frames_queued", "Frames that wait for a step.", **own)
        queued.set_function(lambda: sum(s.n_queued for s in service.streams.values()))

    def step(self, rows: int, seconds: float) -> None:
        """Count a step."""
        self._rows.inc(rows)
        self._seconds.observe(seconds)

    def page(self) -> bytes:
        """Return what ``/metrics`` shows."""
        self._received.inc(self.n_received)
        self.n_received = 0
        out: bytes = self._page(self.registry)
        return out
