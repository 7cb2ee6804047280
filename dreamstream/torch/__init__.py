"""The bridge to PyTorch: torch modules stream, train online, and compile to the engine.

It is loaded when a torch object is handed in; ``import dreamstream`` does not need torch.
"""

from ..array.chunks import on_fallback
from . import conversions, einsum, outside, spectra  # noqa: F401  (they enter what torch's functions do)
from .creation import as_stream_tensor, stream_tensor
from .functional import FunctionalModule, functionalize
from .modules import StreamModule
from .patch import FRONT
from .tensor import StreamTensor

__all__ = [
    "FRONT",
    "FunctionalModule",
    "StreamModule",
    "StreamTensor",
    "as_stream_tensor",
    "functionalize",
    "on_fallback",
    "stream_tensor",
]
