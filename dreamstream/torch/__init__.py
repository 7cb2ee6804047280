"""The bridge to PyTorch: torch modules stream, train online, and compile to the engine."""

from ..array.chunks import on_fallback
from . import outside as _outside  # noqa: F401  (what operations do outside forwards)
from .creation import as_stream_tensor, stream_tensor
from .tensor import StreamTensor

__all__ = ["StreamTensor", "as_stream_tensor", "on_fallback", "stream_tensor"]
