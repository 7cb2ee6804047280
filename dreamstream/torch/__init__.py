"""The bridge to PyTorch: torch modules stream, train online, and compile to the engine.

It is loaded when a torch object is handed in; ``import dreamstream`` does not need torch.
"""

from importlib.util import find_spec as _find_spec

from ..array.chunks import on_fallback

if _find_spec("torch") is None:
    raise ImportError("dreamstream.torch is the bridge to PyTorch, which is not installed: pip install torch")

from . import outside  # noqa: F401  (it enters what torch's functions do, as the next do)
from .export import FunctionalModule, functionalize
from .forward import callees, complex_streams, conversions, library, own, ramps_and_packing, random_numbers  # noqa: F401
from .patch import FRONT, StreamModule
from .tensor import StreamTensor
from .tensor.creation import as_stream_tensor, stream_tensor

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
