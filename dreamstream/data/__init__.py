"""Recordings, read piece by piece."""

from .audio import AudioReader, read_audio

__all__ = ["AudioReader", "read_audio"]
