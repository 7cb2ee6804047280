"""The bridge to PyTorch: torch modules stream, train online, and compile to the engine.

It is loaded when a torch object is handed in; ``import dreamstream`` does not need torch.
"""

from . import conversions, einsum, spectra  # noqa: F401  (they enter functions)
from .patch import FRONT
from .tensor import StreamTensor

__all__ = ["FRONT", "StreamTensor"]
