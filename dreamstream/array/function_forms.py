"""Functions that torch has beside its tensors' methods: ``ds.softmax(x, -1)`` is ``x.softmax(-1)``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from . import dtypes
from .base import is_number
from .creation import tensor
from .gradients import NAMES as OF_THE_TAPE
from .tensor import Tensor

_TYPES = {"float": dtypes.float32, "double": dtypes.float64, "long": dtypes.int64}
#: Methods that are no functions.
_ALONE = (
    "T", "constant", "contiguous", "cpu", "device", "dim", "dtype", "expand", "expand_as", "half", "is_contiguous",
    "is_stream", "item", "mT", "ndim", "numpy", "repeat", "reshape_as", "shape", "size", "to", "tolist", "type_as",
    "unfold", "view", "view_as", *OF_THE_TAPE,
)  # fmt: skip
#: The names of these functions, and torch's other names of element types.
NAMES = (
    *_TYPES,
    *(
        name
        for name in dir(Tensor)
        if not (name.startswith(("_", "grad", "new_")) or name.endswith("_") or name in _ALONE or name in _TYPES)
    ),
)


@cache
def named(name: str) -> Any:
    """Return the function, or the element type, of one of `NAMES`."""
    return _TYPES[name] if name in _TYPES else _function(name)


def _function(name: str) -> Callable[..., Any]:
    def function(input: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(tensor(input) if is_number(input) else input, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return what the method of tensors `{name}` gives; its first argument is the tensor."
    return function
