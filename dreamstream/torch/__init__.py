"""The bridge to PyTorch: torch modules stream, train online, and compile to the engine.

It is loaded when a torch object is handed in; ``import dreamstream`` does not need torch.
"""

from importlib.util import find_spec as _find_spec

from ..array.deferred import Deferred
from ..stream.fallback import on_fallback
from ..stream.rules import Quotient

if _find_spec("torch") is None:
    raise ImportError(
        "dreamstream.torch is the bridge to PyTorch, which is not installed: pip install 'torch<2.14'"
    )
import torch as _torch

if tuple(map(int, _torch.__version__.split(".")[:2])) >= (2, 14):  # names of torch's own have changed there
    raise ImportError(
        f"dreamstream.torch takes torch 2.10 to 2.13, not {_torch.__version__}: pip install 'torch<2.14'"
    )

from . import outside
from .export import FunctionalModule, functionalize
from .forward import (  # noqa: F401  (they enter what torch's functions do)
    callees,
    complex_streams,
    conversions,
    joins_and_splits,
    library,
    mode,
    own,
    ramps_and_packing,
    random_numbers,
)
from .patch import FRONT, StreamModule
from .tensor import StreamTensor
from .tensor.creation import as_stream_tensor, stream_tensor
from .tensor.stream_tensor import TAKERS

__all__ = [
    "FRONT", "FunctionalModule", "StreamModule", "StreamTensor", "as_stream_tensor", "functionalize",
    "on_fallback", "stream_tensor",
]  # fmt: skip

TAKERS.making, TAKERS.outside, TAKERS.inside = as_stream_tensor, outside.call, mode.call


def _note_alias(x: object) -> None:
    if (forward := mode.running()) is not None and forward.gradients is not None:
        forward.gradients.note(x)


TAKERS.beneath, TAKERS.aliased = mode.call_beneath, _note_alias
for _kind in (Quotient, Deferred):
    setattr(_kind, "__torch_function__", mode.CALL_OF_SIZES)  # noqa: B010
