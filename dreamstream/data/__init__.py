"""Recordings, read piece by piece, and batches of many."""

from .audio import AudioReader, read_audio
from .bulk import bulk
from .loader import StreamLoader

__all__ = ["AudioReader", "StreamLoader", "bulk", "read_audio"]
