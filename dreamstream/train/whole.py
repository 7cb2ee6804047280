"""Outputs of whole streams, for losses that need all of one."""

from __future__ import annotations

from typing import Any

from ..array.stream_creation import stream_tensor
from ..stream.collectors import OutputCollector
from ..stream.tree import map_leaves
from .batches import streams_of
from .front import is_stream


class Whole:
    """What a model in evaluation has given of streams that have not ended."""

    def __init__(self) -> None:
        self._collectors: list[OutputCollector] = []

    def of(self, y: Any) -> Any:
        """Return outputs like `y` of the streams that end with it, from their first frames on, if one does."""
        parts = [x for x in streams_of(y) if "L" in x.names]
        self._collectors = self._collectors or [OutputCollector() for _ in parts]
        for collector, part in zip(self._collectors, parts):
            collector.update(part)
        ended = self._collectors[0].finished if parts else []
        if parts and not ended:
            return None
        left = iter(self._collectors)

        def whole(x: Any) -> Any:
            if not is_stream(x) or "L" not in x.names:
                return x
            collector = next(left)
            rows = [collector.pop(i) for i in ended]
            return stream_tensor(rows, names=x.names, ids=ended, sos=True, eos=True, rate=x.rate)

        return map_leaves(y, whole)
