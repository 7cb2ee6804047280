"""Torch tensors of streams outside a forward: the class, what it knows, and where frames lie in it."""

from .stream_tensor import StreamTensor, _rebuild

__all__ = ["StreamTensor", "_rebuild"]
