"""The size along L of streams of different lengths: a number that warns where a tensor is divided by it."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from ...errors import StreamWarning
from ...stream.tree import map_leaves
from ...stream.where import user_line

_DIVISIONS = frozenset(("div", "divide", "true_divide", "__truediv__", "__itruediv__", "div_", "divide_"))


class PaddedSize(int):
    """A size that counts padding, and products with it."""

    def __mul__(self, other: Any) -> Any:
        product = int.__mul__(self, other)
        return product if product is NotImplemented else PaddedSize(product)

    __rmul__ = __mul__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*without_padded_sizes(func, args), **map_leaves(kwargs or {}, _number))


def without_padded_sizes(func: Any, args: Any) -> Any:
    """Return arguments with plain numbers; warn where a tensor is divided by a size that counts padding."""
    if func.__name__ in _DIVISIONS and type(args[-1]) is PaddedSize:
        warnings.warn(
            f"a tensor is divided at {user_line()} by a size of streams, padding included; y.numel() and "
            'y.lengths leave it out, as y.mean("L") does',
            StreamWarning,
            stacklevel=2,
        )
    return map_leaves(args, _number)


def _number(x: Any) -> Any:
    return int(x) if type(x) is PaddedSize else x


def padded_sizes(shape: torch.Size, length: int | None) -> torch.Size:
    """Return sizes of which that of dimension `length` counts padding."""
    return torch.Size(PaddedSize(n) if i == length else n for i, n in enumerate(shape))
