"""Streams without values: metadata, the rules that carry it through operations, and collectors."""

from .collectors import OutputCollector, register_arrays
from .metadata import StreamMetadata

__all__ = ["OutputCollector", "StreamMetadata", "register_arrays"]
