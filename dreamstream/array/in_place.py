"""Methods that write what their namesakes give: ``x.relu_()`` is ``x.copy_(x.relu())``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .functions import NAMES
from .tensor import Tensor, take

__all__: list[str] = []

_KEPT = ("minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge")
_OTHERS = (
    "add", "sub", "div", "pow", "remainder", "floor_divide", "lerp", "addcmul", "addcdiv", "clamp", "clip",
    "clamp_min", "clamp_max", "masked_fill", "nan_to_num", "tril", "triu", "cumsum", "cumprod", "logical_not",
    "logical_and", "logical_or", "logical_xor", "tan", "exp2", "frac", "atan2",
    "index_add", "index_copy", "index_fill", "scatter", "scatter_add",
)  # fmt: skip


def _writing(name: str) -> Callable[..., Tensor]:
    def writes(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = getattr(self, name)(*args, **kwargs)
        return self._write(f"{name}_", out)

    writes.__doc__ = f"Write what `{name}` gives into the tensor, and return it."
    return writes


take(Tensor, **{f"{name}_": _writing(name) for name in (*NAMES, *_OTHERS) if name not in _KEPT})
