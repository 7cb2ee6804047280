"""DreamStream: PyTorch-style models, online.

Patch a model, feed chunks of many concurrent streams, and get exactly what the offline model would have
said, early, on a C engine.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from . import clone as _clone  # noqa: F401  (finds _core, before anything needs it)

# isort: split
from . import (
    autograd,
    data,
    decode,
    dispatch as _dispatch,  # noqa: F401  (opens the door)
    nn,
    optim,
    train,
)
from ._core import version as _version
from .array import *  # noqa: F403
from .array import __all__ as _array_names
from .array.function_forms import NAMES as _function_names, named as _named
from .array.stream_creation import as_stream_tensor, stream_tensor
from .array.stream_tensor import StreamTensor
from .autograd import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .config import show_config
from .engine import Engine, audit, compare, compile, load, verify
from .errors import *  # noqa: F403
from .errors import __all__ as _error_names
from .online import *  # noqa: F403
from .online import __all__ as _online_names
from .stream import OutputCollector, StreamMetadata
from .stream.context import Context
from .stream.fallback import on_fallback
from .stream.foreign import set_bridge as _set_bridge

__version__ = _version

__all__ = [
    "Context", "Engine", "OutputCollector", "StreamMetadata", "StreamTensor", "as_stream_tensor", "audit",
    "autograd", "compare", "compile", "data", "decode", "enable_grad", "inference_mode", "is_grad_enabled", "load",
    "nn", "no_grad", "on_fallback", "optim", "set_grad_enabled", "show_config", "stream_tensor", "train", "verify",
    *_array_names, *_error_names, *_online_names,
]  # fmt: skip


if _TYPE_CHECKING:
    from . import client, decode, export, models, serve, torch  # noqa: F401  (loaded by __getattr__)


def _load_bridge() -> _Any:
    """Load the bridge to PyTorch, and what is registered for layers of other packages."""
    bridge = _importlib.import_module(".torch", __name__)
    _importlib.import_module(".contrib", __name__)
    return bridge


_set_bridge(_load_bridge)


def __dir__() -> list[str]:
    return sorted({*globals(), *_function_names})


def __getattr__(name: str) -> _Any:
    """Load rooms that few programs need when first asked for; functions that are methods of tensors too."""
    if name in ("client", "decode", "export", "models", "serve", "torch"):
        return _importlib.import_module(f".{name}", __name__)
    if name in _function_names:
        return _named(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
