"""The bridge to PyTorch: torch modules stream, train online, and compile to the engine.

It is loaded when a torch object is handed in; ``import dreamstream`` does not need torch.
"""

import warnings as _warnings
from importlib.util import find_spec as _find_spec

from ..array.deferred import Deferred
from ..errors import StreamWarning as _StreamWarning
from ..stream.fallback import on_fallback
from ..stream.rules import Quotient

if _find_spec("torch") is None:
    raise ImportError(
        "dreamstream.torch is the bridge to PyTorch, which is not installed: pip install 'torch<2.15'"
    )
import torch as _torch

if tuple(map(int, _torch.__version__.split(".")[:2])) >= (2, 15):
    _warnings.warn(
        "dreamstream.torch relies on inner names of torch 2.10 to 2.14 and was not tried with torch "
        f"{_torch.__version__}: compare results with the offline model's, or pip install 'torch<2.15'",
        _StreamWarning,
        stacklevel=2,
    )

from . import outside
from .export import FunctionalModule, functionalize
from .forward import (  # noqa: F401  (they enter what torch's functions do)
    callees,
    complex_streams,
    composed,
    conversions,
    joins_and_splits,
    library,
    own,
    ramps_and_packing,
    random_numbers,
    running,
    volumes,
)
from .forward.replay import method
from .patch import FRONT, StreamModule
from .tensor import StreamTensor
from .tensor.creation import as_stream_tensor, stream_tensor
from .tensor.stream_tensor import OPERATORS, SHELL, TAKERS

__all__ = [
    "FRONT", "FunctionalModule", "StreamModule", "StreamTensor", "as_stream_tensor", "functionalize",
    "on_fallback", "stream_tensor",
]  # fmt: skip

TAKERS.making, TAKERS.outside, TAKERS.inside = as_stream_tensor, outside.call, running.call
TAKERS.beneath, TAKERS.aliased = running.call_beneath, running.note_alias
for _name in (*OPERATORS, "__getitem__", *outside.METHODS):
    setattr(SHELL, _name, method(_name))
for _kind in (Quotient, Deferred):
    setattr(_kind, "__torch_function__", running.CALL_OF_SIZES)  # noqa: B010
